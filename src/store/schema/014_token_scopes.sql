-- Tokens have a name for people, scopes, and the time they were last used, which is written down
-- now and then.
ALTER TABLE tokens ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN scopes TEXT NOT NULL DEFAULT 'read write';
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER NOT NULL DEFAULT 0; -- 0 = never
