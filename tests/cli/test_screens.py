# SPDX-License-Identifier: Apache-2.0
"""What the command shows at 60, 80 and 200 columns, compared with the files in screens/.

UPDATE_SCREENS=1 writes the files anew; look at the difference before you commit it.
"""
import datetime
import json
import os
import pathlib
import re
import sqlite3

import pytest

from runner import Lapse
from stub import Stream
from terminal import Terminal

SCREENS = pathlib.Path(__file__).parent / "screens"


def at(**ago):
    """A time that long ago; half a unit more, so that a slow run shows the same age."""
    when = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago)
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def listed(*rows):
    return 200, {"data": list(rows), "pagination": {"next_cursor": None, "has_more": False}}


def bound(table, scheduler, window_ms, live, due, due_when, rule, action, **more):
    return {"table": table, "scheduler": scheduler, "window_ms": window_ms, "live_rows": live, "due_rows": due,
            "oldest_due_age_ms": 90500 if due else None, "last_sweep_at": at(minutes=3.5), "pruned_total": live * 7,
            "undeletable_rows": 0, "undeletable": {"held": 0, "protected": 0, "unreadable": 0, "locked": 0},
            "last_success_at": at(minutes=3.5), "rows_per_second": None, "clears_in_ms": 0,
            "paths": ["sweep"], "action": action, "due_when": due_when, "safety_rule": rule, **more}


def matrix():
    return listed(
        bound("messages", "messages", 86400000, 1284, 0, "now - timestamp > 86400000 ms", "only when read", "delete"),
        bound("agents", "agents", 90000, 512, 3, "now - last_seen > 90000 ms",
              "grace after restart; breaker per owner", "delete, drop capabilities, log",
              paths=["deadline", "sweep"], rows_per_second=1200, clears_in_ms=30500),
        bound("shop:orders", "shop:statestore", 604800000, 52000, 4100, "created_at < now - window",
              "not while invoices refers to it", "delete row", contract="shop", rows_per_second=5000, clears_in_ms=90500,
              undeletable_rows=7, undeletable={"held": 2, "protected": 5, "unreadable": 0, "locked": 0},
              last_success_at=at(days=2.5), waits_for_approval=True, problem=None),
        bound("mailboxes", "mailboxes", None, 41, 0, "expires_at < now", "renewal that committed first wins",
              "mark expired, delete the mail principal, retry, dead letter", paths=["lazy", "deadline", "sweep"]))


def agents():
    return listed(
        {"agent_id": "planner", "cluster_id": "west", "state": "live", "last_seen": at(minutes=1.5),
         "first_seen": at(hours=5.5), "capabilities": ["plan", "review"]},
        {"agent_id": "builder-with-a-long-name-01", "cluster_id": "eu-central-production", "state": "suspect",
         "last_seen": at(minutes=2.5), "first_seen": at(days=3.5),
         "capabilities": ["gpu", "build", "deploy-to-staging", "deploy-to-production", "rollback"]})


def message(n, content, **more):
    return {"id": f"{n:016x}", "to": "planner", "from": "ci", "content": content, "type": "text", "metadata": {},
            "timestamp": at(minutes=n + 0.5), "read": False, "read_at": None, **more}


def inbox():
    return listed(
        message(1, "build is green"),
        message(12, "The nightly build of the release branch failed in the step that signs the packages; "
                    "the log is staged as 9f86d081 and the person on call has been told."),
        message(45, "done", read=True, read_at=at(minutes=20.5)))


