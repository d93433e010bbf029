# SPDX-License-Identifier: Apache-2.0
"""A stateful property test of presence: registration, heartbeats, capabilities, eviction, the breaker,
holds, restarts and time, against a model of a few lines.

The daemon's clocks stand still between steps, and every step of time ends with a check, so the model
knows what is due to the millisecond. HYPOTHESIS_PROFILE=explore runs longer, with another seed each time.
"""
import dataclasses
import datetime
import os
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from client import q
from harness import HOUR_MS, Clock, Daemon

THRESHOLD_MS = 90_000
SILENT_MS = 60_000
AGENTS = [f"agent-{i}" for i in range(10)] + ["with a space", "a-name-that-is-longer-than-others", "ö"]
CLUSTERS = ["east", "west"]
CAPABILITIES = ["read", "write", 'qu"ote']

SETTINGS = {"ci": dict(derandomize=True, max_examples=100, stateful_step_count=50),
            "explore": dict(max_examples=600, stateful_step_count=80, print_blob=True)}

pytestmark = pytest.mark.limit_s(1800)

some_agent = st.sampled_from(AGENTS)
some_agents = st.lists(some_agent, min_size=1, max_size=13)
some_cluster = st.sampled_from(CLUSTERS)
some_set = st.lists(st.sampled_from(CAPABILITIES), unique=True)


@dataclasses.dataclass
class Agent:
    cluster: str
    capabilities: list
    first_ms: int
    last_ms: int
    base_ms: int
    stored_ms: int  # the last_seen that a crash leaves
    overdue: bool = False  # past its deadline and held
    held: bool = False
    suspected_ms: int = 0


