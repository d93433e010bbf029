# SPDX-License-Identifier: Apache-2.0
"""Requests that wait together: an owner with many of them waits for itself (line 2). Long bodies
that come together take turns (line 9)."""
import contextlib
import fcntl
import hashlib
import os
import signal
import struct
import termios
import time
from pathlib import Path

from client import head, json_post
from harness import wait_until

MANY = 200


@contextlib.contextmanager
def stopped(daemon):
    """The daemon reads nothing meanwhile, and finds all of it at once."""
    stat = Path(f"/proc/{daemon.process.pid}/stat")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="the daemon has stopped")
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def has_arrived(connection):
    """Whether the kernel of the other side has all that was sent. On a busy machine that takes a moment."""
    return struct.unpack("i", fcntl.ioctl(connection.sock, termios.TIOCOUTQ, b"\0" * 4))[0] == 0


def owners(daemon):
    root = daemon.client(token=daemon.client().token("root", admin=True)["token"])
    return {name: root.token(name)["token"] for name in ("red", "blue")}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def place_of_the_only_request(daemon, tokens):
    """How many requests of red run before the one of blue, when all of them wait together."""
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
            wait_until(lambda: all(map(has_arrived, (*red, blue))), what="all requests have arrived")
        ids = [connection.answer("POST").ok(201)["id"] for connection in red]
        own = blue.answer("POST").ok(201)["id"]
    assert ids == sorted(ids), "requests of one owner keep their order"
    return sorted([*ids, own]).index(own)


def test_the_only_request_of_an_owner_does_not_wait_for_all_of_another(start):
    """On a busy machine a turn can begin before blue's request is read: then it is tried again."""
    daemon = start()
    tokens = owners(daemon)
    places = []
    while len(places) < 4 and (not places or places[-1] >= MANY // 4):
        places.append(place_of_the_only_request(daemon, tokens))
    assert places[-1] < MANY // 4, f"ids grow in the order in which requests run: {places}"


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


# Long bodies --------------------------------------------------------------------------------------

def upload_together(stack, daemon, contents, length=None):
    """The connections, once the daemon finds all of this at the same time."""
    connections = [stack.enter_context(daemon.raw()) for _ in contents]
    with stopped(daemon):
        for connection, content in zip(connections, contents):
            connection.send(head("POST", "/v1/attachments", Content_Length=length or len(content)) + content)
    return connections


def test_many_long_bodies_take_turns_and_few_do_not(start):
    daemon = start()
    for n, waits in ((8, False), (60, True)):
        contents = [os.urandom(200_000 + i) for i in range(n)]
        with contextlib.ExitStack() as stack:
            for connection, content in zip(upload_together(stack, daemon, contents), contents):
                assert connection.answer("POST").ok(201)["checksum"] == hashlib.sha256(content).hexdigest()
        assert (daemon.metric("lapse_bodies_waited_total") > 0) is waits


def test_long_bodies_of_json_take_turns(start):
    daemon = start()
    body = b'{"from":"x","content":"' + b"y" * 200_000 + b'"}'
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(daemon.raw()) for _ in range(60)]
        with stopped(daemon):
            for connection in connections:
                connection.send(json_post("/v1/agents/a/messages", body))
        for connection in connections:
            connection.answer("POST").ok(201)
    assert daemon.metric("lapse_bodies_waited_total") > 0


def test_the_daemon_stops_while_long_bodies_wait(start):
    daemon = start()
    with contextlib.ExitStack() as stack:
        upload_together(stack, daemon, [os.urandom(200_000)] * 60, 64 << 20)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(15) == 0, daemon.log()
