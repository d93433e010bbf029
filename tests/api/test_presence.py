# SPDX-License-Identifier: Apache-2.0
"""The agent routes: heartbeats one by one and by the thousand, capabilities, lists, limits, owners; and
what protects the fleet: restarts, the breaker, holds."""
import email.utils
import json
import time

import pytest

from client import q
from harness import Clock, HOUR_MS, wait_until

LONG = "n" * 128


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def heartbeat(api, agent, json_body):
    return api.post(f"/v1/agents/{q(agent)}/heartbeat", json_body)


def beat(api, agent, cluster="c", **fields):
    assert heartbeat(api, agent, {"cluster_id": cluster, **fields}).ok() == {"status": "ok"}


def beats(api, entries):
    return api.post("/v1/heartbeats", entries)


def csv(api, text):
    body = text if isinstance(text, bytes) else text.encode()
    return api.request("POST", "/v1/heartbeats", body=body, headers={"Content-Type": "text/csv"})


def get(api, agent):
    return api.get(f"/v1/agents/{q(agent)}")


def put(api, agent, capabilities):
    return api.put(f"/v1/agents/{q(agent)}/capabilities", {"capabilities": capabilities})


def names(api, **query):
    return [agent["agent_id"] for agent in api.pages("/v1/agents", **query)]


def capability_map(api):
    rows = list(api.pages("/v1/capabilities", limit=100))
    assert all(row["count"] == len(row["agents"]) for row in rows if row["count"] <= 100)
    return {row["capability"]: row["agents"] for row in rows}


# One heartbeat ------------------------------------------------------------------------------------

def test_the_first_heartbeat_registers(start, clock):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    api = daemon.client()
    beat(api, "a", "east", capabilities=["write", "read"], metadata={"version": 3})
    shown = get(api, "a").ok()
    at = "2026-03-01T12:00:00.000Z"
    assert shown == {"agent_id": "a", "cluster_id": "east", "first_seen": at, "last_seen": at,
                     "capabilities": ["read", "write"], "state": "live"}
    assert daemon.events("agent.seen") == [{"agent_id": "a", "cluster_id": "east", "last_seen": at}]
    assert get(api, "a").headers["Sunset"] == "Sun, 01 Mar 2026 12:01:30 GMT"
    clock.advance(5000)
    beat(api, "a", "east")
    assert get(api, "a").ok() == {**shown, "last_seen": "2026-03-01T12:00:05.000Z"}
    assert len(daemon.events("agent.seen")) == 1, "none for a heartbeat of a known agent"


def test_a_known_agent_costs_no_write(start):
    daemon = start()
    api = daemon.client()
    body = {"cluster_id": "c", "capabilities": ["b", "a"], "metadata": {"x": [1, {"y": None}], "a": "b"}}
    heartbeat(api, "a", body).ok()
    before = daemon.rows("SELECT * FROM agents"), daemon.store.writes()
    for same in (body, {"cluster_id": "c"}, {"cluster_id": "c", "capabilities": ["a", "b"]},
                 {"cluster_id": "c", "metadata": {"a": "b", "x": [1, {"y": None}]}}):
        heartbeat(api, "a", same).ok()
    beats(api, [{"agent_id": "a", "cluster_id": "c"}]).ok()
    csv(api, "a,c\n").ok()
    assert (daemon.rows("SELECT * FROM agents"), daemon.store.writes()) == before


def test_the_shared_answer_has_the_date_of_its_second(start):
    api = start().client()
    dates = set()
    end = time.time() + 2.5
    while time.time() < end:
        headers = heartbeat(api, "a", {"cluster_id": "c"}).headers
        date = email.utils.parsedate_to_datetime(headers["Date"]).timestamp()
        assert -1 <= time.time() - date < 2 and headers["Content-Type"] == "application/json"
        dates.add(date)
        time.sleep(0.05)
    assert len(dates) >= 3
    for answer in (api.get("/v1/agents"), get(api, "nobody")):
        assert answer.headers["Date"], "every answer has one"


