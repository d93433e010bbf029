# SPDX-License-Identifier: Apache-2.0
"""Who may call: tokens, owners, admins. Browsers and addresses are in test_listen.py."""
import re

import pytest

from harness import NEVER_MS, Clock, wait_until

UNKNOWN = "00000000deadbeef"
ADMIN_ROUTES = [("POST", "/v1/sweep/messages", None), ("GET", "/v1/holds", None),
                ("PUT", f"/v1/holds/messages/{UNKNOWN}", {"reason": "r"}),
                ("GET", f"/v1/holds/messages/{UNKNOWN}", None), ("DELETE", f"/v1/holds/messages/{UNKNOWN}", None),
                ("GET", "/v1/tokens", None), ("POST", "/v1/tokens", {"owner": "o"}),
                ("DELETE", "/v1/tokens/000000000000", None), ("POST", "/v1/backup", None)]
OPEN_ROUTES = ["/healthz", "/readyz", "/metrics", "/openapi.json"]


class Fleets:
    """A daemon with an admin of `ops`, and two owners, each with a token of its own."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.ops = daemon.client().token("ops", admin=True)
        self.admin = daemon.client(token=self.ops["token"])
        self.red_token, self.blue_token = self.admin.token("red"), self.admin.token("blue")
        self.red = daemon.client(token=self.red_token["token"])
        self.blue = daemon.client(token=self.blue_token["token"])


@pytest.fixture
def fleets(start):
    return Fleets(start(message_sweep_ms=NEVER_MS))


@pytest.fixture(scope="module")
def shared_fleets(shared):
    return Fleets(shared)


# Tokens -------------------------------------------------------------------------------------------

def test_a_token_is_shown_once(fleets):
    made = fleets.admin.token("red", ttl_ms=3_600_000)
    assert set(made) == {"token", "prefix", "owner", "name", "scopes", "admin", "created_at", "expires_at",
                         "last_used_at"}
    assert re.fullmatch(r"lapse_[0-9a-f]{12}_[0-9a-f]{64}", made["token"])
    assert made["token"].split("_")[1] == made["prefix"]
    assert made["owner"] == "red" and made["admin"] is False and made["expires_at"] > made["created_at"]
    listed = fleets.admin.get("/v1/tokens")
    (row,) = [row for row in listed.data if row["prefix"] == made["prefix"]]
    assert row == {k: v for k, v in made.items() if k != "token"} | {k: row[k] for k in set(row) - set(made)}
    secret = made["token"].split("_")[2]
    assert secret.encode() not in listed.body


@pytest.mark.sqlite("it looks into the files")
def test_the_secret_is_not_stored(fleets):
    secrets = [fleets.admin.token("red")["token"] for _ in range(3)]
    fleets.daemon.stop()
    stored = b"".join(path.read_bytes() for path in fleets.daemon.data_dir.rglob("*") if path.is_file())
    assert b"ops" in stored
    for secret in secrets:
        assert secret.encode() not in stored and secret.split("_")[2].encode() not in stored
        assert bytes.fromhex(secret.split("_")[2]) not in stored
        assert secret.split("_")[2] not in fleets.daemon.log()


def test_tokens_are_all_different(fleets):
    made = [fleets.admin.token("red") for _ in range(20)]
    assert len({token["token"] for token in made}) == len({token["prefix"] for token in made}) == 20


def test_a_token_without_ttl_has_no_end(fleets):
    assert fleets.red_token["expires_at"] is None


def wrong(token):
    last = "0" if token[-1] != "0" else "1"
    return {
        "another secret": token[:-1] + last, "cut": token[:-1], "longer": token + "0", "empty": "",
        "only the prefix": token[:19], "another prefix": "lapse_" + "0" * 12 + token[18:],
        "upper case": token.upper(), "no such": "lapse_" + "a" * 12 + "_" + "b" * 64, "long": "x" * 4000,
        "not ours": "Zm9vOmJhcg==",
    }


@pytest.mark.parametrize("case", wrong("lapse_" + "0" * 77).keys())
def test_a_wrong_token_is_401(shared, shared_fleets, case):
    bad = shared.client(token=wrong(shared_fleets.red_token["token"])[case])
    for answer in (bad.list("a"), bad.post("/v1/agents/a/messages", {"from": "b", "content": "x"}),
                   bad.post("/v1/sweep/messages")):
        answer.fails(401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert shared_fleets.red.stats() == {}


@pytest.mark.parametrize("header", ["Basic {}", "{}", "Bearer", "Bearer  ", "Token {}", "Bearer {} {}"])
def test_another_scheme_is_401(shared, shared_fleets, header):
    value = header.format(*[shared_fleets.red_token["token"]] * 2)
    answer = shared.client().get("/v1/messages/stats", headers={"Authorization": value})
    answer.fails(401, "unauthorized")


def test_the_scheme_is_not_case_sensitive(shared, shared_fleets):
    for scheme in ("bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {shared_fleets.red_token['token']}"}
        shared.client().get("/v1/messages/stats", headers=headers).ok()


def test_without_a_token_is_401_once_one_exists(shared, shared_fleets):
    anonymous = shared.client()
    anonymous.list("a").fails(401, "unauthorized")
    anonymous.post("/v1/tokens", {"owner": "ops", "admin": True}).fails(401, "unauthorized")
    assert anonymous.list("a").headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_in_a_query_is_no_token(shared, shared_fleets):
    answer = shared.client().get("/v1/messages/stats", access_token=shared_fleets.red_token["token"])
    assert answer.status in (400, 401)


@pytest.mark.parametrize("path", OPEN_ROUTES)
def test_open_routes_need_no_token_on_loopback(shared, shared_fleets, path):
    assert shared.client().get(path).status == 200


def test_a_revoked_token_is_401(fleets):
    fleets.red.send("a")
    prefix = fleets.red_token["prefix"]
    assert fleets.admin.delete(f"/v1/tokens/{prefix}").ok() == {"prefix": prefix, "revoked": True}
    fleets.red.list("a").fails(401, "unauthorized")
    fleets.red.post("/v1/agents/a/messages", {"from": "b", "content": "x"}).fails(401, "unauthorized")
    fleets.blue.list("a").ok()
    as_red = fleets.daemon.client(token=fleets.ops["token"], owner="red")
    assert len(as_red.inbox("a")) == 1, "what it wrote stays"
    fleets.daemon.kill()
    fleets.daemon.start()
    fleets.daemon.client(token=fleets.red_token["token"]).list("a").fails(401, "unauthorized")


@pytest.mark.parametrize("prefix", ["000000000000", "x", "0" * 13, "lapse_000000000000"])
def test_revoking_what_is_not_there_is_404(shared, shared_fleets, prefix):
    shared_fleets.admin.delete(f"/v1/tokens/{prefix}").fails(404, "not_found")


def test_a_token_ends_with_its_ttl(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, housekeeping_sweep_ms=NEVER_MS)
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    short = daemon.client(token=admin.token("red", ttl_ms=10_000)["token"])
    clock.advance(9_999)
    short.list("a").ok()
    clock.advance(2)
    short.list("a").fails(401, "unauthorized")
    admin.list("a").ok()


# Admins -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("method,path,body", ADMIN_ROUTES, ids=[f"{m} {p}" for m, p, _ in ADMIN_ROUTES])
def test_admin_routes_are_403_for_others(shared, shared_fleets, method, path, body):
    shared_fleets.red.request(method, path, json_body=body).fails(403, "forbidden")
    answer = shared_fleets.admin.request(method, path, json_body=body)
    assert answer.status in (200, 201, 404, 409), repr(answer)
    shared.client().request(method, path, json_body=body).fails(401, "unauthorized")


def test_an_admin_acts_for_another_owner(fleets):
    sent = fleets.red.send("a")
    as_red = fleets.daemon.client(token=fleets.ops["token"], owner="red")
    assert as_red.inbox("a") == [sent]
    as_red.send("a")
    assert len(fleets.red.inbox("a")) == 2 and fleets.admin.inbox("a") == []


def test_nobody_else_does(fleets):
    fleets.blue.send("a")
    as_blue = fleets.daemon.client(token=fleets.red_token["token"], owner="blue")
    as_blue.list("a").fails(403, "forbidden")
    as_blue.post("/v1/agents/a/messages", {"from": "b", "content": "x"}).fails(403, "forbidden")
    fleets.daemon.client(token=fleets.red_token["token"], owner="red").list("a").ok()
    assert len(fleets.blue.inbox("a")) == 1


@pytest.mark.parametrize("owner", ["", "x" * 129, "a/b", "a\x7fb"])
def test_an_owner_that_is_no_id_is_400(shared, shared_fleets, owner):
    api = shared.client(token=shared_fleets.ops["token"], owner=owner)
    api.list("a").fails(400, "invalid_request", names="X-Lapse-Owner")


# Owners -------------------------------------------------------------------------------------------

def test_what_belongs_to_another_owner_is_404(fleets):
    message = fleets.red.send("a")
    claim = fleets.red.claim("a").ok()["claim_id"]
    for call in (fleets.blue.message("a", message["id"]), fleets.blue.mark_read("a", message["id"]),
                 fleets.blue.mark_read("a", message["id"], claim_id=claim)):
        call.fails(404, "not_found")
    assert fleets.blue.inbox("a") == [] and fleets.blue.stats() == {}
    assert fleets.blue.claim("a").ok()["data"] == []
    assert fleets.blue.read_many("a", ids=[message["id"]]).ok() == {"count": 0}
    assert fleets.blue.read_many("a", before="2100-01-01T00:00:00.000Z").ok() == {"count": 0}
    assert fleets.red.message("a", message["id"]).ok() == message


def test_the_same_agent_of_two_owners_is_two_agents(fleets):
    red, blue = fleets.red.send("a", content="red"), fleets.blue.send("a", content="blue")
    assert fleets.red.inbox("a") == [red] and fleets.blue.inbox("a") == [blue]
    fleets.red.read("a", red["id"])
    assert fleets.blue.stats()["a"]["unread"] == 1 and fleets.red.stats()["a"]["unread"] == 0


def test_what_local_wrote_is_not_another_owners(start):
    daemon = start()
    message = daemon.client().send("a")
    admin_token = daemon.client().token("ops", admin=True)["token"]
    admin = daemon.client(token=admin_token)
    admin.message("a", message["id"]).fails(404, "not_found")
    assert daemon.client(token=admin_token, owner="local").inbox("a") == [message]


def test_an_idempotency_key_belongs_to_its_owner(fleets):
    body, headers = {"from": "b", "content": "x"}, {"Idempotency-Key": "same"}
    red = fleets.red.post("/v1/agents/a/messages", body, headers).ok(201)
    blue = fleets.blue.post("/v1/agents/a/messages", body, headers).ok(201)
    assert red["id"] != blue["id"] and len(fleets.blue.inbox("a")) == 1


def test_the_unread_limit_is_each_owners(start):
    fleets = Fleets(start(unread_max_per_agent=1))
    fleets.red.send("a")
    fleets.blue.send("a")
    fleets.red.post("/v1/agents/a/messages", {"from": "b", "content": "x"}).fails(429, "limit_reached")


def test_a_cursor_of_another_owner_shows_nothing_of_it(fleets):
    for _ in range(3):
        fleets.red.send("a")
    cursor = fleets.red.list("a", limit=1).pagination["next_cursor"]
    answer = fleets.blue.list("a", after=cursor)
    assert answer.status == 400 or answer.data == []


def test_a_sweep_and_a_hold_reach_every_owner(start):
    fleets = Fleets(start(message_ttl_ms=1, message_sweep_ms=NEVER_MS))
    messages = {}
    for name, api in (("red", fleets.red), ("blue", fleets.blue)):
        messages[name] = api.send("a")["id"]
        api.read("a", messages[name])
    fleets.daemon.client().get("/healthz").ok()
    as_red = fleets.daemon.client(token=fleets.ops["token"], owner="red")
    as_red.put(f"/v1/holds/messages/{messages['red']}", {"reason": "audit"}).ok()
    wait_until(lambda: fleets.admin.sweep()["pruned"] == 1, what="the one that is not held is swept")
    fleets.blue.mark_read("a", messages["blue"]).fails(404, "not_found")
    assert fleets.red.mark_read("a", messages["red"]).ok()["id"] == messages["red"]


def test_tokens_have_pages(fleets):
    made = {fleets.admin.token("red")["prefix"] for _ in range(22)}
    first = fleets.admin.get("/v1/tokens").ok()
    assert len(first["data"]) == 20 and first["pagination"]["has_more"] is True
    listed = [row["prefix"] for row in fleets.admin.pages("/v1/tokens", limit=10)]
    assert len(listed) == len(set(listed)) == 25 and made <= set(listed)


def test_a_caller_is_told_who_it_is(daemon):
    api = daemon.client()
    everything = ["read", "write"]
    assert api.get("/v1/whoami").ok() == {"owner": "local", "admin": True, "acting": False, "scopes": everything}
    other = api.get("/v1/whoami", headers={"X-Lapse-Owner": "elsewhere"}).ok()
    assert other == {"owner": "elsewhere", "admin": True, "acting": True, "scopes": everything}
    admin = api.post("/v1/tokens", {"owner": "ops", "admin": True}).ok(201)["token"]
    looker = daemon.client(token=admin).post("/v1/tokens", {"owner": "fleet", "scopes": ["read", "agents:write"]}).ok(201)["token"]
    assert daemon.client(token=looker).get("/v1/whoami").ok() == {
        "owner": "fleet", "admin": False, "acting": False, "scopes": ["read", "agents:write"]}
    api.get("/v1/whoami").fails(401, "unauthorized")
