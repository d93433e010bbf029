# SPDX-License-Identifier: Apache-2.0
"""`wait_ms`: a list or a claim that waits for a message answers as soon as there is one."""
import concurrent.futures
import time

import pytest

from client import head, json_post
from harness import Clock

SOON_S = 1.0  # "at once", with room for a busy machine; every wait below is far longer


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(16) as executor:
        yield executor


def timed(call, *args, **options):
    begun = time.monotonic()
    answer = call(*args, **options)
    return answer, time.monotonic() - begun


def waiting(daemon, pool, agent, call="list", **options):
    """Starts a call that waits, and returns when the daemon has it: a request sent after it on another
    connection was answered."""
    future = pool.submit(timed, getattr(daemon.client(), call), agent, **options)
    time.sleep(0.05)
    daemon.client().get("/healthz").ok()
    assert not future.done(), future.result()
    return future


def test_list_wakes_at_once(shared, shared_api, agent, pool):
    future = waiting(shared, pool, agent, unread="true", wait_ms=30_000)
    begun = time.monotonic()
    sent = shared_api.send(agent)
    answer, _ = future.result(10)
    assert time.monotonic() - begun < SOON_S
    assert answer.data == [sent]


def test_list_without_unread_waits_too(shared, shared_api, agent, pool):
    future = waiting(shared, pool, agent, wait_ms=30_000)
    sent = shared_api.send(agent)
    answer, took = future.result(10)
    assert answer.data == [sent] and took < 5


def test_list_answers_at_once_when_there_is_something(shared_api, agent):
    sent = shared_api.send(agent)
    answer, took = timed(shared_api.list, agent, unread="true", wait_ms=30_000)
    assert answer.data == [sent] and took < SOON_S


def test_list_ends_empty_when_the_time_is_up(shared_api, agent):
    answer, took = timed(shared_api.list, agent, unread="true", wait_ms=200)
    assert answer.ok() == {"data": [], "pagination": {"next_cursor": None, "has_more": False}}
    assert 0.19 <= took < 0.2 + SOON_S


def test_wait_of_zero_does_not_wait(shared_api, agent):
    answer, took = timed(shared_api.list, agent, wait_ms=0)
    assert answer.data == [] and took < SOON_S


def test_read_messages_do_not_end_a_wait_for_unread_ones(shared, shared_api, agent, pool):
    shared_api.read(agent, shared_api.send(agent)["id"])
    future = waiting(shared, pool, agent, unread="true", wait_ms=30_000)
    sent = shared_api.send(agent)
    assert future.result(10)[0].data == [sent]


def test_a_message_for_another_agent_wakes_nobody(shared, shared_api, agent, pool):
    future = waiting(shared, pool, agent, unread="true", wait_ms=500)
    shared_api.send(agent + "-other")
    answer, took = future.result(10)
    assert answer.data == [] and took >= 0.49


def test_everyone_who_lists_is_woken(shared, shared_api, agent, pool):
    futures = [waiting(shared, pool, agent, unread="true", wait_ms=30_000) for _ in range(5)]
    sent = shared_api.send(agent)
    assert [future.result(10)[0].data for future in futures] == [[sent]] * 5


def test_a_broadcast_wakes_each(shared, shared_api, agent, pool):
    names = [f"{agent}-{i}" for i in range(3)]
    futures = [waiting(shared, pool, name, unread="true", wait_ms=30_000) for name in names]
    sent = shared_api.broadcast(names).ok(201)["data"]
    assert [[message["id"] for message in future.result(10)[0].data] for future in futures] == [
        [copy["id"]] for copy in sent]


def test_a_claim_that_waits_wakes_at_once(shared, shared_api, agent, pool):
    future = waiting(shared, pool, agent, call="claim", wait_ms=30_000)
    begun = time.monotonic()
    sent = shared_api.send(agent)
    claimed = future.result(10)[0].ok()
    assert time.monotonic() - begun < SOON_S
    assert claimed["data"] == [sent] and claimed["claim_id"]


def test_a_claim_that_waits_ends_empty(shared_api, agent):
    answer, took = timed(shared_api.claim, agent, wait_ms=200)
    assert answer.ok() == {"claim_id": None, "data": []}
    assert 0.19 <= took < 0.2 + SOON_S