ROUTES = {
    "/v1/matrix": matrix,
    "/v1/agents?limit=100": agents,
    "/v1/agents/planner": lambda: (200, agents()[1]["data"][0]),
    "/v1/agents/planner/messages?limit=100": inbox,
    "/v1/mailboxes?limit=100": lambda: listed(
        {"id": "mbx_0634a1b2c3d4e5f6", "address": "trial@lapse.local", "status": "active",
         "created_at": at(minutes=30.5), "expires_at": at(hours=-1.2), "cleanup": {"state": "clean", "attempts": 0}}),
    "/v1/attachments?limit=100": lambda: listed(
        {"checksum": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "size": 1258291,
         "name": "report-of-the-nightly-build-of-the-release-branch.tar.zst", "inserted_at": at(hours=2.5),
         "expires_at": at(hours=-21), "persist": False, "ttl_ms": 86400000}),
    "/v1/dead-letters?limit=100": lambda: listed(
        {"id": "0634a1b2c3d4e5f6", "kind": "mail_account", "target": "trial-7@mail.example.org", "owner": "fleet",
         "created_at": at(hours=30), "attempts": 3,
         "error": "the mail server answers 503 and asks to come back in an hour"}),
    "/v1/holds?limit=100": lambda: listed(
        {"table": "messages", "key": "0634a1b2c3d4e5f6", "created_at": at(days=2.5), "until": None,
         "reason": "incident 42: evidence for the review on Thursday"}),
    "/v1/tokens?limit=100": lambda: listed(
        {"prefix": "lps_1a2b3c4d", "owner": "ops", "admin": True, "created_at": at(days=12.5), "expires_at": None}),
    "/v1/leases/workspace_leases?limit=100": lambda: listed(
        {"table": "workspace_leases", "key": "repo-7", "holder": "builder-with-a-long-name-01",
         "fencing_token": 1794862380000001, "acquired_at": at(minutes=4.5), "expires_at": at(minutes=-2.5)}),
    "/v1/tables/presence_entries?limit=100": lambda: listed(
        {"key": "gateway-1", "data": {"region": "eu-central", "version": "2.14.0", "sessions": 1284,
                                      "features": ["voice", "files"]},
         "created_at": at(days=3.5), "last_seen_at": at(minutes=1.5), "expires_at": at(minutes=-2.5)},
        {"key": "gateway-2", "data": {}, "created_at": at(hours=3.5), "last_seen_at": at(minutes=2.5),
         "expires_at": at(minutes=-1.5)}),
    "/v1/queues/channel_outbox?limit=100": lambda: listed(
        {"id": f"{9:016x}", "key": "telegram:42", "payload": {"text": "done"}, "inbox_id": f"{7:016x}",
         "status": "processing", "attempt": 1, "worker": "sender-1", "lease_expires_at": at(minutes=-20.5),
         "error": None, "created_at": at(minutes=3.5), "finished_at": None},
        {"id": f"{8:016x}", "key": None, "payload": {"text": "hello"}, "inbox_id": None, "status": "failed",
         "attempt": 10, "worker": "sender-2", "lease_expires_at": None,
         "error": "the channel answers 429 and asks to come back in an hour", "created_at": at(days=2.5),
         "finished_at": at(hours=5.5)}),
    "/v1/outbox?limit=100": lambda: (200, {
        "data": [{"id": f"{n:016x}", "cursor": f"1.{n:016x}", "topic": "build.finished",
                  "payload": {"branch": "release", "state": "green", "seconds": 60 * n},
                  "created_at": at(minutes=9.5 - n)} for n in (1, 2)], "next_cursor": f"1.{2:016x}", "gap": False}),
    f"/v1/outbox?limit=100&after=1.{2:016x}": lambda: (200, {"data": [], "next_cursor": f"1.{2:016x}", "gap": False}),
    "/v1/outbox/consumers?limit=100": lambda: listed(
        {"name": "search-index", "cursor": f"1.{2:016x}", "updated_at": at(minutes=20.5), "lag": 0},
        {"name": "warehouse", "cursor": f"1.{1:016x}", "updated_at": at(hours=3.5), "lag": 12840}),
}

MAIL = {"id": f"{3:016x}", "from": "noreply@shop.example", "to": ["trial@lapse.local"], "cc": [],
        "subject": "Your sign-in code for the shop that sells everything", "preview": "Your code is 482913. It is valid for "
        "ten minutes; the shop never asks you for it.", "received_at": None, "read": False}
