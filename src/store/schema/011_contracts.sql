-- Contracts over users' own databases: what must survive a crash or a restart.
-- An intent is written before a slice may remove up to `intent_rows` rows there; it is 0 once what
-- was removed is known. `untold` are rows that were removed and are in no event yet. `hash` is the rule of the bound's last whole sweep.
CREATE TABLE contract_bounds (
	name TEXT PRIMARY KEY,
	hash INTEGER NOT NULL,
	intent_rows INTEGER NOT NULL,
	intent_at INTEGER NOT NULL,
	untold INTEGER NOT NULL
);
-- Sweeps that wait for a person. `given_at` is 0 until one is approved; it covers what was due then.
CREATE TABLE approvals (
	bound TEXT PRIMARY KEY,
	due_rows INTEGER NOT NULL,
	table_rows INTEGER NOT NULL,
	wanted_at INTEGER NOT NULL,
	given_at INTEGER NOT NULL
);