def test_one_message_goes_to_one_of_those_who_wait_to_claim(shared, shared_api, agent, pool):
    futures = [waiting(shared, pool, agent, call="claim", wait_ms=800) for _ in range(4)]
    sent = shared_api.send(agent)
    claims = [future.result(10)[0].ok() for future in futures]
    assert sorted(len(claim["data"]) for claim in claims) == [0, 0, 0, 1]
    (winner,) = [claim for claim in claims if claim["data"]]
    assert winner["data"] == [sent]
    assert [claim["claim_id"] for claim in claims if not claim["data"]] == [None] * 3


def test_a_claim_that_waits_gets_what_another_let_go(shared, shared_api, agent, pool):
    sent = shared_api.send(agent)
    first = shared_api.claim(agent, visibility_ms=400).ok()
    assert first["data"] == [sent]
    future = waiting(shared, pool, agent, call="claim", wait_ms=20_000)
    answer, took = future.result(25)
    second = answer.ok()
    assert second["data"] == [sent] and second["claim_id"] != first["claim_id"]
    assert took < 5, "the end of the lease wakes the one who waits"


def test_one_who_left_while_waiting_takes_nothing_with_him(shared, shared_api, agent):
    body = b'{"wait_ms":20000}'
    with shared.raw() as connection:
        connection.send(head("POST", f"/v1/agents/{agent}/messages/claim", Content_Type="application/json",
                             Content_Length=len(body)) + body)
        time.sleep(0.05)
    time.sleep(0.05)
    sent = shared_api.send(agent)
    assert shared_api.list(agent, unread="true").data == [sent]


def test_one_who_left_while_waiting_does_not_hinder_the_end(start):
    daemon = start()
    for path in ("/v1/agents/a/messages?wait_ms=60000", "/v1/agents/b/messages?unread=true&wait_ms=60000"):
        with daemon.raw() as connection:
            connection.send(head("GET", path))
            time.sleep(0.05)
    begun = time.monotonic()
    daemon.stop()
    assert time.monotonic() - begun < 5


def test_what_follows_a_wait_on_its_connection_is_answered_after_it(shared, agent):
    with shared.raw() as connection:
        connection.send(head("GET", f"/v1/agents/{agent}/messages?wait_ms=200") + head("GET", "/healthz"))
        assert connection.answer().data == []
        assert connection.answer().json() == {"status": "ok"}


@pytest.mark.parametrize("wait", ["-1", "60001", "1.5", "soon", "", "99999999999999999999"])
def test_wait_out_of_range(shared_api, agent, wait):
    shared_api.list(agent, wait_ms=wait).fails(400, "invalid_request", names="wait_ms")


LIST_FOR_400_MS = head("GET", "/v1/agents/a/messages?wait_ms=400")
CLAIM_FOR_400_MS = json_post("/v1/agents/a/messages/claim", b'{"wait_ms":400}')


@pytest.mark.parametrize("request_bytes", [LIST_FOR_400_MS, CLAIM_FOR_400_MS], ids=["list", "claim"])
@pytest.mark.parametrize("leap_ms", [0, -30_000, 30_000], ids=["stands still", "goes back", "leaps"])
def test_a_wait_takes_its_time_whatever_the_wall_clock_does(start, tmp_path, request_bytes, leap_ms):
    """A wait is a budget, and budgets are monotonic."""
    clock = Clock(tmp_path, wall_only=True)
    daemon = start(clock=clock)
    with daemon.raw(timeout_s=5) as connection:
        begun = time.monotonic()
        connection.send(request_bytes)
        time.sleep(0.1)
        clock.advance(leap_ms)
        daemon.client().send("another")
        assert connection.answer("POST").data == []
        assert 0.39 <= time.monotonic() - begun < 0.4 + SOON_S


def test_many_wait_while_others_work(shared, shared_api, agent, pool):
    futures = [waiting(shared, pool, f"{agent}-{i}", unread="true", wait_ms=1500) for i in range(8)]
    _, took = timed(lambda: [shared_api.send(agent) for _ in range(20)])
    assert took < SOON_S
    assert all(future.result(10)[0].data == [] for future in futures)
