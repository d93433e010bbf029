# SPDX-License-Identifier: Apache-2.0
"""Abuse of connections: heads that hide a second request, clients that never read, half requests, floods."""
import contextlib
import socket
import struct
import time

import pytest

from client import head, json_post
from harness import wait_until

SEND = "/v1/agents/victim/messages"
SMUGGLED = json_post("/v1/agents/smuggled/messages", b'{"from":"b","content":"x"}')


def exchange(daemon, data):
    """Everything the server says to these bytes, until it closes."""
    said = b""
    with daemon.raw(timeout_s=10) as connection:
        connection.send(data)
        with contextlib.suppress(ConnectionError):
            while piece := connection.sock.recv(65536):
                said += piece
    return said


def assert_one_answer(said, status):
    assert said.count(b"HTTP/1.1 ") == 1, said
    assert said.startswith(b"HTTP/1.1 %d" % status), said


# Heads that are read in two ways (line 12) --------------------------------------------------------

def post_with(*lines):
    return b"\r\n".join([b"POST " + SEND.encode() + b" HTTP/1.1", b"Host: 127.0.0.1", *lines]) + b"\r\n\r\n"


HIDING = {
    "space before the colon": post_with(b"Content-Length : %d" % len(SMUGGLED)),
    "tab before the colon": post_with(b"Content-Length\t: %d" % len(SMUGGLED)),
    "space in a coding's name": post_with(b"Transfer-Encoding : chunked"),
    "NUL in a name": post_with(b"Content-Length\0: %d" % len(SMUGGLED)),
    "NUL in a value": post_with(b"X-Note: a\0b"),
    "NUL at the end of a value": post_with(b"X-Note: a\0"),
    "a line that begins with NUL": post_with(b"X-Note: a", b"\0Content-Length: %d" % len(SMUGGLED)),
    "a line of NUL": post_with(b"X-Note: a", b"\0"),
    "the first line begins with NUL": post_with(b"\0X: y"),
    "a folded line": post_with(b"X-Note: a", b" Content-Length: %d" % len(SMUGGLED)),
    "a bare CR": post_with(b"X-Note: a\rContent-Length: %d" % len(SMUGGLED)),
    "a bare LF": post_with(b"X-Note: a\nX-Other: b"),
    "a control character": post_with(b"X-Note: a\x01"),
    "no name": post_with(b": x"),
    "a name in brackets": post_with(b"X(Note): a"),
    "NUL in the path": b"POST /v1/agents/a\0b/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "NUL and a version in the path": b"GET /healthz\0HTTP/1.1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "NUL in the method": b"GET\0X /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a space in the path": b"GET /health z HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a coding we do not know": post_with(b"Transfer-Encoding: gzip, chunked"),
    "two lengths": post_with(b"Content-Length: 0", b"Content-Length: %d" % len(SMUGGLED)),
    "a length and chunks": post_with(b"Content-Length: 0", b"Transfer-Encoding: chunked"),
    "chunks in HTTP/1.0": b"POST " + SEND.encode() + b" HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("data", HIDING.values(), ids=HIDING.keys())
def test_a_head_that_is_no_proper_one_is_400_and_the_end(shared, data):
    said = exchange(shared, data + SMUGGLED)
    assert_one_answer(said, 400)
    assert b"smuggled" not in said
    assert "smuggled" not in shared.client().stats()


def test_nothing_follows_a_chunked_body(shared):
    """Its trailers are read by the library alone: what comes after them is never a request."""
    body = b'{"from":"b","content":"x"}'
    data = head("POST", "/v1/agents/chunks/messages", Content_Type="application/json", Transfer_Encoding="chunked")
    said = exchange(shared, data + b"%x\r\n%s\r\n0\r\n\0Trailer\r\n" % (len(body), body) + SMUGGLED)
    assert said.count(b"HTTP/1.1 ") == 1 and "smuggled" not in shared.client().stats()


def test_a_good_head_in_pieces_is_still_a_good_head(shared):
    with shared.raw() as connection:
        for line in post_with(b"Content-Type: application/json", b"X-Empty:", b"X-Spaces:  \t a b ",
                              b"Content-Length: 26").splitlines(keepends=True):
            connection.send(line)
            time.sleep(0.01)
        connection.send(b'{"from":"b","content":"x"}')
        connection.answer("POST").ok(201)
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()


# Answers to what cannot be answered (line 18) -----------------------------------------------------

@pytest.mark.parametrize("length", ["abc", "-5", "+5", "5 5", "0x10", "99999999999999999999999", "", "5,5"])
def test_a_length_that_is_no_number_gets_one_400(shared, length):
    said = exchange(shared, head("POST", SEND, Content_Type="application/json", Content_Length=length) + b"12345")
    assert said.count(b"HTTP/1.1 ") == 1, said
    assert said.split()[1] in (b"400", b"413") and b"<html>" not in said, said
    assert b'"error"' in said


def test_no_host_is_our_400(shared):
    said = exchange(shared, b"GET /healthz HTTP/1.1\r\nAccept: */*\r\n\r\n")
    assert_one_answer(said, 400)
    assert b'"code":"invalid_request"' in said and b"Host" in said


def test_http_1_0_needs_no_host(shared):
    assert b'"status":"ok"' in exchange(shared, b"GET /healthz HTTP/1.0\r\n\r\n")


def test_the_absolute_form_works(shared):
    host = b"127.0.0.1:%d" % shared.port
    for target in (b"http://" + host + b"/healthz", b"HTTP://localhost/healthz?"):
        with shared.raw() as connection:
            connection.send(b"GET " + target + b" HTTP/1.1\r\nHost: ignored.example\r\n\r\n")
            connection.answer().ok()


@pytest.mark.parametrize("target", [b"http://evil.example/v1/matrix", b"http:///v1/matrix",
                                    b"http://a@127.0.0.1/v1/matrix", b"ftp://127.0.0.1/v1/matrix"])
def test_the_host_of_the_absolute_form_counts(shared, target):
    with shared.raw() as connection:
        connection.send(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.answer().status in (400, 403, 404)


def test_a_long_name_of_a_file_to_stage_is_400(start, tmp_path):
    daemon = start(attachment_stage_roots=tmp_path)
    for name in ("x" * 300, "y" * 256):
        body = {"path": f"{tmp_path}/{name}"}
        daemon.client().post("/v1/attachments/stage", body).fails(400, "invalid_request", names="path")
    daemon.client().upload(b"x", name="n" * 300).fails(400, "invalid_request", names="name")


# Bodies of requests that have failed already (line 6) ---------------------------------------------

def resident_mib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def unread_bytes(daemon):
    """What lies in the kernel for the daemon to read."""
    with open("/proc/net/tcp", encoding="ascii") as sockets:
        lines = [line.split() for line in list(sockets)[1:]]
    return sum(int(line[4].split(":")[1], 16) for line in lines
               if int(line[1].split(":")[1], 16) == daemon.port and line[3] == "01")


def test_bodies_of_strangers_are_dropped_as_they_come(start):
    daemon = start()
    daemon.client().token("somebody", admin=True)
    before = resident_mib(daemon)
    body = b'{"from":"b","content":"' + b"x" * 1_000_000
    data = head("POST", SEND, Content_Type="application/json", Content_Length=len(body) + 2) + body
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(daemon.raw()).send(data)
        wait_until(lambda: unread_bytes(daemon) == 0, what="the daemon to have read everything")
        assert resident_mib(daemon) - before < 20
    with daemon.raw() as connection:
        connection.send(data + b'"}')
        connection.answer("POST").fails(401, "unauthorized")


# Clients that never read (line 2) -----------------------------------------------------------------

def test_a_client_that_never_reads_is_let_go(start):
    daemon = start(reply_timeout_ms=500, request_timeout_ms=60_000)
    api = daemon.client()
    for _ in range(4):
        api.send("big", content="x" * 1_000_000)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(daemon.raw())
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sock.settimeout(0.2)
            with contextlib.suppress(OSError):
                connection.send(head("GET", "/v1/agents/big/messages") * 20)
        wait_until(lambda: daemon.metric("lapse_http_connections") <= 3, timeout_s=20)


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_slow_reader_of_a_large_reply_is_not_cut(start, tmp_path, unix):
    daemon = start(reply_timeout_ms=300, **({"listen": f"unix:{tmp_path}/s"} if unix else {}))
    api = daemon.client()
    for _ in range(3):
        api.send("big", content="x" * 900_000)
    with daemon.raw() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(head("GET", "/v1/agents/big/messages", Connection="close"))
        taken = 0
        begun = time.monotonic()
        while piece := connection.sock.recv(65536):
            taken += len(piece)
            if time.monotonic() - begun < 3:
                time.sleep(0.05)
    assert taken > 1_800_000  # a page of two, which is what a page may have


# Half requests and one client too many (line 8) ---------------------------------------------------

def test_past_the_limit_a_client_gets_503_at_once(start):
    daemon = start(connections_max=20, head_timeout_ms=60_000)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(daemon.raw()).send(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(10):
            begun = time.monotonic()
            with daemon.raw(timeout_s=5) as connection:
                connection.send(head("GET", "/healthz"))
                answer = connection.answer()
            answer.fails(503, "unavailable")
            assert answer.headers["Retry-After"] and answer.headers["Connection"] == "close"
            assert time.monotonic() - begun < 2


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("way", ["reset", "closed"])
def test_long_polls_of_clients_that_hung_up_leave_room_for_others(start, way, at_once):
    daemon = start(connections_max=40)
    for i in range(200 // at_once):
        for _ in range(at_once):
            with daemon.raw() as connection:
                connection.send(json_post(f"/v1/agents/{i}/messages/claim", b'{"wait_ms":60000}'))
                if way == "reset":
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert daemon.client().get("/healthz").status == 200, f"after {i + 1} times {at_once} clients"


def test_long_polls_that_go_on_are_not_disturbed_when_connections_are_scarce(start):
    daemon = start(connections_max=40)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(daemon.raw()) for _ in range(35)]
        for i, connection in enumerate(waiting):
            connection.send(json_post(f"/v1/agents/{i}/messages/claim", b'{"wait_ms":60000}'))
        for i, connection in enumerate(waiting):
            if i % 10 == 0:
                connection.close()
                continue
            daemon.client().send(str(i))
            assert len(connection.answer("POST").ok()["data"]) == 1


def test_half_requests_have_a_short_deadline_of_their_own(start):
    daemon = start(connections_max=20, head_timeout_ms=300)
    with contextlib.ExitStack() as stack:
        for half in (b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nX-Sl"):
            for _ in range(10):
                stack.enter_context(daemon.raw()).send(half)
        wait_until(lambda: daemon.client().get("/healthz").status == 200, timeout_s=5)


def test_an_idle_connection_may_wait_longer_than_a_half_request(start):
    daemon = start(head_timeout_ms=100)
    with daemon.raw() as connection:
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()
        time.sleep(0.5)
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()
