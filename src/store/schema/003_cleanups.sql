-- Kinds of deletions outside are taken apart from each other, and dead letters are listed.
DROP INDEX cleanups_pending;
CREATE INDEX cleanups_pending ON cleanups (kind, next_at) WHERE state = 1;
CREATE INDEX cleanups_dead ON cleanups (id) WHERE state = -1;
