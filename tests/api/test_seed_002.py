# SPDX-License-Identifier: Apache-2.0
"""Seed 002, "Mailbox TTL/Expiry Manager": every row of its tables and every line of its last list.

`expireMailbox(row)` is what a look at the mailbox does, `runExpirySweep()` is `POST /v1/sweep/mailboxes`,
Stalwart is the double of tests/double. The daemon's clocks stand still and are moved by the test.
`expires_at` < now is past: at the very millisecond a mailbox still lives. The first two lines of the last
list (lint, types, tests; re-read each criterion) are the build's and the reader's.
"""
import datetime
import urllib.parse

import pytest

from harness import Clock, wait_until
from mailrig import DELETION, DOMAIN, GENERATIONS, Rig, TTL_MS, stalwart

DAY_MS = 86_400_000
MAX_MS = 604_800_000
MIN_MS = 300_000


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture(params=GENERATIONS)
def server(request):
    with stalwart.Stalwart(request.param, domains=(DOMAIN,)) as double:
        yield double


@pytest.fixture
def rig(start, clock, server):
    return Rig(start, clock, server)


def at(clock, ms):
    """The time in so many milliseconds, as answers write it."""
    when = datetime.datetime.fromtimestamp((clock.now_ms + ms) // 1000, datetime.timezone.utc)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{(clock.now_ms + ms) % 1000:03d}Z"


def fail_deletions(rig, times):
    """The next `times` deletions are answered with 502."""
    if rig.server.generation == "rest":
        rig.server.fault("DELETE /api/principal", "status", times=times, status=502)
    else:
        rig.server.fault("x:Account/set", "status", times=times, status=502)


# Stalwart cleanup failure handling ----------------------------------------------------------------

FAILURES = {
    # stalwart DELETE     → the row's status, stalwart_cleanup_failed, cleanup_attempts
    "success": ("expired", 0, 0),
    "fail_502": ("expired", 1, 1),
    "fail_net": ("expired", 1, 1),
    "already_404": ("expired", 0, 0),
}


def logged(rig, event, count):
    def lines():
        return [line for line in rig.daemon.log_lines() if line["event"] == event]
    wait_until(lambda: len(lines()) == count, what=f"{count} lines of {event}")
    return lines()


@pytest.mark.parametrize("outcome", FAILURES)
def test_failure_table(rig, outcome):
    box = rig.create("alice")
    if outcome == "fail_502":
        fail_deletions(rig, 1)
    if outcome == "fail_net":
        rig.server.fault(DELETION[rig.server.generation], "reset", times=None)
    if outcome == "already_404":
        del rig.server.accounts[box["address"]]
    rig.pass_deadline()
    assert rig.get(box)["status"] == "expired"
    status, flag, attempts = FAILURES[outcome]
    row = rig.settled(box, flag, attempts)
    assert row["status"] == status
    assert (box["address"] in rig.server.accounts) == (outcome.startswith("fail"))


# expiry.test --------------------------------------------------------------------------------------

def test_expire_mailbox_on_active_row_with_future_expires_at_is_a_no_op(rig):
    box = rig.create("alice")
    rig.clock.advance(TTL_MS)  # to the very millisecond
    assert rig.get(box) == box
    assert rig.sweep()["expired"] == 0
    assert rig.deletions() == 0 and box["address"] in rig.server.accounts


def test_expire_mailbox_on_active_row_with_past_expires_at(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    assert rig.get(box)["status"] == "expired"
    rig.settled(box, 0)
    assert rig.deletions() == 1 and rig.server.accounts == {}
    assert rig.get(box) == {**box, "status": "expired", "cleanup": {"state": "clean", "attempts": 0}}


def test_expire_mailbox_when_stalwart_returns_404(rig):
    box = rig.create("alice")
    rig.server.accounts.clear()
    rig.pass_deadline()
    assert rig.get(box)["status"] == "expired"
    row = rig.settled(box, 0)
    assert row["status"] == "expired" and row["cleanup_attempts"] == 0


def test_expire_mailbox_when_stalwart_returns_502(rig):
    box = rig.create("alice")
    fail_deletions(rig, 1)
    rig.pass_deadline()
    assert rig.get(box)["status"] == "expired"
    row = rig.settled(box, 1, 1)
    assert row["status"] == "expired"
    assert rig.get(box)["cleanup"] == {"state": "pending", "attempts": 1}
    (line,) = logged(rig, "cleanup.failed", 1)  # "log the error but still mark status = 'expired'"
    assert (line["level"], line["target"], line["attempts"], line["count"]) == ("warn", box["id"], 1, 1)
    assert "502" in line["error"]


def test_expire_mailbox_on_already_expired_row_is_a_no_op(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    rig.get(box)
    before = rig.settled(box, 0)
    for _ in range(3):
        rig.get(box)
        rig.sweep()
    assert rig.row(box) == before and rig.deletions() == 1
    assert len(rig.events("expired")) == 1


def test_run_expiry_sweep_with_3_expired_and_1_failed_cleanup(rig):
    failed = rig.create("failed")
    fail_deletions(rig, 1)
    rig.pass_deadline()
    rig.get(failed)
    rig.settled(failed, 1, 1)
    boxes = [rig.create(f"box{i}") for i in range(3)]
    rig.pass_deadline_unseen(boxes)
    answer = rig.sweep()
    assert (answer["expired"], answer["retried"]) == (3, 1)  # 4 in all
    assert (answer["cleaned"], answer["failed"], answer["dead_letters"]) == (4, 0, 0)
    for box in [failed, *boxes]:
        assert rig.row(box)["status"] == "expired" and rig.row(box)["stalwart_cleanup_failed"] == 0
    assert rig.server.accounts == {}


def test_run_expiry_sweep_with_failed_cleanup_at_max_retries(rig):
    box = rig.create("alice")
    fail_deletions(rig, 3)
    rig.pass_deadline()
    rig.get(box)
    rig.settled(box, 1, 1)
    assert rig.sweep()["failed"] == 1
    rig.settled(box, 1, 2)
    answer = rig.sweep()  # the third attempt is really made, and is the last
    assert (answer["retried"], answer["failed"], answer["dead_letters"]) == (1, 0, 1)
    rig.settled(box, -1, 3)
    assert rig.deletions() == 3
    assert rig.get(box)["cleanup"] == {"state": "dead_letter", "attempts": 3}
    assert rig.sweep()["retried"] == 0 and rig.deletions() == 3  # stop retrying
    (letter,) = rig.api.get("/v1/dead-letters").data
    assert (letter["kind"], letter["target"]) == ("mailbox", box["id"])
    (line,) = logged(rig, "cleanup.dead_letter", 1)
    assert (line["level"], line["target"], line["attempts"]) == ("error", box["id"], 3)
    logged(rig, "cleanup.failed", 2)


def test_run_expiry_sweep_with_no_expired_mailboxes(rig):
    rig.create("alice")
    seen = len(rig.server.log)
    answer = rig.sweep()
    assert (answer["expired"], answer["retried"], answer["pruned"]) == (0, 0, 0)
    assert len(rig.server.log) == seen


# service.test -------------------------------------------------------------------------------------

def test_create_mailbox_with_ttl_3600000(rig, clock):
    assert rig.create("alice", ttl_ms=3_600_000)["expires_at"] == at(clock, 3_600_000)


def test_create_mailbox_below_min(rig):
    rig.api.post("/v1/mailboxes", {"ttl_ms": 100}).fails(400, "invalid_request", "ttl_ms")
    assert rig.server.accounts == {}


def test_create_mailbox_above_max(rig):
    rig.api.post("/v1/mailboxes", {"ttl_ms": 999_999_999}).fails(400, "invalid_request", "ttl_ms")
    assert rig.server.accounts == {}


def test_create_mailbox_with_no_ttl(rig, clock):
    assert rig.api.post("/v1/mailboxes", {}).ok(201)["expires_at"] == at(clock, DAY_MS)


def test_renew_mailbox_on_active_mailbox(rig, clock):
    box = rig.create("alice")
    clock.advance(1000)
    renewed = rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": 7_200_000}).ok()
    assert renewed == {**box, "expires_at": at(clock, 7_200_000)}
    assert rig.api.post(f"/v1/mailboxes/{box['id']}/renew").ok()["expires_at"] == at(clock, DAY_MS)


def test_renew_mailbox_on_expired_mailbox(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    rig.get(box)
    rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {}).fails(410, "expired")


def test_renew_mailbox_on_non_owned_mailbox(rig):
    box = rig.create("alice")
    other = rig.daemon.client(owner="somebody-else")
    other.post(f"/v1/mailboxes/{box['id']}/renew", {}).fails(404, "not_found")
    other.get(f"/v1/mailboxes/{box['id']}").fails(404, "not_found")


@pytest.mark.parametrize("ttl_ms", [MAX_MS + 1, MIN_MS - 1])
def test_renew_mailbox_with_a_ttl_out_of_range(rig, ttl_ms):
    box = rig.create("alice")
    rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": ttl_ms}).fails(
        400, "invalid_request", "ttl_ms")
    assert rig.get(box) == box


def test_get_mailbox_on_expired_but_status_active_row(rig):
    box = rig.create("alice")
    rig.pass_deadline_unseen([box])
    assert rig.row(box)["status"] == "active"
    assert rig.get(box)["status"] == "expired"
    assert rig.row(box)["status"] == "expired"


def test_list_messages_on_expired_mailbox(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    error = rig.api.get(f"/v1/mailboxes/{box['id']}/messages").fails(410, "expired")
    assert error["message"] == "Mailbox has expired"


def test_send_message_on_expired_mailbox(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    rig.api.post(f"/v1/mailboxes/{box['id']}/send", {"to": "bob@elsewhere.test", "subject": "hi"}).fails(
        410, "expired")


# Lazy expiry truth table, the lazy check and the corrected table per endpoint type ----------------

INFO = ("get", "list")
OPERATIONAL = ("messages", "message", "send", "renew")
TRUTH = [
    # status, expires_at, endpoint type, triggers expiry?, response
    ("active", "future", "info", False, "200 active"),
    ("active", "past", "info", True, "200 expired"),
    ("active", "future", "operational", False, "normal"),
    ("active", "past", "operational", True, "410"),
    ("expired", "any", "info", False, "200 expired"),
    ("expired", "any", "operational", False, "410"),
]


def call(rig, box, endpoint):
    path = f"/v1/mailboxes/{box['id']}"
    if endpoint == "get":
        return rig.api.get(path)
    if endpoint == "list":
        return rig.api.get("/v1/mailboxes", include_expired="true")
    if endpoint == "messages":
        return rig.api.get(path + "/messages")
    if endpoint == "message":
        return rig.api.get(path + "/messages/M1")
    if endpoint == "send":
        return rig.api.post(path + "/send", {"to": box["address"], "subject": "hi", "body": "x"})
    return rig.api.post(path + "/renew", {"ttl_ms": TTL_MS})


ROWS = [(endpoint, *row) for row in TRUTH for endpoint in (INFO if row[2] == "info" else OPERATIONAL)]


@pytest.mark.parametrize("endpoint, status, expires, kind, triggers, response", ROWS,
                         ids=lambda v: str(v).replace(" ", "_"))
def test_truth_table(start, clock, endpoint, status, expires, kind, triggers, response):
    assert (endpoint in INFO) == (kind == "info")
    with stalwart.Stalwart("rest", domains=(DOMAIN,)) as server:
        rig = Rig(start, clock, server)
        box = rig.create("alice")
        server.accounts[box["address"]].deliver(subject="hello")
        if expires == "past":
            rig.pass_deadline_unseen([box])  # so that this call is what finds it
        if status == "expired":
            rig.pass_deadline()
            rig.get(box)
            rig.settled(box, 0)
        events = len(rig.events("expired"))
        answer = call(rig, box, endpoint)
        if response == "410":
            assert answer.fails(410, "expired")["message"] == "Mailbox has expired"
        elif response == "normal":
            answer.ok()
        else:
            found = answer.ok()
            if endpoint == "list":
                (found,) = [b for b in found["data"] if b["id"] == box["id"]]
            assert found["status"] == response.split()[1]
        assert len(rig.events("expired")) - events == (1 if triggers else 0)
        if triggers:
            assert rig.row(box)["status"] == "expired"
            rig.settled(box, 0)
        assert (box["address"] in server.accounts) == (response in ("normal", "200 active"))
        rig.daemon.stop()


# Constants / environment variables ----------------------------------------------------------------

def test_the_environment_names_of_the_source_work(start, clock):
    rig = Rig(start, clock, mailbox_sweep_ms=None, env={
        "RELAY_DEFAULT_TTL_MS": "7200000", "RELAY_MIN_TTL_MS": "1000", "RELAY_MAX_TTL_MS": "7300000",
        "RELAY_SWEEP_INTERVAL_MS": "60000", "RELAY_SWEEP_BATCH_SIZE": "2",
        "RELAY_CLEANUP_MAX_RETRIES": "2"})
    assert rig.create("alice", ttl_ms=1000)["expires_at"] == at(clock, 1000)
    assert rig.api.post("/v1/mailboxes", {}).ok(201)["expires_at"] == at(clock, 7_200_000)
    rig.api.post("/v1/mailboxes", {"ttl_ms": 7_300_001}).fails(400, "invalid_request", "ttl_ms")


def test_the_sweep_takes_one_batch(start, clock):
    rig = Rig(start, clock, mailbox_sweep_batch=2)
    rig.pass_deadline_unseen([rig.create(f"box{i}") for i in range(5)])
    assert [rig.sweep()["expired"] for _ in range(4)] == [2, 2, 1, 0]


# Before closing -----------------------------------------------------------------------------------

def test_closing_expire_mailbox_is_idempotent(rig):
    test_expire_mailbox_on_already_expired_row_is_a_no_op(rig)


@pytest.mark.parametrize("endpoint", INFO + OPERATIONAL)
def test_closing_lazy_expiry_check_is_present_in_all_functions(rig, endpoint):
    """(get, list, messages, send, renew)"""
    box = rig.create("alice")
    rig.pass_deadline_unseen([box])
    call(rig, box, endpoint)
    assert rig.row(box)["status"] == "expired"


def test_closing_the_flag_has_all_three_values(rig):
    box = rig.create("alice")
    assert rig.row(box)["stalwart_cleanup_failed"] == 0
    fail_deletions(rig, 3)
    rig.pass_deadline()
    rig.get(box)
    rig.settled(box, 1, 1)
    rig.sweep()
    rig.sweep()
    rig.settled(box, -1, 3)
    (letter,) = rig.api.get("/v1/dead-letters").data
    rig.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    rig.settled(box, 0)


@pytest.mark.parametrize("ttl_ms, status", [(MIN_MS - 1, 400), (MIN_MS, 201), (MAX_MS, 201),
                                            (MAX_MS + 1, 400)])
def test_closing_ttl_validation_rejects_values_below_min_and_above_max(rig, ttl_ms, status):
    assert rig.api.post("/v1/mailboxes", {"ttl_ms": ttl_ms}).status == status


def test_closing_no_timer_is_leaked(rig):
    """A sweep under way, retries and deadlines ahead: the daemon ends at once, and with 0."""
    rig.create("alice")
    fail_deletions(rig, None)
    rig.pass_deadline()
    rig.sweep()
    rig.daemon.stop()


def test_closing_list_mailboxes_with_include_expired_returns_expired_rows(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    live = rig.create("bob")
    assert [b["id"] for b in rig.api.get("/v1/mailboxes").data] == [live["id"]]
    assert [b["id"] for b in rig.api.get("/v1/mailboxes", include_expired="false").data] == [live["id"]]
    listed = rig.api.get("/v1/mailboxes", include_expired="true").data
    assert [(b["id"], b["status"]) for b in listed] == [(live["id"], "active"), (box["id"], "expired")]


def test_closing_delete_principal_uses_stalwart_name(rig):
    """By the stored name, or by the stored account id where the server wants one; never by our id."""
    box = rig.create("alice")
    assert rig.row(box)["stalwart_name"] == box["address"]
    account = rig.server.accounts[box["address"]]
    if rig.server.generation == "rest":  # the stored name counts, not the address it was made of
        rig.daemon.execute("UPDATE mailboxes SET stalwart_name = 'renamed' WHERE stalwart_name = ?", box["address"])
    row = rig.row(box)
    rig.pass_deadline()
    rig.get(box)
    rig.settled(box, 0)
    if rig.server.generation == "rest":
        (path,) = [r.path for r in rig.server.log if r.method == "DELETE"]
        assert urllib.parse.unquote(path.rpartition("/")[2]) == row["stalwart_name"]
    else:
        (body,) = [r.body.decode() for r in rig.server.log if b'"destroy"' in r.body]
        assert account.id in body
    assert not any(box["id"] in r.path or box["id"].encode() in r.body for r in rig.server.log)


def test_one_list_expires_every_mailbox_that_is_due(rig):
    boxes = [rig.create() for _ in range(3)]
    rig.pass_deadline_unseen(boxes)
    rig.api.get("/v1/mailboxes").ok()
    assert {rig.row(box)["status"] for box in boxes} == {"expired"}