def test_a_short_body_after_a_long_one(start):
    """The buffer of a body is used again."""
    daemon = start()
    api = daemon.client()
    for size in (3000, 10, 5000, 1, 0):
        heartbeat(api, "a", {"cluster_id": "c", "metadata": {"x": "y" * size}}).ok()
        assert daemon.rows("SELECT metadata FROM agents") == [{"metadata": '{"x":"%s"}' % ("y" * size)}]
        beat(api, "a", "c")
        assert heartbeat(api, "a", {}).status == 400


def test_what_is_left_out_is_kept_what_is_given_replaces(shared_api, agent):
    beat(shared_api, agent, "one", capabilities=["x", "y"])
    beat(shared_api, agent, "two")
    shown = get(shared_api, agent).ok()
    assert (shown["cluster_id"], shown["capabilities"]) == ("two", ["x", "y"])
    beat(shared_api, agent, "two", capabilities=["z", "y"])
    assert get(shared_api, agent).ok()["capabilities"] == ["y", "z"]
    beat(shared_api, agent, "two", capabilities=[])
    assert get(shared_api, agent).ok()["capabilities"] == []


@pytest.mark.parametrize("body,names_field", [
    ({}, "cluster_id"), ({"cluster_id": ""}, "cluster_id"), ({"cluster_id": 7}, "cluster_id"),
    ({"cluster_id": None}, "cluster_id"), ({"cluster_id": "a/b"}, "cluster_id"),
    ({"cluster_id": "a\nb"}, "cluster_id"), ({"cluster_id": "c" * 129}, "cluster_id"),
    ({"cluster_id": "c", "more": 1}, "more"), ({"cluster_id": "c", "capabilities": "x"}, "capabilities"),
    ({"cluster_id": "c", "capabilities": [1]}, "capabilities[0]"),
    ({"cluster_id": "c", "capabilities": ["x", "x"]}, "capabilities"),
    ({"cluster_id": "c", "capabilities": ["ok", "a/b"]}, "capabilities[1]"),
    ({"cluster_id": "c", "capabilities": [""]}, "capabilities[0]"),
    ({"cluster_id": "c", "capabilities": [str(i) for i in range(65)]}, "capabilities"),
    ({"cluster_id": "c", "metadata": []}, "metadata"), ({"cluster_id": "c", "metadata": "{}"}, "metadata"),
])
def test_a_bad_heartbeat_changes_nothing(shared_api, agent, body, names_field):
    for known in (False, True):
        if known:
            beat(shared_api, agent)
            before = get(shared_api, agent).ok()
        heartbeat(shared_api, agent, body).fails(400, "invalid_request", names=names_field)
        if known:
            assert get(shared_api, agent).ok() == before
        else:
            get(shared_api, agent).fails(404, "not_found")


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[]", b'"c"', b"null", b'{"cluster_id":"c"', b'{"cluster_id":"c"} x', b'{"cluster_id":"c"}\0',
    b'{"cluster_id":"c","cluster_id":"c"}', b'{"cluster_id":"\xff"}', b'{"cluster_id":"c",}',
    b"{'cluster_id':'c'}", b'{"cluster_id":"c"}}',
])
def test_a_body_that_does_not_parse_is_no_heartbeat_of_a_known_agent_either(shared_api, agent, raw):
    beat(shared_api, agent)
    before = get(shared_api, agent).ok()
    answer = shared_api.request("POST", f"/v1/agents/{agent}/heartbeat", body=raw,
                                headers={"Content-Type": "application/json"})
    answer.fails(400, "invalid_request", names="body")
    assert get(shared_api, agent).ok() == before


@pytest.mark.parametrize("raw", [b' { "cluster_id" : "c" } \r\n', b'{"cluster_id":"\\u0063"}', b'\t{"cluster_id":\n"c"}'])
def test_other_ways_to_write_the_same_body(shared_api, agent, raw):
    beat(shared_api, agent)
    for _ in range(2):
        assert shared_api.request("POST", f"/v1/agents/{agent}/heartbeat", body=raw,
                                  headers={"Content-Type": "application/json"}).ok() == {"status": "ok"}


