# SPDX-License-Identifier: Apache-2.0
"""Tokens that may do only a part: scopes, names, last use, and what is written down about them."""
import re

import pytest

from harness import Daemon, wait_until
from test_stream import Stream

ROOMS = ["messages", "agents", "mailboxes", "attachments", "tables", "events", "contracts", "engine"]
FOR_EVERY_TOKEN = ["/v1/whoami"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A daemon with tokens, its root, and every operation with the scope that its description names."""
    with Daemon(tmp_path_factory.mktemp("scopes") / "data") as daemon:
        root = daemon.client(token=daemon.client().token("root", admin=True)["token"])
        operations = []
        for path, item in root.get("/openapi.json").ok()["paths"].items():
            for method, operation in item.items():
                needed = re.search(r"Scope: ([a-z]+):(read|write)\.", operation["description"])
                if path.startswith("/v1/") and path not in FOR_EVERY_TOKEN:
                    assert needed, f"{method} {path} says no scope"
                    operations.append((method.upper(), re.sub(r"\{\w+\}", "x", path), *needed.groups()))
        yield daemon, root, operations


def forbidden(client, method, path):
    """Whether the scope is what the answer is about. A HEAD in the place of GET: a stream would not end."""
    headers = {"Content-Type": "application/json"} if method in ("POST", "PUT", "PATCH") else None
    answer = client.request("HEAD" if method == "GET" else method, path, body=b"{" if headers else None,
                            headers=headers)
    if method == "GET":
        return answer.status == 403
    return answer.status == 403 and "scope" in answer.json()["error"]["message"]


def test_every_room_has_routes(guarded):
    _, _, operations = guarded
    assert {room for _, _, room, _ in operations} == set(ROOMS)
    assert {verb for method, _, _, verb in operations if method == "GET"} == {"read"}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_scope_of_one_room_opens_that_room_only(guarded, room, verb):
    daemon, root, operations = guarded
    client = daemon.client(token=root.token("fleet", admin=True, scopes=[f"{room}:{verb}"])["token"])
    wrong = [(method, path) for method, path, needs_room, needs_verb in operations
             if forbidden(client, method, path) != ((needs_room, needs_verb) != (room, verb))]
    assert not wrong


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_verb_alone_is_for_every_room(guarded, verb):
    daemon, root, operations = guarded
    client = daemon.client(token=root.token("fleet", admin=True, scopes=[verb])["token"])
    wrong = [(method, path) for method, path, _, needs in operations
             if forbidden(client, method, path) != (needs != verb)]
    assert not wrong


def test_the_answer_names_the_scope_that_is_missing(guarded):
    daemon, root, _ = guarded
    client = daemon.client(token=root.token("fleet", scopes=["messages:read"])["token"])
    answer = client.post("/v1/agents/a/messages", {"from": "b", "content": "c"})
    answer.fails(403, "forbidden", names="scopes")
    assert "messages:write" in answer.json()["error"]["message"]
    assert client.get("/v1/agents/a/messages").ok()["data"] == []


def test_tools_obey_scopes(guarded):
    daemon, root, _ = guarded
    client = daemon.client(token=root.token("fleet", scopes=["messages:read", "agents:write"])["token"])

    def rpc(method, **params):
        return client.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).ok()["result"]

    tools = {tool["name"] for tool in rpc("tools/list")["tools"]}
    assert {"check_inbox", "heartbeat"} <= tools and not {"send_message", "list_agents"} & tools
    sent = rpc("tools/call", name="send_message",
               arguments={"from_session_id": "a", "to_session_id": "b", "content": "no"})
    assert sent["isError"] and "messages:write" in sent["content"][0]["text"]
    assert rpc("tools/call", name="check_inbox", arguments={"session_id": "b"})["structuredContent"]["data"] == []


def test_a_stream_needs_the_scope_of_events(guarded):
    daemon, root, _ = guarded
    with Stream(daemon, token=root.token("fleet", scopes=["messages:read"])["token"]) as stream:
        assert stream.status == 403
    with Stream(daemon, token=root.token("fleet", scopes=["events:read"])["token"]) as stream:
        assert stream.status == 200


@pytest.mark.parametrize("scopes", [["all"], ["messages"], ["messages:"], [":read"], ["rooms:read"], ["read "], [""],
                                    ["messages:read:write"], [1], {}], ids=repr)
def test_a_scope_that_is_none_makes_no_token(guarded, scopes):
    _, root, _ = guarded
    before = len(list(root.pages("/v1/tokens")))
    root.post("/v1/tokens", {"owner": "fleet", "scopes": scopes}).fails(400, "invalid_request", names="scopes")
    assert len(list(root.pages("/v1/tokens"))) == before


def test_nobody_gives_away_what_it_does_not_have(guarded):
    daemon, root, _ = guarded
    maker = daemon.client(token=root.token("ops", admin=True, scopes=["engine:write", "messages:read"])["token"])
    maker.post("/v1/tokens", {"owner": "ops", "admin": True}).fails(403, "forbidden", names="scopes")
    maker.post("/v1/tokens", {"owner": "ops", "scopes": ["messages:write"]}).fails(403, "forbidden", names="scopes")
    made = maker.token("ops", scopes=["messages:read"])
    assert made["scopes"] == ["messages:read"] and made["admin"] is False


def test_the_first_token_may_do_everything(start):
    client = start().client()
    client.post("/v1/tokens", {"owner": "ops", "admin": True, "scopes": ["read"]}).fails(409, "conflict", names="scopes")
    assert client.token("ops", admin=True)["scopes"] == ["read", "write"]


def test_the_last_token_without_scopes_stays(start):
    daemon = start()
    made = daemon.client().token("ops", admin=True)
    root = daemon.client(token=made["token"])
    root.token("ops", admin=True, scopes=["read", "engine:write"])
    root.delete(f"/v1/tokens/{made['prefix']}").fails(409, "conflict")


def listed(client, prefix):
    return next(token for token in client.pages("/v1/tokens") if token["prefix"] == prefix)


def test_names_scopes_and_last_use_are_listed_and_survive(start):
    daemon = start()
    text = daemon.client().token("ops", admin=True, name="the operator's")["token"]
    root = daemon.client(token=text)
    made = root.token("fleet", name="build workers", scopes=["write", "agents:read"])
    assert made["name"] == "build workers" and made["last_used_at"] is None
    assert sorted(made["scopes"]) == ["agents:read", "write"]
    assert listed(root, made["prefix"])["last_used_at"] is None
    daemon.client(token=made["token"]).get("/v1/agents").ok()
    used = listed(root, made["prefix"])["last_used_at"]
    assert used is not None
    daemon.restart()
    again = listed(daemon.client(token=text), made["prefix"])
    assert again == {**{k: v for k, v in made.items() if k != "token"}, "last_used_at": used}


# What is written down -----------------------------------------------------------------------------

@pytest.mark.sqlite("it takes a backup")
def test_tokens_and_backups_leave_events_for_admins(start):
    daemon = start()
    first = daemon.client().token("ops", admin=True)
    root = daemon.client(token=first["token"])
    made = root.token("fleet", name="n", scopes=["read"])
    root.delete(f"/v1/tokens/{made['prefix']}").ok()
    backup = root.post("/v1/backup").ok(201)
    created = daemon.events("token.created")
    assert [(event["prefix"], event["by"]) for event in created] == [(first["prefix"], None),
                                                                      (made["prefix"], first["prefix"])]
    assert created[1]["owner"] == "fleet" and created[1]["scopes"] == "read" and created[1]["name"] == "n"
    assert [(event["prefix"], event["by"]) for event in daemon.events("token.revoked")] == [(made["prefix"],
                                                                                            first["prefix"])]
    assert [(event["file"], event["by"]) for event in daemon.events("backup.made")] == [(backup["file"],
                                                                                        first["prefix"])]
    secrets = (first["token"], made["token"])
    assert not any(secret in row["data"] for row in daemon.rows("SELECT data FROM events") for secret in secrets)
    owners = {row["owner"] for row in daemon.rows("SELECT owner FROM events WHERE kind LIKE 'token.%'")}
    assert owners == {""}, "only admins see them"


def test_a_token_that_is_refused_leaves_no_event(start):
    daemon = start()
    client = daemon.client()
    client.post("/v1/tokens", {"owner": "fleet"}).fails(409, "conflict")
    client.delete("/v1/tokens/000000000000").fails(404, "not_found")
    assert not daemon.events("token.created") and not daemon.events("token.revoked")


def test_the_settings_in_force_are_in_the_events_of_a_start(start, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("admin:opensesame")
    secret.chmod(0o600)
    daemon = start(args=["--message-ttl", "36h", "--stalwart-credentials", f"@{secret}"])
    event, = daemon.events("settings.in_force")
    assert event["settings"]["message_ttl_ms"] == 36 * 3600 * 1000
    assert event["settings"]["stalwart_credentials"] == "set" and "opensesame" not in daemon.log()
    assert "unread_max_per_agent" not in event["settings"], "defaults are not in it"
    daemon.restart()
    wait_until(lambda: len(daemon.events("settings.in_force")) == 2, what="the event of the second start")
