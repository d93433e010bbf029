# SPDX-License-Identifier: Apache-2.0
"""Requests that arrive together share a transaction; none of them may notice.

Many connections send at once, so that the daemon finds several requests in one turn of its loop.
"""
import collections
import random
import socket
import struct
import time

import pytest

from client import head, json_post
from harness import NEVER_MS, wait_until

SEND = "/v1/agents/{}/messages"
GOOD = b'{"from":"b","content":"x"}'


def together(daemon, requests):
    """Sends each on a connection of its own, all at once; the answers in the same order."""
    connections = [daemon.raw() for _ in requests]
    try:
        for connection, request in zip(connections, requests):
            connection.send(request)
        return [connection.answer(request.split(b" ", 1)[0].decode())
                for connection, request in zip(connections, requests)]
    finally:
        for connection in connections:
            connection.close()


def statuses(answers):
    return dict(collections.Counter(answer.status for answer in answers))


def test_one_that_fails_takes_no_other_with_it(start):
    """A broadcast that fails after its first message is undone; its neighbours are not."""
    daemon = start(unread_max_per_agent=30)
    api = daemon.client()
    for _ in range(30):
        api.send("full")
    bad = json_post("/v1/messages", b'{"to":["half","full"],"from":"b","content":"x"}')
    good = json_post(SEND.format("ok"), GOOD)
    requests = [bad, good] * 15
    random.Random(1).shuffle(requests)
    answers = together(daemon, requests)
    assert statuses(answers) == {201: 15, 429: 15}
    assert [answer.status for answer in answers] == [201 if request is good else 429 for request in requests]
    totals = {name: (row["total"], row["unread"]) for name, row in api.stats().items()}
    assert totals == {"full": (30, 30), "ok": (15, 15)}
    assert len(daemon.rows("SELECT * FROM messages")) == 45
    assert api.matrix("messages")["live_rows"] == 45


def test_a_key_of_one_that_fails_is_free_again(start):
    daemon = start(unread_max_per_agent=1)
    api = daemon.client()
    first = api.send("full")
    requests = [json_post(SEND.format("full"), GOOD, Idempotency_Key=f"k{i}") for i in range(8)]
    requests += [json_post(SEND.format(f"a{i}"), GOOD, Idempotency_Key=f"a{i}") for i in range(8)]
    assert statuses(together(daemon, requests)) == {201: 8, 429: 8}
    assert len(daemon.rows("SELECT * FROM idempotency_keys")) == 8
    api.read("full", first["id"])
    assert statuses(together(daemon, requests[:8])) == {201: 1, 429: 7}


def test_claims_that_come_together_share_nothing(start):
    daemon = start()
    sent = [daemon.client().send("a")["id"] for _ in range(20)]
    answers = together(daemon, [json_post(SEND.format("a") + "/claim", b'{"limit":1}') for _ in range(25)])
    claimed = [message["id"] for answer in answers for message in answer.ok()["data"]]
    assert sorted(claimed) == sorted(sent)


def test_a_message_read_many_times_at_once_is_read_once(start):
    daemon = start()
    message = daemon.client().send("a")
    answers = together(daemon, [json_post(SEND.format("a") + f"/{message['id']}/read", b"{}") for _ in range(20)])
    assert len({answer.ok()["read_at"] for answer in answers}) == 1
    assert daemon.client().stats()["a"]["unread"] == 0
    assert len(daemon.events("message.read")) == 1


def test_ids_in_the_order_of_the_list(start):
    daemon = start()
    answers = together(daemon, [json_post(SEND.format("a"), GOOD) for _ in range(40)])
    ids = sorted(answer.ok(201)["id"] for answer in answers)
    assert [message["id"] for message in daemon.client().inbox("a")] == ids[::-1]


def hold(message_id):
    body = b'{"reason":"r"}'
    return head("PUT", f"/v1/holds/messages/{message_id}", Content_Type="application/json",
                Content_Length=len(body)) + body


def test_the_limit_of_holds_counts_those_that_come_together(start):
    daemon = start(holds_max=3)
    sent = [daemon.client().send("a")["id"] for _ in range(15)]
    assert statuses(together(daemon, [hold(message_id) for message_id in sent])) == {200: 3, 429: 12}
    assert len(daemon.client().get("/v1/holds").data) == 3


def test_the_limit_of_tokens_counts_those_that_come_together(start):
    daemon = start(tokens_max=4)
    token = daemon.client().token("ops", admin=True)["token"]
    request = json_post("/v1/tokens", b'{"owner":"x"}', Authorization=f"Bearer {token}")
    assert statuses(together(daemon, [request] * 15)) == {201: 3, 429: 12}
    assert len(daemon.client(token=token).get("/v1/tokens").data) == 4


@pytest.mark.parametrize("round_", range(3))
def test_the_last_admins_cannot_go_together(start, round_):
    """One of them must stay while others have tokens, whoever asks at the same time."""
    daemon = start()
    first = daemon.client().token("ops", admin=True)
    api = daemon.client(token=first["token"])
    second = api.token("ops", admin=True)
    api.token("fleet")
    answers = together(daemon, [head("DELETE", f"/v1/tokens/{token['prefix']}",
                                     Authorization=f"Bearer {first['token']}") for token in (first, second)])
    assert sorted(answer.status for answer in answers) in ([200, 401], [200, 409]), answers
    admins = daemon.rows("SELECT * FROM tokens WHERE admin = 1")
    assert len(admins) == 1


def test_sweeps_asked_for_together_prune_each_row_once(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    for _ in range(30):
        api.read("a", api.send("a")["id"])
    time.sleep(0.005)  # the last one is due two milliseconds after it was read, six requests may take one
    answers = together(daemon, [head("POST", "/v1/sweep/messages", Content_Length=0)] * 5)
    assert sum(answer.ok()["pruned"] for answer in answers) == 30
    assert api.sweep()["pruned"] == 0
    assert api.stats() == {} and api.matrix("messages")["live_rows"] == 0


def leave(connection):
    """Ends it with a reset, which the daemon learns of at once."""
    if connection.sock.fileno() < 0:
        return
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("request_of", [
    pytest.param(lambda name: json_post(SEND.format(name), GOOD), id="send"),
    pytest.param(lambda name: json_post(SEND.format(name) + "/claim", b'{"wait_ms":1000}'), id="claim that waits"),
])
def test_clients_that_leave_before_their_answer_disturb_nobody(start, request_of):
    """Their requests are in a turn, or wait for it to be durable, when they go; some are answered already."""
    daemon = start()
    chance = random.Random(1)
    for round_ in range(40):
        connections = [daemon.raw() for _ in range(40)]
        for i, connection in enumerate(connections):
            connection.send(request_of(f"{round_}-{i}"))
            if chance.random() < 0.5:
                leave(connections[chance.randrange(i + 1)])
        for connection in connections:
            leave(connection)
        assert statuses(together(daemon, [json_post(SEND.format("stays"), GOOD)] * 3)) == {201: 3}
    assert len(daemon.rows("SELECT * FROM messages WHERE agent = 'stays'")) == 120
    wait_until(lambda: daemon.metric("lapse_http_connections") <= 1, 20)
    begun = time.monotonic()
    daemon.stop()
    assert time.monotonic() - begun < 4, "it waits for a request that nobody holds"
