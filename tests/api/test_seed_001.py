# SPDX-License-Identifier: Apache-2.0
"""Seed 001, "Evict Stale Agent from HeartbeatManager and CapabilityMap": every scenario, flow and
acceptance line.

The daemon's clocks stand still and are moved by the test. "The HeartbeatManager receives a
:check_heartbeats message" is `POST /v1/sweep/agents`, the deadline, or the timer; the state map is
`GET /v1/agents`, the CapabilityMap `GET /v1/capabilities`. Once removed exactly once means one event, one
log line, one row counted. The last acceptance line (compiles with warnings as errors) is the build's.
"""

import pytest

from client import q
from harness import Clock, HOUR_MS, NEVER_MS, faketime_preload, wait_until

THRESHOLD_MS = 90_000
CHECK_MS = 30_000


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def daemon(start, clock):
    # Time that leaps with all its clocks makes an idle connection late, too.
    return start(clock=clock, request_timeout_ms=HOUR_MS)


@pytest.fixture
def api(daemon):
    return daemon.client()


def beat(api, agent, **fields):
    assert api.post(f"/v1/agents/{q(agent)}/heartbeat", {"cluster_id": "c", **fields}).ok() == {"status": "ok"}


def agents(api):
    return [agent["agent_id"] for agent in api.pages("/v1/agents", limit=100)]


def capability_map(api):
    return {row["capability"]: row["agents"] for row in api.pages("/v1/capabilities", limit=100)}


def evictions(daemon, agent):
    """The eviction's log lines and events, and how many rows the metric counts."""
    lines = [line for line in daemon.log_lines() if line["event"] == "agent.evicted" and line["agent_id"] == agent]
    events = [event for event in daemon.events("agent.evicted") if event["agent_id"] == agent]
    return lines, events


def assert_evicted_once(daemon, agent, last_seen):
    lines, events = evictions(daemon, agent)
    assert [(line["level"], line["last_seen"]) for line in lines] == [("info", last_seen)]
    assert [event["last_seen"] for event in events] == [last_seen]
    assert daemon.rows("SELECT * FROM agents WHERE agent = ?", agent) == []
    assert daemon.rows("SELECT * FROM capabilities WHERE agent = ?", agent) == []


# Scenarios ----------------------------------------------------------------------------------------

def test_s1_stale_agent_evicted_at_threshold(daemon, api, clock):
    """Given the HeartbeatManager state contains "agent-99" with last_seen 91 seconds ago
    And "agent-99" capabilities exist in the CapabilityMap
    When the HeartbeatManager receives a :check_heartbeats message
    Then "agent-99" is removed from the HeartbeatManager state map
    And CapabilityMap.remove_agent("agent-99") is called exactly once
    And an :info log is emitted with agent_id "agent-99" """
    beat(api, "agent-99", capabilities=["search", "write"])
    assert capability_map(api) == {"search": ["agent-99"], "write": ["agent-99"]}
    seen = api.get("/v1/agents/agent-99").ok()["last_seen"]
    clock.advance(91_000)
    api.sweep("agents")
    assert agents(api) == [] and capability_map(api) == {}
    api.get("/v1/agents/agent-99").fails(404, "not_found")
    for _ in range(3):
        assert api.sweep("agents")["pruned"] == 0
    assert_evicted_once(daemon, "agent-99", seen)
    assert api.metric("lifecycle_prune_rows_total", scheduler="agents", table="agents") == 1


def test_s2_agent_within_threshold_is_not_evicted(daemon, api, clock):
    """Given the HeartbeatManager state contains "agent-10" with last_seen 89 seconds ago
    When the HeartbeatManager receives a :check_heartbeats message
    Then "agent-10" remains in the HeartbeatManager state map
    And CapabilityMap.remove_agent is not called for "agent-10" """
    beat(api, "agent-10", capabilities=["search"])
    clock.advance(89_000)
    assert api.sweep("agents")["pruned"] == 0
    assert agents(api) == ["agent-10"] and capability_map(api) == {"search": ["agent-10"]}
    assert evictions(daemon, "agent-10") == ([], [])


# Main flow ----------------------------------------------------------------------------------------

def test_main_flow_removes_exactly_those_past_the_threshold(daemon, api, clock):
    """The manager iterates every entry; if elapsed seconds exceed 90, it evicts the entry: removes it
    from the state map, calls CapabilityMap.remove_agent, logs with fields agent_id and last_seen.
    Agents within the threshold are left untouched."""
    for i, age in enumerate([120, 95, 91, 90, 60, 0]):
        if i:
            clock.advance(([120, 95, 91, 90, 60, 0][i - 1] - age) * 1000)
        beat(api, f"age-{age}", capabilities=["all", f"only-{age}"])
    api.sweep("agents")
    assert agents(api) == ["age-0", "age-60", "age-90"]
    assert capability_map(api) == {"all": ["age-0", "age-60", "age-90"], "only-0": ["age-0"],
                                   "only-60": ["age-60"], "only-90": ["age-90"]}
    assert sorted(event["agent_id"] for event in daemon.events("agent.evicted")) == ["age-120", "age-91", "age-95"]


