# SPDX-License-Identifier: Apache-2.0
"""Mailboxes at a mail server, both generations of it, and every way it can fail.

Whatever the server does, an account ends as its mailbox's, as gone, or as a dead letter; a mailbox is never
served as active without its account, and no other request waits for a server that hangs.

LAPSE_RACES (100; 1000 for the long form) renewals race a sweep.
"""
import concurrent.futures
import datetime
import json
import os
import threading
import time

import pytest

from harness import NEVER_MS, wait_until
from mailrig import CREATION, DELETION, DOMAIN, GENERATIONS, Rig, stalwart

RACES = int(os.environ.get("LAPSE_RACES", "100"))
TIMEOUT_MS = 400
LONG_MS = 3_600_000


@pytest.fixture(params=GENERATIONS)
def server(request):
    with stalwart.Stalwart(request.param, domains=(DOMAIN,)) as double:
        yield double


@pytest.fixture
def rig(start, server):
    return Rig(start, server=server, mailbox_min_ttl_ms=1, mailbox_sweep_ms=NEVER_MS,
               stalwart_timeout_ms=TIMEOUT_MS)


def expire(rig, box):
    """Its time is up now, and not before the test has prepared what follows."""
    rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": 1}).ok()
    wait_until(lambda: rig.get(box)["status"] == "expired", what="its end")


# Holds and restarts -------------------------------------------------------------------------------

def test_a_hold_released_after_the_deadline(rig, server):
    """The account goes at once: no look and no sweep is needed; then the address is free."""
    box = rig.create("alice", ttl_ms=LONG_MS)
    rig.api.put(f"/v1/holds/mailboxes/{box['id']}", {"reason": "evidence"}).ok()
    rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": 1}).ok()
    wait_until(lambda: rig.get(box)["status"] == "expired", what="its end")
    assert rig.row(box)["status"] == "active" and rig.deletions() == 0
    rig.api.delete(f"/v1/holds/mailboxes/{box['id']}").ok()
    wait_until(lambda: rig.row(box)["status"] == "expired", what="the deadline counts")
    rig.settled(box, 0)
    assert rig.deletions() == 1
    rig.create("alice", ttl_ms=LONG_MS)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_deletion_under_way_when_the_process_ends(rig, server, end):
    """The next start asks the server again at once, not a minute later."""
    box = rig.create(ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], "hang")
    expire(rig, box)
    wait_until(lambda: rig.deletions() == 1, what="the deletion is under way")
    getattr(rig.daemon, end)()
    server.clear()
    rig.daemon.start()
    rig.api = rig.daemon.client()
    rig.settled(box, 0)
    assert rig.sweep()["dead_letters"] == 0


def test_a_bare_404_to_a_deletion_is_not_believed_while_the_account_exists(rig, server):
    """A proxy in between answers 404: the account is asked for, and the deletion is tried again."""
    if server.generation != "rest":
        pytest.skip("the newer generation has no route for an account")
    box = rig.create(ttl_ms=LONG_MS)
    server.fault("DELETE /api/principal", "status", times=1, status=404, content_type="text/plain")
    expire(rig, box)
    row = rig.settled(box, 1, attempts=1)
    assert row["status"] == "expired" and rig.get(box)["cleanup"]["state"] == "pending"
    assert rig.sweep()["cleaned"] == 1
    rig.settled(box, 0, attempts=1)


# Deleting -----------------------------------------------------------------------------------------

BROKEN = {
    "500": ("status", {"status": 500}),
    "502": ("status", {"status": 502}),
    "503": ("status", {"status": 503}),
    "429": ("status", {"status": 429}),
    "401": ("status", {"status": 401}),
    "403": ("status", {"status": 403}),
    "garbage": ("status", {"body": "<html>hello</html>"}),
    "empty": ("status", {"body": ""}),
    "other_json": ("status", {"body": "[]"}),
    "rest_error": ("status", {"body": '{"error":"other","details":"no"}'}),
    "reset": ("reset", {}),
    "hang": ("hang", {}),
    "trickle": ("trickle", {}),
    "giant": ("giant", {}),
    "redirect": ("redirect", {"to": "http://127.0.0.1:1/"}),
}


