# SPDX-License-Identifier: Apache-2.0
"""HTTP as a whole: health, metrics, the description of the API, errors, connections, the end."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import jsonschema
import pytest

from client import head, json_post
from harness import wait_until

SEND = "/v1/agents/a/messages"
GOOD = b'{"from":"b","content":"x"}'
ROUTES = {
    "/healthz": {"get"}, "/readyz": {"get"}, "/metrics": {"get"}, "/openapi.json": {"get"},
    "/v1/agents/{agent}/messages": {"get", "post"}, "/v1/agents/{agent}/messages/{id}": {"get"},
    "/v1/agents/{agent}/messages/{id}/read": {"post"}, "/v1/agents/{agent}/messages/read": {"post"},
    "/v1/agents/{agent}/messages/claim": {"post"}, "/v1/messages": {"post"}, "/v1/messages/stats": {"get"},
    "/v1/matrix": {"get"}, "/v1/sweep/{scheduler}": {"post"}, "/v1/holds": {"get"},
    "/v1/holds/{table}/{key}": {"get", "put", "delete"}, "/v1/tokens": {"get", "post"},
    "/v1/tokens/{prefix}": {"delete"}, "/v1/backup": {"post"},
}


# Health and metrics -------------------------------------------------------------------------------

def test_health(shared_api):
    assert shared_api.get("/healthz").ok() == {"status": "ok"}
    assert shared_api.get("/readyz").ok() == {"status": "ready"}


def test_not_ready_while_writes_fail_and_ready_again_by_itself(start):
    """Nobody writes to a daemon that says it is not ready: it must find out by itself that it is again."""
    daemon = start(message_sweep_ms=20, housekeeping_sweep_ms=20)
    api = daemon.client()
    with daemon.store_locked():
        api.post(SEND, {"from": "b", "content": "x"}).fails(503, "unavailable")
        answer = api.get("/readyz")
        assert answer.status == 503 and answer.json()["reasons"]
    wait_until(lambda: api.get("/readyz").status == 200, timeout_s=5, what="ready again, with no write from outside")


def test_not_ready_when_sweeps_are_stalled(start):
    daemon = start(message_sweep_ms=20, housekeeping_sweep_ms=20, message_ttl_ms=300)
    api = daemon.client()
    api.read("a", api.send("a")["id"])
    with daemon.store_locked():
        answer = wait_until(lambda: (a := api.get("/readyz")).status == 503 and a, timeout_s=30, what="not ready")
        body = answer.json()
        assert body["status"] == "unavailable" and body["reasons"] and isinstance(body["reasons"], list)
        assert api.get("/healthz").ok() == {"status": "ok"}
    wait_until(lambda: api.get("/readyz").status == 200, timeout_s=30, what="ready again, without a restart")


def test_metrics_are_clean(shared_api):
    shared_api.send("a")
    shared_api.list("a")
    shared_api.get("/nowhere")
    answer = shared_api.get("/metrics")
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain")
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian package prometheus)")
    checked = subprocess.run(["promtool", "check", "metrics"], input=answer.body, capture_output=True, check=False)
    assert checked.returncode == 0 and checked.stderr == b"", checked


def test_metrics_of_the_process_and_its_disk(start):
    daemon = start()
    samples = daemon.client().metrics()
    one = {name: value for (name, labels), value in samples.items() if not labels}
    stat = pathlib.Path(f"/proc/{daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert one["process_resident_memory_bytes"] == pytest.approx(int(stat[21]) * 4096, rel=0.5)
    assert one["process_virtual_memory_bytes"] == pytest.approx(int(stat[20]), rel=0.5)
    assert one["process_start_time_seconds"] == pytest.approx(time.time(), abs=60)
    assert 0 < one["process_cpu_seconds_total"] < 60
    assert 5 < one["process_open_fds"] < one["process_max_fds"]
    assert one["lapse_database_bytes"] == daemon.store.size() > 0
    assert one["lapse_disk_free_bytes"] > 0


def test_metrics_detail_is_a_setting(start):
    lines = {}
    for detail in ("false", "true"):
        api = start(metrics_detail=detail).client()
        for path in ("/v1/agents", "/v1/mailboxes", "/v1/matrix", "/healthz", "/readyz"):
            api.get(path)
        lines[detail] = [line for line in api.get("/metrics").body.decode().splitlines()
                         if line.startswith("lapse_http_request_seconds")]
    assert len(lines["false"]) == 5 * 7 and len(lines["true"]) == 5 * 17


def test_metrics_of_the_contract(start):
    daemon = start()
    api = daemon.client()
    for _ in range(3):
        api.send("an-agent-of-mine")
    api.post(SEND, {}).fails(400, "invalid_request")
    samples = api.metrics()
    names = {name for name, _ in samples}
    for name in ("lifecycle_prune_rows_total", "lifecycle_tick_errors_total", "lapse_due_rows", "lapse_live_rows",
                 "lapse_oldest_due_seconds", "lapse_http_requests_total", "lapse_http_request_seconds_bucket",
                 "lapse_commit_seconds_bucket", "lapse_commit_batch_size_bucket", "lapse_sweep_seconds_bucket",
                 "lapse_expiry_lag_seconds_bucket"):
        assert name in names, name
    by_status = {dict(labels)["status"]: value for (name, labels), value in samples.items()
                 if name == "lapse_http_requests_total"
                 and dict(labels)["route"] == "POST /v1/agents/{agent}/messages"}
    assert by_status == {"201": 3, "400": 1}
    assert api.metric("lapse_live_rows", table="messages") == 3
    assert api.metric("lapse_messages_unread") == 3
    assert b"an-agent-of-mine" not in api.get("/metrics").body


def test_unknown_paths_make_no_labels(start):
    api = start().client()
    for i in range(50):
        api.get(f"/nowhere-{i}").fails(404, "not_found")
    assert b"nowhere" not in api.get("/metrics").body
    routes = {labels for name, labels in api.metrics() if name == "lapse_http_requests_total"}
    assert len(routes) < 10


# The description ----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def openapi(shared):
    return shared.client().get("/openapi.json").ok()


def test_openapi_has_every_route(openapi):
    assert re.fullmatch(r"3\.1\.\d+", openapi["openapi"])
    assert openapi["info"]["title"] and openapi["info"]["version"]
    methods = {"get", "put", "post", "delete", "head", "options", "patch", "trace"}
    described = {path: set(item) & methods - {"head"} for path, item in openapi["paths"].items()}
    for path, expected in ROUTES.items():
        assert expected <= described.get(path, set()), path


def operations(openapi):
    for path, item in openapi["paths"].items():
        for method, operation in item.items():
            if method in ("get", "put", "post", "patch", "delete"):
                yield path, method, operation, item.get("parameters", []) + operation.get("parameters", [])


def test_openapi_describes_operations_whole(openapi):
    ids = []
    for path, method, operation, parameters in operations(openapi):
        assert operation["responses"], (method, path)
        assert any(code.startswith("2") for code in operation["responses"]), (method, path)
        assert operation["summary"], (method, path)
        ids.append(operation.get("operationId", f"{method} {path}"))
        named = {p["name"] for p in parameters if p.get("in") == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path)), (method, path)
        assert all(p["required"] is True for p in parameters if p.get("in") == "path")
    assert len(ids) == len(set(ids)) >= 20


def test_openapi_refers_to_nothing_that_is_missing(openapi):
    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                target = openapi
                for part in node["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
    walk(openapi)


def test_openapi_routes_answer(shared_api, openapi):
    """Every documented path exists: a method it does not have is 405, with the documented ones in Allow."""
    for path in openapi["paths"]:
        concrete = re.sub(r"\{\w+\}", "00000000deadbeef", path)
        documented = {method.upper() for other, method, _, _ in operations(openapi)
                      if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", other), concrete)}
        answer = shared_api.request("LOCK", concrete)
        answer.fails(405, "method_not_allowed")
        allowed = {name.strip() for name in answer.headers["Allow"].split(",")}
        assert documented <= allowed <= documented | {"HEAD", "OPTIONS"}, path


def test_openapi_query_parameters_are_those_that_are_taken(shared_api, openapi):
    for path, method, operation, parameters in operations(openapi):
        if method == "get" and path == "/v1/agents/{agent}/messages":
            assert {p["name"] for p in parameters if p["in"] == "query"} == {"unread", "wait_ms", "limit", "after", "claims"}
        if method == "get" and path == "/v1/messages/stats":
            assert {p["name"] for p in parameters if p["in"] == "query"} == {"limit", "after"}


def test_every_operation_is_whole(openapi):
    """Ids, tags, and a schema by name for every body and answer; no bare objects."""
    tags = {tag["name"] for tag in openapi["tags"]}
    ids = set()
    for path, method, operation, _ in operations(openapi):
        assert re.fullmatch(r"[a-z][A-Za-z]+", operation["operationId"]), (method, path)
        assert set(operation["tags"]) <= tags, (method, path)
        assert {"400", "403", "503"} <= set(operation["responses"]), (method, path)
        ids.add(operation["operationId"])
        for status, response in operation["responses"].items():
            for kind, content in response.get("content", {}).items():
                if kind == "application/json" and path != "/openapi.json":
                    assert set(content["schema"]) == {"$ref"}, (method, path, status)
    assert len(ids) >= 40


def test_answers_are_open_and_bodies_are_closed(openapi):
    for name, schema in openapi["components"]["schemas"].items():
        assert schema["type"] == "object" and schema["properties"], name
        assert schema.get("additionalProperties", True) is not name.endswith("Body"), name


def test_examples_fit_their_schemas(openapi):
    resolver = jsonschema.RefResolver.from_schema(openapi)
    checked = 0
    for name, schema in openapi["components"]["schemas"].items():
        for example in schema.get("examples", []):
            jsonschema.Draft202012Validator(schema, resolver=resolver).validate(example)
            checked += 1
    assert checked >= 30


def test_an_answer_that_is_not_documented_is_noticed(shared_api, agent):
    """The check that every other test runs under can fail."""
    answer = shared_api.list(agent)
    answer.body = b'{"data": [], "pagination": {"next_cursor": null, "has_more": false}, "extra": 1}'
    with pytest.raises(jsonschema.ValidationError, match="extra"):
        shared_api.check("GET", f"/v1/agents/{agent}/messages", answer)
    answer.status = 418
    with pytest.raises(AssertionError, match="does not document"):
        shared_api.check("GET", f"/v1/agents/{agent}/messages", answer)


# Errors -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("method,path,status,code", [
    ("GET", "/nowhere", 404, "not_found"), ("DELETE", SEND, 405, "method_not_allowed"),
    ("POST", SEND, 400, "invalid_request"), ("GET", SEND + "/00000000deadbeef", 404, "not_found"),
])
def test_problem_json_when_asked_for(shared_api, method, path, status, code):
    body = {} if method == "POST" else None
    for accept in ("application/problem+json", "application/problem+json, application/json;q=0.5",
                   "text/html, application/problem+json"):
        answer = shared_api.request(method, path, json_body=body, headers={"Accept": accept})
        assert answer.status == status
        assert answer.headers["Content-Type"].split(";")[0] == "application/problem+json"
        problem = json.loads(answer.body)
        assert problem["status"] == status and problem["title"] and {"type", "detail"} & set(problem)
        assert code in json.dumps(problem)


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html", ""])
def test_plain_errors_otherwise(shared_api, accept):
    shared_api.get("/nowhere", headers={"Accept": accept}).fails(404, "not_found")


# Idempotency --------------------------------------------------------------------------------------

def keyed(api, key, path, body):
    return api.post(path, body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("path,body", [
    (SEND, {"from": "b", "content": "x"}), ("/v1/messages", {"to": ["p", "q"], "from": "b", "content": "x"})])
def test_same_key_same_answer(start, path, body):
    api = start().client()
    first = keyed(api, "k1", path, body)
    first.ok(201)
    assert "Idempotency-Replayed" not in first.headers
    for _ in range(3):
        again = keyed(api, "k1", path, body)
        assert (again.status, again.body) == (201, first.body)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.headers["Content-Type"] == first.headers["Content-Type"]
    total = sum(row["total"] for row in api.stats().values())
    assert total == len(body.get("to", ["a"]))
    assert keyed(api, "k2", path, body).json() != first.json()


def test_same_key_for_a_token_makes_no_second_one(start):
    daemon = start()
    api = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    first = keyed(api, "k", "/v1/tokens", {"owner": "o"})
    first.ok(201)
    again = keyed(api, "k", "/v1/tokens", {"owner": "o"})
    assert again.status in (201, 409), repr(again)
    if again.status == 201:
        assert again.json()["prefix"] == first.json()["prefix"]
    assert len(api.get("/v1/tokens").data) == 2
    secret = first.json()["token"].split("_")[2]
    daemon.stop()
    stored = b"".join(path.read_bytes() for path in daemon.data_dir.rglob("*") if path.is_file())
    assert secret.encode() not in stored, "a remembered answer must not keep the secret"


def test_same_key_other_body_is_422(shared_api, agent):
    path = f"/v1/agents/{agent}/messages"
    keyed(shared_api, agent, path, {"from": "b", "content": "x"}).ok(201)
    for other_path, body in ((path, {"from": "b", "content": "y"}),
                             (path, {"from": "b", "content": "x", "type": "text"}),
                             (f"/v1/agents/{agent}-2/messages", {"from": "b", "content": "x"})):
        keyed(shared_api, agent, other_path, body).fails(422, "unprocessable")
    assert len(shared_api.inbox(agent)) == 1 and shared_api.inbox(agent + "-2") == []


def test_a_key_outlives_a_kill(start):
    daemon = start()
    first = keyed(daemon.client(), "k", SEND, {"from": "b", "content": "x"}).ok(201)
    daemon.kill()
    daemon.start()
    assert keyed(daemon.client(), "k", SEND, {"from": "b", "content": "x"}).ok(201) == first
    assert len(daemon.client().inbox("a")) == 1


def test_a_request_that_was_refused_does_not_use_its_key(start):
    api = start(unread_max_per_agent=1).client()
    sent = api.send("a")
    keyed(api, "k", SEND, {"from": "b", "content": "x"}).fails(429, "limit_reached")
    api.read("a", sent["id"])
    keyed(api, "k", SEND, {"from": "b", "content": "x"}).ok(201)


def test_the_same_key_at_the_same_time_sends_once(start):
    daemon = start()
    request = json_post(SEND, GOOD, Idempotency_Key="together")
    connections = [daemon.raw() for _ in range(12)]
    for connection in connections:
        connection.send(request)
    answers = [connection.answer("POST") for connection in connections]
    for connection in connections:
        connection.close()
    assert {answer.status for answer in answers} <= {201, 409}
    made = {answer.json()["id"] for answer in answers if answer.status == 201}
    assert len(made) == 1 and len(daemon.client().inbox("a")) == 1


@pytest.mark.parametrize("key", ["x", "y" * 128, "a b", "a/b", "\"quoted\"", "~!@#"])
def test_good_idempotency_keys(start, key):
    api = start().client()
    first = keyed(api, key, SEND, {"from": "b", "content": "x"}).ok(201)
    assert keyed(api, key, SEND, {"from": "b", "content": "x"}).ok(201) == first


# Connections --------------------------------------------------------------------------------------

def test_head_is_get_without_a_body(shared, shared_api, agent):
    sent = shared_api.send(agent)
    for path in ("/healthz", "/metrics", "/openapi.json", f"/v1/agents/{agent}/messages",
                 f"/v1/agents/{agent}/messages/{sent['id']}"):
        with shared.raw() as connection:
            connection.send(head("HEAD", path) + head("GET", "/healthz"))
            answer = connection.answer("HEAD")
            assert (answer.status, answer.body) == (200, b""), path
            assert connection.answer().json() == {"status": "ok"}, "no body came between"
    answer = shared_api.request("HEAD", f"/v1/agents/{agent}/messages/00000000deadbeef")
    assert (answer.status, answer.body) == (404, b"")


def test_pipelined_requests_are_answered_in_order(daemon):
    with daemon.raw() as connection:
        connection.send(b"".join(json_post(SEND, b'{"from":"b","content":"%d"}' % i)
                                 for i in range(30)) + head("GET", "/healthz"))
        sent = [connection.answer("POST").ok(201) for _ in range(30)]
        assert connection.answer().ok() == {"status": "ok"}
    assert [message["content"] for message in sent] == [str(i) for i in range(30)]
    assert daemon.client().inbox("a") == sent[::-1]


def test_a_read_after_a_write_in_the_same_pipeline_sees_it(daemon):
    with daemon.raw() as connection:
        connection.send(json_post(SEND, GOOD) + head("GET", SEND))
        sent = connection.answer("POST").ok(201)
        assert connection.answer().data == [sent]


def test_a_connection_is_kept(daemon):
    with daemon.raw() as connection:
        for _ in range(50):
            connection.send(head("GET", "/healthz"))
            answer = connection.answer()
            assert answer.status == 200 and answer.headers.get("Connection", "").lower() != "close"


def test_a_connection_is_closed_when_the_client_asks(daemon):
    with daemon.raw() as connection:
        connection.send(head("GET", "/healthz", Connection="close"))
        assert connection.answer().status == 200 and connection.closed()


def test_http_1_0(daemon):
    with daemon.raw() as connection:
        connection.send(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.answer().ok() == {"status": "ok"} and connection.closed()


def test_more_connections_than_allowed_get_503(start):
    daemon = start(connections_max=5)
    held = [daemon.raw() for _ in range(5)]
    try:
        for connection in held:
            connection.send(head("GET", "/healthz"))
            assert connection.answer().status == 200
        for _ in range(3):
            with daemon.raw() as extra:
                extra.send(head("GET", "/healthz"))
                answer = extra.answer()
                answer.fails(503, "unavailable")
                assert int(answer.headers["Retry-After"]) >= 0
                assert extra.closed()
        held[0].send(head("GET", "/healthz"))
        assert held[0].answer().status == 200, "those who are in are served"
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: daemon.client().get("/healthz").status == 200, what="room again")


def test_many_connections_come_and_go(daemon):
    for _ in range(300):
        with daemon.raw() as connection:
            connection.send(head("GET", "/healthz"))
            assert connection.answer().status == 200
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 40, what="descriptors given back")


# The end ------------------------------------------------------------------------------------------

def test_the_end_answers_those_who_wait(start):
    daemon = start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(daemon.client().list, f"a{i}", wait_ms=60_000) for i in range(2)]
        claims = [pool.submit(daemon.client().claim, f"b{i}", wait_ms=60_000) for i in range(2)]
        time.sleep(0.1)
        begun = time.monotonic()
        daemon.stop()
        assert time.monotonic() - begun < 5
        for future in waits + claims:
            answer = future.result(5)
            assert answer.status in (200, 503), repr(answer)
            if answer.status == 200:
                assert answer.data == []


def test_the_end_does_not_wait_for_idle_or_half_requests(start):
    daemon = start()
    held = [daemon.raw() for _ in range(3)]
    held[1].send(head("POST", SEND, Content_Type="application/json", Content_Length=50))
    held[2].send(b"GET /hea")
    begun = time.monotonic()
    daemon.stop()
    assert time.monotonic() - begun < 8
    for connection in held:
        connection.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_answered_is_there_after_the_end(start, signum):
    """Under load: each answered message is there; a graceful end answers each that is there."""
    daemon = start()
    answered, stop = [], threading.Event()

    def write(number):
        mine, count = [], 0
        try:
            api = daemon.client()
            while not stop.is_set():
                answer = api.post(SEND, {"from": "b", "content": f"{number}-{count}"})
                count += 1
                if answer.status == 201:
                    mine.append(answer.json()["id"])
        except (OSError, http.client.HTTPException):
            pass  # the daemon has gone
        return mine

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(write, i) for i in range(6)]
        wait_until(lambda: len(daemon.rows("SELECT id FROM messages")) > 100, what="load")
        if signum == signal.SIGTERM:
            daemon.stop()
        else:
            daemon.kill()
        stop.set()
        for future in futures:
            answered += future.result(10)
    daemon.start()
    there = {message["id"] for message in daemon.client().inbox("a")}
    assert len(answered) > 90 and set(answered) <= there
    if signum == signal.SIGTERM:
        assert there == set(answered)
    assert daemon.client().stats()["a"]["total"] == len(there)


def test_json_ends_with_a_newline(shared_api, agent):
    """A terminal's prompt does not follow an answer; ETags are those of the JSON alone."""
    sent = shared_api.post(f"/v1/agents/{agent}/messages", {"from": "a", "content": "x"})
    assert sent.body.endswith(b"}\n")
    for answer in (shared_api.get("/healthz"), shared_api.get("/v1/nowhere"), shared_api.get("/v1/agents/nobody"),
                   shared_api.post(f"/v1/agents/{agent}/heartbeat", {"cluster_id": "c"}), shared_api.get("/openapi.json")):
        assert answer.body.endswith(b"}\n") and not answer.body.endswith(b"\n\n")
    path = f"/v1/agents/{agent}/messages/{sent.ok(201)['id']}"
    tag = shared_api.get(path).headers["ETag"]
    shared_api.request("POST", path + "/read", headers={"If-Match": tag}).ok()
