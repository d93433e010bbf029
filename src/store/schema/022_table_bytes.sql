-- What a row of an operational table was counted with among its owner's stored bytes. Rows from
-- before count nothing, and give nothing back.
ALTER TABLE entries ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE oauth_pending ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue_items ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
