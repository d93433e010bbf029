-- A deletion outside that a process has taken: its next_at is a lease, which ends with the process.
ALTER TABLE cleanups ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
