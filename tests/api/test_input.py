# SPDX-License-Identifier: Apache-2.0
"""Bad input: bodies, fields, ids, queries. Whatever is refused writes nothing.

What is wrong below the level of JSON (heads, sizes, slow clients) is in test_wire.py.
"""
import json

import pytest

from client import head, json_post, q

SEND = "/v1/agents/a/messages"
ROUTES_WITH_BODY = [
    ("POST", SEND, {"from": "b", "content": "x"}),
    ("POST", "/v1/messages", {"to": ["a"], "from": "b", "content": "x"}),
    ("POST", "/v1/agents/a/messages/00000000deadbeef/read", {}),
    ("POST", "/v1/agents/a/messages/read", {"ids": ["00000000deadbeef"]}),
    ("POST", "/v1/agents/a/messages/claim", {}),
    ("POST", "/v1/tokens", {"owner": "o"}),
    ("PUT", "/v1/holds/messages/00000000deadbeef", {"reason": "r"}),
]
ROUTE_IDS = [f"{method} {path}" for method, path, _ in ROUTES_WITH_BODY]


@pytest.fixture
def api(shared):
    """A client; whatever the test did with it, nothing was written by it."""
    client = shared.client()
    yield client
    client.get("/healthz").ok()
    assert client.stats() == {}
    for table in ("messages", "tokens", "holds", "idempotency_keys"):
        assert shared.rows(f"SELECT * FROM {table}") == [], table
    assert [row["kind"] for row in shared.rows("SELECT kind FROM events")] == ["settings.in_force"]  # of the start


def post_raw(api, body, path=SEND, method="POST", kind="application/json"):
    headers = {} if kind is None else {"Content-Type": kind}
    return api.request(method, path, body=body, headers=headers)


# Not JSON -----------------------------------------------------------------------------------------

