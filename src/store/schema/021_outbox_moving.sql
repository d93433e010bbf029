-- While an outbox is being adopted, slice by slice: what a reader is not shown yet, because rows
-- before it are still to come. Gone with the last slice.
CREATE TABLE outbox_moving (
	owner TEXT NOT NULL,             -- whose reads end here
	source TEXT NOT NULL,            -- the owner whose rows move
	first INTEGER NOT NULL,          -- the first id that is not shown
	PRIMARY KEY (owner, source)
) WITHOUT ROWID;