def test_trigger_the_check_fires_every_30_seconds(start):
    """Fired by :timer.send_interval/2 every 30 seconds: with the default settings, in a process whose
    clocks, all of them, run 200 times as fast."""
    fast = {"LD_PRELOAD": faketime_preload(), "FAKETIME": "@2026-03-01 12:00:00 x200"}
    daemon = start(env=fast)
    sweeps = wait_until(lambda: len(rows := daemon.rows(
        "SELECT started_at, ended_at FROM sweeps WHERE scheduler = 'agents' ORDER BY id")) >= 4 and rows,
        timeout_s=30, what="four checks", every_s=0.05)
    gaps = [begun["started_at"] - ended["ended_at"] for ended, begun in zip(sweeps, sweeps[1:])]
    assert all(CHECK_MS <= gap < 2 * CHECK_MS for gap in gaps), gaps


def test_trigger_the_timer_evicts_without_being_asked(start):
    """The check is self-sent: nobody has to ask."""
    daemon = start(agent_evict_after_ms=300, agent_sweep_ms=100)
    api = daemon.client()
    beat(api, "agent-99", capabilities=["x"])
    wait_until(lambda: daemon.events("agent.evicted"), what="evicted")
    assert len(evictions(daemon, "agent-99")[0]) == 1
    assert agents(api) == [] and capability_map(api) == {}


# Alternate flow -----------------------------------------------------------------------------------

def test_a1_no_agents_exceed_threshold(daemon, api, clock):
    """A1: All entries have last_seen within 90 seconds. The iteration completes with no evictions, the
    state map is unchanged, no CapabilityMap calls are made."""
    for i in range(5):
        beat(api, f"a{i}", capabilities=["x"])
        clock.advance(10_000)
    before = list(api.pages("/v1/agents")), capability_map(api)
    for _ in range(3):
        assert api.sweep("agents")["pruned"] == 0
    assert (list(api.pages("/v1/agents")), capability_map(api)) == before
    assert daemon.events("agent.evicted") == []


# Failure flow -------------------------------------------------------------------------------------

def test_f1_a_failing_removal_costs_that_step_only(start):
    """F1: remove_agent raises for the evicted agent; in-memory state for remaining agents is lost. That
    must not be: the agent is tried again at the next check, everyone else keeps their state."""
    daemon = start(agent_evict_after_ms=1000, agent_sweep_ms=300)
    api = daemon.client()
    beat(api, "poisoned", capabilities=["x"])
    beat(api, "stale", capabilities=["x", "y"])
    with daemon.store.undeletable("capabilities", "agent", "poisoned"):
        process = daemon.process.pid
        beat(api, "alive", capabilities=["z"])
        wait_until(lambda: beat(api, "alive") or daemon.events("agent.evicted"), what="the other one went, on time")
        wait_until(lambda: beat(api, "alive") or api.metric("lifecycle_tick_errors_total", scheduler="agents") >= 2,
                   what="tried again at the next check")
        assert [event["agent_id"] for event in daemon.events("agent.evicted")] == ["stale"]
        api.get("/v1/agents/poisoned").fails(404, "not_found")
        assert capability_map(api) == {"z": ["alive"]}
    wait_until(lambda: beat(api, "alive") or len(daemon.events("agent.evicted")) == 2, what="evicted after all")
    for agent in ("poisoned", "stale"):
        lines, events = evictions(daemon, agent)
        assert len(lines) == len(events) == 1
    assert daemon.process.pid == process and daemon.process.poll() is None
    assert agents(api) == ["alive"] and capability_map(api) == {"z": ["alive"]}
    assert any(line["event"] == "agent.evict_failed" and line["agent_id"] == "poisoned" for line in daemon.log_lines())


def test_f1_a_store_that_fails_is_tried_again(start):
    """The same when nothing at all can be written for a while."""
    daemon = start(agent_evict_after_ms=500, agent_sweep_ms=200)
    api = daemon.client()
    beat(api, "stale", capabilities=["x"])
    with daemon.store_locked():
        wait_until(lambda: api.get("/v1/agents/stale").status == 404, what="not shown any more")
        wait_until(lambda: api.metric("lifecycle_tick_errors_total", scheduler="agents"), what="a failed check")
    wait_until(lambda: daemon.events("agent.evicted"), what="tried again")
    lines, events = evictions(daemon, "stale")
    assert len(lines) == len(events) == 1


# Acceptance criteria ------------------------------------------------------------------------------

def test_acceptance_91_seconds_in_the_past_is_removed(daemon, api, clock):
    """A test that an agent with last_seen 91 seconds in the past is removed from state and
    CapabilityMap.remove_agent/1 is called after a :check_heartbeats message."""
    beat(api, "agent-99", capabilities=["x"])
    seen = api.get("/v1/agents/agent-99").ok()["last_seen"]
    clock.advance(91_000)
    api.sweep("agents")
    assert_evicted_once(daemon, "agent-99", seen)