MALFORMED = {
    "empty": b"",
    "white space": b" \r\n\t",
    "cut short": b'{"from":"b","content":"x"',
    "cut in a string": b'{"from":"b","content":"x',
    "no quotes": b"{from:1}",
    "single quotes": b"{'from':'b','content':'x'}",
    "trailing comma": b'{"from":"b","content":"x",}',
    "comment": b'{"from":"b",/* c */"content":"x"}',
    "NaN": b'{"from":"b","content":"x","metadata":{"n":NaN}}',
    "Infinity": b'{"from":"b","content":"x","metadata":{"n":Infinity}}',
    "number too large": b'{"from":"b","content":"x","metadata":{"n":1e999}}',
    "leading zero": b'{"from":"b","content":"x","metadata":{"n":01}}',
    "hexadecimal": b'{"from":"b","content":"x","metadata":{"n":0x10}}',
    "plus sign": b'{"from":"b","content":"x","metadata":{"n":+1}}',
    "byte order mark": b'\xef\xbb\xbf{"from":"b","content":"x"}',
    "trailing garbage": b'{"from":"b","content":"x"}garbage',
    "two documents": b'{"from":"b","content":"x"}{"from":"b","content":"x"}',
    "trailing bracket": b'{"from":"b","content":"x"}}',
    "trailing NUL": b'{"from":"b","content":"x"}\0',
    "bare word": b"nope",
    "raw control character": b'{"from":"b","content":"a\nb"}',
    "raw NUL": b'{"from":"b","content":"a\0b"}',
    "bad escape": b'{"from":"b","content":"\\x41"}',
    "short unicode escape": b'{"from":"b","content":"\\u00"}',
    "lone high surrogate": b'{"from":"b","content":"\\ud800"}',
    "lone low surrogate": b'{"from":"b","content":"\\udc00x"}',
    "escaped NUL": b'{"from":"b","content":"a\\u0000b"}',
    "escaped NUL in a key": b'{"from":"b","content":"x","metadata":{"a\\u0000b":1}}',
    "form": b"from=b&content=x",
    "UTF-16": '{"from":"b","content":"x"}'.encode("utf-16"),
}
INVALID_UTF8 = {
    "lone continuation": b"\x80", "latin-1": b"gr\xfc\xdfe", "overlong slash": b"\xc0\xaf",
    "overlong NUL": b"\xc0\x80", "surrogate": b"\xed\xa0\x80", "beyond Unicode": b"\xf4\x90\x80\x80",
    "cut short": b"\xe2\x82", "five bytes": b"\xf8\x88\x80\x80\x80", "0xff": b"\xff",
}
DUPLICATES = {
    "top": b'{"from":"b","content":"x","content":"y"}',
    "top, the same value": b'{"from":"b","from":"b","content":"x"}',
    "metadata": b'{"from":"b","content":"x","metadata":{"k":1,"k":2}}',
    "deep in metadata": b'{"from":"b","content":"x","metadata":{"l":[{"k":1,"k":1}]}}',
    "by escape": b'{"from":"b","content":"x","\\u0063ontent":"y"}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json(api, body):
    post_raw(api, body).fails(400, "invalid_request")


@pytest.mark.parametrize("body", DUPLICATES.values(), ids=DUPLICATES.keys())
def test_duplicate_keys(api, body):
    post_raw(api, body).fails(400, "invalid_request")


@pytest.mark.parametrize("text", INVALID_UTF8.values(), ids=INVALID_UTF8.keys())
@pytest.mark.parametrize("template", [b'{"from":"b","content":"%s"}', b'{"from":"%s","content":"x"}',
                                      b'{"from":"b","content":"x","metadata":{"%s":1}}'],
                         ids=["content", "from", "a key"])
def test_invalid_utf8(api, template, text):
    post_raw(api, template % text).fails(400, "invalid_request")


@pytest.mark.parametrize("depth", [3_000, 100_000])
@pytest.mark.parametrize("opening,closing", [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_deep_nesting(api, depth, opening, closing):
    value = opening * depth + b"1" + closing * depth
    for body in (b'{"from":"b","content":"x","metadata":{"m":' + value + b"}}", opening * depth):
        answer = post_raw(api, body)
        if depth < 100_000:
            answer.fails(400, "invalid_request")
        else:
            assert answer.status in (400, 413), repr(answer)  # more values than body_max_values


@pytest.mark.parametrize("method,path,body", ROUTES_WITH_BODY, ids=ROUTE_IDS)
@pytest.mark.parametrize("text", [b"[]", b"null", b'"x"', b"1", b"true", b"{", b"{} {}", b'{"a":1,"a":1}', b"\xff"])
def test_every_route_wants_one_object(api, method, path, body, text):
    post_raw(api, text, path, method).fails(400, "invalid_request")


@pytest.mark.parametrize("method,path,body", ROUTES_WITH_BODY, ids=ROUTE_IDS)
@pytest.mark.parametrize("field", ["unknown", "FROM", "", "__proto__", "id", "read"])
def test_unknown_fields(api, method, path, body, field):
    api.request(method, path, json_body={**body, field: 1}).fails(400, "invalid_request", names=field)


@pytest.mark.parametrize("method,path,body", ROUTES_WITH_BODY, ids=ROUTE_IDS)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                                  "application/problem+json", "multipart/form-data; boundary=x",
                                  "text/json", "json", ""])
def test_wrong_content_type(api, method, path, body, kind):
    answer = post_raw(api, json.dumps(body).encode(), path, method, kind)
    answer.fails(415, "unsupported_media_type")


def test_no_content_type(api):
    post_raw(api, b'{"from":"b","content":"x"}', kind=None).fails(415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON",
                                  "application/json;charset=UTF-8", "application/json ; charset=\"utf-8\""])
def test_right_content_types(start, kind):
    post_raw(start().client(), b'{"from":"b","content":"x"}', kind=kind).ok(201)


def test_white_space_around_json_is_fine(start):
    post_raw(start().client(), b' \n\t{"from" : "b","content":"x"}\r\n ').ok(201)


# Wrong fields -------------------------------------------------------------------------------------

WRONG_STRINGS = [1, 1.5, True, None, [], {}, ["x"]]


@pytest.mark.parametrize("value", WRONG_STRINGS, ids=repr)
@pytest.mark.parametrize("field", ["from", "content", "type"])
def test_strings_of_another_type(api, field, value):
    body = {"from": "b", "content": "x", field: value}
    api.post(SEND, body).fails(400, "invalid_request", names=field)
    api.post("/v1/messages", {"to": ["a"], **body}).fails(400, "invalid_request", names=field)


