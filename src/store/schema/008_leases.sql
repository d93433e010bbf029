-- Operational tables (source document 004). One table for each shape; `tbl` is the name that the
-- matrix, the API and holds know its rows by.

-- Rows of an owner in each of them, kept in the transactions that change them. A limit is part of
-- the statement that counts.
CREATE TABLE table_counts (
	owner TEXT NOT NULL,
	tbl TEXT NOT NULL,
	live INTEGER NOT NULL,
	PRIMARY KEY (owner, tbl)
) WITHOUT ROWID;

-- The last fencing token of the store, in one row.
CREATE TABLE fencing (
	id INTEGER PRIMARY KEY,
	last INTEGER NOT NULL
);
INSERT INTO fencing VALUES (1, 0);

CREATE TABLE leases (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	tbl TEXT NOT NULL,
	key TEXT NOT NULL,
	holder TEXT NOT NULL,
	fencing_token INTEGER NOT NULL,
	acquired_at INTEGER NOT NULL,
	lease_expires_at_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX leases_key ON leases (owner, tbl, key);
CREATE INDEX leases_due ON leases (tbl, lease_expires_at_ms);
