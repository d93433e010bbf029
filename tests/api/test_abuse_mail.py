# SPDX-License-Identifier: Apache-2.0
"""Abuse through mail: servers that answer too much, and reading that changes what is read."""
import json

import pytest

from mailrig import DOMAIN, Rig, stalwart

LIST_MAX_BYTES = 8 << 20  # far below what the server below would make of a page


@pytest.fixture
def server():
    with stalwart.Stalwart("registry", domains=(DOMAIN,)) as double:
        yield double


@pytest.fixture
def rig(start, server):
    return Rig(start, server=server)


def mail_path(box, message=""):
    return f"/v1/mailboxes/{box['id']}/messages" + (f"/{message}" if message else "")


def assert_unread(rig, box, message):
    (listed,) = rig.api.get(mail_path(box)).ok()["data"]
    assert listed["id"] == message and listed["read"] is False


# A server that answers too much (line 11) ---------------------------------------------------------

def listing(ids, subject):
    mail = {"from": [{"email": "a@b.c"}], "to": None, "cc": None, "subject": subject, "preview": "",
            "receivedAt": "2026-01-01T00:00:00Z", "keywords": {}}
    return json.dumps({"sessionState": "0", "methodResponses": [
        ["Email/query", {"ids": ids, "position": 0, "total": len(ids)}, "q"],
        ["Email/get", {"list": [{**mail, "id": i} for i in dict.fromkeys(ids)]}, "g"]]})


def test_one_id_a_thousand_times_is_refused(rig, server):
    box = rig.create("alice")
    server.fault("Email/query", "status", status=200, body=listing(["M1"] * 1000, "s" * 5_000_000))
    rig.api.get(mail_path(box), limit=100).fails(502, "upstream_error")


def test_long_subjects_are_cut_and_pages_end_early(rig, server):
    box = rig.create("alice")
    many = [f"M{i}" for i in range(101)]
    server.fault("Email/query", "status", status=200, body=listing(many, "é" * 20_000))
    answer = rig.api.get(mail_path(box), limit=100)
    page = answer.ok()
    assert len(answer.body) < LIST_MAX_BYTES
    assert all(len(mail["subject"].encode()) <= 4096 for mail in page["data"])
    assert page["pagination"]["has_more"] and page["pagination"]["next_cursor"] == page["data"][-1]["id"]


# GET changes nothing (line 19) --------------------------------------------------------------------

@pytest.mark.parametrize("outside", [False, True], ids=["local", "stalwart"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_looking_at_a_mail_does_not_mark_it(start, server, outside, method):
    rig = Rig(start, server=server if outside else None)
    alice = rig.create("alice")
    if outside:
        server.accounts[alice["address"]].deliver(subject="hello")
    else:
        rig.api.post(f"/v1/mailboxes/{alice['id']}/send", {"to": alice["address"], "subject": "hello"}).ok()
    (message,) = (mail["id"] for mail in rig.api.get(mail_path(alice)).ok()["data"])
    for _ in range(2):
        assert rig.api.request(method, mail_path(alice, message)).status == 200
        assert_unread(rig, alice, message)
    read = rig.api.post(mail_path(alice, message) + "/read").ok()
    assert read["read"] is True and read["subject"] == "hello" and "body" in read
    assert rig.api.get(mail_path(alice, message)).ok()["read"] is True
    assert rig.api.post(mail_path(alice, message) + "/read").ok() == read
    rig.api.post(mail_path(alice, "Mnone") + "/read").fails(404, "not_found")


def test_a_server_that_does_not_mark_is_an_error(rig, server):
    alice = rig.create("alice")
    message = server.accounts[alice["address"]].deliver(subject="hello")
    server.fault("Email/set", "status", status=200, body=json.dumps({"sessionState": "0", "methodResponses": [
        ["Email/set", {"updated": None, "notUpdated": {message: {"type": "forbidden"}}}, "m"],
        ["Email/get", {"list": [{"id": message, "keywords": {}, "subject": "hello"}], "notFound": []}, "g"]]}))
    rig.api.post(mail_path(alice, message) + "/read").fails(502, "upstream_error")