@pytest.mark.parametrize("mode", BROKEN)
def test_a_deletion_that_fails_is_tried_again(rig, server, mode):
    kind, options = BROKEN[mode]
    box = rig.create(ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], kind, times=None, **options)
    expire(rig, box)
    rig.settled(box, 1, 1)
    assert box["address"] in server.accounts
    assert rig.get(box)["cleanup"] == {"state": "pending", "attempts": 1}
    (event,) = rig.events("cleanup_failed")
    assert (event["target"], event["attempts"]) == (box["id"], 1) and event["error"]
    server.clear()
    answer = rig.sweep()
    assert (answer["retried"], answer["cleaned"], answer["failed"]) == (1, 1, 0)
    rig.settled(box, 0, 1)
    assert server.accounts == {} and rig.get(box)["cleanup"] == {"state": "clean", "attempts": 1}


def test_a_bare_404_of_unknown_origin_never_means_gone(rig, server):
    box = rig.create(ttl_ms=LONG_MS)
    server.fault("/", "status", times=None, status=404, content_type="text/plain")
    expire(rig, box)
    rig.settled(box, 1, 1)
    assert rig.sweep()["failed"] == 1 and rig.sweep()["dead_letters"] == 1
    rig.settled(box, -1, 3)
    assert box["address"] in server.accounts
    server.clear()
    (letter,) = rig.api.get("/v1/dead-letters").data
    rig.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    rig.settled(box, 0)
    assert server.accounts == {}


@pytest.mark.parametrize("mode", ["act_then_reset", "act_then_hang"])
def test_a_deletion_that_was_done_and_not_answered_is_done(rig, server, mode):
    """The next attempt finds that it is gone. (The client may make that attempt itself, on a new connection,
    when a kept one was cut: then nothing has failed.)"""
    box = rig.create(ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], mode)
    expire(rig, box)
    wait_until(lambda: rig.row(box)["cleanup_attempts"] == 1 or rig.row(box)["stalwart_cleanup_failed"] == 0,
               what="an outcome")
    assert server.accounts == {}
    failed = rig.row(box)["cleanup_attempts"]
    assert rig.sweep()["cleaned"] == failed
    rig.settled(box, 0, failed)


def test_a_server_that_is_down_for_good_makes_dead_letters(rig, server):
    boxes = [rig.create(ttl_ms=LONG_MS) for _ in range(5)]
    server.fault("/", "reset", times=None)
    for box in boxes:
        expire(rig, box)
    for box in boxes:
        rig.settled(box, 1, 1)
    assert rig.sweep()["failed"] == 5
    assert rig.sweep()["dead_letters"] == 5
    assert rig.daemon.metric("lapse_dead_letters") == 5
    assert {e["target"] for e in rig.events("dead_letter")} == {box["id"] for box in boxes}
    letters = rig.api.get("/v1/dead-letters").data
    for letter in letters:
        rig.api.delete(f"/v1/dead-letters/{letter['id']}").ok()
    for box in boxes:
        assert rig.get(box)["cleanup"]["state"] == "clean"  # let go by a person
    assert rig.daemon.metric("lapse_dead_letters") == 0


def test_at_most_ten_retries_a_sweep(rig, server):
    boxes = [rig.create(ttl_ms=LONG_MS) for _ in range(12)]
    server.fault(DELETION[server.generation], "status", times=None, status=502)
    for box in boxes:
        expire(rig, box)
        rig.settled(box, 1, 1)
    server.clear()
    assert [rig.sweep()["retried"] for _ in range(3)] == [10, 2, 0]
    assert server.accounts == {}


def test_a_deleted_mailbox_is_404_at_once_and_its_row_goes_when_it_is_clean(rig, server):
    box = rig.create("alice", ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], "status", status=502)
    rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
    rig.api.get(f"/v1/mailboxes/{box['id']}").fails(404, "not_found")
    rig.settled(box, 1, 1)
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict", "username")
    assert rig.sweep()["cleaned"] == 1
    assert rig.row(box) is None and server.accounts == {}
    rig.create("alice", ttl_ms=LONG_MS)
    assert rig.api.get("/v1/mailboxes", include_expired="true").data[0]["username"] == "alice"


