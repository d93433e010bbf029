-- What a message or a mail was counted with among its owner's stored bytes. Rows from before count
-- nothing, and give nothing back.
ALTER TABLE messages ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox_messages ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

-- Inboxes of each owner are counted from now on.
INSERT INTO table_counts (owner, tbl, live)
	SELECT owner, 'inboxes', count(*) FROM inboxes GROUP BY owner;
