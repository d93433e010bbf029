# SPDX-License-Identifier: Apache-2.0
"""A stateful property test: random operations and time against a model of a few lines.

The daemon's wall clock stands still between steps (libfaketime), so the model knows every deadline to
the millisecond. Advances are multiples of 10 ms and visibility times end in 5, so that no step falls on
the end of a claim, where the contract leaves a choice; the end of a lifetime is hit on purpose.

New messages are kept in memory until they are filed (message_tail_max). Every restart chooses another
size of that tail, so that all operations meet inboxes with both halves, or one, or the other.

HYPOTHESIS_PROFILE=explore runs longer and with another seed each time.
"""
import dataclasses
import datetime
import os
import tempfile
from typing import Optional

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client import q
from harness import NEVER_MS, Clock, Daemon

TTL_MS = 60_000
UNREAD_MAX = 6
AGENTS = ["anna", "b c", "dörte"]
#: none at all, filed by nearly every send, by some of them and by the loop, and never
TAILS = [0, 1, 3, 8, 131_072]

hypothesis.settings.register_profile("ci", derandomize=True, max_examples=80, stateful_step_count=40)
hypothesis.settings.register_profile("explore", max_examples=800, stateful_step_count=80, print_blob=True)
PROFILE = hypothesis.settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

pytestmark = pytest.mark.limit_s(1800)


@dataclasses.dataclass
class Message:
    shown: dict  # as the API must show it
    sent_ms: int
    claim_id: Optional[str] = None
    claimed_until_ms: int = -1
    held: bool = False

    @property
    def id(self):
        return self.shown["id"]

    @property
    def read(self):
        return self.shown["read"]


