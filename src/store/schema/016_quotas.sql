-- Limits that an admin has given to an owner, in the place of the settings.
CREATE TABLE quotas (
	owner TEXT NOT NULL,
	name TEXT NOT NULL,
	value INTEGER NOT NULL,
	PRIMARY KEY (owner, name)
) WITHOUT ROWID;

-- Live mailboxes of each owner are counted from now on.
INSERT INTO table_counts (owner, tbl, live)
	SELECT owner, 'mailboxes', count(*) FROM mailboxes
	WHERE status IN ('provisioning', 'active') GROUP BY owner;
