# SPDX-License-Identifier: Apache-2.0
"""The fleet: agents, heartbeats, capabilities."""
import json
import time

import pytest
import requests

from runner import LIMIT_S, Lapse
from stub import BREAK


def ago(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - seconds))


def agent_of(name, **fields):
    return {"agent_id": name, "cluster_id": "west", "first_seen": ago(7300), "last_seen": ago(30),
            "capabilities": ["gpu", "ocr"], "state": "live", **fields}


def page(*rows):
    return 200, {"data": list(rows), "pagination": {"next_cursor": None, "has_more": False}}


@pytest.fixture
def own(start):
    return Lapse(start().url)


# Against a stub ----------------------------------------------------------------------------------

def test_the_table(stub):
    stub.script = [page(agent_of("a1"), agent_of("b", state="suspect", capabilities=[]))]
    head, first, second = Lapse(stub.url)("agents").lines
    assert head.split() == ["AGENT", "CLUSTER", "STATE", "LAST", "SEEN", "FIRST", "SEEN", "CAPABILITIES"]
    assert first.split()[:3] == ["a1", "west", "live"] and first.endswith("2h ago      gpu, ocr")
    assert second.split()[:3] == ["b", "west", "suspect"]
    assert "\x1b[33msuspect\x1b[0m" in Lapse(stub.url).on_terminal("agents")[1]


def test_filters_are_queries(stub):
    stub.script = [page()]
    assert Lapse(stub.url)("agents", "--cluster", "a&b", "--capability", "é").out == "no agents\n"
    assert stub.requests[0][1] == "/v1/agents?cluster_id=a%26b&capability=%C3%A9&limit=100"


def test_long_lists_are_cut_on_a_terminal(stub):
    stub.script = [page(agent_of("a1", capabilities=[f"capability-{n}" for n in range(50)]))]
    _, shown = Lapse(stub.url).on_terminal("agents", columns=90, env={"NO_COLOR": "1"})
    assert all(len(line) <= 90 for line in shown.splitlines()) and shown.endswith("...\n")


def test_hostile_agents(stub):
    stub.script = [page(agent_of("\x1b[2Jevil", capabilities=["\u202ex"]))]
    ran = Lapse(stub.url)("agents")
    assert "\x1b" not in ran.out and "\\x1b[2Jevil" in ran.out and "\\u202ex" in ran.out


def test_a_heartbeat_is_repeated_when_its_answer_is_lost(stub):
    stub.script = [BREAK, (200, {"status": "ok"})]
    ran = Lapse(stub.url)("heartbeat", "a1", "--cluster", "west", "--capability", "x", "--capability=y")
    assert (ran.out, ran.err) == ("", "")
    bodies = [json.loads(body) for _, _, _, body in stub.requests]
    assert bodies == [{"cluster_id": "west", "capabilities": ["x", "y"]}] * 2


def test_a_removal_is_not_repeated(stub):
    stub.script = [BREAK]
    Lapse(stub.url)("agents", "rm", "a1", code=3)
    assert [method for method, _, _, _ in stub.requests] == ["DELETE"]


# Against the daemon ------------------------------------------------------------------------------

def test_a_heartbeat_makes_an_agent(own):
    assert own("agents").out == "no agents\n" and own("capabilities").out == "no capabilities\n"
    own("heartbeat", "a1", "--cluster", "west", "--capability", "gpu", "--capability", "ocr")
    own("heartbeat", "a2", "--cluster", "east")
    assert own.json("heartbeat", "a2", "--cluster", "east") == {"status": "ok"}
    rows = own.json("agents")["data"]
    assert sorted((row["agent_id"], row["cluster_id"], row["state"]) for row in rows) == \
        [("a1", "west", "live"), ("a2", "east", "live")]
    assert sorted(own.json("agents", "show", "a1")["capabilities"]) == ["gpu", "ocr"]
    assert len(own("agents").lines) == 3