@pytest.mark.parametrize("value", ["x", 1, True, None, [], [{}]], ids=repr)
def test_metadata_is_an_object(api, value):
    api.post(SEND, {"from": "b", "content": "x", "metadata": value}).fails(400, "invalid_request", names="metadata")


@pytest.mark.parametrize("field", ["from", "content"])
def test_missing_fields(api, field):
    body = {"from": "b", "content": "x"}
    del body[field]
    api.post(SEND, body).fails(400, "invalid_request", names=field)
    api.post("/v1/messages", {"to": ["a"], **body}).fails(400, "invalid_request", names=field)


def test_missing_recipients(api):
    api.post("/v1/messages", {"from": "b", "content": "x"}).fails(400, "invalid_request", names="to")


@pytest.mark.parametrize("value", ["", "x" * 65, "é" * 33, "a\nb", "\x7f", "\x1b[0m", "\x85"], ids=repr)
def test_type_out_of_range(api, value):
    api.post(SEND, {"from": "b", "content": "x", "type": value}).fails(400, "invalid_request", names="type")


@pytest.mark.parametrize("body,field", [
    ({}, "owner"), ({"owner": ""}, "owner"), ({"owner": 1}, "owner"), ({"owner": "a\nb"}, "owner"),
    ({"owner": "x" * 129}, "owner"), ({"owner": "a/b"}, "owner"), ({"owner": "o", "admin": "true"}, "admin"),
    ({"owner": "o", "admin": 1}, "admin"), ({"owner": "o", "ttl_ms": 0}, "ttl_ms"),
    ({"owner": "o", "ttl_ms": -1}, "ttl_ms"), ({"owner": "o", "ttl_ms": "1"}, "ttl_ms"),
    ({"owner": "o", "ttl_ms": 1.5}, "ttl_ms"), ({"owner": "o", "ttl_ms": 9223372036854775807}, "ttl_ms"),
])
def test_tokens_refuse(api, body, field):
    api.post("/v1/tokens", body).fails(400, "invalid_request", names=field)


# Ids ----------------------------------------------------------------------------------------------

BAD_IDS = {
    "too long": "x" * 129, "too long in bytes": "%C3%A9" * 65, "control character": "a%01b", "new line": "a%0Ab",
    "NUL": "a%00b", "DEL": "a%7Fb", "C1 control": "a%C2%85b", "slash": "a%2Fb", "only a slash": "%2F",
    "invalid UTF-8": "%FF", "overlong": "%C0%AF", "surrogate": "%ED%A0%80", "cut UTF-8": "a%E2%82",
    "percent of nothing": "a%", "percent of one": "a%4", "percent of letters": "a%zz",
}
UNDECODABLE = {"a%00b", "a%", "a%4", "a%zz"}


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS.keys())
def test_bad_agent_ids_in_a_path(api, bad):
    for method, path, body in [("POST", "", {"from": "b", "content": "x"}), ("GET", "", None),
                               ("GET", "/00000000deadbeef", None), ("POST", "/claim", {}),
                               ("POST", "/read", {"ids": ["00000000deadbeef"]}),
                               ("POST", "/00000000deadbeef/read", {})]:
        answer = api.request(method, f"/v1/agents/{bad}/messages{path}", json_body=body)
        answer.fails(400, "invalid_request", names=None if bad in UNDECODABLE else "agent")


@pytest.mark.parametrize("bad", ["", "x" * 129, "é" * 65, "a\x01b", "a\nb", "a\x7fb", "a\x85b", "a/b"], ids=repr)
def test_bad_agent_ids_in_a_body(api, bad):
    api.post(SEND, {"from": bad, "content": "x"}).fails(400, "invalid_request", names="from")
    api.post("/v1/messages", {"to": ["a", bad], "from": "b", "content": "x"}).fails(400, "invalid_request", names="to")


def test_an_empty_agent_id(api):
    answer = api.post("/v1/agents//messages", {"from": "b", "content": "x"})
    assert answer.status in (400, 404), repr(answer)
    assert answer.json()["error"]["code"] in ("invalid_request", "not_found")


def test_bad_bytes_in_a_path(shared, api):
    for path in (b"/v1/agents/\xff/messages", b"/v1/agents/a\x01b/messages", b"/v1/agents/gr\xc3/messages"):
        with shared.raw() as connection:
            connection.send(b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = connection.answer_or_none()
            assert answer is None or answer.status == 400, repr(answer)


# Queries ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("path", [SEND, "/v1/messages/stats", "/v1/holds", "/v1/tokens"])
@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "x", "", "1e1", "0x10", " 5", "+5", "5 ",
                                   "99999999999999999999"])
