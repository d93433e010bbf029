# SPDX-License-Identifier: Apache-2.0
"""GET /v1/events: server-sent events with resume, gaps, owners, limits; and under load."""
import http.client
import json
import pathlib
import resource
import selectors
import socket
import struct
import threading
import time

import pytest

from client import RawConnection, connect, head, json_post
from harness import NEVER_MS, sanitizer, wait_until

HEX = set("0123456789abcdef")


class Stream:
    """One stream, read as the HTML standard says."""

    def __init__(self, daemon, after=None, last_event_id=None, token=None, owner=None, rcvbuf=None):
        headers = {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if owner:
            headers["X_Lapse_Owner"] = owner
        if last_event_id:
            headers["Last_Event_ID"] = last_event_id
        self.sock = open_socket(daemon, rcvbuf)
        self.sock.sendall(head("GET", "/v1/events" + (f"?after={after}" if after else ""), **headers))
        self.response = http.client.HTTPResponse(self.sock)
        self.response.begin()
        self.status, self.headers = self.response.status, self.response.headers
        self.last_id = last_event_id or after
        self.comments, self.retry_ms = [], None

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self.response.close()
        self.sock.close()

    def event(self, timeout_s=10):
        """The next event; None at a proper end of the stream."""
        self.sock.settimeout(timeout_s)
        fields = {}
        while True:
            line = self.response.readline().decode()
            if not line:
                return None
            line = line[:-1]
            if line == "":
                if "id" in fields:
                    self.last_id = fields["id"]
                if "data" in fields and fields["event"] not in ("settings.in_force", "token.created"):
                    return fields["event"], json.loads(fields["data"]), fields["id"]
                fields = {}
            elif line.startswith(":"):
                self.comments.append(line)
            else:
                name, _, value = line.partition(": ")
                fields[name] = value
                if name == "retry":
                    self.retry_ms = int(value)

    def events(self, n):
        return [self.event() for _ in range(n)]

    def sent(self, n):
        """The contents' numbers of the next n events, which must be message.sent."""
        return [number(event) for event in self.events(n)]

    def ends(self, timeout_s):
        """How long it took until the stream ended properly."""
        began = time.monotonic()
        while self.event(timeout_s) is not None:
            pass
        return time.monotonic() - began


def open_socket(daemon, rcvbuf=None):
    if rcvbuf is None:
        return connect(daemon.address)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    sock.connect(("127.0.0.1", daemon.port))
    return sock


def number(event):
    kind, data, _id = event
    assert kind == "message.sent", event
    return int(data["data"]["from"])


def send(api, numbers):
    for n in numbers:
        api.send("bob", sender=str(n))


def send_to_two(api, numbers):
    """The same with events that are rows of their own: only a message to one agent is its own event."""
    for n in numbers:
        api.broadcast(["ann", "bob"], sender=str(n)).ok(201)


def has_gap(stream, reason):
    kind, data, event_id = stream.event()
    assert kind == "gap" and data["reason"] == reason and data["to"] == event_id, (kind, data)
    assert data["from"] < data["to"]
    return data


# What a stream looks like ------------------------------------------------------------------------


def test_an_event_comes_as_documented(daemon, api):
    with Stream(daemon) as stream:
        message = api.send("bob", sender="alice")
        kind, data, event_id = stream.event()
        assert stream.status == 200
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.retry_ms == 2000
        assert kind == "message.sent" and len(event_id) == 16 and set(event_id) <= HEX
        assert data == {"at": message["timestamp"], "owner": "local",
                        "data": {"from": "alice", "type": "text",
                                 "messages": [{"id": message["id"], "to": "bob"}]}}


def test_events_arrive_at_once_and_in_order(daemon, api):
    with Stream(daemon) as stream:
        for n in range(50):
            began = time.monotonic()
            send(api, [n])
            assert stream.sent(1) == [n]
            assert time.monotonic() - began < 1


def test_a_stream_starts_at_the_present(daemon, api):
    send(api, [1])
    with Stream(daemon) as stream:
        send(api, [2])
        assert stream.sent(1) == [2]


def test_a_large_event_comes_whole(daemon, api):
    agents = [f"{n:0100d}" for n in range(500)]
    with Stream(daemon) as stream:
        api.broadcast(agents).ok(201)
        kind, data, _id = stream.event()
        assert [m["to"] for m in data["data"]["messages"]] == agents
        send(api, [7])
        assert stream.sent(1) == [7]


def test_an_event_larger_than_the_ring_comes_whole(start):
    daemon = start(event_ring_bytes=65536)
    agents = [f"{n:0120d}" for n in range(500)]
    with Stream(daemon) as stream:
        daemon.client().broadcast(agents).ok(201)
        assert [m["to"] for m in stream.event()[1]["data"]["messages"]] == agents
        send(daemon.client(), [7])
        assert stream.sent(1) == [7]


def test_head_and_bad_cursors(daemon, api):
    answer = api.request("HEAD", "/v1/events")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
    api.get("/v1/events", after="nonsense-nonsens").fails(400, "invalid_request", "after")
    api.get("/v1/events", after="12").fails(400, "invalid_request", "after")
    api.get("/v1/events", headers={"Last-Event-ID": "x"}).fails(400, "invalid_request", "Last-Event-ID")
    api.get("/v1/events", since="1").fails(400, "invalid_request", "since")
    api.post("/v1/events").fails(405, "method_not_allowed")
    assert daemon.metric("lapse_streams") == 0


def test_http_1_0_gets_a_stream_without_chunks(daemon, api):
    with RawConnection(daemon.address) as raw:
        raw.send(b"GET /v1/events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        send(api, [1])
        text = b""
        while b'"from":"1"' not in text:
            text += raw.sock.recv(4096)
        assert b"chunked" not in text


# Resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["after", "last_event_id"])
def test_resume_loses_nothing(daemon, api, how):
    with Stream(daemon) as stream:
        send(api, range(5))
        assert stream.sent(3) == [0, 1, 2]
        last = stream.last_id
    send(api, range(5, 8))
    with Stream(daemon, **{how: last}) as stream:
        send(api, range(8, 10))
        assert stream.sent(7) == list(range(3, 10))


def test_a_stream_that_never_saw_an_event_resumes_too(daemon, api):
    with Stream(daemon) as stream:
        api.get("/healthz").ok()
        line = b""
        while b"id: " not in line:
            line = stream.response.readline()
        last = line.decode().split()[1]
    send(api, range(3))
    with Stream(daemon, last_event_id=last) as stream:
        assert stream.sent(3) == [0, 1, 2]


def test_the_header_comes_before_the_query(daemon, api):
    send(api, range(4))
    with Stream(daemon, after="0" * 16) as stream:
        ids = [event[2] for event in stream.events(4)]
    with Stream(daemon, after=ids[0], last_event_id=ids[2]) as stream:
        assert stream.sent(1) == [3]


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_resume_loses_nothing_across_a_restart(daemon, way):
    with Stream(daemon) as stream:
        send(daemon.client(), range(10))
        assert stream.sent(4) == [0, 1, 2, 3]
        last = stream.last_id
    getattr(daemon, way)()
    daemon.start()
    with Stream(daemon, last_event_id=last) as stream:
        send(daemon.client(), [10])
        assert stream.sent(7) == list(range(4, 11))


def test_nothing_is_lost_when_the_daemon_dies_under_load(start):
    """Kill -9 again and again while somebody sends: every answered send arrives once, in order."""
    daemon = start()
    answered, seen, last, stop = [], [], "0" * 16, threading.Event()

    def sender():
        while not stop.is_set():
            try:
                api = daemon.client()
                while not stop.is_set():
                    api.send("bob", sender=str(len(answered)))
                    answered.append(len(answered))
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)

    thread = threading.Thread(target=sender)
    thread.start()
    try:
        for _ in range(4):
            with Stream(daemon, last_event_id=last) as stream:
                for _ in range(60):
                    kind, data, last = stream.event()
                    assert kind == "message.sent"
                    seen.append(int(data["data"]["from"]))
            daemon.kill()
            daemon.start()
    finally:
        stop.set()
        thread.join()
    with Stream(daemon, last_event_id=last) as stream:
        daemon.client().send("bob", sender="999999999")
        while seen[-1:] != [999999999]:
            seen.append(number(stream.event()))
    # A send that was stored and not answered is sent again under the same number.
    assert set(answered) <= set(seen) and seen == sorted(seen)


def test_a_long_absence_is_read_from_the_table_in_pages(start):
    daemon = start(event_ring_bytes=65536, sqlite_synchronous="off")
    send_many(daemon, 3000)
    with Stream(daemon, after="0" * 16) as stream:
        send(daemon.client(), [3000])
        assert stream.sent(3001) == list(range(3001))


def test_many_who_were_away_catch_up_together(start):
    daemon = start(event_ring_bytes=65536, connections_max=2000, sqlite_synchronous="off")
    send_many(daemon, 400)
    streams = [Stream(daemon, after="0" * 16) for _ in range(300)]
    send(daemon.client(), [400])
    for stream in streams:
        assert stream.sent(401) == list(range(401))
        stream.close()


# Gaps --------------------------------------------------------------------------------------------


def test_a_cursor_older_than_the_retention_gets_a_gap(start):
    daemon = start(event_keep_ms=1000, housekeeping_sweep_ms=50)
    api = daemon.client()
    with Stream(daemon) as stream:
        send_to_two(api, range(3))
        first = stream.events(3)[0][2]
    wait_until(lambda: not daemon.rows("SELECT 1 FROM events WHERE kind = 'message.sent'"))
    send(api, [3])
    with Stream(daemon, last_event_id=first) as stream:
        gap = has_gap(stream, "retention")
        assert gap["from"] == first
        assert stream.sent(1) == [3]
        assert daemon.metric("lapse_stream_gaps_total") == 1
    daemon.restart()  # it is remembered
    with Stream(daemon, last_event_id=first) as stream:
        has_gap(stream, "retention")


def test_what_is_due_is_not_shown_even_before_the_sweep(start):
    daemon = start(event_keep_ms=500)
    with Stream(daemon) as stream:
        send(daemon.client(), range(3))
        first = stream.events(3)[0][2]
    time.sleep(0.6)
    send(daemon.client(), [3])
    assert len(daemon.events("message.sent")) == 4
    with Stream(daemon, last_event_id=first) as stream:
        has_gap(stream, "retention")
        assert stream.sent(1) == [3]


def test_who_missed_nothing_gets_no_gap(start):
    daemon = start(event_keep_ms=300, housekeeping_sweep_ms=50)
    with Stream(daemon) as stream:
        send_to_two(daemon.client(), range(3))
        last = stream.events(3)[-1][2]
    wait_until(lambda: not daemon.rows("SELECT 1 FROM events WHERE kind = 'message.sent'"))
    with Stream(daemon, last_event_id=last) as stream:
        send(daemon.client(), [3])
        assert stream.sent(1) == [3]


def read_all_and_sweep(daemon):
    api = daemon.client()
    api.read_many("bob", before="2100-01-01T00:00:00.000Z").ok()
    wait_until(lambda: api.sweep()["pruned"] and not daemon.rows("SELECT 1 FROM messages"), what="the sweep")


@pytest.mark.parametrize("restarts", [False, True])
def test_the_event_of_a_message_outlives_the_message(start, restarts):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    with Stream(daemon) as stream:
        send(daemon.client(), range(4))
        live = stream.events(4)
    read_all_and_sweep(daemon)
    if restarts:
        daemon.restart()  # what was in memory is gone: the table has to have them all
    with Stream(daemon, last_event_id=live[0][2]) as stream:
        assert stream.events(3) == live[1:]
    assert daemon.metric("lapse_stream_gaps_total") == 0
    assert daemon.metric("lapse_live_rows", table="events") == len(daemon.rows("SELECT 1 FROM events"))


def test_a_message_that_went_after_its_event_leaves_a_gap(start):
    daemon = start(message_ttl_ms=300, event_keep_ms=300, message_sweep_ms=NEVER_MS)
    with Stream(daemon) as stream:
        send(daemon.client(), range(3))
        first = stream.events(3)[0][2]
    read_all_and_sweep(daemon)
    assert daemon.events("message.sent") == []
    daemon.restart()
    with Stream(daemon, last_event_id=first) as stream:
        has_gap(stream, "retention")


def test_replay_merges_messages_and_events_in_their_order(start):
    daemon = start(event_ring_bytes=65536)
    api = daemon.client()
    with Stream(daemon) as stream:
        for n in range(0, 30, 3):
            send(api, [n])
            send_to_two(api, [n + 1])
            send(api, [n + 2])
        live = stream.events(30)
    assert [number(event) for event in live] == list(range(30))
    daemon.restart()
    with Stream(daemon, last_event_id=live[0][2]) as stream:
        assert stream.events(29) == live[1:]


def test_a_cursor_of_another_store_gets_a_gap(daemon, api):
    with Stream(daemon, last_event_id="7" + "f" * 15) as stream:
        kind, data, _id = stream.event()
        assert kind == "gap" and data["reason"] == "unknown"
        send(api, [1])
        assert stream.sent(1) == [1]


# Owners and tokens -------------------------------------------------------------------------------


@pytest.fixture
def fleet(daemon):
    """A daemon with an admin `ops` and two owners; gives (daemon, {name: token})."""
    admin = daemon.client().token("ops", admin=True)
    ops = daemon.client(token=admin["token"])
    tokens = {name: ops.token(name) for name in ("red", "blue")}
    return daemon, {"ops": admin, **tokens}


def test_a_stream_shows_only_its_owners_events(fleet):
    daemon, tokens = fleet
    streams = {name: Stream(daemon, token=t["token"]) for name, t in tokens.items()}
    acting = Stream(daemon, token=tokens["ops"]["token"], owner="red")
    for n, name in enumerate(["red", "blue", "ops", "blue", "red"]):
        daemon.client(token=tokens[name]["token"]).send("bob", sender=str(n))
    assert streams["red"].sent(2) == [0, 4]
    assert streams["blue"].sent(2) == [1, 3]
    assert streams["ops"].sent(1) == [2]
    assert acting.sent(2) == [0, 4]
    for name, token in tokens.items():  # and from the table
        daemon.client(token=tokens["ops"]["token"]).get("/healthz")
        with Stream(daemon, token=token["token"], after="0" * 16) as stream:
            expected = {"red": [0, 4], "blue": [1, 3], "ops": [2]}[name]
            assert stream.sent(len(expected)) == expected
    Stream(daemon, token=tokens["red"]["token"], owner="red").close()
    assert Stream(daemon, token=tokens["red"]["token"], owner="blue").status == 403
    assert Stream(daemon).status == 401


def test_an_admin_sees_the_engines_events(start):
    daemon = start(housekeeping_sweep_ms=100, sweep_keep_ms=1)
    admin = daemon.client().token("ops", admin=True)["token"]
    red = daemon.client(token=admin).token("red")["token"]
    with Stream(daemon, token=admin) as ops, Stream(daemon, token=red) as other, \
            Stream(daemon, token=admin, owner="red") as acting:
        kind, data, _id = ops.event()
        assert kind == "housekeeping.lifecycle_pruned" and data["owner"] == ""
        daemon.client(token=red).send("bob", sender="1")
        assert other.sent(1) == [1] and acting.sent(1) == [1]


def test_a_revoked_token_ends_its_stream(fleet):
    daemon, tokens = fleet
    ops = daemon.client(token=tokens["ops"]["token"])
    red, blue = (Stream(daemon, token=tokens[name]["token"]) for name in ("red", "blue"))
    ops.delete(f"/v1/tokens/{tokens['red']['prefix']}").ok()
    assert red.ends(2) < 1
    daemon.client(token=tokens["blue"]["token"]).send("bob", sender="1")
    assert blue.sent(1) == [1]


def test_an_expired_token_ends_its_stream(daemon):
    admin = daemon.client().token("ops", admin=True)["token"]
    token = daemon.client(token=admin).token("red", ttl_ms=500)["token"]
    with Stream(daemon, token=token) as stream:
        assert 0.2 < stream.ends(3) < 1.5


def test_the_first_token_ends_streams_without_one(daemon):
    with Stream(daemon) as stream:
        daemon.client().token("ops", admin=True)
        assert stream.ends(2) < 1


def test_a_revoked_token_ends_a_stream_nobody_reads(fleet):
    daemon, tokens = fleet
    ops = daemon.client(token=tokens["ops"]["token"])
    with Stream(daemon, token=tokens["red"]["token"], rcvbuf=4096):
        for _ in range(40):  # more than the sockets' buffers hold
            daemon.client(token=tokens["red"]["token"]).broadcast(
                [f"{n:0120d}" for n in range(1000)]).ok(201)
        ops.delete(f"/v1/tokens/{tokens['red']['prefix']}").ok()
        wait_until(lambda: ops.metric("lapse_streams") == 0, 2)


# Clients that come, stay and go ------------------------------------------------------------------


def test_keep_alive_while_nothing_happens(start):
    daemon = start(stream_keepalive_ms=200)
    with Stream(daemon) as stream:
        stream.sock.settimeout(2)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            line = stream.response.readline()
            if line.startswith(b": keep-alive"):
                stream.comments.append(line)
        assert 2 <= len(stream.comments) <= 10


def test_a_quiet_stream_is_no_idle_connection(start):
    daemon = start(request_timeout_ms=300, stream_keepalive_ms=5000)
    with Stream(daemon) as stream:
        time.sleep(1)
        send(daemon.client(), [1])
        assert stream.sent(1) == [1]


def test_a_client_that_left_is_noticed(start):
    daemon = start(stream_keepalive_ms=60000)
    streams = [Stream(daemon) for _ in range(5)]
    assert daemon.metric("lapse_streams") == 5
    streams[0].close()
    wait_until(lambda: daemon.metric("lapse_streams") == 4, 2)
    reset = streams[1].sock  # and one that resets the connection
    reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    streams[1].close()
    wait_until(lambda: daemon.metric("lapse_streams") == 3, 2)
    for stream in streams[2:]:
        stream.close()
    wait_until(lambda: daemon.metric("lapse_streams") == 0, 2)


def test_a_client_that_does_not_read_is_cut(start):
    daemon = start(request_timeout_ms=700)
    with Stream(daemon, rcvbuf=4096):
        for _ in range(40):
            daemon.client().broadcast([f"{n:0120d}" for n in range(1000)]).ok(201)
        began = time.monotonic()
        wait_until(lambda: daemon.metric("lapse_streams") == 0, 5)
        assert time.monotonic() - began < 4


def test_streams_are_limited(start):
    daemon = start(streams_max=3)
    streams = [Stream(daemon) for _ in range(3)]
    daemon.client().get("/v1/events").fails(429, "limit_reached", "streams_max")
    streams[0].close()
    wait_until(lambda: daemon.metric("lapse_streams") == 2)
    assert Stream(daemon).status == 200


@pytest.mark.parametrize("reads", [True, False])
def test_a_stop_ends_streams(start, reads):
    daemon = start()
    streams = [Stream(daemon, rcvbuf=None if reads else 4096) for _ in range(20)]
    for _ in range(1 if reads else 40):
        daemon.client().broadcast([f"{n:0120d}" for n in range(1000)]).ok(201)
    began = time.monotonic()
    daemon.process.terminate()
    if reads:
        for stream in streams:
            assert stream.event()[0] == "message.sent"
            assert stream.event() is None
    assert daemon.end() == 0
    assert time.monotonic() - began < 3
    assert "stop_forced" not in daemon.log()


# Load --------------------------------------------------------------------------------------------


def send_many(daemon, count, connections=1, first=0):
    """Sends `count` broadcasts, many on the way at once; those of one connection arrive in order."""
    sockets = [connect(daemon.address) for _ in range(connections)]
    threads = [threading.Thread(target=pump, args=(s, range(first + i, first + count, connections)))
               for i, s in enumerate(sockets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pump(sock, numbers):
    stream = sock.makefile("rb")
    numbers = list(numbers)
    for start in range(0, len(numbers), 50):
        part = numbers[start:start + 50]
        sock.sendall(b"".join(json_post(
            "/v1/messages", b'{"to":["a%d"],"from":"%0100d","content":"x"}' % (n // 5000, n)) for n in part))
        for _ in part:
            length = 0
            assert stream.readline().startswith(b"HTTP/1.1 201")
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            stream.read(length)
    sock.close()


def rss_mib(daemon):
    for line in pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def growth_max_mib():
    """What a daemon may grow by under load. ASan keeps freed memory for a while, TSan a shadow of it."""
    return 600 if "libasan" in sanitizer() else 1500 if "libtsan" in sanitizer() else 60


class Crowd:
    """Many streams, read by one thread; counts events by their marks and keeps nothing else."""

    def __init__(self, daemon, count, owner_of=None):
        self.selector, self.sockets = selectors.DefaultSelector(), []
        self.events, self.gaps, self.tails = [0] * count, 0, [b""] * count
        self.running = True
        for i in range(count):
            sock = connect(daemon.address)
            extra = {"X_Lapse_Owner": owner_of(i)} if owner_of else {}
            sock.sendall(head("GET", "/v1/events", **extra))
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            self.sockets.append(sock)
            self.selector.register(sock, selectors.EVENT_READ, i)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        mark = b"\nevent: "
        while self.running:
            for key, _ in self.selector.select(0.1):
                i = key.data
                text = key.fileobj.recv(1 << 18)
                if not text:
                    self.selector.unregister(key.fileobj)
                text = self.tails[i] + text
                self.events[i] += text.count(mark)
                self.gaps += text.count(b"\nevent: gap")
                self.tails[i] = text[-7:] if not text.endswith(mark) else b""

    def stop(self):
        self.running = False
        self.thread.join()
        for sock in self.sockets:
            sock.close()


def raise_descriptor_limit(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n:
        pytest.skip(f"only {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n), hard))


def test_fast_readers_miss_nothing_and_slow_ones_get_a_gap(start):
    daemon = start(event_ring_bytes=262144, stream_backlog_max=2000, unread_max_per_agent=1000000,
                   sqlite_synchronous="off")
    count = 20000
    slow = Stream(daemon, rcvbuf=4096)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    crowd = Crowd(daemon, 10)
    before = rss_mib(daemon)
    began = time.monotonic()
    for sent in range(0, count, 1000):  # less than a backlog: Python is no fast reader of everything at once
        send_many(daemon, 1000, connections=32, first=sent)
        wait_until(lambda sent=sent: crowd.events == [sent + 1000] * 10, 10, crowd.events)
    rate = count / (time.monotonic() - began)
    crowd.stop()
    assert crowd.gaps == 0
    grown = rss_mib(daemon) - before
    print(f"{rate:.0f} events/s to 10 streams, RSS {before:.0f} MiB + {grown:.0f} MiB")
    assert grown < growth_max_mib()
    seen = 0
    while (event := slow.event())[0] != "gap":
        seen += 1
    assert event[1]["reason"] == "backlog" and 0 < seen < count - 2000
    send(daemon.client(), [count])
    assert slow.sent(1) == [count]
    slow.close()
    assert daemon.metric("lapse_stream_gaps_total") == 1


def heartbeats(owner, first, count):
    body = "\n".join(f"agent-{n},c" for n in range(first, first + count)).encode()
    return head("POST", "/v1/heartbeats", Content_Type="text/csv", Content_Length=len(body),
                X_Lapse_Owner=owner) + body


@pytest.mark.limit_s(300)
def test_a_thousand_streams_of_a_thousand_owners(start):
    """Each new agent is an event: gateways that report a hundred of them at once make the most."""
    raise_descriptor_limit(4096)
    daemon = start(connections_max=4000, agents_max=1000000)
    idle = rss_mib(daemon)
    crowd = Crowd(daemon, 1000, lambda i: f"owner-{i}")
    assert daemon.metric("lapse_streams") == 1000
    connected, rounds, batch, began = rss_mib(daemon), 2, 100, time.monotonic()
    lanes = [daemon.raw() for _ in range(16)]
    for i in range(0, rounds * 1000, len(lanes)):
        for k, lane in enumerate(lanes):
            lane.send(heartbeats(f"owner-{(i + k) % 1000}", (i + k) * batch, batch))
        for lane in lanes:
            assert lane.answer("POST").ok()["accepted"] == batch
    rate = rounds * 1000 * batch / (time.monotonic() - began)
    wait_until(lambda: crowd.events == [rounds * batch] * 1000, 10, "every event at its stream")
    after = rss_mib(daemon)
    crowd.stop()
    print(f"{rate:.0f} events/s to 1000 owners, RSS {idle:.0f} → {connected:.0f} → {after:.0f} MiB")
    assert crowd.gaps == 0
    # The agents themselves, the ring, SQLite's cache.
    assert connected - idle < growth_max_mib() and after - connected < 2 * growth_max_mib()
    wait_until(lambda: daemon.metric("lapse_streams") == 0, 5)


@pytest.mark.limit_s(300)
def test_a_thousand_streams_of_one_owner(start):
    raise_descriptor_limit(4096)
    daemon = start(connections_max=2000, streams_max_per_owner=1000)
    crowd = Crowd(daemon, 1000)
    send(daemon.client(), range(20))
    wait_until(lambda: crowd.events == [20] * 1000, 20, crowd.events[:10])
    began = time.monotonic()
    daemon.process.terminate()
    assert daemon.end() == 0
    assert time.monotonic() - began < 3
    crowd.stop()