def test_filters(own):
    own("heartbeat", "a1", "--cluster", "west", "--capability", "gpu")
    own("heartbeat", "a2", "--cluster", "west")
    own("heartbeat", "a3", "--cluster", "east", "--capability", "gpu")
    names = lambda *words: sorted(row["agent_id"] for row in own.json(*words)["data"])
    assert names("agents", "--cluster", "west") == ["a1", "a2"]
    assert names("agents", "--capability", "gpu") == ["a1", "a3"]
    assert names("agents", "--cluster", "west", "--capability", "gpu") == ["a1"]
    assert names("capabilities", "gpu") == ["a1", "a3"]
    assert own("agents", "--cluster", "north").out == "no agents\n"


def test_show(own):
    own("heartbeat", "a 1", "--cluster", "west", "--capability", "gpu")
    lines = dict(line.split("  ", 1) for line in own("agents", "show", "a 1").lines)
    fields = {name: value.strip() for name, value in lines.items()}
    assert fields["agent"] == "a 1" and fields["cluster"] == "west" and fields["state"] == "live"
    assert fields["capabilities"] == "gpu" and fields["last seen"].endswith("Z (now)")
    own("agents", "show", "nobody", code=5)


def test_rm(own):
    own("heartbeat", "a1", "--cluster", "west", "--capability", "gpu")
    assert own("agents", "rm", "a1").out == "a1 is removed\n"
    own("agents", "rm", "a1", code=5)
    assert own("agents").out == "no agents\n" and own("capabilities").out == "no capabilities\n"


def test_capabilities(own):
    for name, extra in (("a1", ["--capability", "gpu"]), ("a2", ["--capability", "gpu", "--capability", "ocr"])):
        own("heartbeat", name, "--cluster", "west", *extra)
    head, *rows = own("capabilities").lines
    assert head.split() == ["CAPABILITY", "COUNT", "AGENTS"]
    assert sorted(" ".join(row.split()) for row in rows) == ["gpu 2 a1, a2", "ocr 1 a2"]
    assert [line.split()[0] for line in own("capabilities", "ocr").lines] == ["AGENT", "a2"]


def report(lapse, count):
    lines = "".join(f"agent-{n:04},west\n" for n in range(count))
    requests.post(lapse.env["LAPSE_URL"] + "/v1/heartbeats", data=lines,
                  headers={"Content-Type": "text/csv"}).raise_for_status()


def test_many_agents_are_paged(own):
    report(own, 250)
    assert len({row["agent_id"] for row in own.json("agents")["data"]}) == 250
    assert len(own("agents", "--limit", "7").lines) == 8


def test_refused(own):
    own("heartbeat", "bad/name", "--cluster", "west", code=1)
    own("heartbeat", "a1", "--cluster", "", code=1)


def test_the_fleet_is_in_top(own):
    own("heartbeat", "a1", "--cluster", "west")
    view = own.json("top", "--interval", "100ms")
    assert (view["agents_live"], view["agents_suspect"]) == (1, 0)
    assert "agents 1 live, 0 suspect" in own("top", "--once", "--interval", "100ms").out


def test_a_fleet_that_falls_silent(start):
    lapse = Lapse(start(agent_evict_after_ms=2000, agent_sweep_ms=100, agent_breaker_min=10).url)
    for _ in range(2):
        report(lapse, 20)
    assert lapse.json("top", "--interval", "100ms")["agents_live"] == 20
    deadline = time.monotonic() + LIMIT_S
    while lapse("agents", "--include-suspect").out.count("suspect") < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert lapse.json("top", "--interval", "100ms")["agents_suspect"] == 20
    assert lapse("agents").out == "no agents\n"
    while lapse("agents", "--include-suspect").out != "no agents\n":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while "agent.evicted" not in (seen := lapse("events").out):  # a list does not show what is due, removed or not
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "breaker.tripped" in seen and seen.count("agent.seen") == 20
    view = lapse.json("top", "--interval", "100ms")
    assert view["agents_live"] == 0 and view["lag"]["count_total"] == 40
    pruned = {row["table"]: row["pruned_total"] for row in view["tables"]}
    assert (pruned["agents"], pruned["suspects"]) == (0, 20)
