-- Messages again, for fat rows and for appending. What changes stands before the content, so that no
-- flag is read through it. The unread messages of an inbox are rows of their own, which can be written
-- later than the message and in another order; the read ones have an index, written when they are read.
DROP INDEX messages_inbox;
DROP INDEX messages_due;
ALTER TABLE messages RENAME TO messages_before;
CREATE TABLE messages (
	id INTEGER PRIMARY KEY,
	read INTEGER NOT NULL,
	read_at INTEGER,
	claim_id INTEGER,
	claimed_until INTEGER,
	event INTEGER NOT NULL,          -- 1 = this row is its own event, whose sequence is the id
	timestamp INTEGER NOT NULL,
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	sender TEXT NOT NULL,
	type TEXT NOT NULL,
	metadata TEXT NOT NULL,
	content TEXT NOT NULL
);
INSERT INTO messages (id, read, read_at, claim_id, claimed_until, event, timestamp, owner, agent, sender,
	type, metadata, content)
	SELECT id, read, read_at, claim_id, claimed_until, 0, timestamp, owner, agent, sender, type, metadata,
	content FROM messages_before ORDER BY id;
DROP TABLE messages_before;
CREATE INDEX messages_seen ON messages (owner, agent) WHERE read = 1;
CREATE INDEX messages_due ON messages (timestamp) WHERE read = 1;

-- Every unread message whose id is not larger than `messages_filed` of `meta` is here.
CREATE TABLE messages_unread (
	owner TEXT NOT NULL,
	agent TEXT NOT NULL,
	id INTEGER NOT NULL,
	PRIMARY KEY (owner, agent, id)
) WITHOUT ROWID;
INSERT INTO messages_unread (owner, agent, id)
	SELECT owner, agent, id FROM messages WHERE read = 0 ORDER BY owner, agent, id;
INSERT INTO meta (key, value) VALUES ('messages_filed', 9223372036854775807);
