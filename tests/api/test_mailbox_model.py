# SPDX-License-Identifier: Apache-2.0
"""Random operations on mailboxes, and time, against a model: every answer is the one the model expects.

The clocks stand still between two steps. The mail server is the double, which sometimes fails.
`HYPOTHESIS_PROFILE=explore` looks longer.
"""
import contextlib
import os
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule,
                                 run_state_machine_as_test)

from harness import Clock, Daemon, wait_until
from mailrig import DOMAIN, Rig, stalwart

SETTINGS = {"ci": dict(derandomize=True, max_examples=25, stateful_step_count=40),
            "explore": dict(max_examples=400, stateful_step_count=60, print_blob=True)}
MIN_MS, MAX_MS = 1000, 10_000
TTLS = st.sampled_from((MIN_MS, 1500, 3000, MAX_MS))
NAMES = st.sampled_from(("alice", "bob", "carol"))


class Model(RuleBasedStateMachine):
    boxes = Bundle("boxes")
    generation = None  # None = the provider local

    @initialize()
    def begin(self):
        self.close = contextlib.ExitStack()
        directory = self.close.enter_context(tempfile.TemporaryDirectory())
        self.server = self.generation and self.close.enter_context(
            stalwart.Stalwart(self.generation, domains=(DOMAIN,)))

        def start(**options):
            return self.close.enter_context(Daemon(directory + "/data", **options))

        self.rig = Rig(start, Clock(directory), self.server, mailbox_min_ttl_ms=MIN_MS, mailbox_max_ttl_ms=MAX_MS,
                       mailbox_default_ttl_ms=MIN_MS)
        self.clock = self.rig.clock
        self.known = {}  # id → [address, expires_at in ms, deleted?]

    def teardown(self):
        if hasattr(self, "close"):
            self.close.close()

    # What the model says --------------------------------------------------------------------------

    def lives(self, box):
        address, expires, deleted = self.known[box]
        return not deleted and expires >= self.clock.now_ms

    def settle(self):
        """No deletion is under way: only then is it certain which addresses are free."""
        wait_until(lambda: self.rig.api.get("/healthz").ok() and
                   self.rig.daemon.rows("SELECT 1 FROM cleanups WHERE state = 1 AND attempts = 0") == [],
                   what="deletions to settle")

    def expect(self, answer, box):
        """200 while it lives, 404 when it was deleted, 410 after its time."""
        if self.known[box][2]:
            answer.fails(404, "not_found")
        elif not self.lives(box):
            answer.fails(410, "expired")
        else:
            return answer.ok()
        return None

    # What may happen ------------------------------------------------------------------------------

    @rule(target=boxes, username=NAMES, ttl_ms=TTLS)
    def create(self, username, ttl_ms):
        self.rig.api.get("/v1/mailboxes").ok()  # what is due expires now
        self.settle()
        address = f"{username}@{DOMAIN}"
        taken = {row["address"] for row in self.rig.daemon.rows(
            "SELECT address FROM mailboxes WHERE stalwart_cleanup_failed <> 0")}
        taken |= {a for box, (a, _, _) in self.known.items() if self.lives(box)}
        answer = self.rig.api.post("/v1/mailboxes", {"username": username, "ttl_ms": ttl_ms})
        if address in taken:
            answer.fails(409, "conflict", "username")
            return None
        box = answer.ok(201)
        self.known[box["id"]] = [address, self.clock.now_ms + ttl_ms, False]
        return box["id"]

    @rule(box=boxes, ttl_ms=TTLS)
    def renew(self, box, ttl_ms):
        if box and self.expect(self.rig.api.post(f"/v1/mailboxes/{box}/renew", {"ttl_ms": ttl_ms}), box):
            self.known[box][1] = self.clock.now_ms + ttl_ms

    @rule(box=consumes(boxes))
    def delete(self, box):
        if not box:
            return
        answer = self.rig.api.delete(f"/v1/mailboxes/{box}")
        if self.known[box][2]:
            answer.fails(404, "not_found")
        else:
            answer.ok()
        self.known[box][2] = True

    @rule(box=boxes)
    def get(self, box):
        if box and not self.known[box][2]:
            found = self.rig.api.get(f"/v1/mailboxes/{box}").ok()
            assert found["status"] == ("active" if self.lives(box) else "expired")

    @rule(box=boxes)
    def mails(self, box):
        if box:
            self.expect(self.rig.api.get(f"/v1/mailboxes/{box}/messages"), box)

    @rule(box=boxes)
    def send(self, box):
        if box:
            self.expect(self.rig.api.post(f"/v1/mailboxes/{box}/send", {"to": self.known[box][0], "subject": "x"}), box)

    @rule(ms=st.sampled_from((1, 499, 500, 999, 1000, 1001, 3000, 10_000)))
    def pass_time(self, ms):
        self.clock.advance(ms)

    @rule()
    def sweep(self):
        self.rig.sweep()

    @rule()
    def restart(self):
        self.settle()  # what is under way would come again only a minute later
        self.rig.daemon.restart()
        self.rig.api = self.rig.daemon.client()

    @rule(times=st.integers(1, 4))
    def server_fails(self, times):
        if self.server:
            where = "DELETE /api/principal" if self.generation == "rest" else "x:Account/get"
            self.server.fault(where, "status", times=times, status=502)

    # What is always true --------------------------------------------------------------------------

    @invariant()
    def lists_agree(self):
        if not hasattr(self, "known"):
            return
        listed = {box["id"] for box in self.rig.api.pages("/v1/mailboxes", limit=3)}
        assert listed == {box for box in self.known if self.lives(box)}
        everything = {box["id"]: box["status"] for box in
                      self.rig.api.pages("/v1/mailboxes", limit=100, include_expired="true")}
        assert everything == {box: "active" if self.lives(box) else "expired"
                              for box, (_, _, deleted) in self.known.items() if not deleted}

    @invariant()
    def who_lives_has_an_account(self):
        if getattr(self, "server", None):
            assert {self.known[box][0] for box in self.known if self.lives(box)} <= set(self.server.accounts)


@pytest.mark.limit_s(1800)
@pytest.mark.parametrize("generation", [None, "rest", "registry"])
def test_model(generation):
    machine = type("Model", (Model,), {"generation": generation})
    profile = SETTINGS[os.environ.get("HYPOTHESIS_PROFILE", "ci")]
    run_state_machine_as_test(machine, settings=hypothesis.settings(
        deadline=None, suppress_health_check=list(hypothesis.HealthCheck), **profile))