HOOK = {"id": "whk_343ccce692600000", "url": "https://app.example/hooks/lapse/production", "types": ["mailbox.*", "agent.evicted"],
        "state": "active", "disabled_at": None, "cursor": "343ccce692600000", "attempts": 3, "last_status": 503,
        "last_error": "the receiver answered 503", "dead_letters": 2}


def hook():
    return {**HOOK, "created_at": at(days=3.5), "next_attempt_at": at(minutes=-2.5), "failing_since": at(minutes=12.5),
            "last_attempt_at": at(minutes=1.5)}


def mail(**more):
    return {**MAIL, "received_at": at(minutes=2.5), **more}


def why():
    return 200, {"query": "0634a1b2c3d4e5f6", "more_events": False, "things": [
        {"table": "messages", "key": "0634a1b2c3d4e5f6", "state": "held", "created_at": at(hours=2.5), "goes_at": None,
         "why": "A hold keeps it: evidence for incident 12.", "rule": "read and now - timestamp > message_ttl_ms",
         "safety_rule": "Only read messages are removed; unread ones never, at any age.", "scheduler": "messages",
         "next_sweep_at": at(minutes=-3.5), "hold": {"reason": "evidence for incident 12", "until": None, "placed_at": at(hours=1.5)},
         "row": {"agent": "planner", "sender": "scout-001", "type": "text"}}],
        # Another day: today's events are shown without their date, and a day may begin while this runs.
        "timeline": [{"id": f"{n:016x}", "at": at(days=2, hours=3.5 - n), "type": kind, "data": data, "inferred": False}
                     for n, (kind, data) in enumerate((
                         ("message.sent", {"from": "scout-001", "type": "text", "messages": [{"id": "0634a1b2c3d4e5f6", "to": "planner"}]}),
                         ("message.read", {"agent": "planner", "id": "0634a1b2c3d4e5f6", "count": 1}),
                         ("hold.placed", {"table": "messages", "key": "0634a1b2c3d4e5f6", "reason": "evidence for incident 12"})), 1)]}