@pytest.mark.parametrize("cluster", ['a"b', "a\\b", "a\\\\", "ü", "日本", "a b", LONG, '"', "\\"])
def test_clusters_with_every_kind_of_character(shared_api, agent, cluster):
    for _ in range(3):
        beat(shared_api, agent, cluster)
        assert get(shared_api, agent).ok()["cluster_id"] == cluster
    raw = b'{"cluster_id":"' + cluster.encode() + b'"}'
    answer = shared_api.request("POST", f"/v1/agents/{agent}/heartbeat", body=raw,
                                headers={"Content-Type": "application/json"})
    try:
        said = json.loads(raw)["cluster_id"]
    except ValueError:
        said = None
    if said is None or any(ord(c) < 32 for c in said):
        answer.fails(400, "invalid_request")
    else:
        assert answer.ok() == {"status": "ok"} and get(shared_api, agent).ok()["cluster_id"] == said


@pytest.mark.parametrize("name", ["a", LONG, "日" * 42, "a b", "a,b", 'a"b', "a%b", "seventeen-bytes-x", "eighteen-bytes-xyz"])
def test_agents_with_every_kind_of_name(shared_api, name):
    for _ in range(2):
        beat(shared_api, name)
    assert get(shared_api, name).ok()["agent_id"] == name
    assert shared_api.delete(f"/v1/agents/{q(name)}").ok() == {"agent_id": name, "deleted": True}


@pytest.mark.parametrize("name", ["%00", "%2F", "a%2Fb", "%0A", "%ff", "n" * 129, "%C2%80"])
def test_bad_agent_names(shared_api, name):
    for method, path, body in (("POST", "/heartbeat", {"cluster_id": "c"}), ("GET", "", None), ("DELETE", "", None),
                               ("PUT", "/capabilities", {"capabilities": []})):
        shared_api.request(method, f"/v1/agents/{name}{path}", json_body=body).fails(400, "invalid_request")


def test_types_and_methods(shared_api, agent):
    path = f"/v1/agents/{agent}/heartbeat"
    shared_api.request("POST", path, body=b"{}", headers={"Content-Type": "text/csv"}).fails(
        415, "unsupported_media_type")
    shared_api.request("POST", "/v1/heartbeats", body=b"a,b", headers={"Content-Type": "text/plain"}).fails(
        415, "unsupported_media_type", names="text/csv")
    shared_api.request("POST", "/v1/heartbeats", headers={"Content-Type": "text/csv"}).fails(400, "invalid_request")
    shared_api.get(path).fails(405, "method_not_allowed")
    shared_api.get(f"/v1/agents/{agent}", nothing="1").fails(400, "invalid_request", names="nothing")


# Many at once -------------------------------------------------------------------------------------

def test_many_as_json(start):
    api = start().client()
    entries = [{"agent_id": f"a{i}", "cluster_id": "c", "capabilities": ["x", f"own-{i % 3}"]} for i in range(50)]
    for _ in range(2):
        assert beats(api, entries).ok() == {"accepted": 50}
    assert len(names(api, limit=100)) == 50
    assert {name: len(able) for name, able in capability_map(api).items()} == {
        "x": 50, "own-0": 17, "own-1": 17, "own-2": 16}
    assert beats(api, []).ok() == {"accepted": 0}


def test_many_as_csv(start):
    api = start().client()
    for text in ("a,c\nb,c\n", "a,c\r\nb,c\r\n", "a,c\nb,c", "a,c\nb,c\nc,d\na,c\n"):
        for _ in range(2):
            assert csv(api, text).ok() == {"accepted": len(text.split())}
    assert names(api) == ["a", "b", "c"]
    assert get(api, "c").ok()["cluster_id"] == "d"
    typed = api.request("POST", "/v1/heartbeats", body=b"x,c", headers={"Content-Type": "text/csv; charset=utf-8"})
    assert typed.ok() == {"accepted": 1}


def test_ten_thousand_and_one_more(start):
    daemon = start()
    api = daemon.client()
    lines = [f"agent-{i},c" for i in range(10_000)]
    for _ in range(2):
        assert csv(api, "\n".join(lines)).ok() == {"accepted": 10_000}
    assert api.metric("lapse_agents_tracked") == 10_000
    csv(api, "\n".join(lines + ["agent-0,c"])).fails(400, "invalid_request", names="10000")
    csv(api, "\n".join(lines + ["new,c"])).fails(400, "invalid_request", names="10000")
    entries = [{"agent_id": f"agent-{i}", "cluster_id": "c"} for i in range(10_001)]
    beats(api, entries).fails(400, "invalid_request", names="10000")
    assert beats(api, entries[1:]).ok() == {"accepted": 10_000}
    assert api.metric("lapse_agents_tracked") == 10_001


