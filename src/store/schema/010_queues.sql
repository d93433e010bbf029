-- Work queues: channel_inbox and channel_outbox.
CREATE TABLE queue_items (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	tbl TEXT NOT NULL,
	key TEXT,                        -- the client's own name for what it is about
	payload TEXT NOT NULL,           -- a JSON object
	dedupe_key TEXT,
	inbox_id INTEGER,                -- of a channel_outbox item: the channel_inbox item it answers
	status TEXT NOT NULL,            -- queued, processing, completed, failed
	attempt INTEGER NOT NULL,        -- claims so far
	worker TEXT NOT NULL,            -- of the last claim; '' = none yet
	available_at INTEGER,            -- queued: its place in the queue; processing: when the lease ends
	error TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	finished_at INTEGER,             -- completed and failed ones
	completed_id INTEGER             -- its own id once completed: what outbox items keep it by
);
CREATE INDEX queue_offers ON queue_items (owner, tbl, status, available_at)
	WHERE available_at IS NOT NULL;
CREATE INDEX queue_status ON queue_items (owner, tbl, status, id);
CREATE INDEX queue_finished ON queue_items (tbl, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX queue_inbox ON queue_items (inbox_id) WHERE inbox_id IS NOT NULL;
CREATE UNIQUE INDEX queue_dedupe ON queue_items (owner, tbl, dedupe_key)
	WHERE dedupe_key IS NOT NULL;
