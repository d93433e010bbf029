-- A log that consumers follow at their own pace.
CREATE TABLE outbox (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	topic TEXT NOT NULL,
	payload TEXT NOT NULL,           -- a JSON object
	created_at INTEGER NOT NULL
);
CREATE INDEX outbox_owner ON outbox (owner, id);

CREATE TABLE outbox_consumers (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	name TEXT NOT NULL,
	position INTEGER NOT NULL,       -- the id it has read up to
	updated_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX outbox_consumers_name ON outbox_consumers (owner, name);
CREATE INDEX outbox_consumers_due ON outbox_consumers (updated_at);

-- The largest id of an owner that was pruned: a reader before it has missed something.
CREATE TABLE outbox_pruned (
	owner TEXT PRIMARY KEY,
	last INTEGER NOT NULL
) WITHOUT ROWID;