@pytest.mark.parametrize("entry,message", [
    ({"agent_id": "x", "cluster_id": ""}, "[17].cluster_id must not be empty"),
    ({"agent_id": "", "cluster_id": "c"}, "[17].agent_id must not be empty"),
    ({"cluster_id": "c"}, "[17].agent_id is required"),
    ({"agent_id": "x", "cluster_id": "c", "capabilities": ["a", 1]}, "[17].capabilities[1] must be a string"),
    ({"agent_id": "x", "cluster_id": "c", "metadata": {}}, "[17]: unknown field 'metadata'"),
    ("x", "[17]: must be an object"),
])
def test_all_or_none_and_the_error_names_the_entry(start, entry, message):
    daemon = start()
    api = daemon.client()
    beat(api, "known")
    good = [{"agent_id": "known" if i == 3 else f"a{i}", "cluster_id": "c", "capabilities": ["y"]} for i in range(30)]
    for known in (False, True):
        if known:
            beats(api, good).ok()
        before = daemon.rows("SELECT * FROM agents"), daemon.rows("SELECT * FROM capabilities"), list(api.pages("/v1/agents"))
        assert beats(api, good[:17] + [entry] + good[18:]).fails(400, "invalid_request")["message"] == message
        assert (daemon.rows("SELECT * FROM agents"), daemon.rows("SELECT * FROM capabilities"),
                list(api.pages("/v1/agents"))) == before


@pytest.mark.parametrize("line,message", [
    ("x,", "line 18: cluster_id must not be empty"), (",c", "line 18: agent_id must not be empty"),
    ("x", "line 18: must be agent_id,cluster_id"), ("", "line 18: must be agent_id,cluster_id"),
    ("x,c,d", "line 18: must be agent_id,cluster_id"), ("x,c/d", "line 18: cluster_id must not contain '/'"),
    ('"x",c', "line 18: agent_id must not contain"), ("x\0y,c", "line 18: agent_id must be printable"),
    ("x\ry,c", "line 18: agent_id must be printable"), ("n" * 129 + ",c", "line 18: agent_id must be at most 128"),
])
def test_all_or_none_of_csv(start, line, message):
    daemon = start()
    api = daemon.client()
    good = [f"a{i},c" for i in range(30)]
    for known in (False, True):
        if known:
            csv(api, "\n".join(good)).ok()
        before = list(api.pages("/v1/agents"))
        text = "\n".join(good[:17] + [line] + good[18:])
        assert csv(api, text).fails(400, "invalid_request")["message"].startswith(message)
        assert list(api.pages("/v1/agents")) == before


@pytest.mark.parametrize("name,cluster", [('a"b', "c"), ("a", 'c"d')])
def test_csv_has_no_quotes_whoever_is_known(start, name, cluster):
    api = start().client()
    beat(api, name, cluster=cluster)
    for more in ("", "\nnew,c"):
        error = csv(api, f"{name},{cluster}{more}").fails(400, "invalid_request")
        assert error["message"].startswith("line 1: ") and error["message"].endswith("must not contain '\"'")


@pytest.mark.parametrize("raw", [b"{}", b"[", b"null", b"[1,]", b'[{"agent_id":"a","agent_id":"b","cluster_id":"c"}]'])
def test_bad_arrays(shared_api, raw):
    shared_api.request("POST", "/v1/heartbeats", body=raw, headers={"Content-Type": "application/json"}).fails(
        400, "invalid_request")


# Capabilities -------------------------------------------------------------------------------------