ROUTES |= {
    "/v1/why?q=0634a1b2c3d4e5f6": why,
    "/v1/capabilities?limit=100": lambda: listed(
        {"capability": "build", "count": 2, "agents": ["builder-with-a-long-name-01", "planner"]},
        {"capability": "deploy-to-production", "count": 1, "agents": ["builder-with-a-long-name-01"]}),
    "/v1/messages/stats?limit=100": lambda: listed(
        {"agent_id": "planner", "total": 1284, "unread": 3, "oldest_unread_age_sec": 5430},
        {"agent_id": "builder-with-a-long-name-01", "total": 2, "unread": 0, "oldest_unread_age_sec": 0}),
    f"/v1/agents/planner/messages/{12:016x}": lambda: (200, inbox()[1]["data"][1]),
    "/v1/mailboxes/mbx_0634a1b2c3d4e5f6": lambda: (200, {
        "id": "mbx_0634a1b2c3d4e5f6", "address": "trial@lapse.local", "username": "trial", "domain": "lapse.local", "status": "active",
        "created_at": at(minutes=30.5), "expires_at": at(hours=-1.2), "cleanup": {"state": "clean", "attempts": 0}}),
    "/v1/mailboxes/mbx_0634a1b2c3d4e5f6/messages?limit=100": lambda: listed(mail(), mail(id=f"{2:016x}", subject="Welcome", read=True)),
    f"/v1/mailboxes/mbx_0634a1b2c3d4e5f6/messages/{3:016x}/read": lambda: (200, mail(
        body="Hello,\n\nyour code is 482913. It is valid for ten minutes.\n", html="<p>482913</p>", truncated=False,
        attachments=[{"checksum": "9f86d081" * 8, "name": "terms.pdf", "size": 1258291, "type": "application/pdf"}])),
    f"/v1/attachments/{'9f86d081' * 8}": lambda: (200, {
        "checksum": "9f86d081" * 8, "name": "report.tar.zst", "size": 1258291, "persist": False, "ttl_ms": 86400000,
        "inserted_at": at(hours=2.5), "expires_at": at(hours=-21), "cached": False, "path": "/var/lib/lapse/files/9f/9f86d081-1"}),
    "/v1/attachments/metrics": lambda: (200, {"total_count": 5, "total_bytes": 450000, "persistent_count": 1,
                                              "persistent_bytes": 54000, "expirable_count": 4, "expirable_bytes": 396000}),
    "/v1/webhooks?limit=100": lambda: listed(hook()),
    "/v1/webhooks/whk_343ccce692600000": lambda: (200, hook()),
    "/v1/approvals": lambda: listed(
        {"bound": "shop:orders", "due_rows": 4100, "table_rows": 52000, "wanted_at": at(hours=5.5), "given_at": None}),
    "/v1/contracts": lambda: listed(
        {"name": "shop", "database": "postgresql://shop@db.example/shop", "refused": None, "leases": [], "bounds": [
            {"bound": "shop:orders", "table": "orders", "scheduler": "shop:statestore", "pruned_total": 120400,
             "waits_for_approval": True, "problem": None},
            {"bound": "shop:carts", "table": "carts", "scheduler": "shop:statestore", "pruned_total": 0, "waits_for_approval": False,
             "problem": "the column expires_at does not exist any more"}]}),
    "/v1/quotas?limit=100": lambda: listed(
        {"owner": "fleet-7", "agents": 5000, "mailboxes": None, "inboxes": 100, "streams": None, "stored_bytes": 2147483648,
         "attachment_bytes": None}),
    "/v1/sweep/messages?dry_run=true": lambda: (200, {"scheduler": "messages", "dry_run": True, "pruned": 1284,
                                                      "tables": {"messages": 1284}, "duration_ms": 12}),
    f"/v1/queues/channel_outbox/{8:016x}": lambda: (200, ROUTES["/v1/queues/channel_outbox?limit=100"]()[1]["data"][1]),
    "/v1/leases/workspace_leases/repo-7": lambda: (200, ROUTES["/v1/leases/workspace_leases?limit=100"]()[1]["data"][0]),
    "/v1/tables/presence_entries/gateway-1": lambda: (200, ROUTES["/v1/tables/presence_entries?limit=100"]()[1]["data"][0]),
}

METRICS = b"""lapse_build_info{version="0.1.0"} 1
lapse_agents_tracked 512
lapse_breakers_open 0
lapse_messages_unread 3
lapse_dead_letters 1
lapse_database_bytes 1258291
lapse_wal_bytes 65536
lapse_disk_free_bytes 75000000000
"""


def settings():
    rows = (("listen", "127.0.0.1:7878", "flag", None, "HOST:PORT, or unix:PATH"),
            ("data_dir", "/var/lib/lapse", "file", None, "where the database and its backups live"),
            ("message_ttl_ms", 86400000, "default", "ms", "a read message older than this is removed"),
            ("body_max_bytes", 1048576, "environment", "bytes", "a larger JSON body is 413"))
    return 200, {"data": [{"name": name, "value": value, "source": source, "default": value, "unit": unit, "help": told}
                          for name, value, source, unit, told in rows]}


def events():
    """Events as the daemon sends them; then it says that it is live."""
    text = ""
    for n, (kind, data) in enumerate((
            ("message.sent", {"from": "ci", "type": "text", "messages": [{"id": "1", "to": "bob"}]}),
            ("agent.evicted", {"agent_id": "planner", "cluster_id": "west", "last_seen": at(seconds=90)}),
            ("message.pruned", {"table": "messages", "count": 12, "reason": "read and older than message_ttl_ms"}),
            ("attachment.staged", {"size_bytes": 1258291, "name": "report.tar.zst", "ttl_ms": 7200000})), 1):
        data = json.dumps({"at": f"2026-01-02T03:04:0{n}.678Z", "owner": "local", "data": data})
        text += f"id: {n:016x}\nevent: {kind}\ndata: {data}\n\n"
    return Stream(text.encode() + b": live\n\n")


