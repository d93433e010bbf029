-- Webhooks: an owner's events as signed posts. A hook is a cursor into the table of events.
CREATE TABLE webhooks (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	url TEXT NOT NULL,
	types TEXT NOT NULL,             -- a JSON array
	secret TEXT NOT NULL,            -- sealed
	state TEXT NOT NULL,             -- active or disabled
	generation INTEGER NOT NULL,     -- grows with each change by a person
	created_at INTEGER NOT NULL,
	disabled_at INTEGER,
	after_seq INTEGER NOT NULL,      -- events up to this one are delivered, or given up
	attempts INTEGER NOT NULL,       -- at the event after it
	next_at INTEGER NOT NULL,
	event_since INTEGER NOT NULL,    -- the first of these attempts
	failing_since INTEGER NOT NULL,  -- 0 = the last attempt went well
	last_at INTEGER NOT NULL,
	last_status INTEGER NOT NULL,
	last_error TEXT NOT NULL
);
CREATE INDEX webhooks_owner ON webhooks (owner);
CREATE INDEX webhooks_disabled ON webhooks (disabled_at) WHERE state = 'disabled';

-- Events that a hook was not able to take in time.
CREATE TABLE webhook_dead_letters (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	webhook INTEGER NOT NULL,
	event INTEGER NOT NULL,
	kind TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	status INTEGER NOT NULL,
	error TEXT NOT NULL,
	at INTEGER NOT NULL
);
CREATE INDEX webhook_dead_letters_at ON webhook_dead_letters (at);
CREATE INDEX webhook_dead_letters_webhook ON webhook_dead_letters (webhook);