def test_the_map_of_capabilities(start):
    api = start().client()
    beat(api, "a", capabilities=["x", "y"])
    beat(api, "b", capabilities=["y"])
    beat(api, "c")
    assert capability_map(api) == {"x": ["a"], "y": ["a", "b"]}
    assert put(api, "c", ["y", "z"]).ok()["capabilities"] == ["y", "z"]
    assert put(api, "a", []).ok()["capabilities"] == []
    assert capability_map(api) == {"y": ["b", "c"], "z": ["c"]}
    assert [agent["agent_id"] for agent in api.get("/v1/capabilities/y").ok()["data"]] == ["b", "c"]
    assert api.get("/v1/capabilities/nobody-can").ok()["data"] == []
    assert api.delete("/v1/agents/c").ok() == {"agent_id": "c", "deleted": True}
    assert capability_map(api) == {"y": ["b"]}
    api.delete("/v1/agents/c").fails(404, "not_found")
    put(api, "c", ["x"]).fails(404, "not_found")
    put(api, "b", [str(i) for i in range(64)]).ok()
    put(api, "b", [str(i) for i in range(65)]).fails(400, "invalid_request", names="capabilities")
    api.put("/v1/agents/b/capabilities", {}).fails(400, "invalid_request", names="capabilities")


def test_setting_capabilities_is_no_heartbeat(start, clock):
    api = start(clock=clock, request_timeout_ms=HOUR_MS).client()
    beat(api, "a")
    clock.advance(60_000)
    seen = get(api, "a").ok()["last_seen"]
    assert put(api, "a", ["x"]).ok()["last_seen"] == seen
    clock.advance(30_001)
    get(api, "a").fails(404, "not_found")
    put(api, "a", ["x"]).fails(404, "not_found")
    assert capability_map(api) == {}


def test_a_hundred_names_and_the_true_count(start):
    api = start().client()
    beats(api, [{"agent_id": f"a{i:03}", "cluster_id": "c", "capabilities": ["x"]} for i in range(150)]).ok()
    (row,) = api.get("/v1/capabilities").ok()["data"]
    assert row["count"] == 150 and row["agents"] == [f"a{i:03}" for i in range(100)]
    assert len(list(api.pages("/v1/capabilities/x", limit=7))) == 150


def test_a_list_that_leaves_out_nearly_everybody(start):
    """It looks at a thousand agents a turn, and the page is whole all the same."""
    api = start().client()
    rare = {f"a{n:05}" for n in (0, 999, 1000, 1001, 2500, 4998, 4999)}
    for first in range(0, 5000, 1000):
        agents = [f"a{n:05}" for n in range(first, first + 1000)]
        beats(api, [{"agent_id": name, "cluster_id": "rare" if name in rare else "c", "capabilities": ["x"]}
                    for name in agents]).ok()
    query = {"cluster_id": "rare", "capability": "x"}
    for limit in (1, 3, 7, 8, 100):
        assert names(api, **query, limit=limit) == sorted(rare)
    answer = api.get("/v1/agents", **query, limit=7).ok()
    assert len(answer["data"]) == 7 and answer["pagination"] == {"next_cursor": None, "has_more": False}
    assert api.get("/v1/agents", cluster_id="nowhere", capability="x").data == []
    assert len(names(api, capability="x", limit=100)) == 5000 == len(names(api, limit=100))


def test_lists_by_page_cluster_and_capability(start):
    api = start().client()
    everyone = []
    for i in range(45):
        fields = {"capabilities": ["even"] if i % 2 == 0 else ["odd"]}
        beat(api, f"agent-{i:02}", f"cluster-{i % 3}", **fields)
        everyone.append(f"agent-{i:02}")
    assert names(api) == names(api, limit=7) == names(api, limit=45) == everyone
    assert names(api, limit=4, cluster_id="cluster-1") == everyone[1::3]
    assert names(api, limit=4, capability="odd") == everyone[1::2]
    assert names(api, limit=2, capability="odd", cluster_id="cluster-1") == everyone[1::6]
    assert names(api, cluster_id="nowhere") == names(api, capability="nothing") == []
    page = api.get("/v1/agents", limit=45)
    assert page.pagination == {"next_cursor": None, "has_more": False}
    assert [row["capability"] for row in api.pages("/v1/capabilities", limit=1)] == ["even", "odd"]
    for query, field in (({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"after": "zz"}, "after"),
                         ({"cluster_id": ""}, "cluster_id"), ({"state": "live"}, "state")):
        api.get("/v1/agents", **query).fails(400, "invalid_request", names=field)