class Inboxes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="lapse-model-")
        self.clock = Clock(self.directory.name)
        self.daemon = Daemon(f"{self.directory.name}/data", clock=self.clock, message_ttl_ms=TTL_MS,
                             message_sweep_ms=NEVER_MS, housekeeping_sweep_ms=NEVER_MS,
                             unread_max_per_agent=UNREAD_MAX, message_tail_max=TAILS[0])
        self.daemon.start()
        self.api = self.daemon.client()
        self.messages = {name: [] for name in AGENTS}  # oldest first, everything not yet swept
        self.swept = []  # (agent, id)
        self.old_claims = []  # (agent, message id, claim id) that passed to another
        self.pruned_since_start = 0

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

    def past(self, message):
        return message.read and self.now - message.sent_ms > TTL_MS

    def live(self, agent):
        return [m for m in self.messages[agent] if not self.past(m)]

    def unread(self, agent):
        return [m for m in self.messages[agent] if not m.read]

    def offered(self, agent):
        return [m for m in self.unread(agent) if m.claimed_until_ms < self.now]

    def add(self, agent, shown, content):
        assert (shown["to"], shown["content"], shown["read"], shown["read_at"]) == (agent, content, False, None)
        assert shown["timestamp"] == self.iso(self.now)
        self.messages[agent].append(Message(shown, self.now))

    def mark(self, message):
        if not message.read:
            message.shown = {**message.shown, "read": True, "read_at": self.iso(self.now)}

    @staticmethod
    def iso(ms):
        at = datetime.datetime.fromtimestamp(ms // 1000, datetime.timezone.utc)
        return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"

    # Operations -----------------------------------------------------------------------------------

    @rule(agent=st.sampled_from(AGENTS), content=st.text('aZ "\\\n\u00e9\U0001f680', max_size=20))
    def send(self, agent, content):
        answer = self.api.post(f"/v1/agents/{q(agent)}/messages", {"from": "m", "content": content})
        if len(self.unread(agent)) >= UNREAD_MAX:
            answer.fails(429, "limit_reached", names=agent)
        else:
            self.add(agent, answer.ok(201), content)

    @rule(agents=st.lists(st.sampled_from(AGENTS), min_size=1, max_size=3, unique=True))
    def broadcast(self, agents):
        answer = self.api.broadcast(agents, content="to all")
        full = [agent for agent in agents if len(self.unread(agent)) >= UNREAD_MAX]
        if full:
            error = answer.fails(429, "limit_reached")
            assert any(agent in str(error) for agent in full)
        else:
            for agent, copy in zip(agents, answer.ok(201)["data"], strict=True):
                assert copy["to"] == agent
                self.add(agent, self.api.message(agent, copy["id"]).ok(), "to all")

    def any_message(self, data, where=lambda m: True):
        found = [(agent, m) for agent in AGENTS for m in self.messages[agent] if where(m)]
        return data.draw(st.sampled_from(found)) if found else (None, None)

    @rule(data=st.data())
    def read(self, data):
        agent, message = self.any_message(data)
        if message is not None:
            self.mark(message)
            assert self.api.read(agent, message.id) == message.shown

    @rule(data=st.data())
    def read_by_claim(self, data):
        agent, message = self.any_message(data, lambda m: m.claim_id is not None)
        if message is not None:
            self.mark(message)
            assert self.api.mark_read(agent, message.id, claim_id=message.claim_id).ok() == message.shown

    @precondition(lambda self: self.old_claims)
    @rule(data=st.data())
    def read_by_a_claim_that_passed(self, data):
        agent, message_id, claim_id = data.draw(st.sampled_from(self.old_claims))
        answer = self.api.mark_read(agent, message_id, claim_id=claim_id)
        if (agent, message_id) in self.swept:
            answer.fails(404, "not_found")
        else:
            answer.fails(409, "conflict")

    @rule(data=st.data(), agent=st.sampled_from(AGENTS))
    def read_some(self, data, agent):
        known = [m.id for name in AGENTS for m in self.messages[name]]
        if known:
            ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=5, unique=True))
            fresh = [m for m in self.unread(agent) if m.id in ids]
            assert self.api.read_many(agent, ids=ids).ok() == {"count": len(fresh)}
            for message in fresh:
                self.mark(message)

    @rule(agent=st.sampled_from(AGENTS), ago_ms=st.sampled_from([0, 10, 20_000, -10]))
    def read_before(self, agent, ago_ms):
        before = self.now - ago_ms
        fresh = [m for m in self.unread(agent) if m.sent_ms < before]
        assert self.api.read_many(agent, before=self.iso(before)).ok() == {"count": len(fresh)}
        for message in fresh:
            self.mark(message)

    @rule(agent=st.sampled_from(AGENTS), limit=st.integers(1, 4), visibility_ms=st.sampled_from([5, 1005, 30_005]))
    def claim(self, agent, limit, visibility_ms):
        taken = self.offered(agent)[:limit]
        claim = self.api.claim(agent, limit=limit, visibility_ms=visibility_ms).ok()
        assert claim["data"] == [m.shown for m in taken]
        assert (claim["claim_id"] is None) is (not taken)
        for message in taken:
            if message.claim_id is not None:
                self.old_claims.append((agent, message.id, message.claim_id))
            message.claim_id, message.claimed_until_ms = claim["claim_id"], self.now + visibility_ms

    @rule(ms=st.sampled_from([10, 100, 990, 20_000, 30_000, 50_000]))
    def advance(self, ms):
        self.clock.advance(ms)
        self.api.get("/v1/messages/stats").ok()  # a small leap at a time, seen by the daemon

    @rule(data=st.data())
    def advance_to_the_end_of_a_lifetime(self, data):
        _, message = self.any_message(data, lambda m: 0 < m.sent_ms + TTL_MS - self.now < 50_000)
        if message is not None:
            self.advance(message.sent_ms + TTL_MS - self.now)

    @rule(data=st.data())
    def hold_or_release(self, data):
        _, message = self.any_message(data)
        if message is not None:
            if message.held:
                assert self.api.delete(f"/v1/holds/messages/{message.id}").ok()["released"] is True
            else:
                assert self.api.put(f"/v1/holds/messages/{message.id}", {"reason": "r"}).ok()["key"] == message.id
            message.held = not message.held

    @rule(dry_run=st.booleans())
    def sweep(self, dry_run):
        due = [(agent, m) for agent in AGENTS for m in self.messages[agent] if self.past(m) and not m.held]
        answer = self.api.sweep(dry_run=str(dry_run).lower())
        assert (answer["pruned"], answer["tables"], answer["dry_run"]) == (len(due), {"messages": len(due)}, dry_run)
        if not dry_run:
            for agent, message in due:
                self.messages[agent].remove(message)
                self.swept.append((agent, message.id))
            self.pruned_since_start += len(due)

    @initialize(tail=st.sampled_from(TAILS))
    def choose_tail(self, tail):
        self.restart(kill=False, tail=tail)

    @rule(kill=st.booleans(), tail=st.sampled_from(TAILS))
    def restart(self, kill, tail):
        if kill:
            self.daemon.kill()
        else:
            self.daemon.stop()
        self.daemon.settings["message_tail_max"] = tail
        self.daemon.start()
        self.api = self.daemon.client()
        self.pruned_since_start = 0

    # What must hold -------------------------------------------------------------------------------

    @rule(agent=st.sampled_from(AGENTS), limit=st.integers(1, 7), unread=st.booleans())
    def list_inbox(self, agent, limit, unread):
        query = {"unread": "true"} if unread else {}
        listed = list(self.api.pages(f"/v1/agents/{q(agent)}/messages", limit=limit, **query))
        expected = self.unread(agent) if unread else self.live(agent)
        assert listed == [m.shown for m in reversed(expected)]

    @rule(data=st.data())
    def get(self, data):
        agent, message = self.any_message(data)
        if message is not None:
            answer = self.api.message(agent, message.id)
            if self.past(message):
                answer.fails(410, "expired")
            else:
                assert answer.ok() == message.shown

    @precondition(lambda self: self.swept)
    @rule(data=st.data())
    def get_what_was_swept(self, data):
        agent, message_id = data.draw(st.sampled_from(self.swept))
        self.api.message(agent, message_id).fails(404, "not_found")

    @invariant()
    def statistics_agree(self):
        shown = {agent: (row["total"], row["unread"], row["oldest_unread_age_sec"] or 0)
                 for agent, row in self.api.stats().items() if row["total"]}
        expected = {}
        for agent in AGENTS:
            if self.messages[agent]:
                unread = self.unread(agent)
                age = (self.now - unread[0].sent_ms) // 1000 if unread else 0
                expected[agent] = (len(self.messages[agent]), len(unread), age)
        assert shown == expected

    def check_everything(self):
        for agent in AGENTS:
            assert self.api.inbox(agent) == [m.shown for m in reversed(self.live(agent))]
        metric = self.api.metric("lifecycle_prune_rows_total", scheduler="messages", table="messages")
        assert metric == self.pruned_since_start
        stored = self.daemon.rows("SELECT count(*) AS n FROM messages")[0]["n"]
        assert stored == sum(len(messages) for messages in self.messages.values())

TestInboxes = Inboxes.TestCase
TestInboxes.settings = hypothesis.settings(
    PROFILE, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
