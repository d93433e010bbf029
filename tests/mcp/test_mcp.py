# SPDX-License-Identifier: Apache-2.0
"""POST /mcp: the wire of both eras, and the protocol's own clients."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import harness

HERE = Path(__file__).resolve().parent
NODE = str(HERE.parents[1] / "scripts" / "node")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
MODERN = {"MCP-Protocol-Version": "2026-07-28"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with harness.Daemon(tmp_path_factory.mktemp("mcp") / "data") as daemon:
        yield daemon


@pytest.fixture
def api(daemon):
    return daemon.client()


def message(method, params=None, ident=1):
    body = {"jsonrpc": "2.0", "method": method}
    if ident is not None:
        body["id"] = ident
    if params is not None:
        body["params"] = params
    return body


def call(api, tool, **arguments):
    answer = api.post("/mcp", message("tools/call", {"name": tool, "arguments": arguments}))
    assert answer.status == 200
    return answer.json()["result"]


def modern(method, **params):
    return message(method, {**params, "_meta": META})


# Legacy ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("asked, answered", [
    ("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"),
    ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")])
def test_initialize_answers_the_version_asked_for_if_it_is_known(api, asked, answered):
    result = api.post("/mcp", message("initialize", {"protocolVersion": asked, "capabilities": {}})).json()["result"]
    assert result["protocolVersion"] == answered
    assert result["capabilities"] == {"tools": {}} and result["serverInfo"]["name"] == "lapse"


def test_ping_answers_nothing_at_all(api):
    assert api.post("/mcp", message("ping", ident="p")).json() == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_a_notification_is_accepted_without_a_body(api):
    answer = api.post("/mcp", message("notifications/initialized", ident=None))
    assert answer.status == 202 and answer.body == b""


WRONG = [
    ({"jsonrpc": "2.0", "id": 1, "method": "nope"}, {}, 200, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, {}, 200, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nope"}}, {}, 200, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}, {}, 200, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "heartbeat", "arguments": [1]}}, {}, 200, -32602),
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, {}, 400, -32600),
    ({"id": 1, "method": "ping"}, {}, 400, -32600),
    ({"jsonrpc": "2.0", "id": None, "method": "ping"}, {}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, {}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": 5}, {}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, {}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"MCP-Protocol-Version": "2025-01-01"}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, MODERN, 400, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, MODERN, 400, -32020),
    (modern("tools/list"), {}, 400, -32020),
    (modern("tools/list"), {**MODERN, "Mcp-Method": "ping"}, 400, -32020),
    (modern("tools/list"), {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "tools/list"}, 400, -32020),
    (modern("tools/call", name="show_matrix"), {**MODERN, "Mcp-Method": "tools/call"}, 400, -32020),
    (modern("tools/call", name="show_matrix"), {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?!?="}, 400, -32020),
    (modern("initialize"), {**MODERN, "Mcp-Method": "initialize"}, 404, -32601),
    (modern("ping"), {**MODERN, "Mcp-Method": "ping"}, 404, -32601),
    (message("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}), MODERN, 400, -32602),
]


@pytest.mark.parametrize("body, headers, status, code", WRONG)
def test_what_is_wrong_has_its_code(api, body, headers, status, code):
    answer = api.post("/mcp", body, headers=headers)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert set(answer.json()) <= {"jsonrpc", "id", "error"}


def test_a_version_nobody_has_names_the_ones_we_have(api):
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    answer = api.post("/mcp", message("tools/list", {"_meta": meta}), headers={"MCP-Protocol-Version": "2030-01-01"})
    assert answer.status == 400
    assert answer.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}


@pytest.mark.parametrize("headers, body", [
    ({"MCP-Protocol-Version": "2022-\xb7"}, message("ping")),
    ({}, message("a" + "ü" * 100)), ({}, message("tools/call", {"name": "a" + "ü" * 100}))])
def test_an_error_is_json_whatever_it_repeats(api, headers, body):
    answer = api.post("/mcp", body, headers=headers)
    assert json.loads(answer.body.decode("utf-8"))["error"]["message"]


@pytest.mark.parametrize("body, content_type, status, code", [
    (b"{bad", "application/json", 400, -32700), (b"[]", "application/json", 400, -32700),
    (b"{}", "text/plain", 415, -32600)])
def test_a_body_that_is_no_message(api, body, content_type, status, code):
    answer = api.request("POST", "/mcp", body=body, headers={"Content-Type": content_type})
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert "id" not in answer.json()


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_only_post_is_there(api, method):
    answer = api.request(method, "/mcp")
    assert answer.status == 405 and answer.headers["Allow"] == "POST"


# Tools ----------------------------------------------------------------------------------------------

def test_every_tool_has_a_schema_a_model_can_use(api):
    tools = api.post("/mcp", message("tools/list")).json()["result"]["tools"]
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names) >= 19
    assert {"check_inbox", "check_operator_inbox", "acknowledge_message", "send_message"} <= set(names)
    for tool in tools:
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert tool["description"].endswith(".") and len(tool["name"]) <= 40


def test_the_manual_names_every_tool(api):
    tools = {tool["name"] for tool in api.post("/mcp", message("tools/list")).json()["result"]["tools"]}
    table = (HERE.parents[1] / "docs" / "mcp.md").read_text().split("|---|---|")[1].split("\n\n")[0]
    assert {name for row in table.strip().splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])} == tools


def test_the_four_tools_by_name(api):
    sent = call(api, "send_message", from_session_id="ann", to_session_id="bob", content="hi")["structuredContent"]
    inbox = call(api, "check_inbox", session_id="bob")
    assert [m["id"] for m in inbox["structuredContent"]["data"]] == [sent["id"]]
    assert json.loads(inbox["content"][0]["text"]) == inbox["structuredContent"]
    read = call(api, "acknowledge_message", session_id="bob", message_id=sent["id"])["structuredContent"]
    assert read["read"] is True
    assert call(api, "check_inbox", session_id="bob")["structuredContent"]["data"] == []
    call(api, "send_message", from_session_id="ann", to_session_id="operator", content="help")
    asked = call(api, "check_operator_inbox", session_id="ann")["structuredContent"]["data"]
    assert [m["content"] for m in asked] == ["help"]


@pytest.mark.parametrize("tool, arguments, says", [
    ("heartbeat", {"agent": "a"}, "cluster_id is required"),
    ("acknowledge_message", {"session_id": "a"}, "message_id is required"),
    ("check_inbox", {"session_id": "a", "nonsense": 1}, "there is no argument 'nonsense'"),
    ("check_inbox", {"session_id": ["a"]}, "session_id must be a text"),
    ("read_mail", {"id": "mbx_0000000000000000", "msg": "x"}, "if it was right, its lifetime is over"),
    ("hold_row", {"table": "messages", "key": "x", "reason": ""}, "call the tool again"),
])
def test_a_tool_that_fails_says_what_to_do(api, tool, arguments, says):
    result = call(api, tool, **arguments)
    assert result["isError"] is True and "structuredContent" not in result
    assert says in result["content"][0]["text"]


def test_null_is_an_argument_that_was_not_given(api):
    assert "isError" not in call(api, "check_inbox", session_id="nil", limit=None)


def test_a_tool_waits_like_its_route(daemon, api):
    before = api.post("/mcp", message("tools/call", {"name": "wait_for_messages", "arguments": {"agent": "late", "wait_ms": 300}}))
    assert before.json()["result"]["structuredContent"]["data"] == []


def test_a_dry_run_removes_nothing_and_a_hold_holds(api):
    sent = api.send("held")
    assert call(api, "dry_run_sweep", scheduler="messages")["structuredContent"]["dry_run"] is True
    assert "isError" not in call(api, "hold_row", table="messages", key=sent["id"], reason="audit")
    assert api.get(f"/v1/holds/messages/{sent['id']}").json()["reason"] == "audit"
    assert call(api, "release_hold", table="messages", key=sent["id"])["structuredContent"]["released"] is True
    assert api.get(f"/v1/holds/messages/{sent['id']}").status == 404


def test_tokens_and_admins_count_as_everywhere(tmp_path):
    with harness.Daemon(tmp_path / "data") as daemon:
        admin = daemon.client().token("ops", admin=True)["token"]
        fleet = daemon.client(token=admin).token("fleet")["token"]
        assert daemon.client().post("/mcp", message("ping")).status == 401
        mine, theirs = daemon.client(token=fleet), daemon.client(token=admin)
        names = [t["name"] for t in mine.post("/mcp", message("tools/list")).json()["result"]["tools"]]
        assert "hold_row" not in names and "check_inbox" in names
        refused = call(mine, "hold_row", table="messages", key="0" * 16, reason="x")
        assert refused["isError"] and "admin" in refused["content"][0]["text"]
        call(mine, "send_message", from_session_id="a", to_session_id="b", content="fleet's")
        assert call(theirs, "check_inbox", session_id="b")["structuredContent"]["data"] == []


def test_scopes_decide_which_tools_there_are(tmp_path):
    with harness.Daemon(tmp_path / "data") as daemon:
        admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
        reader = daemon.client(token=admin.token("ops", scopes=["messages:read"])["token"])
        tools = reader.post("/mcp", message("tools/list")).json()["result"]["tools"]
        assert {t["name"] for t in tools} == {"check_inbox", "check_operator_inbox", "wait_for_messages"}
        refused = call(reader, "send_message", from_session_id="a", to_session_id="b", content="x")
        assert refused["isError"] and "scope messages:write" in refused["content"][0]["text"]
        assert "ask the operator" in refused["content"][0]["text"]
        assert call(reader, "check_inbox", session_id="b")["structuredContent"]["data"] == []
        writer = daemon.client(token=admin.token("ops", scopes=["read", "messages:write"])["token"])
        assert "isError" not in call(writer, "send_message", from_session_id="a", to_session_id="b", content="x")
        assert call(writer, "create_mailbox")["isError"]


def test_a_token_does_not_make_up_for_a_foreign_origin(tmp_path):
    with harness.Daemon(tmp_path / "data") as daemon:
        api = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
        assert api.post("/mcp", message("ping"), headers={"Origin": "http://evil.example.com"}).status == 403
        assert api.post("/mcp", message("ping"), headers={"Origin": "null"}).status == 403
        assert api.post("/mcp", message("ping"), headers={"Origin": f"http://127.0.0.1:{daemon.port}"}).status == 200


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example.com"}, {"Host": "evil.example.com", "Origin": "http://evil.example.com"}])
def test_foreign_pages_are_refused(api, headers):
    assert api.post("/mcp", message("ping"), headers=headers).status == 403


# Modern ---------------------------------------------------------------------------------------------

def test_discover_and_list_describe_themselves(api):
    found = api.post("/mcp", modern("server/discover"), headers={**MODERN, "Mcp-Method": "server/discover"}).json()["result"]
    assert found["resultType"] == "complete" and found["supportedVersions"] == ["2026-07-28"]
    listed = api.post("/mcp", modern("tools/list"), headers={**MODERN, "Mcp-Method": "tools/list"}).json()["result"]
    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private") and listed["ttlMs"] >= 0


def test_a_modern_call_with_blanks_around_its_headers(api):
    headers = {**MODERN, "Mcp-Method": " tools/call ", "Mcp-Name": "  show_matrix  "}
    result = api.post("/mcp", modern("tools/call", name="show_matrix", arguments={}), headers=headers).json()["result"]
    assert result["resultType"] == "complete" and result["structuredContent"]["data"]


# The protocol's own clients -------------------------------------------------------------------------

@pytest.mark.parametrize("kind, era", [("v1", "legacy"), ("legacy", "legacy"), ("auto", "modern"), ("modern", "modern")])
def test_the_official_clients_work(daemon, kind, era):
    done = subprocess.run([NODE, "exec", "node", "client.mjs", kind, f"http://127.0.0.1:{daemon.port}/mcp"], cwd=HERE,
                          text=True, capture_output=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["era"] == era and "heartbeat" in seen["tools"]
    assert seen["sent"]["to"] == "böb" and seen["inbox"]["data"][0]["id"] == seen["sent"]["id"]
    assert seen["wrong"] == {"isError": True, "text": "invalid_request: message_id is required. Correct the argument and call the tool again."}
    assert seen["acknowledged"]["read"] is True
    assert seen["unknown"] == -32602


# More tools -----------------------------------------------------------------------------------------

def structured(api, tool, **arguments):
    result = call(api, tool, **arguments)
    assert "isError" not in result, result
    return result["structuredContent"]


def test_every_tool_tells_what_it_answers(api):
    for tool in api.post("/mcp", message("tools/list")).json()["result"]["tools"]:
        schema = tool["outputSchema"]
        assert schema["type"] == "object" and schema["properties"], tool["name"]
        assert "$ref" not in json.dumps(schema), "a client does not know our document"


def test_leases(api):
    mine = structured(api, "acquire_lease", table="workspace_leases", key="repo", holder="ann", ttl_ms=60_000)
    assert structured(api, "acquire_lease", table="workspace_leases", key="repo", holder="ann",
                      ttl_ms=90_000)["fencing_token"] == mine["fencing_token"]
    taken = call(api, "acquire_lease", table="workspace_leases", key="repo", holder="bob", ttl_ms=60_000)
    assert taken["isError"] and "conflict" in taken["content"][0]["text"]
    structured(api, "release_lease", table="workspace_leases", key="repo", holder="ann",
               fencing_token=mine["fencing_token"])
    theirs = structured(api, "acquire_lease", table="workspace_leases", key="repo", holder="bob", ttl_ms=60_000)
    assert theirs["fencing_token"] > mine["fencing_token"]


def test_once_and_queues(api):
    key = {"channel": "mail", "account_id": "a", "container_id": "c", "message_id": "m"}
    assert structured(api, "claim_once", **key)["fresh"] is True
    assert structured(api, "claim_once", **key)["fresh"] is False
    added = [structured(api, "add_work", table="channel_inbox", payload={"n": n})["id"] for n in range(2)]
    items = structured(api, "claim_work", table="channel_inbox", worker="w", limit=2)["data"]
    assert [i["id"] for i in items] == added
    structured(api, "extend_work", table="channel_inbox", id=added[0], worker="w", attempt=1, lease_ms=60_000)
    assert structured(api, "complete_work", table="channel_inbox", id=added[0], worker="w", attempt=1)["status"] == "completed"
    structured(api, "fail_work", table="channel_inbox", id=added[1], worker="w", attempt=1, error="no")
    assert call(api, "complete_work", table="channel_inbox", id=added[1], worker="w", attempt=1)["isError"]


def test_texts_as_files(api):
    staged = structured(api, "stage_text", text="Grüße\n" * 50_000, name="notes.txt", ttl_ms=60_000)
    assert staged["name"] == "notes.txt" and staged["expires_at"]
    text, offset = "", 0
    while offset is not None:
        part = structured(api, "read_text", checksum=staged["checksum"], offset=offset)
        text, offset = text + part["text"], part["next_offset"]
    assert text == "Grüße\n" * 50_000
    binary = api.request("POST", "/v1/attachments", body=b"\xff\xfe\x00", headers={"Content-Type": "x/y"}).ok(201)
    refused = call(api, "read_text", checksum=binary["checksum"])
    assert refused["isError"] and "no text" in refused["content"][0]["text"]
    assert call(api, "read_text", checksum="0" * 64)["isError"]


def test_events_since_a_cursor(api):
    before = structured(api, "list_events")["next_cursor"]
    sent = [api.send("watched")["id"] for _ in range(3)]
    page = structured(api, "list_events", after=before)
    ids = [e["data"]["messages"][0]["id"] for e in page["data"] if e["type"] == "message.sent"]
    assert ids == sent and page["has_more"] is False
    assert structured(api, "list_events", after=page["next_cursor"])["data"] == []
    assert [e["id"] for e in page["data"]] == sorted(e["id"] for e in page["data"])
    assert call(api, "list_events", after="nonsense")["isError"]


def test_waiting_for_mail(api):
    box, other = structured(api, "create_mailbox"), structured(api, "create_mailbox")
    assert structured(api, "wait_for_mail", id=box["id"], wait_ms=50)["data"] == []
    api.post(f"/v1/mailboxes/{other['id']}/send", {"to": box["address"], "subject": "code", "body": "1234"}).ok()
    got = structured(api, "wait_for_mail", id=box["id"], wait_ms=30_000)["data"]
    assert [m["subject"] for m in got] == ["code"]
    assert structured(api, "wait_for_mail", id=box["id"], since=got[0]["id"], wait_ms=50)["data"] == []


# Standard input and output --------------------------------------------------------------------------

def bridge(daemon, lines, env=None, url=None):
    return subprocess.run([os.environ["LAPSE"], "mcp"], input=lines, text=True, capture_output=True, timeout=60,
                          env={**os.environ, "LAPSE_URL": url or f"http://127.0.0.1:{daemon.port}", **(env or {})})


def test_the_bridge_passes_lines(daemon):
    lines = [message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}, 1),
             message("notifications/initialized", ident=None), message("ping", ident="p"),
             message("tools/call", {"name": "list_agents", "arguments": {}}, 3), modern("tools/list"), {"nonsense": 1}]
    lines[4]["id"] = 4
    done = bridge(daemon, "".join(json.dumps(line) + "\r\n" for line in lines) + "not json\n\n")
    assert done.returncode == 0, done.stderr
    answers = {a.get("id"): a for a in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["serverInfo"]["name"] == "lapse" and answers["p"]["result"] == {}
    assert "data" in answers[3]["result"]["structuredContent"]
    assert answers[4]["result"]["resultType"] == "complete"
    assert answers[None]["error"]["code"] == -32600 and len(answers) == 5
    assert "no JSON" in done.stderr


def test_the_bridge_answers_for_a_daemon_that_is_not_there(daemon, tmp_path):
    done = bridge(daemon, json.dumps(message("ping", ident=7)) + "\n", url="http://127.0.0.1:1")
    answer = json.loads(done.stdout)
    assert answer["id"] == 7 and answer["error"]["code"] == -32603 and done.returncode == 0
    with harness.Daemon(tmp_path / "data") as other:
        token = other.client().token("ops", admin=True)["token"]
        line = json.dumps(message("ping", ident=8)) + "\n"
        assert "401" in json.loads(bridge(other, line).stdout)["error"]["message"]
        assert json.loads(bridge(other, line, env={"LAPSE_TOKEN": token}).stdout) == {"jsonrpc": "2.0", "id": 8, "result": {}}


def test_a_slow_call_does_not_hold_others_up_and_can_be_cancelled(daemon):
    wait = {"name": "wait_for_messages", "arguments": {"agent": "nobody", "wait_ms": 60_000}}
    process = subprocess.Popen([os.environ["LAPSE"], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "LAPSE_URL": f"http://127.0.0.1:{daemon.port}"})
    for line in (message("tools/call", wait, "slow"), message("ping", ident="quick")):
        process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == "quick"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
    process.stdin.write(json.dumps(cancel) + "\n" + json.dumps(message("ping", ident="after")) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == "after"
    process.stdin.close()
    assert process.stdout.read() == "" and process.wait(20) == 0


@pytest.mark.parametrize("kind", ["v1-stdio", "legacy-stdio", "modern-stdio"])
def test_the_official_clients_work_through_the_bridge(daemon, kind):
    done = subprocess.run([NODE, "exec", "node", "client.mjs", kind, os.environ["LAPSE"], f"http://127.0.0.1:{daemon.port}"],
                          cwd=HERE, text=True, capture_output=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["era"] == ("modern" if kind == "modern-stdio" else "legacy") and "acquire_lease" in seen["tools"]
    assert seen["acknowledged"]["read"] is True and seen["unknown"] == -32602
