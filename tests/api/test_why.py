# SPDX-License-Identifier: Apache-2.0
"""`GET /v1/why`: what happened to a thing, when it will go and what keeps it."""
import hashlib

import pytest

from harness import NEVER_MS, Clock


def why(api, thing):
    return api.get("/v1/why", q=thing).ok()


def only(answer):
    assert len(answer["things"]) == 1, answer
    return answer["things"][0]


def types(answer):
    return [event["type"] for event in answer["timeline"]]


@pytest.fixture
def api(start):
    return start(message_ttl_ms=1, message_sweep_ms=NEVER_MS).client()


def test_an_unread_message_stays(api):
    sent = api.send("bob")
    answer = why(api, sent["id"])
    thing = only(answer)
    assert (thing["table"], thing["key"], thing["state"], thing["goes_at"]) == ("messages", sent["id"], "protected", None)
    assert "unread ones never" in thing["why"] and thing["row"]["agent"] == "bob"
    assert "hold" not in thing and thing["scheduler"] == "messages"
    assert types(answer) == ["message.sent"] and answer["more_events"] is False


def test_a_message_is_live_then_due_then_held_then_gone(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=60_000, message_sweep_ms=NEVER_MS).client()
    key = api.send("bob")["id"]
    api.read("bob", key)
    live = only(why(api, key))
    assert live["state"] == "live" and live["goes_at"] > live["created_at"]
    clock.advance(61_000)
    due = only(why(api, key))
    assert due["state"] == "due" and due["goes_at"] == live["goes_at"] and "next sweep of messages" in due["why"]
    api.put(f"/v1/holds/messages/{key}", {"reason": "case 7"}).ok()
    held = only(why(api, key))
    assert held["state"] == "held" and held["goes_at"] is None and held["hold"]["reason"] == "case 7"
    api.delete(f"/v1/holds/messages/{key}").ok()
    assert api.sweep()["pruned"] == 1
    gone = why(api, key)
    assert gone["things"] == []
    assert types(gone) == ["message.sent", "message.read", "hold.placed", "hold.released", "message.pruned"]
    assert [e["inferred"] for e in gone["timeline"]] == [False] * 4 + [True]
    assert gone["timeline"][-1]["data"]["reason"] == "read and older than message_ttl_ms"


def test_an_agent_goes_when_it_has_been_silent_for_long_enough(daemon):
    api = daemon.client()
    api.post("/v1/agents/bob/heartbeat", {"cluster_id": "red"}).ok()
    answer = why(api, "bob")
    thing = only(answer)
    assert thing["table"] == "agents" and thing["state"] == "live" and thing["row"] == {"cluster_id": "red"}
    assert thing["goes_at"] == api.get("/v1/agents/bob").ok().get("expires_at", thing["goes_at"])
    assert types(answer) == ["agent.seen"]
    api.post("/v1/agents/bobby/heartbeat", {"cluster_id": "red"}).ok()
    assert types(why(api, "bob")) == ["agent.seen"], "bobby is somebody else"
    assert types(why(api, "red")) == ["agent.seen"] * 2, "the cluster's name is in the events, too"


def test_a_mailbox_is_known_by_its_id_and_its_address(daemon):
    api = daemon.client()
    box = api.post("/v1/mailboxes", {}).ok(201)
    by_id, by_address = why(api, box["id"]), why(api, box["address"])
    assert only(by_id) == {**only(by_address), "next_sweep_at": only(by_id)["next_sweep_at"]}
    assert only(by_id)["key"] == box["id"] and only(by_id)["goes_at"] == box["expires_at"]
    assert types(by_id) == types(by_address) == ["mailbox.created"]
    api.delete(f"/v1/mailboxes/{box['id']}").ok()
    assert "mailbox.deleted" in types(why(api, box["id"]))


def test_an_expired_mailbox_waits_for_its_row_to_go(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock).client()
    box = api.post("/v1/mailboxes", {"ttl_ms": 300_000}).ok(201)
    clock.advance(301_000)
    assert api.get(f"/v1/mailboxes/{box['id']}").ok()["status"] == "expired"
    thing = only(why(api, box["id"]))
    assert thing["table"] == "mailboxes_expired" and thing["state"] == "live" and thing["row"]["status"] == "expired"


def test_an_attachment_is_known_by_its_checksum(daemon):
    api = daemon.client()
    checksum = hashlib.sha256(b"bytes").hexdigest()
    api.request("POST", "/v1/attachments?name=a.txt&persist=true", body=b"bytes", headers={"Content-Type": "text/plain"}).ok(201)
    answer = why(api, checksum)
    assert only(answer)["state"] in ("kept", "protected") and only(answer)["row"] == {"name": "a.txt"}
    assert types(answer) == ["attachment.staged"]


def test_leases_and_queue_items_by_key_and_id(daemon):
    api = daemon.client()
    api.put("/v1/leases/workspace_leases/repo", {"holder": "ann", "ttl_ms": 60_000}).ok()
    thing = only(why(api, "repo"))
    assert (thing["table"], thing["state"], thing["row"]) == ("workspace_leases", "live", {"holder": "ann"})
    item = api.post("/v1/queues/channel_inbox", {"payload": {}, "dedupe_key": "once"}).ok(201)["id"]
    assert only(why(api, item))["state"] == "kept" and only(why(api, "once"))["key"] == item
    key = {"channel": "mail", "account_id": "a", "container_id": "c", "message_id": "m"}
    api.post("/v1/dedupe", key).ok()
    assert only(why(api, '["mail","a","c","m"]'))["table"] == "channel_inbound_dedupe"


def test_what_nobody_knows(daemon):
    answer = why(daemon.client(), "nothing by this name")
    assert answer["things"] == [] and answer["timeline"] == [] and answer["more_events"] is False
    daemon.client().get("/v1/why").fails(400, "invalid_request")


def test_another_owner_sees_nothing(daemon):
    api = daemon.client()
    key = api.send("bob")["id"]
    admin = api.post("/v1/tokens", {"owner": "local", "admin": True}).ok(201)["token"]
    other = daemon.client(token=admin).post("/v1/tokens", {"owner": "fleet"}).ok(201)["token"]
    answer = why(daemon.client(token=other), key)
    assert answer["things"] == [] and answer["timeline"] == []
    assert only(why(daemon.client(token=admin), key))["key"] == key


def test_a_long_life_shows_its_newest_events(daemon):
    api = daemon.client()
    for _ in range(210):
        api.send("bob")
    answer = why(api, "bob")
    assert len(answer["timeline"]) == 200 and answer["more_events"] is True
    times = [event["id"] for event in answer["timeline"]]
    assert times == sorted(times)
