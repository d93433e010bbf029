# SPDX-License-Identifier: Apache-2.0
"""Claims: unread messages, oldest first, leased for `visibility_ms`, offered again after it."""
import concurrent.futures

import pytest

from harness import NEVER_MS, Clock


def ids(messages):
    return [message["id"] for message in messages]


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


# Unread messages are found in memory before they are filed, and in a table afterwards.
PLACES = {"in the tail": {}, "filed": {"message_tail_max": 0}}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def timed_api(request, start, clock):
    """A client of a daemon whose time the test moves."""
    return start(clock=clock, message_sweep_ms=NEVER_MS, **request.param).client()


def test_a_claimed_message_is_not_offered_again(timed_api):
    sent = [timed_api.send("bob") for _ in range(3)]
    assert timed_api.claim("bob", limit=2).ok()["data"] == sent[:2]
    assert timed_api.claim("bob", limit=2).ok()["data"] == sent[2:]
    assert timed_api.claim("bob", limit=2).ok() == {"claim_id": None, "data": []}


def test_claim_gives_the_oldest_first(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(5)]
    first = shared_api.claim(agent, limit=2).ok()
    assert set(first) == {"claim_id", "data"} and isinstance(first["claim_id"], str) and first["claim_id"]
    assert first["data"] == sent[:2]
    second = shared_api.claim(agent, limit=2).ok()
    assert second["data"] == sent[2:4] and second["claim_id"] != first["claim_id"]
    assert shared_api.claim(agent, limit=2).ok()["data"] == sent[4:]
    assert shared_api.claim(agent, limit=2).ok() == {"claim_id": None, "data": []}


def test_claim_of_an_empty_inbox(shared_api, agent):
    assert shared_api.claim(agent).ok() == {"claim_id": None, "data": []}


def test_claim_takes_ten_by_default(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(11)]
    assert shared_api.claim(agent).ok()["data"] == sent[:10]


def test_claim_takes_a_hundred_at_most(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(101)]
    assert shared_api.claim(agent, limit=100).ok()["data"] == sent[:100]


def test_a_claim_does_not_read(shared_api, agent):
    sent = shared_api.send(agent)
    shared_api.claim(agent).ok()
    assert shared_api.list(agent, unread="true").data == [sent]
    assert shared_api.message(agent, sent["id"]).ok() == sent
    assert shared_api.stats()[agent]["unread"] == 1


def test_read_messages_are_never_offered(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(3)]
    shared_api.read(agent, sent[0]["id"])
    assert shared_api.claim(agent).ok()["data"] == sent[1:]


def test_what_was_not_read_is_offered_again_when_the_lease_ends(timed_api, clock):
    sent = [timed_api.send("a") for _ in range(3)]
    first = timed_api.claim("a", visibility_ms=5000).ok()
    timed_api.mark_read("a", sent[1]["id"], claim_id=first["claim_id"]).ok()
    clock.advance(4999)
    assert timed_api.claim("a").ok()["data"] == []
    clock.advance(2)
    second = timed_api.claim("a").ok()
    assert second["data"] == [sent[0], sent[2]] and second["claim_id"] != first["claim_id"]


def test_visibility_is_30_seconds_by_default(timed_api, clock):
    sent = timed_api.send("a")
    timed_api.claim("a").ok()
    clock.advance(29_999)
    assert timed_api.claim("a").ok()["data"] == []
    clock.advance(2)
    assert timed_api.claim("a").ok()["data"] == [sent]


@pytest.mark.parametrize("visibility", [1, 43_200_000])
def test_visibility_bounds_are_allowed(shared_api, agent, visibility):
    sent = shared_api.send(agent)
    assert shared_api.claim(agent, visibility_ms=visibility).ok()["data"] == [sent]


def test_reading_with_a_claim_that_passed_to_another_is_409(timed_api, clock):
    sent = timed_api.send("a")
    first = timed_api.claim("a", visibility_ms=1000).ok()["claim_id"]
    clock.advance(1001)
    second = timed_api.claim("a").ok()["claim_id"]
    timed_api.mark_read("a", sent["id"], claim_id=first).fails(409, "conflict")
    assert timed_api.message("a", sent["id"]).ok()["read"] is False
    assert timed_api.mark_read("a", sent["id"], claim_id=second).ok()["read"] is True


def test_a_claim_that_ended_but_passed_to_nobody_still_reads(timed_api, clock):
    sent = timed_api.send("a")
    claim = timed_api.claim("a", visibility_ms=1000).ok()["claim_id"]
    clock.advance(5000)
    assert timed_api.mark_read("a", sent["id"], claim_id=claim).ok()["read"] is True


def test_reading_with_its_claim_is_idempotent(shared_api, agent):
    sent = shared_api.send(agent)
    claim = shared_api.claim(agent).ok()["claim_id"]
    first = shared_api.mark_read(agent, sent["id"], claim_id=claim).ok()
    assert shared_api.mark_read(agent, sent["id"], claim_id=claim).ok() == first
    assert first["read"] is True


def test_reading_with_a_claim_that_never_was_is_409(shared_api, agent):
    sent = shared_api.send(agent)
    other = shared_api.send(agent + "-b")
    claim = shared_api.claim(agent + "-b").ok()["claim_id"]
    shared_api.mark_read(agent, sent["id"], claim_id=claim).fails(409, "conflict")
    assert shared_api.message(agent, sent["id"]).ok()["read"] is False
    shared_api.mark_read(agent, sent["id"], claim_id="0" * 16).fails(409, "conflict")
    assert shared_api.message(agent, sent["id"]).ok()["read"] is False
    assert shared_api.mark_read(agent + "-b", other["id"], claim_id=claim).ok()["read"] is True