ROUTES |= {
    "/healthz": lambda: (200, {"status": "ok"}),
    "/readyz": lambda: (503, {"status": "unready", "reasons": ["sweeps of messages fail (3 in a row)"]}),
    "/v1/clock": lambda: (200, {"trusted": at(seconds=0.5), "wall": at(seconds=0.5), "state": "trusted", "leap_ms": 0,
                                "accepted_in_ms": None}),
    "/metrics": lambda: (200, METRICS),
    "/v1/settings": settings,
    "/v1/events": events,
}

COMMANDS = {"status": ["status"], "clock": ["clock"], "config": ["config"], "config-one": ["config", "message_ttl"],
            "events": ["events"], "leases": ["lease", "workspace_leases"], "entries": ["entry", "presence_entries"],
            "queue": ["queue", "channel_outbox"], "outbox": ["outbox"], "outbox-consumers": ["outbox", "consumers"],
            "matrix": ["matrix"], "agents": ["agents"], "agent-show": ["agent", "show", "planner"],
            "inbox": ["inbox", "planner"], "mailboxes": ["mailbox"], "attachments": ["attachments"],
            "dead-letters": ["dead-letters"], "holds": ["holds"], "tokens": ["token"],
            "why": ["why", "0634a1b2c3d4e5f6"], "top": ["top", "--once", "--interval", "100ms"], "capabilities": ["capability"],
            "inboxes": ["message"], "message-show": ["message", "show", "planner", f"{12:016x}"],
            "mailbox-show": ["mailbox", "show", "mbx_0634a1b2c3d4e5f6"], "mails": ["mailbox", "messages", "mbx_0634a1b2c3d4e5f6"],
            "mail": ["mailbox", "messages", "mbx_0634a1b2c3d4e5f6", f"{3:016x}"], "attachment-show": ["attachment", "show", "9f86d081" * 8],
            "attachment-metrics": ["attachment", "metrics"], "webhooks": ["webhook"], "webhook-show": ["webhook", "show", HOOK["id"]],
            "approvals": ["approval"], "contracts": ["contract"], "quotas": ["quota"], "sweep": ["sweep", "messages", "--dry-run"],
            "queue-show": ["queue", "show", "channel_outbox", f"{8:016x}"], "lease-show": ["lease", "show", "workspace_leases", "repo-7"],
            "entry-show": ["entry", "show", "presence_entries", "gateway-1"], "doctor": ["doctor", "--data-dir", "/nonexistent/lapse"]}
CODES = {"status": 4, "doctor": 1}
AS_IT_IS = {"message-show", "mail"}  # the content is printed as it came, and the terminal wraps it


def screen_of(stub, words, columns):
    stub.script = [(404, {"error": {"code": "not_found", "message": "no such route in this test"}})]
    stub.routes = {path: make() for path, make in ROUTES.items()}
    code, shown = Lapse(stub.url).on_terminal(*words, columns=columns, env={"NO_COLOR": "1"})
    # Times of `show` and `why` are exact ones; only their form is the same in every run.
    shown = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-11-15T18:33:00.000Z", shown)
    return code, shown.replace(stub.url, "http://127.0.0.1:7878")


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_screen(stub, name, columns):
    code, shown = screen_of(stub, COMMANDS[name], columns)
    assert code == CODES.get(name, 0), shown
    assert name in AS_IT_IS or max(map(len, shown.splitlines())) <= columns, shown
    file = SCREENS / f"{name}.{columns}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("verb, ends", [("check", 1), ("plan", 1)])