def test_a_dead_letter_of_a_deleted_mailbox_that_is_dropped_takes_the_row_along(start, server):
    rig = Rig(start, server=server, mailbox_cleanup_max_retries=1)
    box = rig.create(ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], "status", status=502)
    rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
    rig.settled(box, -1, 1)
    (letter,) = rig.api.get("/v1/dead-letters").data
    rig.api.delete(f"/v1/dead-letters/{letter['id']}").ok()
    assert rig.row(box) is None


# Creating -----------------------------------------------------------------------------------------

def no_trace(rig, server):
    """Nothing of it is left, here or there; a deletion of what may have been made takes a moment."""
    wait_until(lambda: server.accounts == {} and rig.daemon.rows("SELECT * FROM mailboxes") == []
               and rig.daemon.rows("SELECT * FROM cleanups") == [], what="no trace", timeout_s=20)
    assert rig.api.get("/v1/mailboxes", include_expired="true").data == []


@pytest.mark.parametrize("mode", [m for m in BROKEN if m != "giant"])
def test_a_creation_that_fails_leaves_nothing_and_its_retry_works(rig, server, mode):
    kind, options = BROKEN[mode]
    server.fault(CREATION[server.generation], kind, **options)
    key = {"Idempotency-Key": "create"}
    body = {"username": "alice", "ttl_ms": LONG_MS}
    rig.api.post("/v1/mailboxes", body, headers=key).fails(502, "upstream_error")
    no_trace(rig, server)
    server.clear()
    box = rig.api.post("/v1/mailboxes", body, headers=key).ok(201)
    assert rig.api.post("/v1/mailboxes", body, headers=key).ok(201) == box
    assert list(server.accounts) == [box["address"]]
    assert len(rig.events("created")) == 1


@pytest.mark.parametrize("mode", ["act_then_reset", "act_then_hang"])
def test_a_creation_nobody_knows_the_outcome_of_is_never_active(rig, server, mode):
    server.fault(CREATION[server.generation], mode)
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(502, "upstream_error")
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict")  # until it is clean
    no_trace(rig, server)
    assert rig.events("created") == []
    rig.create("alice", ttl_ms=LONG_MS)


def test_an_address_that_the_server_has_already(rig, server):
    server.add(f"alice@{DOMAIN}")
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict")
    assert rig.daemon.rows("SELECT * FROM mailboxes") == [] and len(server.accounts) == 1
    assert rig.daemon.rows("SELECT * FROM cleanups") == []  # it is not ours to delete


def not_deleted(rig, server, address):
    """All attempts end in a dead letter that says why, and letting it go leaves the account alone."""
    wait_until(lambda: rig.events("cleanup_failed"), what="the first attempt", timeout_s=20)
    assert rig.sweep()["failed"] == 1 and rig.sweep()["dead_letters"] == 1
    (letter,) = rig.api.get("/v1/dead-letters").data
    assert "did not make" in letter["error"]
    rig.api.delete(f"/v1/dead-letters/{letter['id']}").ok()
    assert list(server.accounts) == [address] and rig.daemon.rows("SELECT * FROM mailboxes") == []
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict")


def test_an_account_that_lapse_did_not_make_is_never_deleted(rig, server):
    """Nobody knows what became of the creation, but the account that is there was there before."""
    address = f"alice@{DOMAIN}"
    server.add(address)
    server.fault(CREATION[server.generation], "hang")
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(502, "upstream_error")
    not_deleted(rig, server, address)


def test_nor_by_the_next_start(rig, server):
    address = f"alice@{DOMAIN}"
    server.add(address)
    server.fault(CREATION[server.generation], "hang")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rig.daemon.client().post, "/v1/mailboxes", {"username": "alice"})
        wait_until(lambda: server.seen(CREATION[server.generation]), what="the question")
        rig.daemon.stop()
        assert first.result().status in (502, 503)
    rig.daemon.start()
    rig.api = rig.daemon.client()
    not_deleted(rig, server, address)


def test_a_domain_the_server_does_not_serve(rig, server):
    rig.api.post("/v1/mailboxes", {"domain": "unknown.test"}).fails(400, "invalid_request", "domain")
    no_trace(rig, server)


