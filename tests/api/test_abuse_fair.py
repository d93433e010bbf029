# SPDX-License-Identifier: Apache-2.0
"""Requests that wait together: an owner with many of them waits for itself (line 2)."""
import contextlib
import signal
import time

from client import head, json_post

MANY = 200


@contextlib.contextmanager
def stopped(daemon):
    """The daemon reads nothing meanwhile, and finds all of it at once: the kernel takes it at once on loopback."""
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def owners(daemon):
    root = daemon.client(token=daemon.client().token("root", admin=True)["token"])
    return {name: root.token(name)["token"] for name in ("red", "blue")}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_the_only_request_of_an_owner_does_not_wait_for_all_of_another(start):
    daemon = start()
    tokens = owners(daemon)
    with contextlib.ExitStack() as stack:
        red = [stack.enter_context(daemon.raw()) for _ in range(MANY)]
        blue = stack.enter_context(daemon.raw())
        for connection in (*red, blue):
            connection.send(head("GET", "/healthz"))
            connection.answer().ok()
        with stopped(daemon):
            for connection in red:
                connection.send(json_post("/v1/agents/a/messages", b'{"from":"x","content":"y"}', **bearer(tokens["red"])))
            blue.send(json_post("/v1/agents/a/messages", b'{"from":"x","content":"y"}', **bearer(tokens["blue"])))
        ids = [connection.answer("POST").ok(201)["id"] for connection in red]
        own = blue.answer("POST").ok(201)["id"]
    assert sorted([*ids, own]).index(own) < MANY // 4, "ids grow in the order in which requests run"
    assert ids == sorted(ids), "requests of one owner keep their order"


def test_the_loop_looks_around_however_long_the_queue_is(start):
    daemon = start()
    api = daemon.client()
    for _ in range(2):
        api.send("big", content="x" * 900_000)
    begun = time.monotonic()
    while time.monotonic() - begun < 2:
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(daemon.raw()) for _ in range(60)]
            for connection in held:
                connection.send(head("GET", "/v1/agents/big/messages") * 5)
            for connection in held:
                connection.answer().ok()
    assert api.metric("lapse_loop_stall_max_seconds") < 1, "the loop did nothing but requests"
