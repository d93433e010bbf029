-- Several lapsed that share one database (docs/cluster.md). Empty with SQLite.

-- One row per process. A number is used again once its lease and a minute are over.
CREATE TABLE replicas (
	number INTEGER PRIMARY KEY,      -- 1 to 255, the lowest bits of the ids it makes
	incarnation INTEGER NOT NULL,    -- random: the process whose row it is
	state INTEGER NOT NULL,          -- 1 = alive, 0 = stopped, -1 = its lease ran out
	name TEXT NOT NULL,              -- the host it runs on
	listen TEXT NOT NULL,
	version TEXT NOT NULL,
	files INTEGER NOT NULL,          -- 1 = it sees the files of attachments
	started_at INTEGER NOT NULL,
	lease_until INTEGER NOT NULL,
	flushed_through INTEGER NOT NULL, -- every heartbeat it took until then is in `changes`
	heard INTEGER NOT NULL,          -- the last row of `changes` it knows
	clock_jumped INTEGER NOT NULL    -- 1 = it sees a leap of the clock that nobody accepted
);

-- Who sweeps. The token grows whenever another replica takes over, and every deletion checks it.
CREATE TABLE scheduler_leases (
	scheduler TEXT PRIMARY KEY,
	replica INTEGER NOT NULL,        -- 0 = none
	token INTEGER NOT NULL,
	until INTEGER NOT NULL,
	moved_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What others have to know because they keep it in memory, in the order of the commits.
CREATE TABLE changes (
	n INTEGER PRIMARY KEY,
	replica INTEGER NOT NULL,        -- who made it
	at INTEGER NOT NULL,
	topic TEXT NOT NULL,
	key TEXT NOT NULL
);