def test_while_it_is_made_nobody_sees_it(rig, server):
    server.fault(CREATION[server.generation], "delay", ms=300)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        key = {"Idempotency-Key": "k"}
        first = pool.submit(rig.daemon.client().post, "/v1/mailboxes", {"username": "alice"}, key)
        wait_until(lambda: rig.daemon.rows("SELECT * FROM mailboxes"), what="the row")
        assert rig.daemon.rows("SELECT status FROM mailboxes") == [{"status": "provisioning"}]
        assert rig.api.get("/v1/mailboxes", include_expired="true").data == []
        rig.api.post("/v1/mailboxes", {"username": "alice"}, headers=key).fails(409, "conflict", "Idempotency-Key")
        rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict", "username")
        box = first.result().ok(201)
    assert rig.get(box) == box
    assert rig.api.post("/v1/mailboxes", {"username": "alice"}, headers=key).ok(201) == box


def test_a_key_whose_last_step_could_not_be_stored_is_free(rig, server):
    """The account is there, but the store fails when the mailbox becomes active: 503, and a retry with the same key
    runs. What the first one left goes."""
    server.fault(CREATION[server.generation], "delay", ms=200)
    key = {"Idempotency-Key": "k"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rig.daemon.client().post, "/v1/mailboxes", {}, key)
        wait_until(lambda: rig.daemon.rows("SELECT * FROM mailboxes"), what="the row")
        with rig.daemon.store_locked():
            first.result().fails(503, "unavailable")
    assert rig.daemon.rows("SELECT status FROM idempotency_keys") == [{"status": 0}]
    box = rig.api.post("/v1/mailboxes", {}, headers=key).ok(201)
    assert rig.api.post("/v1/mailboxes", {}, headers=key).ok(201) == box
    assert len(server.accounts) == 2  # a sweep finds the first after a minute, a start at once
    rig.daemon.stop()
    rig.daemon.start()
    wait_until(lambda: list(server.accounts) == [box["address"]], what="the first account to go")


def test_a_client_that_goes_away_stops_nothing(rig, server):
    from client import json_post
    server.fault(CREATION[server.generation], "delay", ms=200)
    with rig.daemon.raw() as raw:
        raw.send(json_post("/v1/mailboxes", b'{"username":"alice"}'))
        wait_until(lambda: rig.daemon.rows("SELECT * FROM mailboxes"), what="the row")
    wait_until(lambda: rig.daemon.rows("SELECT * FROM mailboxes WHERE status = 'active'"), what="its end")
    assert list(server.accounts) == [f"alice@{DOMAIN}"]


def test_a_stop_while_accounts_are_made_and_deleted(rig, server):
    """The daemon ends in time; the next start settles what was left open."""
    over = rig.create(ttl_ms=LONG_MS)
    server.fault(DELETION[server.generation], "hang")
    expire(rig, over)
    wait_until(lambda: rig.deletions() == 1, what="the deletion to hang")
    server.fault(CREATION[server.generation], "act_then_hang")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rig.daemon.client().post, "/v1/mailboxes", {"username": "alice"})
        wait_until(lambda: f"alice@{DOMAIN}" in server.accounts, what="the account")
        began = time.monotonic()
        rig.daemon.stop()
        assert time.monotonic() - began < 5
        assert first.result().status in (502, 503)
    server.clear()
    rig.daemon.start()
    rig.api = rig.daemon.client()
    wait_until(lambda: f"alice@{DOMAIN}" not in server.accounts, what="alice to go", timeout_s=20)
    assert rig.api.get("/v1/mailboxes").data == []
    assert rig.row(over)["cleanup_attempts"] == 0  # an end is no failed attempt


# A server that hangs ------------------------------------------------------------------------------

def test_a_server_that_hangs_slows_nobody_down(start, server):
    rig = Rig(start, server=server, mailbox_min_ttl_ms=1, stalwart_timeout_ms=3000)
    boxes = [rig.create(ttl_ms=500) for _ in range(20)]
    live = rig.create(ttl_ms=LONG_MS)
    server.fault("/", "hang", times=None)
    threads = [threading.Thread(target=rig.daemon.client().post, args=("/v1/mailboxes", {})) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(rig.row(box)["status"] == "expired" for box in boxes), what="their end")
    slowest = 0
    for i in range(100):
        began = time.monotonic()
        assert rig.get(live)["status"] == "active"
        assert rig.get(boxes[i % 20])["status"] == "expired"
        rig.api.send("agent", "hello")
        rig.api.post(f"/v1/mailboxes/{live['id']}/renew", {"ttl_ms": LONG_MS}).ok()
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 0.5
    for thread in threads:
        thread.join()