class Fleet(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="lapse-model-")
        self.clock = Clock(self.directory.name)
        self.daemon = Daemon(f"{self.directory.name}/data", clock=self.clock, request_timeout_ms=HOUR_MS,
                             agent_breaker_min=10)
        self.daemon.start()
        self.api = self.daemon.client()
        self.agents = {}
        self.suspects = {}
        self.opened_ms = None
        self.seen = self.evicted = self.tripped = self.deleted = self.suspected = 0

    def teardown(self):
        try:
            self.check_everything()
            self.daemon.stop()
        finally:
            if self.daemon.process is not None:
                self.daemon.kill()
            self.directory.cleanup()

    # The model ------------------------------------------------------------------------------------

    @property
    def now(self):
        return self.clock.now_ms

    def beat(self, name, cluster, capabilities):
        agent = self.agents.get(name)
        if agent is not None and agent.overdue and not agent.held:  # released too late to be saved
            self.evicted += 1
            agent = None
        if agent is None:
            agent = self.agents[name] = Agent(cluster, sorted(capabilities or []), self.now, self.now, self.now, self.now)
            self.seen += 1
            kept = self.suspects.pop(name, None)
            if kept is not None and self.is_over(kept):
                self.evicted += 1
            elif kept is not None:
                agent.first_ms = kept.first_ms
                agent.capabilities = kept.capabilities if capabilities is None else agent.capabilities
            return
        changed = cluster != agent.cluster or (capabilities is not None and sorted(capabilities) != agent.capabilities)
        agent.cluster = cluster
        if capabilities is not None:
            agent.capabilities = sorted(capabilities)
        agent.last_ms = agent.base_ms = self.now
        if changed:
            agent.stored_ms = self.now
        agent.overdue = False

    def due(self):
        return [name for name, agent in self.agents.items() if self.now - agent.base_ms > THRESHOLD_MS]

    def check(self):
        """What one check does, and the checks that follow it at once."""
        if self.opened_ms is not None and self.now - self.opened_ms > THRESHOLD_MS:
            self.opened_ms = None
        silent = [agent for agent in self.agents.values()
                  if not agent.overdue and self.now - agent.base_ms > SILENT_MS]
        if self.opened_ms is None and self.due() and len(silent) >= 10 and 2 * len(silent) > len(self.agents):
            self.opened_ms = self.now
            self.tripped += 1
        for name in self.due():
            agent = self.agents[name]
            if agent.held:
                agent.overdue = True
                continue
            del self.agents[name]
            if self.opened_ms is not None and not agent.overdue:
                self.suspects[name] = dataclasses.replace(agent, suspected_ms=self.now)
                self.suspected += 1
            else:
                self.evicted += 1
        for name in [name for name, suspect in self.suspects.items() if self.is_over(suspect)]:
            del self.suspects[name]
            self.evicted += 1

    def is_over(self, suspect):
        return self.now - suspect.suspected_ms > THRESHOLD_MS

    def shown(self):
        return {name: agent for name, agent in sorted(self.agents.items()) if not agent.overdue}

    # What can happen ------------------------------------------------------------------------------

    @rule(name=some_agent, cluster=some_cluster, capabilities=st.none() | some_set)
    def heartbeat(self, name, cluster, capabilities):
        body = {"cluster_id": cluster}
        if capabilities is not None:
            body["capabilities"] = capabilities
        self.api.post(f"/v1/agents/{q(name)}/heartbeat", body).ok()
        self.beat(name, cluster, capabilities)

    @rule(names=some_agents, cluster=some_cluster)
    def heartbeats_as_csv(self, names, cluster):
        text = "".join(f"{name},{cluster}\n" for name in names).encode()
        answer = self.api.request("POST", "/v1/heartbeats", body=text, headers={"Content-Type": "text/csv"})
        assert answer.ok() == {"accepted": len(names)}
        for name in names:
            self.beat(name, cluster, None)

    @rule(names=some_agents, cluster=some_cluster, capabilities=st.none() | some_set)
    def heartbeats_as_json(self, names, cluster, capabilities):
        more = {} if capabilities is None else {"capabilities": capabilities}
        entries = [{"agent_id": name, "cluster_id": cluster, **more} for name in names]
        assert self.api.post("/v1/heartbeats", entries).ok() == {"accepted": len(names)}
        for name in names:
            self.beat(name, cluster, capabilities)

    @rule(cluster=some_cluster)
    def everyone(self, cluster):
        self.heartbeats_as_csv(AGENTS, cluster)

    @rule(names=some_agents, bad=st.sampled_from(["", "x", ",c", "x,", "x,a/b"]))
    def a_bad_line_spoils_them_all(self, names, bad):
        text = "\n".join([f"{name},east" for name in names] + [bad, "z,c"]).encode()
        self.api.request("POST", "/v1/heartbeats", body=text, headers={"Content-Type": "text/csv"}).fails(
            400, "invalid_request", names=f"line {len(names) + 1}")

    @rule(name=some_agent, capabilities=some_set)
    def set_capabilities(self, name, capabilities):
        answer = self.api.put(f"/v1/agents/{q(name)}/capabilities", {"capabilities": capabilities})
        if name not in self.shown():
            answer.fails(404, "not_found")
        else:
            assert answer.ok()["capabilities"] == sorted(capabilities)
            self.agents[name].capabilities = sorted(capabilities)

    @rule(name=some_agent)
    def delete(self, name):
        answer = self.api.delete(f"/v1/agents/{q(name)}")
        if name in self.suspects and not self.is_over(self.suspects[name]):
            assert answer.ok() == {"agent_id": name, "deleted": True}
            del self.suspects[name]
            self.deleted += 1
        elif name not in self.shown():
            answer.fails(404, "not_found")
        elif self.agents[name].held:
            answer.fails(409, "conflict")
        else:
            assert answer.ok() == {"agent_id": name, "deleted": True}
            del self.agents[name]
            self.deleted += 1

    @rule(name=some_agent)
    def hold_or_release(self, name):
        path = f"/v1/holds/agents/{q(name)}"
        agent = self.agents.get(name)
        if agent is None:
            self.api.put(path, {"reason": "r"}).fails(404, "not_found")
        elif agent.held:
            self.api.delete(path).ok()
            agent.held = False
        else:
            self.api.put(path, {"reason": "r"}).ok()
            agent.held = True

    @rule(ms=st.sampled_from([1, 10, 1000, 20_000, 30_000, 45_000, 59_999, 90_000]))
    def advance(self, ms):
        self.clock.advance(ms)
        self.api.sweep("agents")
        self.check()

    @rule(data=st.data(), extra=st.sampled_from([0, 1]))
    def advance_to_a_deadline(self, data, extra):
        bases = sorted({agent.base_ms for agent in self.shown().values()}
                       | {suspect.suspected_ms for suspect in self.suspects.values()})
        if bases:
            ms = data.draw(st.sampled_from(bases)) + THRESHOLD_MS + extra - self.now
            if ms > 0:
                self.advance(ms)

    @rule()
    def dry_run(self):
        gone = sum(agent.overdue and not agent.held for agent in self.agents.values())
        gone += sum(self.is_over(suspect) for suspect in self.suspects.values())
        assert self.api.sweep("agents", dry_run="true")["pruned"] == gone

    @rule(kill=st.booleans(), down_ms=st.sampled_from([0, 1000, 3_600_000]))
    def restart(self, kill, down_ms):
        if kill:
            self.daemon.kill()
        else:
            self.daemon.stop()
        for agent in self.agents.values():
            if kill:
                agent.last_ms = agent.stored_ms
            agent.stored_ms = agent.last_ms
        self.clock.advance(down_ms)
        self.daemon.start()
        self.api = self.daemon.client()
        self.opened_ms = None
        for agent in self.agents.values():
            agent.base_ms, agent.overdue = self.now, False

    # What must hold -------------------------------------------------------------------------------

    @invariant()
    def the_list_agrees(self):
        listed = {agent["agent_id"]: (agent["cluster_id"], agent["capabilities"], agent["state"])
                  for agent in self.api.pages("/v1/agents", limit=100)}
        assert listed == {name: (agent.cluster, agent.capabilities, "live") for name, agent in self.shown().items()}

    @rule(limit=st.integers(1, 5), capability=st.none() | st.sampled_from(CAPABILITIES))
    def suspects_are_listed_on_request(self, limit, capability):
        query = {} if capability is None else {"capability": capability}
        listed = [(agent["agent_id"], agent["capabilities"], agent["state"]) for agent in
                  self.api.pages("/v1/agents", limit=limit, include_suspect="true", **query)]
        expected = [(name, agent.capabilities, "live") for name, agent in self.shown().items()]
        expected += [(name, suspect.capabilities, "suspect") for name, suspect in self.suspects.items()
                     if not self.is_over(suspect)]
        assert listed == sorted((row for row in expected if capability is None or capability in row[1]),
                                key=lambda row: row[0].encode())

    @rule(name=some_agent)
    def get(self, name):
        answer = self.api.get(f"/v1/agents/{q(name)}")
        agent = self.shown().get(name)
        if agent is None:
            answer.fails(404, "not_found")
        else:
            shown = answer.ok()
            assert (shown["first_seen"], shown["last_seen"]) == (iso(agent.first_ms), iso(agent.last_ms))

    @rule(limit=st.integers(1, 4))
    def the_map_agrees(self, limit):
        listed = {row["capability"]: (row["count"], row["agents"])
                  for row in self.api.pages("/v1/capabilities", limit=limit)}
        expected = {}
        for capability in sorted(CAPABILITIES):
            able = sorted((name for name, agent in self.shown().items() if capability in agent.capabilities),
                          key=lambda name: name.encode())
            if able:
                expected[capability] = (len(able), able)
        assert listed == expected

    @rule(cluster=some_cluster, capability=st.none() | st.sampled_from(CAPABILITIES), limit=st.integers(1, 5))
    def filtered_lists_agree(self, cluster, capability, limit):
        query = {"cluster_id": cluster, **({} if capability is None else {"capability": capability})}
        listed = [agent["agent_id"] for agent in self.api.pages("/v1/agents", limit=limit, **query)]
        assert listed == sorted((name for name, agent in self.shown().items() if agent.cluster == cluster
                                 and (capability is None or capability in agent.capabilities)),
                                key=lambda name: name.encode())

    def check_everything(self):
        for name in AGENTS:
            self.get(name)
        self.the_map_agrees(100)
        assert self.api.metric("lapse_agents_tracked") == len(self.agents)
        assert self.api.metric("lapse_live_rows", table="agents") == len(self.agents)
        assert self.api.metric("lapse_agents_suspect") == len(self.suspects)
        assert self.api.metric("lapse_live_rows", table="suspects") == len(self.suspects)
        assert len(self.daemon.events("agent.suspected")) == self.suspected
        assert len(self.daemon.events("agent.seen")) == self.seen
        assert len(self.daemon.events("agent.evicted")) == self.evicted
        assert len(self.daemon.events("agent.deleted")) == self.deleted
        assert len(self.daemon.events("breaker.tripped")) == self.tripped
        stored = {row["agent"]: row["capabilities"] for row in self.daemon.rows("SELECT * FROM agents")}
        assert set(stored) == set(self.agents)
        assert len(self.daemon.rows("SELECT * FROM capabilities")) == sum(
            len(agent.capabilities) for agent in self.agents.values())


def iso(ms):
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


TestFleet = Fleet.TestCase
TestFleet.settings = hypothesis.settings(
    deadline=None, suppress_health_check=list(hypothesis.HealthCheck),
    **SETTINGS[os.environ.get("HYPOTHESIS_PROFILE", "ci")])