# Owners and limits --------------------------------------------------------------------------------

def test_owners_do_not_see_each_other(start):
    daemon = start()
    admin = daemon.client(token=daemon.client().token("root", admin=True)["token"])
    mine = daemon.client(token=admin.token("mine")["token"])
    yours = daemon.client(token=admin.token("yours")["token"])
    beat(mine, "a", capabilities=["x"])
    get(yours, "a").fails(404, "not_found")
    put(yours, "a", []).fails(404, "not_found")
    yours.delete("/v1/agents/a").fails(404, "not_found")
    assert names(yours) == [] and capability_map(yours) == {}
    assert yours.get("/v1/capabilities/x").ok()["data"] == []
    beat(yours, "a", "theirs")
    csv(yours, "a,theirs").ok()
    assert get(mine, "a").ok()["cluster_id"] == "c" and get(yours, "a").ok()["cluster_id"] == "theirs"
    assert names(daemon.client(token=admin.headers["Authorization"][7:], owner="mine")) == ["a"]
    yours.delete("/v1/agents/a").ok()
    assert get(mine, "a").ok()["capabilities"] == ["x"]
    daemon.client().post("/v1/agents/a/heartbeat", {"cluster_id": "c"}).fails(401, "unauthorized")


def test_a_new_agent_several_times_in_a_request(start):
    daemon = start(agents_max=2)
    api = daemon.client()
    assert csv(api, "a,c\nb,c\na,c\nb,other").ok() == {"accepted": 4}
    assert names(api) == ["a", "b"] and get(api, "b").ok()["cluster_id"] == "other"
    assert len(daemon.events("agent.seen")) == 2
    assert beats(api, [{"agent_id": "b", "cluster_id": "c"}, {"agent_id": "b", "cluster_id": "d"}]).ok()
    assert get(api, "b").ok()["cluster_id"] == "d"


def test_agents_max(start):
    daemon = start(agents_max=3)
    api = daemon.client()
    csv(api, "a,c\nb,c").ok()
    csv(api, "c,c\nd,c").fails(429, "limit_reached", names="agents_max")
    assert names(api) == ["a", "b"]
    beat(api, "c")
    heartbeat(api, "d", {"cluster_id": "c"}).fails(429, "limit_reached", names="agents_max")
    csv(api, "a,x\nb,x\nc,x").ok()
    api.delete("/v1/agents/a").ok()
    beat(api, "d")
    daemon.restart()
    heartbeat(daemon.client(), "e", {"cluster_id": "c"}).fails(429, "limit_reached", names="agents_max")


# What protects the fleet --------------------------------------------------------------------------

@pytest.mark.parametrize("kill", [False, True])
def test_registration_and_capabilities_survive(start, kill):
    daemon = start()
    api = daemon.client()
    beat(api, "a", "east", capabilities=["x"], metadata={"v": 1})
    csv(api, "b,west").ok()
    before = list(api.pages("/v1/agents")), capability_map(api)
    if kill:
        daemon.kill()
    else:
        daemon.stop()
    daemon.start()
    api = daemon.client()
    assert (list(api.pages("/v1/agents")), capability_map(api)) == before


def test_a_restart_after_an_hour_evicts_nobody_before_one_threshold(start, clock):
    """A restart after an hour of downtime evicts nobody before one threshold has passed."""
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    csv(daemon.client(), "\n".join(f"a{i},c" for i in range(9))).ok()
    seen = get(daemon.client(), "a0").ok()["last_seen"]
    daemon.stop()
    clock.advance(HOUR_MS)
    daemon.start()
    api = daemon.client()
    assert len(names(api)) == 9 and get(api, "a0").ok()["last_seen"] == seen
    clock.advance(90_000)
    api.sweep("agents")
    assert len(names(api)) == 9
    beat(api, "a1")
    clock.advance(1)
    assert names(api) == ["a1"]
    api.sweep("agents")
    assert len(daemon.events("agent.evicted")) == 8
    assert {event["last_seen"] for event in daemon.events("agent.evicted")} == {seen}


def test_last_seen_is_written_down_at_a_clean_stop(start, clock):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    beat(daemon.client(), "a")
    clock.advance(50_000)
    beat(daemon.client(), "a")
    daemon.restart()
    assert get(daemon.client(), "a").ok()["last_seen"] == "2026-03-01T12:00:50.000Z"