# Renewals and sweeps ------------------------------------------------------------------------------

@pytest.mark.limit_s(300)
def test_a_renewal_that_races_the_sweep(start, server):
    """Whichever commits first wins: never an active mailbox whose account was deleted, never a renewal that was
    answered and did not count."""
    rig = Rig(start, server=server, mailbox_min_ttl_ms=1)
    stop = threading.Event()

    def sweep():
        client = rig.daemon.client()
        while not stop.is_set():
            client.sweep("mailboxes")

    def race(number):
        client = rig.daemon.client()
        box = client.post("/v1/mailboxes", {"ttl_ms": 100}).ok(201)
        deadline_s = datetime.datetime.fromisoformat(box["expires_at"]).timestamp()
        time.sleep(max(0, deadline_s - time.time() + (number % 21 - 16) / 1000))  # the way takes a while, too
        return box, client.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": LONG_MS}).status

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(race, range(RACES)))
    finally:
        stop.set()
        sweeper.join()
    outcomes = [status for _, status in results]
    assert set(outcomes) == {200, 410}, "the race was no race"
    rig.sweep()
    wait_until(lambda: rig.daemon.rows("SELECT 1 FROM cleanups") == [], what="deletions")
    for box, status in results:
        row = rig.row(box)
        assert row["status"] == ("active" if status == 200 else "expired")
        assert (box["address"] in server.accounts) == (status == 200)
        assert row["stalwart_cleanup_failed"] == 0


# Mail ---------------------------------------------------------------------------------------------

def test_mail_through_the_server(rig, server):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    path = f"/v1/mailboxes/{alice['id']}"
    sent = rig.api.post(path + "/send", {"to": bob["address"], "cc": [alice["address"]], "subject": "Grüße",
                                         "body": "hello"}, headers={"Idempotency-Key": "m"})
    assert sent.ok()["status"] == "sent"
    assert rig.api.post(path + "/send", {"to": bob["address"], "cc": [alice["address"]], "subject": "Grüße",
                                         "body": "hello"}, headers={"Idempotency-Key": "m"}).ok() == sent.ok()
    (copy,) = rig.api.get(path + "/messages", folder="sent").data
    assert copy["id"] == sent.ok()["message_id"] and copy["subject"] == "Grüße"
    server.accounts[bob["address"]].deliver(subject="news", **{"from": [{"email": "x@far.test"}]})
    (item,) = rig.api.get(f"/v1/mailboxes/{bob['id']}/messages", folder="inbox", limit=1).data
    assert item["subject"] == "news" and item["from"] == "x@far.test"
    whole = rig.api.get(f"/v1/mailboxes/{bob['id']}/messages/{item['id']}").ok()
    assert set(whole) == set(item) | {"body", "html", "truncated"}
    rig.api.get(path + "/messages/nonsense").fails(404, "not_found")
    rig.api.get(path + "/messages/M1/..").fails(404, "not_found")


def test_a_mail_with_nul_in_it_hides_no_other(rig, server):
    """Everybody can write to a mailbox, and write NUL: as a header's encoded word, or in a body."""
    box = rig.create("alice", ttl_ms=LONG_MS)
    account = server.accounts[box["address"]]
    account.deliver(subject="news")
    i = account.deliver(subject="a\0b", preview="\0", textBody=[{"partId": "1", "type": "text/plain"}],
                        bodyValues={"1": {"value": "one\0two"}})
    path = f"/v1/mailboxes/{box['id']}/messages"
    assert sorted(m["subject"] for m in rig.api.get(path).data) == ["a b", "news"]
    assert rig.api.get(f"{path}/{i}").ok()["body"] == "one two"


def test_mail_when_the_server_fails(rig, server):
    alice = rig.create("alice", ttl_ms=LONG_MS)
    path = f"/v1/mailboxes/{alice['id']}"
    for kind, options in (("status", {"status": 502}), ("reset", {}), ("hang", {})):
        server.fault("/", kind, times=None, **options)
        rig.api.get(path + "/messages").fails(502, "upstream_error")
        rig.api.get(path + "/messages/M1").fails(502, "upstream_error")
        rig.api.post(path + "/send", {"to": "x@y.test", "subject": "x"}, headers={"Idempotency-Key": kind}).fails(
            502, "upstream_error")
        server.clear()
    assert rig.get(alice)["status"] == "active"
    assert rig.daemon.rows("SELECT 1 FROM idempotency_keys") == []


