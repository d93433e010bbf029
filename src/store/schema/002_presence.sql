-- Presence. The time of the last heartbeat lives in memory; what is here is written when an agent
-- comes, changes or goes, and `last_seen` now and then.
CREATE TABLE agents (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	cluster_id TEXT NOT NULL,
	capabilities TEXT NOT NULL,      -- a JSON array, sorted
	metadata TEXT NOT NULL,          -- a JSON object
	first_seen INTEGER NOT NULL,
	last_seen INTEGER NOT NULL       -- not later than the last heartbeat
);
CREATE UNIQUE INDEX agents_name ON agents (owner, agent);
CREATE INDEX agents_cluster ON agents (owner, cluster_id, agent);

-- The other way round: who can do what. In step with agents.capabilities.
CREATE TABLE capabilities (
	owner TEXT NOT NULL,
	name TEXT NOT NULL,
	agent TEXT NOT NULL,
	PRIMARY KEY (owner, name, agent)
) WITHOUT ROWID;

CREATE TABLE capability_counts (
	owner TEXT NOT NULL,
	name TEXT NOT NULL,
	agents INTEGER NOT NULL,
	PRIMARY KEY (owner, name)
) WITHOUT ROWID;
