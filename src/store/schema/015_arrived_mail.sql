-- What mail from elsewhere brings: files, kept as attachments of the owner, and texts that were cut.
ALTER TABLE mailbox_messages ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]';  -- a JSON array
ALTER TABLE mailbox_messages ADD COLUMN truncated INTEGER NOT NULL DEFAULT 0;
