-- Attachments: staged files. The id is also the file's: files/ab/CHECKSUM-ID below the data
-- directory. A row exists only while its file does.
CREATE TABLE attachments (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	checksum TEXT NOT NULL,          -- SHA-256, hex
	name TEXT NOT NULL,
	size INTEGER NOT NULL,
	persist INTEGER NOT NULL,
	ttl_ms INTEGER NOT NULL,         -- the largest integer = infinity
	inserted_at INTEGER NOT NULL,
	due_at INTEGER,                  -- NULL = never: persistent, or infinite
	cached INTEGER NOT NULL          -- the last staging found these bytes here
);
CREATE UNIQUE INDEX attachments_checksum ON attachments (owner, checksum);
CREATE INDEX attachments_owner ON attachments (owner);
CREATE INDEX attachments_due ON attachments (due_at) WHERE due_at IS NOT NULL;

-- Figures of each owner, kept in the transactions that change them; the owner '' is everybody.
CREATE TABLE attachment_totals (
	owner TEXT PRIMARY KEY,
	total_count INTEGER NOT NULL,
	total_bytes INTEGER NOT NULL,
	persistent_count INTEGER NOT NULL,
	persistent_bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO attachment_totals VALUES ('', 0, 0, 0, 0);
