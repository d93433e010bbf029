-- Agents that fell silent together with most of their owner's fleet: gone from `agents` and
-- `capabilities` like evicted ones, but what they were is kept for one more threshold.
CREATE TABLE suspects (
	id INTEGER PRIMARY KEY,          -- of the agent it was
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	cluster_id TEXT NOT NULL,
	capabilities TEXT NOT NULL,      -- a JSON array, sorted
	metadata TEXT NOT NULL,          -- a JSON object
	first_seen INTEGER NOT NULL,
	last_seen INTEGER NOT NULL,
	suspected_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX suspects_name ON suspects (owner, agent);
CREATE INDEX suspects_due ON suspects (suspected_at, id);
