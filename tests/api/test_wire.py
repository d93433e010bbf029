# SPDX-License-Identifier: Apache-2.0
"""Bad input on the wire: sizes, heads that are no HTTP, half requests, slow clients."""
import time

import pytest

from client import head, json_post
from harness import Daemon

SEND = "/v1/agents/a/messages"
GOOD = b'{"from":"b","content":"x"}'
BODY_MAX = 1_048_576
HEADERS_MAX = 8192
TIMEOUT_MS = 400
BOUND_S = 5.0  # far more than the timeout, far less than for ever


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("impatient") / "data", request_timeout_ms=TIMEOUT_MS) as daemon:
        yield daemon


def sized(size):
    """A good body of exactly `size` bytes."""
    frame = b'{"from":"b","content":""}'  # 25 bytes
    return frame[:-2] + b"x" * (size - len(frame)) + frame[-2:]


def assert_untouched(daemon, **expected):
    api = daemon.client()
    api.get("/healthz").ok()
    assert {name: row["total"] for name, row in api.stats().items()} == expected
    assert len(daemon.rows("SELECT * FROM messages")) == sum(expected.values())


def answer_without_sending(daemon, data):
    """The answer to the first bytes of a request, when no more will come."""
    with daemon.raw() as connection:
        connection.send(data)
        return connection.answer("POST")


# Bodies over the limit ----------------------------------------------------------------------------

def test_a_body_of_exactly_the_limit_is_taken(daemon):
    with daemon.raw() as connection:
        connection.send(json_post(SEND, sized(BODY_MAX)))
        message = connection.answer("POST").ok(201)
    assert len(message["content"]) == BODY_MAX - 25
    assert_untouched(daemon, a=1)


def test_a_body_over_the_limit_by_one_byte(daemon):
    with daemon.raw() as connection:
        try:
            connection.send(json_post(SEND, sized(BODY_MAX + 1)))
        except ConnectionError:
            pass  # refused by its length, before the end
        answer = connection.answer_or_none("POST")
    if answer is not None:
        answer.fails(413, "too_large")
    assert_untouched(daemon)


@pytest.mark.parametrize("length", [BODY_MAX + 1, 10**10, 2**63 - 1])
def test_a_length_over_the_limit_is_refused_before_the_body(daemon, length):
    answer = answer_without_sending(daemon, head("POST", SEND, Content_Type="application/json", Content_Length=length))
    answer.fails(413, "too_large")
    assert_untouched(daemon)


def test_a_length_over_the_limit_with_expect_gets_no_continue(daemon):
    with daemon.raw() as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Content_Length=BODY_MAX + 1,
                             Expect="100-continue"))
        line = connection._stream.readline()
    assert line.startswith(b"HTTP/1.1 413"), line
    assert_untouched(daemon)


def test_expect_continue_of_a_good_request(daemon):
    with daemon.raw() as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Content_Length=len(GOOD),
                             Expect="100-continue"))
        assert connection._stream.readline().startswith(b"HTTP/1.1 100")
        assert connection._stream.readline() == b"\r\n"
        connection.send(GOOD)
        connection.answer("POST").ok(201)


def test_a_chunked_body(daemon):
    with daemon.raw() as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Transfer_Encoding="chunked"))
        for at in range(0, len(GOOD), 5):
            piece = GOOD[at:at + 5]
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        connection.answer("POST").ok(201)
    assert_untouched(daemon, a=1)


def test_a_chunked_body_over_the_limit(daemon):
    piece = b"x" * 65_536
    with daemon.raw() as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Transfer_Encoding="chunked"))
        try:
            connection.send(b'17\r\n{"from":"b","content":"\r\n')
            for _ in range(17):
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.send(b'2\r\n"}\r\n0\r\n\r\n')
        except ConnectionError:
            pass  # refused before the end
        answer = connection.answer_or_none("POST")
    if answer is not None:
        answer.fails(413, "too_large")
    assert_untouched(daemon)


def test_a_chunked_body_without_end_is_cut_off(daemon):
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    with daemon.raw(timeout_s=10) as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Transfer_Encoding="chunked"))
        with pytest.raises(ConnectionError):
            for _ in range(1024):
                connection.send(piece)
    assert_untouched(daemon)


