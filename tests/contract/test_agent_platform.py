# SPDX-License-Identifier: Apache-2.0
"""contracts/agent-platform.yaml on a database as an agent platform has it: every row of the maintenance
matrix, due goes and not due stays, and the safety rules hold."""
import datetime

from world import DAY, ROOT, lapse, now_ms

FILE = ROOT / "contracts" / "agent-platform.yaml"

SCHEMA = """
CREATE TABLE presence_entries (instance_id text PRIMARY KEY NOT NULL, role text, expires_at_ms {big} NOT NULL);
CREATE INDEX presence_i ON presence_entries (expires_at_ms);
CREATE TABLE connections (tenant_id text NOT NULL, connection_id text NOT NULL, expires_at_ms {big} NOT NULL,
  PRIMARY KEY (tenant_id, connection_id));
CREATE INDEX connections_i ON connections (expires_at_ms);
CREATE TABLE channel_inbound_dedupe (channel text NOT NULL, account_id text NOT NULL, container_id text NOT NULL,
  message_id text NOT NULL, expires_at_ms {big} NOT NULL, PRIMARY KEY (channel, account_id, container_id, message_id));
CREATE INDEX dedupe_i ON channel_inbound_dedupe (expires_at_ms);
CREATE TABLE channel_inbox (inbox_id {big} PRIMARY KEY, status text NOT NULL, received_at_ms {big} NOT NULL);
CREATE INDEX inbox_i ON channel_inbox (status, received_at_ms);
CREATE TABLE channel_outbox (outbox_id {big} PRIMARY KEY, inbox_id {big} REFERENCES channel_inbox (inbox_id),
  status text NOT NULL, created_at_ms {big} NOT NULL);
CREATE INDEX outbox_i ON channel_outbox (status, created_at_ms);
CREATE INDEX outbox_inbox_i ON channel_outbox (inbox_id);
CREATE TABLE conversation_leases (tenant_id text NOT NULL, conversation_key text NOT NULL, lease_expires_at_ms {big} NOT NULL,
  PRIMARY KEY (tenant_id, conversation_key));
CREATE INDEX conversation_i ON conversation_leases (lease_expires_at_ms);
CREATE TABLE workspace_leases (tenant_id text NOT NULL, workspace_id text NOT NULL, lease_expires_at_ms {big} NOT NULL,
  PRIMARY KEY (tenant_id, workspace_id));
CREATE INDEX workspace_i ON workspace_leases (tenant_id, lease_expires_at_ms);
CREATE TABLE oauth_pending (state text PRIMARY KEY NOT NULL, expires_at text NOT NULL);
CREATE INDEX oauth_i ON oauth_pending (expires_at);
CREATE TABLE oauth_refresh_leases (tenant_id text NOT NULL, profile_id text NOT NULL, lease_expires_at_ms {big} NOT NULL,
  PRIMARY KEY (tenant_id, profile_id));
CREATE INDEX refresh_i ON oauth_refresh_leases (lease_expires_at_ms);
CREATE TABLE models_dev_refresh_leases (lease_key text PRIMARY KEY NOT NULL, lease_expires_at_ms {big} NOT NULL);
CREATE INDEX models_i ON models_dev_refresh_leases (lease_expires_at_ms);
CREATE TABLE models_dev_cache (id {big} PRIMARY KEY CHECK (id = 1), body text);
CREATE TABLE outbox (id {big} PRIMARY KEY, topic text, created_at text NOT NULL);
CREATE TABLE outbox_consumers (consumer_id text PRIMARY KEY NOT NULL, last_id {big}, updated_at text NOT NULL);
CREATE INDEX consumers_i ON outbox_consumers (updated_at)
"""


def text(ms, iso=True):
    when = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z" if iso else "%Y-%m-%d %H:%M:%S")