def test_contract(tmp_path, verb, ends, columns):
    """A contract against a database: one table without the index it needs, one that refers to another."""
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.executescript("""CREATE TABLE carts (id INTEGER PRIMARY KEY, expires_at INTEGER);
            CREATE TABLE orders (id INTEGER PRIMARY KEY, cart INTEGER REFERENCES carts (id), created_at INTEGER);
            CREATE INDEX orders_created ON orders (created_at);
            INSERT INTO orders VALUES (1, NULL, 1000), (2, NULL, 2000), (3, NULL, 9999999999999);""")
    (tmp_path / "shop.yaml").write_text("""contract: 1
name: shop
database: sqlite:shop.db
schedulers: { s: { every: 5m } }
bounds:
  - { table: carts, scheduler: s, key: [id], expires: expires_at, time: ms }
  - { table: orders, scheduler: s, key: [id], age: { of: created_at, keep: 30d }, time: ms }
""")
    code, shown = Lapse("http://127.0.0.1:1").on_terminal("contract", verb, "shop.yaml", columns=columns, cwd=tmp_path, env={"NO_COLOR": "1"})
    assert code == ends, shown
    file = SCREENS / f"contract-{verb}.{columns}.txt"
    shown = re.sub(r"\d+d ago", "20000d ago", shown)
    shown = re.sub(r"takes: \d+ms", "takes: 0s", shown)  # what it took is nothing, or a few milliseconds
    shown = re.sub(r"\b\d+ms\b", lambda took: "0s".ljust(len(took[0])), shown)
    if os.environ.get("UPDATE_SCREENS"):
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_top_live(stub, columns):
    """The live screen with its keys; figures stand still, so every frame after the first is the same."""
    stub.routes = {path: make() for path, make in ROUTES.items()}
    file = SCREENS / f"top-live.{columns}.txt"
    with Terminal(Lapse(stub.url), "top", "--interval", "100ms", columns=columns, lines=16, env={"NO_COLOR": "1"}) as t:
        shown = t.until(lambda text: re.search(r"^mailboxes +41 +0 +- +0", text, re.M), "rates").replace(stub.url, "http://127.0.0.1:7878")
        t.type("q")
        assert t.end() == 0
    if os.environ.get("UPDATE_SCREENS"):
        file.write_text(shown + "\n")
    assert shown + "\n" == file.read_text()


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("words", [["help"], ["help", "message"], ["help", "run"], ["help", "mailbox", "send"]], ids=" ".join)
def test_help_fits(words, columns):
    code, shown = Lapse("http://127.0.0.1:1").on_terminal(*words, columns=columns)
    assert code == 0 and max(map(len, shown.splitlines())) <= min(columns, 80), shown


def test_wide_is_whole(stub):
    """--wide shows on a terminal of any width what a pipe gets."""
    stub.routes = {path: make() for path, make in ROUTES.items()}
    lapse = Lapse(stub.url)
    _, shown = lapse.on_terminal("matrix", "--wide", columns=60, env={"NO_COLOR": "1"})
    assert shown == lapse("matrix").out and "SAFETY RULE" in shown.splitlines()[0]
    _, shown = lapse.on_terminal("attachments", "--wide", columns=60, env={"NO_COLOR": "1"})
    assert "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" in shown


def test_columns(stub):
    stub.routes = {path: make() for path, make in ROUTES.items()}
    lapse = Lapse(stub.url)
    rows = lapse("matrix", "--columns", "table,last-sweep,live_rows").lines
    assert rows[0].split() == ["TABLE", "LAST", "SWEEP", "LIVE"] and rows[1].split() == ["messages", "3m", "ago", "1,284"]
    assert lapse("agent", "show", "planner", "--columns", "STATE,agent").lines == ["state  live", "agent  planner"]
    err = lapse("matrix", "--columns", "table,nonsense", code=2).err
    assert "no column 'nonsense'; there are table, due, oldest-due" in err
    assert "no column ''" in lapse("matrix", "--columns", "", code=2).err


def test_jsonl(stub):
    stub.routes = {path: make() for path, make in ROUTES.items()}
    lapse = Lapse(stub.url)
    lines = lapse("matrix", "--jsonl").lines
    assert [json.loads(line)["table"] for line in lines] == ["messages", "agents", "shop:orders", "mailboxes"]
    assert len(lapse("agent", "show", "planner", "--jsonl").lines) == 1


@pytest.mark.parametrize("columns", [1, 5, 19, 21, 40])
def test_very_narrow(stub, columns):
    """Nothing breaks, whatever the terminal says about itself."""
    for words in COMMANDS.values():
        code, shown = screen_of(stub, words, columns)
        assert code in (0, 1, 4) and shown