@pytest.mark.parametrize("chunks", [b"zz\r\nx\r\n", b"-1\r\nx\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n",
                                    b"ffffffffffffffffff\r\nx\r\n", b"\r\n\r\n\r\n"], ids=repr)
def test_chunks_that_are_none(daemon, chunks):
    with daemon.raw() as connection:
        connection.send(head("POST", SEND, Content_Type="application/json", Transfer_Encoding="chunked") + chunks)
        connection.sock.shutdown(1)
        answer = connection.answer_or_none("POST")
    assert answer is None or answer.status in (400, 413), repr(answer)
    assert_untouched(daemon)


def test_body_limit_is_a_setting(start):
    daemon = start(body_max_bytes=2048)
    with daemon.raw() as connection:
        connection.send(json_post(SEND, sized(2048)))
        connection.answer("POST").ok(201)
        connection.send(json_post(SEND, sized(2049)))
        connection.answer("POST").fails(413, "too_large")
    assert_untouched(daemon, a=1)


# Header bombs -------------------------------------------------------------------------------------

@pytest.mark.parametrize("bomb", [
    b"X-Large: " + b"x" * 20_000 + b"\r\n",
    b"".join(b"X-%d: x\r\n" % i for i in range(5_000)),
    b"Cookie: " + b"a=b; " * 100_000 + b"\r\n",
    b"X-" + b"n" * 30_000 + b": x\r\n",
], ids=["one large", "many small", "half a megabyte", "a long name"])
def test_header_bombs(daemon, bomb):
    with daemon.raw() as connection:
        try:
            connection.send(b"GET " + SEND.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + bomb + b"\r\n")
        except ConnectionError:
            pass  # refused before the end
        answer = connection.answer_or_none()
    if answer is not None:
        assert answer.status == 431, repr(answer)
    assert_untouched(daemon)


def test_a_header_bomb_gets_431(daemon):
    with daemon.raw() as connection:
        connection.send(head("GET", SEND, X_Large="x" * HEADERS_MAX))
        connection.answer().fails(431, "headers_too_large")
    assert_untouched(daemon)


def test_headers_under_the_limit_are_fine(daemon):
    with daemon.raw() as connection:
        connection.send(head("GET", SEND, **{f"X_{i}": "y" * 100 for i in range(60)}))
        connection.answer().ok()


def test_the_limit_of_headers_is_a_setting(start):
    daemon = start(headers_max_bytes=65_536)
    with daemon.raw() as connection:
        connection.send(head("GET", SEND, X_Large="x" * 60_000))
        connection.answer().ok()
        connection.send(head("GET", SEND, X_Large="x" * 66_000))
        connection.answer().fails(431, "headers_too_large")


@pytest.mark.parametrize("size", [20_000, 300_000])
def test_a_request_line_that_is_too_long(daemon, size):
    with daemon.raw() as connection:
        try:
            connection.send(head("GET", SEND + "?after=" + "x" * size))
        except ConnectionError:
            pass
        answer = connection.answer_or_none()
    assert answer is None or answer.status in (400, 414, 431), repr(answer)
    assert_untouched(daemon)


# No HTTP ------------------------------------------------------------------------------------------

