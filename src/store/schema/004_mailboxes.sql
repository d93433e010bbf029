-- Disposable mailboxes. The columns about the mail server have the names of their source document:
-- `stalwart_cleanup_failed` is 0 when nothing is left outside (or while it is to be there), 1 while
-- its deletion is pending, -1 when it gave up.
CREATE TABLE mailboxes (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	address TEXT NOT NULL,
	username TEXT NOT NULL,
	domain TEXT NOT NULL,
	status TEXT NOT NULL,            -- provisioning, active, expired, deleted
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	provider TEXT NOT NULL,          -- where it lives
	stalwart_name TEXT NOT NULL,     -- what the server calls its account, as it was at creation
	stalwart_account TEXT NOT NULL,  -- the server's own id of it; '' = none or not known
	secret TEXT NOT NULL,            -- its password, sealed; '' = none, or not needed any more
	stalwart_cleanup_failed INTEGER NOT NULL DEFAULT 0,
	cleanup_attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX idx_mailboxes_expiry ON mailboxes (status, expires_at);
CREATE INDEX mailboxes_owner ON mailboxes (owner, status);
CREATE INDEX mailboxes_owner_due ON mailboxes (owner, expires_at) WHERE status = 'active';
-- An address is free again once its mailbox is over and nothing of it is left outside.
CREATE UNIQUE INDEX mailboxes_address ON mailboxes (address)
	WHERE status IN ('provisioning', 'active') OR stalwart_cleanup_failed <> 0;

-- The provider `local`: mail between mailboxes of this store.
CREATE TABLE mailbox_messages (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL,
	mailbox INTEGER NOT NULL,
	folder TEXT NOT NULL,            -- inbox or sent
	sender TEXT NOT NULL,
	recipients TEXT NOT NULL,        -- a JSON array
	cc TEXT NOT NULL,                -- a JSON array
	subject TEXT NOT NULL,
	preview TEXT NOT NULL,
	body TEXT,
	html TEXT,
	received_at INTEGER NOT NULL,
	read INTEGER NOT NULL,
	read_at INTEGER
);
CREATE INDEX mailbox_messages_folder ON mailbox_messages (mailbox, folder);
CREATE INDEX mailbox_messages_due ON mailbox_messages (received_at) WHERE read = 1;

-- What a mailbox of that provider holds; gone = its mailbox is, and its mail follows in slices.
CREATE TABLE mailbox_boxes (
	mailbox INTEGER PRIMARY KEY,
	total INTEGER NOT NULL,
	unread INTEGER NOT NULL,
	gone INTEGER NOT NULL
);
CREATE INDEX mailbox_boxes_gone ON mailbox_boxes (mailbox) WHERE gone = 1;