def fill(db):
    now = now_ms()
    past, soon, old, young = now - 60_000, now + 600_000, now - 8 * DAY, now - 6 * DAY
    db.fill("presence_entries", ["instance_id", "expires_at_ms"], [("gone", past), ("stays", soon)])
    db.fill("connections", ["tenant_id", "connection_id", "expires_at_ms"], [("t", "gone", past), ("t", "stays", soon)])
    db.fill("channel_inbound_dedupe", ["channel", "account_id", "container_id", "message_id", "expires_at_ms"],
            [("c", "a", "k", "gone", past), ("c", "a", "k", "stays", soon)])
    db.fill("channel_inbox", ["inbox_id", "status", "received_at_ms"],
            [(1, "completed", old), (2, "completed", old), (3, "completed", young), (4, "failed", old), (5, "failed", young),
             (6, "queued", old), (7, "processing", old)])
    db.fill("channel_outbox", ["outbox_id", "inbox_id", "status", "created_at_ms"],
            [(1, 2, "queued", old), (2, None, "failed", old), (3, None, "failed", young), (4, None, "queued", old)])
    db.fill("conversation_leases", ["tenant_id", "conversation_key", "lease_expires_at_ms"], [("t", "gone", past), ("t", "stays", soon)])
    db.fill("workspace_leases", ["tenant_id", "workspace_id", "lease_expires_at_ms"], [("t", "gone", past), ("u", "stays", soon)])
    db.fill("oauth_refresh_leases", ["tenant_id", "profile_id", "lease_expires_at_ms"], [("t", "gone", past), ("t", "stays", soon)])
    db.fill("models_dev_refresh_leases", ["lease_key", "lease_expires_at_ms"], [("gone", past), ("stays", soon)])
    db.fill("models_dev_cache", ["id", "body"], [(1, "kept")])
    db.fill("oauth_pending", ["state", "expires_at"], [("gone", text(past)), ("gone2", text(past, False)), ("stays", text(soon))])
    db.fill("outbox", ["id", "created_at"], [(1, text(now - 25 * 3_600_000)), (2, text(now - 23 * 3_600_000, False))])
    db.fill("outbox_consumers", ["consumer_id", "last_id", "updated_at"], [("gone", 1, text(now - 2 * DAY)), ("stays", 1, text(now))])


KEPT = {"presence_entries": "instance_id", "connections": "connection_id", "channel_inbound_dedupe": "message_id",
        "conversation_leases": "conversation_key", "workspace_leases": "workspace_id", "oauth_pending": "state",
        "oauth_refresh_leases": "profile_id", "models_dev_refresh_leases": "lease_key", "outbox_consumers": "consumer_id"}


def test_the_twelve_tables(db, tmp_path):
    db.sql(SCHEMA.format(big=db.big))
    fill(db)
    env = {"DATABASE_URL": db.uri}
    checked = lapse("contract", "check", FILE, "--json", env=env)
    assert checked.code == 0, checked.out
    assert all(b["state"] == "ok" for b in checked.json["bounds"]) and len(checked.json["bounds"]) == 13
    planned = {r["bound"]: r["rows"] for r in lapse("contract", "plan", FILE, "--json", env=env).json["data"]}
    ran = lapse("contract", "apply", FILE, "--data-dir", tmp_path / "data", "--json", env=env)
    assert ran.code == 0, ran.err + ran.out
    assert {r["bound"]: r["removed"] for r in ran.json["data"]} == planned
    for table, key in KEPT.items():
        assert db.column(f"SELECT {key} FROM {table}") == ["stays"], table
    assert sorted(db.column("SELECT inbox_id FROM channel_inbox")) == [2, 3, 5, 6, 7]  # 2 waits for its outbox row
    assert sorted(db.column("SELECT outbox_id FROM channel_outbox")) == [1, 3, 4]
    assert db.column("SELECT id FROM outbox") == [2]
    assert db.column("SELECT body FROM models_dev_cache") == ["kept"]
