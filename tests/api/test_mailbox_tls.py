# SPDX-License-Identifier: Apache-2.0
"""Mailboxes at a mail server behind TLS, through the whole daemon: one that is trusted does everything; one that is
not gets nothing, a creation leaves nothing, a deletion waits and ends as a dead letter that says why."""
import contextlib
import json
import time

import pytest

from harness import NEVER_MS, wait_until
from mailrig import DOMAIN, GENERATIONS, Rig, stalwart

import tls  # of tests/double, as stalwart

TIMEOUT_MS = 400
LONG_MS = 3_600_000

# who is at the port instead of the server: what lapse says about it
WRONG = {
    "unknown": "certificate is not trusted (see stalwart_ca_file): unable to get local issuer certificate",
    "elsewhere": "certificate is not trusted (see stalwart_ca_file): it is for another host",
    "expired": "certificate is not trusted (see stalwart_ca_file): certificate has expired",
    "plain": "no TLS with it",
    "hangs": "(TCP, then TLS) in time",
}


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    return tls.Identities(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=GENERATIONS)
def server(request, ids):
    with stalwart.Stalwart(request.param, domains=(DOMAIN,), tls=ids.good) as double:
        yield double


@pytest.fixture
def rig(start, server, ids):
    return Rig(start, server=server, mailbox_sweep_ms=NEVER_MS, stalwart_timeout_ms=TIMEOUT_MS,
               stalwart_ca_file=ids.ours.pem)


@contextlib.contextmanager
def replaced(server, ids, by):
    """Somebody else answers at the server's address; in the end it is itself again, and nobody was told anything."""
    if by in ("plain", "hangs"):
        server.__exit__()
        with tls.Mute(tls.Mute.PLAIN if by == "plain" else b"", port=server.port) as other:
            yield
        assert other.heard and b"uthorization" not in other.heard and b"HTTP" not in other.heard
        server.__enter__()
    else:
        server.restart(getattr(ids, by))
        yield
        assert server.log == [], "it was told something"
        server.restart(ids.good)


def test_the_whole_life_of_a_mailbox(rig, server):
    alice, bob = rig.create("alice", ttl_ms=LONG_MS), rig.create("bob", ttl_ms=LONG_MS)
    rig.api.post(f"/v1/mailboxes/{alice['id']}/send", {"to": bob["address"], "subject": "over TLS", "body": "text"}).ok()
    (item,) = rig.api.get(f"/v1/mailboxes/{bob['id']}/messages").data
    assert rig.api.get(f"/v1/mailboxes/{bob['id']}/messages/{item['id']}").ok()["body"] == "text"
    for box in (alice, bob):
        rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
    wait_until(lambda: server.accounts == {} and rig.daemon.rows("SELECT 1 FROM cleanups") == [], what="their end")


@pytest.mark.parametrize("by", WRONG)
def test_a_creation_leaves_nothing(rig, server, ids, by):
    with replaced(server, ids, by):
        began = time.monotonic()
        error = rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(502, "upstream_error")
        assert WRONG[by] in error["message"] and time.monotonic() - began < 3
        assert rig.daemon.rows("SELECT 1 FROM mailboxes") == [], "nothing was asked for, so nothing is to be deleted"
        assert rig.daemon.rows("SELECT 1 FROM cleanups") == []
        assert rig.api.get("/v1/mailboxes", include_expired="true").data == []
    assert server.accounts == {} and rig.events("created") == []
    assert rig.create("alice", ttl_ms=LONG_MS)["address"] in server.accounts


@pytest.mark.parametrize("by", WRONG)
def test_a_deletion_is_tried_again_and_ends_as_a_dead_letter(rig, server, ids, by):
    box = rig.create(ttl_ms=LONG_MS)
    secret = server.accounts[box["address"]].secret
    with replaced(server, ids, by):
        rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
        rig.settled(box, 1, 1)
        (event,) = rig.events("cleanup_failed")
        assert WRONG[by] in event["error"]
        assert rig.sweep()["failed"] == 1 and rig.sweep()["dead_letters"] == 1
        rig.settled(box, -1, 3)
        (letter,) = rig.api.get("/v1/dead-letters").data
        assert WRONG[by] in letter["error"] and letter["attempts"] == 3
    assert box["address"] in server.accounts
    said = json.dumps(rig.daemon.rows("SELECT * FROM events")) + json.dumps(letter) + rig.daemon.log()
    assert secret not in said and "correct-horse" not in said
    rig.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    wait_until(lambda: server.accounts == {} and rig.row(box) is None, what="its end")


@pytest.mark.parametrize("by", WRONG)
def test_reading_and_sending_fail_and_harm_nothing(rig, server, ids, by):
    box = rig.create(ttl_ms=LONG_MS)
    path = f"/v1/mailboxes/{box['id']}"
    mail = {"to": f"x@{DOMAIN}", "subject": "x"}
    with replaced(server, ids, by):
        for answer in (rig.api.get(path + "/messages"), rig.api.get(path + "/messages/M1"),
                       rig.api.post(path + "/send", mail)):
            error = answer.fails(502, "upstream_error")
            assert WRONG[by] in error["message"] and "cannot be told" not in error["message"]
    assert rig.get(box)["status"] == "active" and rig.api.get(path + "/messages").data == []


def test_a_start_with_another_authority_trusts_it_instead(rig, server, ids):
    """A new file counts from the next start on."""
    box = rig.create(ttl_ms=LONG_MS)
    rig.daemon.restart(stalwart_ca_file=ids.theirs.pem)
    rig.api = rig.daemon.client()
    server.log.clear()
    rig.api.get(f"/v1/mailboxes/{box['id']}/messages").fails(502, "upstream_error", "stalwart_ca_file")
    assert server.log == []
    server.restart(ids.unknown)
    assert rig.api.get(f"/v1/mailboxes/{box['id']}/messages").data == []