def test_nine_of_ten_silent_are_suspects(start, clock):
    """Nine of ten agents silent at once: absent at their deadline, their record kept for one more threshold."""
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, agent_breaker_min=10)
    api = daemon.client()
    everyone = "\n".join(f"a{i:02},c" for i in range(40))
    alive = "\n".join(f"a{i:02},c" for i in range(4))
    csv(api, everyone).ok()
    beat(api, "a39", capabilities=["x"])
    clock.advance(60_000)
    csv(api, alive).ok()
    clock.advance(30_000)
    assert len(names(api, limit=100)) == 40
    clock.advance(1)
    assert names(api, limit=100) == ["a00", "a01", "a02", "a03"] and capability_map(api) == {}
    api.sweep("agents")
    assert names(api, limit=100) == ["a00", "a01", "a02", "a03"] and capability_map(api) == {}
    get(api, "a39").fails(404, "not_found")
    suspect = api.get("/v1/agents/a39?include_suspect=true").ok()
    assert suspect["state"] == "suspect" and suspect["capabilities"] == ["x"]
    states = [agent["state"] for agent in api.pages("/v1/agents", limit=100, include_suspect="true")]
    assert states == ["live"] * 4 + ["suspect"] * 36
    assert api.metric("lapse_agents_suspect") == 36 and api.metric("lapse_agents_tracked") == 4
    assert daemon.events("breaker.tripped") == [{"tracked": 40, "silent": 36}]
    assert daemon.metric("lapse_breakers_open") == 1
    assert len(daemon.events("agent.suspected")) == 36 and daemon.events("agent.evicted") == []
    csv(api, alive + "\na39,c").ok()
    assert get(api, "a39").ok()["state"] == "live" and capability_map(api) == {"x": ["a39"]}
    for _ in range(3):
        clock.advance(30_000)
        csv(api, alive + "\na39,c").ok()
        api.sweep("agents")
        assert len(names(api, limit=100)) == 5 and daemon.events("agent.evicted") == []
    clock.advance(1)
    api.sweep("agents")
    assert names(api, include_suspect="true") == ["a00", "a01", "a02", "a03", "a39"]
    assert len(daemon.events("agent.evicted")) == 35
    assert daemon.events("breaker.released") == [{"tracked": 5, "suspected": 36}]
    assert daemon.rows("SELECT DISTINCT owner FROM events WHERE kind LIKE 'breaker.%'") == [{"owner": "local"}]


@pytest.mark.parametrize("query", ["include_suspect=yes", "include_suspect=", "suspect=true"])
def test_a_query_for_suspects_that_is_wrong(start, query):
    api = start().client()
    api.get(f"/v1/agents?{query}").fails(400, "invalid_request", names=query.split("=")[0])
    api.get(f"/v1/agents/a?{query}").fails(400, "invalid_request", names=query.split("=")[0])


def test_one_in_ten_silent_is_evicted_on_time(start, clock):
    """One in ten: evicted on time."""
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    api = daemon.client()
    csv(api, "\n".join(f"a{i:03},c" for i in range(100))).ok()
    clock.advance(50_000)
    csv(api, "\n".join(f"a{i:03},c" for i in range(10, 100))).ok()
    clock.advance(40_000)
    api.sweep("agents")
    assert len(names(api, limit=100)) == 100
    clock.advance(1)
    api.sweep("agents")
    assert names(api, limit=100) == [f"a{i:03}" for i in range(10, 100)]
    assert daemon.events("breaker.tripped") == []


