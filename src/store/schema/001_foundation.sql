-- The foundation: lapse's own tables and messages. Times are milliseconds since 1970.
-- Every table a sweep visits has an integer `id`, so that a sweep can go on after (time, id).

-- Live rows of each table, kept in the transactions that change them.
CREATE TABLE counts (
	tbl TEXT PRIMARY KEY,
	live INTEGER NOT NULL
) WITHOUT ROWID;

-- One row a fact, written in the transaction that made it true.
CREATE TABLE events (
	seq INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	owner TEXT NOT NULL,
	kind TEXT NOT NULL,
	data TEXT NOT NULL
);

CREATE TABLE holds (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	tbl TEXT NOT NULL,
	key TEXT NOT NULL,
	ref INTEGER NOT NULL,            -- id of the held row
	reason TEXT NOT NULL,
	until INTEGER NOT NULL,          -- the largest integer = without end
	placed_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX holds_key ON holds (owner, tbl, key);
CREATE INDEX holds_ref ON holds (tbl, ref);
CREATE INDEX holds_until ON holds (until);

-- Deletions outside: the intent is durable before the call, and ends done (the row goes) or dead.
CREATE TABLE cleanups (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	kind TEXT NOT NULL,              -- who knows how to delete it: 'file', …
	target TEXT NOT NULL,
	state INTEGER NOT NULL,          -- 1 pending, -1 dead letter
	attempts INTEGER NOT NULL,
	next_at INTEGER NOT NULL,        -- not tried before
	created_at INTEGER NOT NULL,
	error TEXT NOT NULL
);
CREATE INDEX cleanups_pending ON cleanups (next_at) WHERE state = 1;
CREATE UNIQUE INDEX cleanups_target ON cleanups (kind, target);

CREATE TABLE sweeps (
	id INTEGER PRIMARY KEY,
	scheduler TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at INTEGER NOT NULL,
	pruned INTEGER NOT NULL,
	dry_run INTEGER NOT NULL,
	error TEXT NOT NULL              -- empty = it succeeded
);
CREATE INDEX sweeps_ended ON sweeps (ended_at);

CREATE TABLE tokens (
	id INTEGER PRIMARY KEY,
	prefix TEXT NOT NULL UNIQUE,
	hash TEXT NOT NULL,              -- SHA-256 of the whole token, hex
	owner TEXT NOT NULL,
	admin INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL      -- the largest integer = never
);
CREATE INDEX tokens_expires ON tokens (expires_at);

CREATE TABLE idempotency_keys (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	request TEXT NOT NULL,           -- SHA-256 of method, path and body, hex
	status INTEGER NOT NULL,         -- 0 while the request is under way
	answer TEXT NOT NULL,
	created_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX idempotency_key ON idempotency_keys (owner, key);
CREATE INDEX idempotency_under_way ON idempotency_keys (id) WHERE status = 0;
CREATE INDEX idempotency_created ON idempotency_keys (created_at);

-- Messages. `id` grows with time; one index serves the inbox in all its orders: unread oldest
-- first, unread newest first, and both halves of "all, newest first".
CREATE TABLE messages (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	sender TEXT NOT NULL,
	content TEXT NOT NULL,
	type TEXT NOT NULL,
	metadata TEXT NOT NULL,
	timestamp INTEGER NOT NULL,
	read INTEGER NOT NULL,
	read_at INTEGER,
	claim_id INTEGER,
	claimed_until INTEGER
);
CREATE INDEX messages_inbox ON messages (owner, agent, read);
CREATE INDEX messages_due ON messages (timestamp) WHERE read = 1;

-- Counters of an inbox, kept in the transactions that change it; gone with its last message.
CREATE TABLE inboxes (
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	total INTEGER NOT NULL,
	unread INTEGER NOT NULL,
	PRIMARY KEY (owner, agent)
) WITHOUT ROWID;