def test_reading_without_a_claim_id_ignores_claims(shared_api, agent):
    sent = shared_api.send(agent)
    shared_api.claim(agent).ok()
    assert shared_api.read(agent, sent["id"])["read"] is True
    assert shared_api.claim(agent).ok()["data"] == []


def test_concurrent_claims_share_nothing(shared, agent):
    client = shared.client()
    sent = [client.send(agent)["id"] for _ in range(60)]

    def take():
        mine, api = [], shared.client()
        while True:
            claim = api.claim(agent, limit=3).ok()
            if not claim["data"]:
                return mine
            mine += ids(claim["data"])

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        shares = [future.result(30) for future in [pool.submit(take) for _ in range(6)]]
    assert sorted(sum(shares, [])) == sorted(sent)


def test_a_claim_outlives_a_restart(start, clock):
    daemon = start(clock=clock)
    sent = daemon.client().send("a")
    claim = daemon.client().claim("a", visibility_ms=60_000).ok()["claim_id"]
    daemon.kill()
    daemon.start()
    assert daemon.client().claim("a").ok()["data"] == []
    assert daemon.client().mark_read("a", sent["id"], claim_id=claim).ok()["read"] is True


def test_claims_of_an_agent_leave_others_alone(shared_api, agent):
    sent = shared_api.send(agent)
    assert shared_api.claim(agent + "-other").ok()["data"] == []
    assert shared_api.claim(agent).ok()["data"] == [sent]


@pytest.mark.parametrize("body,field", [
    ({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"limit": -1}, "limit"), ({"limit": "10"}, "limit"),
    ({"limit": 1.0}, "limit"), ({"limit": True}, "limit"), ({"limit": None}, "limit"),
    ({"visibility_ms": 0}, "visibility_ms"), ({"visibility_ms": 43_200_001}, "visibility_ms"),
    ({"visibility_ms": -5}, "visibility_ms"), ({"visibility_ms": "1"}, "visibility_ms"),
    ({"wait_ms": -1}, "wait_ms"), ({"wait_ms": 60_001}, "wait_ms"), ({"wait_ms": []}, "wait_ms"),
    ({"count": 1}, "count"),
])
def test_claim_refuses(shared_api, agent, body, field):
    sent = shared_api.send(agent)
    shared_api.claim(agent, **body).fails(400, "invalid_request", names=field)
    assert shared_api.claim(agent).ok()["data"] == [sent], "the refused claim took nothing"


@pytest.mark.parametrize("claim_id", [1, None, "", [], "x" * 5000])
def test_read_refuses_a_claim_id_that_is_none(shared_api, agent, claim_id):
    sent = shared_api.send(agent)
    answer = shared_api.mark_read(agent, sent["id"], claim_id=claim_id)
    assert answer.status in (400, 409), repr(answer)
    assert shared_api.message(agent, sent["id"]).ok()["read"] is False


def extend(api, agent, message, claim_id, **body):
    return api.post(f"/v1/agents/{agent}/messages/{message}/extend", {"claim_id": claim_id, **body})


def test_an_extended_claim_lasts_longer(timed_api, clock):
    message = timed_api.send("a")["id"]
    claim = timed_api.claim("a", visibility_ms=30000).ok()["claim_id"]
    clock.advance(20000)
    answer = extend(timed_api, "a", message, claim, visibility_ms=30000).ok()
    assert (answer["id"], answer["claim_id"]) == (message, claim) and answer["claimed_until"]
    clock.advance(20000)  # past the first end, before the second
    assert timed_api.claim("a").ok()["data"] == []
    clock.advance(11000)
    assert ids(timed_api.claim("a").ok()["data"]) == [message]


def test_extending_what_another_claim_has_is_409(timed_api, clock):
    message = timed_api.send("a")["id"]
    first = timed_api.claim("a", visibility_ms=1000).ok()["claim_id"]
    clock.advance(2000)
    extend(timed_api, "a", message, first, visibility_ms=1000).ok()  # over, but nobody else has it yet
    clock.advance(2000)
    second = timed_api.claim("a").ok()["claim_id"]
    extend(timed_api, "a", message, first).fails(409, "conflict")
    extend(timed_api, "a", message, second).ok()


def test_extending_what_is_read_or_unknown(shared_api, agent):
    message = shared_api.send(agent)["id"]
    claim = shared_api.claim(agent).ok()["claim_id"]
    extend(shared_api, agent, "0000000000000001", claim).fails(404, "not_found")
    extend(shared_api, agent, message, "ffffffffffffffff").fails(400, "invalid_request")
    extend(shared_api, agent, message, "nonsense").fails(400, "invalid_request")
    extend(shared_api, agent, message, claim, visibility_ms=0).fails(400, "invalid_request")
    shared_api.post(f"/v1/agents/{agent}/messages/{message}/extend", {}).fails(400, "invalid_request")
    shared_api.post(f"/v1/agents/{agent}/messages/{message}/read", {"claim_id": claim}).ok()
    extend(shared_api, agent, message, claim).fails(409, "conflict")


def test_a_list_tells_of_claims_when_asked(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock).client()
    claimed, free = (api.send("bob")["id"] for _ in range(2))
    api.claim("bob", limit=1, visibility_ms=5000).ok()
    until = {m["id"]: m.get("claimed_until") for m in api.get("/v1/agents/bob/messages", claims="true").ok()["data"]}
    assert until[claimed] and until[free] is None
    assert all("claimed_until" not in m for m in api.get("/v1/agents/bob/messages").ok()["data"])
    clock.advance(5001)
    assert all("claimed_until" not in m for m in api.get("/v1/agents/bob/messages", claims="true").ok()["data"])
