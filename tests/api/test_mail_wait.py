# SPDX-License-Identifier: Apache-2.0
"""`wait_ms` and `since` on the mail of a mailbox, and the event of what arrives."""
import concurrent.futures
import time

import pytest

from harness import NEVER_MS, wait_until
from mailrig import DOMAIN, GENERATIONS, Rig, stalwart

LONG_MS = 3_600_000
WAIT_MS = 30_000


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.fixture
def rig(start):
    return Rig(start, mailbox_min_ttl_ms=1, mailbox_sweep_ms=NEVER_MS)


def mails(rig, box, **query):
    return rig.daemon.client().get(f"/v1/mailboxes/{box['id']}/messages", **query)


def send(rig, sender, to, subject="hello"):
    return rig.api.post(f"/v1/mailboxes/{sender['id']}/send",
                        {"to": to["address"], "subject": subject, "body": "x"}).ok()


def waiting(rig, pool, box, **query):
    """A list that waits; returns once the daemon has it."""
    future = pool.submit(mails, rig, box, wait_ms=WAIT_MS, **query)
    time.sleep(0.05)
    rig.api.get("/healthz").ok()
    assert not future.done(), future.result()
    return future


def test_a_mail_ends_the_wait(rig, pool):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    future = waiting(rig, pool, bob)
    send(rig, alice, bob)
    assert [m["subject"] for m in future.result(10).data] == ["hello"]
    begun = time.monotonic()
    assert mails(rig, bob, wait_ms=WAIT_MS).data and time.monotonic() - begun < 5


def test_since_waits_for_the_next_one(rig, pool):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    send(rig, alice, bob, "first")
    first = mails(rig, bob).data[0]["id"]
    assert mails(rig, bob, since=first).data == []
    future = waiting(rig, pool, bob, since=first)
    send(rig, alice, bob, "second")
    assert [m["subject"] for m in future.result(10).data] == ["second"]
    mails(rig, bob, since="nonsense").fails(400, "invalid_request")
    mails(rig, bob, wait_ms=60_001).fails(400, "invalid_request")


def test_sent_mail_wakes_nobody_and_the_time_ends_it(rig, pool):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    send(rig, alice, bob)
    begun = time.monotonic()
    assert mails(rig, alice, wait_ms=300).data == []
    assert time.monotonic() - begun >= 0.29


@pytest.mark.parametrize("end", ["expire", "delete", "stop"])
def test_the_end_of_the_mailbox_ends_the_wait(rig, pool, end):
    box = rig.create("alice", ttl_ms=LONG_MS)
    future = waiting(rig, pool, box)
    if end == "expire":
        rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": 300}).ok()
        future.result(10).fails(410, "expired")
    elif end == "delete":
        rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
        future.result(10).fails(404, "not_found")
    else:
        rig.daemon.stop()
        assert future.result(10).data == []


def test_what_arrives_is_an_event_of_its_owner(rig):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    send(rig, alice, bob, "hello")
    got = mails(rig, bob).data[0]
    assert rig.events("received") == [
        {"id": bob["id"], "address": bob["address"], "message_id": got["id"], "from": alice["address"],
         "subject": "hello"}]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_mail_server_is_asked_again(start, pool, generation):
    with stalwart.Stalwart(generation, domains=(DOMAIN,)) as server:
        rig = Rig(start, server=server, mailbox_min_ttl_ms=1, mailbox_sweep_ms=NEVER_MS)
        alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
        future = waiting(rig, pool, bob)
        send(rig, alice, bob, "first")
        first = future.result(20).data
        assert [m["subject"] for m in first] == ["first"]
        assert mails(rig, bob, since=first[0]["id"]).data == []
        future = waiting(rig, pool, bob, since=first[0]["id"])
        send(rig, alice, bob, "second")
        assert [m["subject"] for m in future.result(20).data] == ["second"]
        future = waiting(rig, pool, bob, since=mails(rig, bob).data[0]["id"])
        rig.daemon.stop()
        assert future.result(20).data == []