def test_limit_out_of_range(api, path, limit):
    api.get(path, limit=limit).fails(400, "invalid_request", names="limit")


@pytest.mark.parametrize("value", ["1", "0", "TRUE", "True", "yes", "", "tru", "null"])
def test_booleans_are_true_or_false(api, value):
    api.get(SEND, unread=value).fails(400, "invalid_request", names="unread")


@pytest.mark.parametrize("method,path", [
    ("GET", SEND), ("GET", SEND + "/00000000deadbeef"), ("GET", "/v1/messages/stats"), ("GET", "/v1/matrix"),
    ("GET", "/v1/holds"), ("GET", "/v1/tokens"), ("POST", "/v1/sweep/messages"), ("POST", "/v1/backup"),
    ("POST", SEND), ("POST", "/v1/messages"), ("POST", "/v1/agents/a/messages/claim"), ("POST", "/v1/tokens"),
])
@pytest.mark.parametrize("name", ["unknown", "Limit", "page"])
def test_unknown_query_parameters(api, method, path, name):
    body = dict((p, b) for _, p, b in ROUTES_WITH_BODY).get(path) if method == "POST" else None
    answer = api.request(method, f"{path}?{name}=1", json_body=body)
    answer.fails(400, "invalid_request", names=name)


@pytest.mark.parametrize("query", ["limit=1&limit=2", "unread=true&unread=false", "limit=1&limit=1"])
def test_a_query_parameter_given_twice(api, query):
    api.get(f"{SEND}?{query}").fails(400, "invalid_request", names=query.split("=")[0])


@pytest.mark.parametrize("query", ["limit=%zz", "limit=%", "after=%FF", "%FF=1", "after=a%00b"])
def test_queries_that_do_not_decode(api, query):
    api.get(f"{SEND}?{query}").fails(400, "invalid_request")


# Headers of the contract --------------------------------------------------------------------------

@pytest.mark.parametrize("key", [b"", b"x" * 129, b"a\x01b", b"a\x7fb", b"\xff\xfe"], ids=repr)
def test_bad_idempotency_keys(shared, api, key):
    body = b'{"from":"b","content":"x"}'
    with shared.raw() as connection:
        connection.send(b"POST " + SEND.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\nIdempotency-Key: " % len(body) + key + b"\r\n\r\n" + body)
        connection.answer("POST").fails(400, "invalid_request", names="Idempotency-Key")


def test_an_error_names_what_was_wrong_only(api):
    """The text of an error does not carry the content of the request back."""
    answer = api.post(SEND, {"from": "b", "content": ["a-secret-content"]})
    assert "a-secret-content" not in str(answer.fails(400, "invalid_request", names="content"))


@pytest.mark.parametrize("lead", ["", "x"])
def test_long_names_in_errors_stay_utf_8(api, lead):
    """An error that quotes what it was given does not cut a character in two."""
    name = lead + "\u00fc" * 300
    api.post(SEND, {"from": "b", "content": "x", name: 1}).fails(400, "invalid_request")
    api.get(SEND, **{name: "1"}).fails(400, "invalid_request")
    api.put(f"/v1/holds/{q(name)}/x", {"reason": "r"}).fails(404, "not_found")
    api.get(f"/v1/holds/{q(name)}/{q(name)}").fails(404, "not_found")
    api.post(f"/v1/sweep/{q(name)}").fails(404, "not_found")
    api.delete(f"/v1/tokens/{q(name)}").fails(404, "not_found")
    post_raw(api, f'{{"from":"b","content":{name}'.encode()).fails(400, "invalid_request")


def test_requests_before_and_after_a_bad_one_work(start):
    daemon = start()
    good, bad = json_post(SEND, b'{"from":"b","content":"x"}'), json_post(SEND, b"{")
    with daemon.raw() as connection:
        for data, status in ((good, 201), (bad, 400), (good, 201)):
            connection.send(data)
            assert connection.answer("POST").status == status
        connection.send(head("GET", "/healthz"))
        assert connection.answer().status == 200
    assert daemon.client().stats()["a"]["total"] == 2
