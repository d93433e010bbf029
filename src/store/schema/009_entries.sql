-- Operational tables, continued: refreshed entries, keys that are claimed once, states that are
-- consumed once, and one cache row.

-- presence_entries and connections.
CREATE TABLE entries (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	tbl TEXT NOT NULL,
	key TEXT NOT NULL,
	data TEXT NOT NULL,              -- a JSON object
	created_at INTEGER NOT NULL,
	last_seen_at INTEGER NOT NULL,
	expires_at_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX entries_key ON entries (owner, tbl, key);
CREATE INDEX entries_due ON entries (tbl, expires_at_ms);
CREATE INDEX entries_owner_due ON entries (owner, tbl, expires_at_ms);

CREATE TABLE channel_inbound_dedupe (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	channel TEXT NOT NULL,
	account_id TEXT NOT NULL,
	container_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	expires_at_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX dedupe_key
	ON channel_inbound_dedupe (owner, channel, account_id, container_id, message_id);
CREATE INDEX dedupe_due ON channel_inbound_dedupe (expires_at_ms);

CREATE TABLE oauth_pending (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	state TEXT NOT NULL,
	data TEXT NOT NULL,              -- a JSON object
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX oauth_state ON oauth_pending (owner, state);
CREATE INDEX oauth_due ON oauth_pending (expires_at);

-- One row for the whole store, which nothing prunes.
CREATE TABLE models_dev_cache (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	data TEXT NOT NULL,              -- a JSON object
	updated_at INTEGER NOT NULL
);