NO_HTTP = {
    "garbage": b"\x00\x01\x02\x03\xff\xfe\r\n\r\n",
    "words": b"hello there\r\n\r\n",
    "no version": b"GET /healthz\r\nHost: 127.0.0.1\r\n\r\n",
    "wrong version": b"GET /healthz HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"POST /v1/agents/a/messages HTTP/1.1\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD,
    "header without colon": b"POST /v1/agents/a/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nnonsense\r\n"
                            b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n",
    "length of letters": head("POST", SEND, Content_Type="application/json", Content_Length="abc") + GOOD,
    "negative length": head("POST", SEND, Content_Type="application/json", Content_Length="-5") + GOOD,
    "length beyond 64 bits": head("POST", SEND, Content_Type="application/json",
                                  Content_Length="99999999999999999999999") + GOOD,
    "two lengths": b"POST /v1/agents/a/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\nContent-Length: 3\r\n\r\n" % len(GOOD) + GOOD,
    "length and chunks": head("POST", SEND, Content_Type="application/json", Content_Length=len(GOOD),
                              Transfer_Encoding="chunked") + GOOD,
    "unknown coding": head("POST", SEND, Content_Type="application/json", Transfer_Encoding="gzip") + GOOD,
    "two hosts": b"POST /v1/agents/a/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(GOOD) + GOOD,
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_no_http(start, data):
    daemon = start(request_timeout_ms=TIMEOUT_MS)
    with daemon.raw(timeout_s=10) as connection:
        connection.send(data)
        connection.sock.shutdown(1)
        answer = connection.answer_or_none("POST")
    assert answer is None or 400 <= answer.status < 600, repr(answer)
    assert_untouched(daemon)


# Half requests ------------------------------------------------------------------------------------

WHOLE = json_post(SEND, GOOD)


@pytest.mark.parametrize("cut", [1, 10, 40, WHOLE.index(b"\r\n\r\n"), WHOLE.index(b"\r\n\r\n") + 2,
                                 len(WHOLE) - len(GOOD), len(WHOLE) - 1])
@pytest.mark.parametrize("end", ["close", "shutdown"])
def test_half_a_request_writes_nothing(impatient, cut, end):
    with impatient.raw(timeout_s=BOUND_S) as connection:
        connection.send(WHOLE[:cut])
        if end == "shutdown":
            connection.sock.shutdown(1)
            answer = connection.answer_or_none("POST")
            assert answer is None or answer.status in (400, 408), repr(answer)
    assert_untouched(impatient)


def test_a_request_in_single_bytes(start):
    daemon = start()
    with daemon.raw() as connection:
        for byte in WHOLE:
            connection.send(bytes([byte]))
        connection.answer("POST").ok(201)
    assert_untouched(daemon, a=1)


def test_a_client_that_leaves_before_the_answer_does_no_harm(start):
    daemon = start()
    for _ in range(20):
        with daemon.raw() as connection:
            connection.send(WHOLE)
    daemon.client().get("/healthz").ok()
    assert daemon.client().send("b")["to"] == "b"


# Slow clients -------------------------------------------------------------------------------------

def ends_within(connection, begun):
    """Reads to the end; the connection must be closed in time, with a 408 or without a word."""
    answer = connection.answer_or_none("POST")
    if answer is not None:
        answer.fails(408, "timeout")
        assert connection.closed()
    assert time.monotonic() - begun < BOUND_S


@pytest.mark.parametrize("sent", [b"", b"P", WHOLE[:40], WHOLE[:-len(GOOD)], WHOLE[:-1]],
                         ids=["nothing", "a byte", "half a head", "a head", "all but a byte"])
def test_a_silent_client_is_closed(impatient, sent):
    begun = time.monotonic()
    with impatient.raw() as connection:
        connection.send(sent)
        ends_within(connection, begun)
    assert time.monotonic() - begun > TIMEOUT_MS / 1000 / 2
    assert_untouched(impatient)


@pytest.mark.parametrize("before", [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", WHOLE[:-len(GOOD)]],
                         ids=["in the head", "in the body"])
def test_a_client_that_drips_is_closed_all_the_same(impatient, before):
    """A byte now and then does not stretch the time for a request."""
    begun = time.monotonic()
    with impatient.raw(timeout_s=0.05) as connection:
        connection.send(before)
        while True:
            assert time.monotonic() - begun < BOUND_S, "still open"
            try:
                connection.send(b" ")
                if connection.sock.recv(65536) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert_untouched(impatient)


def test_an_idle_connection_is_closed(impatient):
    with impatient.raw() as connection:
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()
        begun = time.monotonic()
        ends_within(connection, begun)


def test_others_are_served_while_slow_clients_wait(impatient):
    slow = [impatient.raw() for _ in range(50)]
    try:
        for connection in slow:
            connection.send(WHOLE[:-1])
        begun = time.monotonic()
        for _ in range(10):
            impatient.client().get("/healthz").ok()
        assert time.monotonic() - begun < BOUND_S
    finally:
        for connection in slow:
            connection.close()


def test_a_long_poll_is_not_a_slow_client(impatient):
    begun = time.monotonic()
    answer = impatient.client().list("nobody", wait_ms=TIMEOUT_MS * 3)
    assert answer.data == [] and time.monotonic() - begun >= TIMEOUT_MS * 3 / 1000 - 0.01


def test_a_client_that_does_not_read_its_answers(start):
    """Answers nobody fetches are bounded by the socket; others are served."""
    daemon = start(request_timeout_ms=1000)
    api = daemon.client()
    for _ in range(5):
        api.send("a", content="x" * 200_000)
    with daemon.raw(timeout_s=2) as connection:
        try:
            connection.send(head("GET", SEND) * 200)
        except (TimeoutError, ConnectionError):
            pass
        begun = time.monotonic()
        assert daemon.client().send("b")["to"] == "b"
        assert time.monotonic() - begun < 5


# Routes and methods -------------------------------------------------------------------------------

@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v2/agents/a/messages", "/v1/agents/a/message",
                                  "/V1/agents/a/messages", "/v1/agents/a/messages/x/y/z",
                                  "/v1//messages", "/healthz/", "/../etc/passwd", "/v1/agents/a/messages/%2e%2e/x",
                                  "/favicon.ico", "/v1/mailbox"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_unknown_routes(shared, method, path):
    shared.client().request(method, path).fails(404, "not_found")


ALLOWED = {
    "/healthz": {"GET", "HEAD"}, "/metrics": {"GET", "HEAD"}, "/openapi.json": {"GET", "HEAD"},
    SEND: {"GET", "HEAD", "POST"}, SEND + "/00000000deadbeef": {"GET", "HEAD"}, "/v1/messages": {"POST"},
    "/v1/agents/a/messages/00000000deadbeef/read": {"POST"}, "/v1/messages/stats": {"GET", "HEAD"},
    "/v1/holds/messages/x": {"GET", "HEAD", "PUT", "DELETE"}, "/v1/tokens": {"GET", "HEAD", "POST"},
    "/v1/tokens/x": {"DELETE"}, "/v1/sweep/messages": {"POST"}, "/v1/backup": {"POST"},
}
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW")


@pytest.mark.parametrize("path,method", [(path, method) for path, allowed in ALLOWED.items()
                                         for method in METHODS if method not in allowed])
def test_wrong_methods(shared, method, path):
    answer = shared.client().request(method, path)
    answer.fails(405, "method_not_allowed")
    assert {name.strip() for name in answer.headers["Allow"].split(",")} - {"OPTIONS"} == ALLOWED[path]
    assert_untouched(shared)


def test_connect_and_absolute_targets_do_not_proxy(shared):
    for line in (b"CONNECT example.org:443 HTTP/1.1", b"GET http://example.org/healthz HTTP/1.1"):
        with shared.raw() as connection:
            connection.send(line + b"\r\nHost: example.org\r\n\r\n")
            answer = connection.answer_or_none()
            assert answer is None or 400 <= answer.status < 500, repr(answer)


def test_a_path_of_raw_bytes_gets_an_answer_in_utf_8(shared):
    for path in (b"/nowhere/\xff\xfe", b"/nowhere/" + b"\xc3\xa9" * 200, b"/nowhere/x" + b"\xc3\xa9" * 200):
        with shared.raw() as connection:
            connection.send(b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = connection.answer_or_none()
            assert answer is None or answer.status in (400, 404), repr(answer)
            assert answer is None or answer.json()["error"]["message"]


def test_a_trailing_slash_is_another_route(shared):
    shared.client().get(SEND + "/").fails(404, "not_found")


def test_there_is_no_cors(shared):
    for method in ("GET", "OPTIONS"):
        answer = shared.client().request(method, SEND, headers={"Access-Control-Request-Method": "POST"})
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_an_idle_connection_ends_without_a_word(start):
    """Its client would take a 408 for the answer to the next request."""
    daemon = start(request_timeout_ms=200)
    with daemon.raw() as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.answer("GET").status == 200
        assert connection.answer_or_none() is None