def test_what_was_read_while_it_expired_is_not_shown(start, server):
    rig = Rig(start, server=server, mailbox_min_ttl_ms=1, stalwart_timeout_ms=5000)
    box = rig.create(ttl_ms=400)
    server.accounts[box["address"]].deliver(subject="late")
    server.fault("Email/query", "delay", ms=700)
    rig.api.get(f"/v1/mailboxes/{box['id']}/messages").fails(410, "expired")
    rig.settled(box, 0)


# Secrets and providers ----------------------------------------------------------------------------

def test_passwords_are_nowhere_to_be_read(rig, server):
    boxes = [rig.create(ttl_ms=LONG_MS) for _ in range(3)]
    secrets = [server.accounts[box["address"]].secret for box in boxes]
    assert len(set(secrets)) == 3 and all(len(s) == 48 and int(s, 16) >= 0 for s in secrets)
    answers = json.dumps([rig.get(box) for box in boxes]) + rig.api.get("/v1/mailboxes").body.decode()
    events = json.dumps(rig.daemon.rows("SELECT * FROM events"))
    keys = json.dumps(rig.daemon.rows("SELECT * FROM idempotency_keys"))
    stored = [row["secret"] for row in rig.daemon.rows("SELECT secret FROM mailboxes")]
    everything = answers + events + keys + rig.daemon.log() + json.dumps(stored)
    assert not any(secret in everything for secret in secrets + [stalwart.ADMIN.split(":")[1]])
    assert all(text.startswith("v1:") for text in stored) and len(set(stored)) == 3
    files = b"".join(path.read_bytes() for path in rig.daemon.data_dir.glob("lapse.db*"))
    assert not any(secret.encode() in files for secret in secrets)


def test_an_expired_mailbox_keeps_no_password(rig, server):
    box = rig.create(ttl_ms=LONG_MS)
    expire(rig, box)
    assert rig.row(box)["secret"] == ""
    rig.settled(box, 0)


def test_a_key_that_was_lost_is_missed(rig):
    rig.create(ttl_ms=LONG_MS)
    rig.daemon.stop()
    key = rig.daemon.data_dir / "lapse.key"
    text = key.read_text()
    key.unlink()
    rig.daemon.spawn()
    assert rig.daemon.process.wait(timeout=10) != 0
    assert "lapse.key is missing" in rig.daemon.log()
    assert not key.exists(), "a new one would hide that"
    key.touch(mode=0o600)
    key.write_text(text)
    rig.daemon.start()


def test_another_key_opens_no_mailbox(rig, server):
    box = rig.create(ttl_ms=LONG_MS)
    rig.daemon.stop()
    (rig.daemon.data_dir / "lapse.key").write_text("1" * 64 + "\n")
    rig.daemon.start()
    rig.api = rig.daemon.client()
    rig.api.get(f"/v1/mailboxes/{box['id']}/messages").fails(503, "unavailable", "lapse.key")
    rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()  # no password is needed for that
    wait_until(lambda: server.accounts == {}, what="its account to go")


def test_mailboxes_of_a_provider_that_is_not_set_up_any_more(rig, server):
    box = rig.create("alice", ttl_ms=LONG_MS)
    rig.daemon.restart(mailbox_provider="local", mailbox_cleanup_max_retries=1)
    rig.api = rig.daemon.client()
    assert rig.get(box)["status"] == "active"
    rig.api.get(f"/v1/mailboxes/{box['id']}/messages").fails(502, "upstream_error", "stalwart")
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict")
    rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
    rig.settled(box, -1, 1)
    assert box["address"] in server.accounts  # a person sees it
    rig.daemon.restart(mailbox_provider="stalwart")
    rig.api = rig.daemon.client()
    (letter,) = rig.api.get("/v1/dead-letters").data
    rig.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    wait_until(lambda: server.accounts == {} and rig.row(box) is None, what="its account to go")