def test_a_held_agent_is_never_removed(start, clock):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    api = daemon.client()
    beat(api, "a b", capabilities=["x"])
    beat(api, "free")
    hold = api.put("/v1/holds/agents/a%20b", {"reason": "evidence"}).ok()
    assert hold["key"] == "a b"
    api.put("/v1/holds/agents/nobody", {"reason": "r"}).fails(404, "not_found")
    api.delete("/v1/agents/a%20b").fails(409, "conflict")
    clock.advance(90_001)
    assert api.sweep("agents", dry_run="true")["pruned"] in (0, 1)
    api.sweep("agents")
    assert [row["agent"] for row in daemon.rows("SELECT agent FROM agents")] == ["a b"]
    get(api, "a b").fails(404, "not_found")
    assert capability_map(api) == {} and api.matrix("agents")["due_rows"] == 0
    beat(api, "a b")
    assert get(api, "a b").ok()["capabilities"] == ["x"]
    clock.advance(90_001)
    api.delete("/v1/holds/agents/a%20b").ok()
    api.sweep("agents")
    assert daemon.rows("SELECT * FROM agents") == [] == daemon.rows("SELECT * FROM capabilities")


def test_an_idle_daemon_with_a_held_agent_sleeps(start):
    daemon = start(agent_evict_after_ms=1000, agent_sweep_ms=200)
    api = daemon.client()
    beat(api, "a")
    api.put("/v1/holds/agents/a", {"reason": "r"}).ok()
    wait_until(lambda: api.matrix("agents")["due_rows"] == 0 and get(api, "a").status == 404, what="parked")

    def cpu_ticks():
        fields = open(f"/proc/{daemon.process.pid}/stat").read().split()
        return int(fields[13]) + int(fields[14])
    before = cpu_ticks()
    wait_until(lambda: str(api.matrix("agents")["last_sweep_at"]) != "None", what="a check")
    first = str(api.matrix("agents")["last_sweep_at"])
    wait_until(lambda: str(api.matrix("agents")["last_sweep_at"]) != first, what="another check", every_s=0.1)
    assert cpu_ticks() - before < 20, "a busy loop would use all of the time"


def test_a_clock_that_leaps_evicts_nobody(start, tmp_path):
    clock = Clock(tmp_path, wall_only=True)
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS)
    api = daemon.client()
    beat(api, "a", capabilities=["x"])
    clock.advance(366 * 24 * HOUR_MS)
    assert api.sweep("agents")["pruned"] == 0
    assert names(api) == ["a"] and capability_map(api) == {"x": ["a"]}
    assert api.get("/readyz").status == 503
    api.post("/v1/clock/accept").ok()
    assert api.sweep("agents")["pruned"] == 0
    assert names(api) == ["a"], "an accepted leap is no silence"


def test_the_description_of_the_batch(shared_api):
    openapi = shared_api.get("/openapi.json").ok()
    content = openapi["paths"]["/v1/heartbeats"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "text/csv"}
    schema = content["application/json"]["schema"]
    assert schema["type"] == "array" and schema["items"] == {"$ref": "#/components/schemas/SendHeartbeatsBody"}
    body = openapi["components"]["schemas"]["SendHeartbeatsBody"]
    assert set(body["properties"]) == {"agent_id", "cluster_id", "capabilities"}


def test_a_fleet_at_a_glance(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, agent_evict_after_ms=90_000, agent_sweep_ms=30_000).client()
    for i in range(3):
        api.post(f"/v1/agents/old-{i}/heartbeat", {"cluster_id": "red"}).ok()
    clock.advance(70_000)
    for i in range(5):
        api.post(f"/v1/agents/new-{i}/heartbeat", {"cluster_id": "blue", "capabilities": [f"c{i}"]}).ok()
    fleet = api.get("/v1/fleet").ok()
    assert (fleet["agents"], fleet["silent"], fleet["complete"]) == (8, 3, True)
    assert fleet["clusters"] == [{"cluster_id": "red", "agents": 3, "silent": 3},
                                 {"cluster_id": "blue", "agents": 5, "silent": 0}]
    assert [a["agent_id"] for a in fleet["quietest"]][:3] == ["old-0", "old-1", "old-2"]
    assert [a["silent"] for a in fleet["quietest"]] == [True] * 3 + [False] * 5
    assert fleet["breaker"] == {"state": "closed", "opened_at": None, "suspected": 0}


def test_a_fleet_is_its_owners(daemon):
    api = daemon.client()
    api.post("/v1/agents/ann/heartbeat", {"cluster_id": "red"}).ok()
    other = api.get("/v1/fleet", headers={"X-Lapse-Owner": "elsewhere"}).ok()
    assert other["agents"] == 0 and other["clusters"] == [] and other["quietest"] == []