def test_acceptance_89_seconds_in_the_past_remains(daemon, api, clock):
    """A test that an agent with last_seen 89 seconds in the past remains in state after a
    :check_heartbeats message."""
    beat(api, "agent-10", capabilities=["x"])
    shown = api.get("/v1/agents/agent-10").ok()
    clock.advance(89_000)
    api.sweep("agents")
    assert api.get("/v1/agents/agent-10").ok() == shown


def test_acceptance_any_stale_agent_is_removed_however_many_they_are(daemon, api, clock):
    """Agents that exceed the threshold are removed at 90 s, not later: ten of ten, and a fleet's majority."""
    for i in range(20):
        beat(api, f"dead-{i}", capabilities=["x"])
    clock.advance(60_000)
    for i in range(9):
        beat(api, f"alive-{i}", capabilities=["x"])
    clock.advance(30_000)
    assert len(agents(api)) == 29
    clock.advance(1)
    api.sweep("agents")
    alive = [f"alive-{i}" for i in range(9)]
    assert agents(api) == alive and capability_map(api) == {"x": alive}
    assert len(daemon.events("agent.evicted")) == 20
    assert daemon.events("agent.suspected") == [] and daemon.events("breaker.tripped") == []


def test_acceptance_a_hundred_silent_agents_are_not_listed_either(daemon, api, clock):
    """A fleet large enough for the breaker: absent from the state and the CapabilityMap at the same moment."""
    lines = "\n".join(f"a{i},c" for i in range(100)).encode()
    api.request("POST", "/v1/heartbeats", body=lines, headers={"Content-Type": "text/csv"}).ok()
    beat(api, "a7", capabilities=["x"])
    clock.advance(90_000)
    assert len(agents(api)) == 100 and capability_map(api) == {"x": ["a7"]}
    clock.advance(1)
    assert agents(api) == [] and capability_map(api) == {}
    api.sweep("agents")
    assert agents(api) == [] and capability_map(api) == {}
    assert api.metric("lapse_agents_tracked") == 0 and api.metric("lapse_live_rows", table="agents") == 0
    assert len(daemon.events("agent.suspected")) == 100


def test_acceptance_an_owner_does_not_answer_for_another(start, clock):
    """One owner's silent fleet does not keep another owner's dead agent."""
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, agent_breaker_min=10)
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    one, two = (daemon.client(token=admin.token(owner)["token"]) for owner in ("one", "two"))
    for i in range(20):
        beat(one, f"a{i}")
    beat(two, "dead")
    clock.advance(90_001)
    admin.sweep("agents")
    assert agents(one) == [] and agents(two) == []
    assert [event["agent_id"] for event in daemon.events("agent.evicted")] == ["dead"]
    assert len(daemon.events("agent.suspected")) == 20


# Boundaries ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("age_ms,goes", [(89_000, False), (89_999, False), (90_000, False), (90_001, True),
                                         (91_000, True)])
def test_boundary_90_seconds_exactly_stays_one_millisecond_more_goes(daemon, api, clock, age_ms, goes):
    """If elapsed seconds *exceed* 90: more than 90 000 ms, exactly."""
    beat(api, "a")
    clock.advance(age_ms)
    assert (api.get("/v1/agents/a").status == 404) is goes
    api.sweep("agents")
    assert len(daemon.rows("SELECT * FROM agents")) == (not goes)


def test_boundary_a_heartbeat_before_the_check_wins(daemon, api, clock):
    beat(api, "a", capabilities=["x"])
    for _ in range(5):
        clock.advance(90_000)
        beat(api, "a")
        assert api.sweep("agents")["pruned"] == 0
    assert capability_map(api) == {"x": ["a"]}


def test_precondition_the_numbers_are_90_and_30_seconds(api):
    """@eviction_threshold_seconds is 90 and @check_interval_ms is 30_000."""
    row = api.matrix("agents")
    assert row["window_ms"] == 90_000 and row["scheduler"] == "agents"
    assert row["paths"] == ["lazy", "deadline", "sweep"]


def test_deadline_does_not_wait_for_the_check(start):
    """Evicted at the deadline itself: with checks a day apart."""
    daemon = start(agent_evict_after_ms=400, agent_sweep_ms=NEVER_MS)
    api = daemon.client()
    beat(api, "a", capabilities=["x"])
    wait_until(lambda: daemon.events("agent.evicted"), timeout_s=5, what="evicted")
    assert api.metric("lapse_expiry_lag_seconds_count") == 1
    assert api.metric("lapse_expiry_lag_seconds_sum") < 2
    assert api.metric("lapse_table_expiry_lag_seconds_count", table="agents") == 1
    assert api.metric("lapse_table_expiry_lag_seconds_sum", table="agents") < 2
    assert api.metric("lapse_table_expiry_lag_seconds_count", table="messages") == 0
