# SPDX-License-Identifier: Apache-2.0
"""`kill -9` and power loss under load: what was answered is there, what was not is there whole or not at all.

LAPSE_KILL_ROUNDS (200) kills a disk, LAPSE_KILL_SEED (a new one each run, printed) repeats a run's choices.
"""
import os
import random
import shutil
import sqlite3
import time

import pytest

from ledger import Ledger, Loss, public_id
from load import Load
from rig import Rig

ROUNDS = int(os.environ.get("LAPSE_KILL_ROUNDS", "200"))
SEED = int(os.environ.get("LAPSE_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
EPOCH_ROUNDS = 20  # then a new data directory: checks stay cheap, and first starts are killed too
LOAD_S = (0.01, 0.25)
STARTUP_S = (0.0, 0.03)
SETTINGS = {"wal_max_bytes": 1048576, "message_sweep_ms": 50}  # checkpoints and sweeps in every round

#: of new messages in memory: none, filed by every send, by some, by the loop, never
TAILS = (0, 1, 7, 200, 131072)
FILED_AT_ONCE = (1, 7)  # of them, those with which every round files something

COUNTED = 5  # in one round of so many it is counted how many messages were filed

DISKS = {
    "kill": lambda rng: None,
    "power-loss": lambda rng: "power-loss",
    "torn": lambda rng: f"torn seed={rng.randrange(1, 10**9)} percent={rng.choice((10, 50, 90))}",
}


def unread_by_agent(db):
    """agent → ids of its unread messages, newest first."""
    unread = {}
    for agent, number in db.execute("SELECT agent, id FROM messages WHERE read = 0 ORDER BY id DESC"):
        unread.setdefault(agent, []).append(public_id(number))
    return unread


def unread_by_stats(wire):
    """The same as numbers, as the daemon counts."""
    unread, after = {}, ""
    while after is not None:
        page = wire.get(f"/v1/messages/stats?limit=100{after and '&after=' + after}").json()
        unread.update({row["agent_id"]: row["unread"] for row in page["data"]})
        after = page["pagination"]["next_cursor"]
    return unread


class Campaign:
    """Rounds of load, kill, check and restart on one data directory."""

    def __init__(self, directory, disk, rng, **settings):
        self.disk, self.rng = disk, rng
        self.rig = Rig(directory, disk(rng), **{**SETTINGS, **settings})
        self.ledger = Ledger()
        self.rounds = 0
        self.filed = 0  # messages that were filed later than they were sent, in rounds so far
        self.inboxes = {}  # what the disk said when the daemon was last dead

    def round(self):
        self.rounds += 1
        if self.rng.random() < 0.15:
            self._kill_at_startup()
        self._start()
        with self.rig.wire() as wire:
            self._inboxes_agree(wire)
            self.ledger.recheck(wire, self.rng)
        load = Load(self.rig.port, f"r{self.rounds}", self.rng)
        load.start()
        time.sleep(self.rng.uniform(*LOAD_S))
        assert self.rig.running(), f"lapsed ended by itself\n{self.rig.log_tail()}"
        if self.rounds % COUNTED == 0:
            self.filed += self.rig.metric("lapse_messages_filed_total")
        self.rig.signal_kill()
        notes = load.join()
        self.rig.kill()
        self.ledger.merge(notes)
        self.check()

    def _inboxes_agree(self, wire):
        """A start reads back the messages that were not filed: neither one less nor one twice."""
        stats = unread_by_stats(wire)
        for agent, ids in sorted(self.inboxes.items()):
            page = wire.get(f"/v1/agents/{agent}/messages?unread=true&limit=100").json()
            if [message["id"] for message in page["data"]] != ids[:100] or stats.get(agent) != len(ids):
                raise Loss(f"{agent} says {stats.get(agent)} unread messages, {len(ids)} are on the disk; {page}")

    def _start(self):
        counted = self.rounds % COUNTED == 0
        self.rig.settings["message_tail_max"] = self.rng.choice(FILED_AT_ONCE if counted else TAILS)
        words = self.disk(self.rng)
        if words is not None:
            self.rig.steer(words)
        self.rig.start()

    def _kill_at_startup(self):
        """Recovery and migration must survive a kill as well."""
        self.rig.spawn()
        time.sleep(self.rng.uniform(*STARTUP_S))
        self.rig.kill()

    def check(self):
        try:
            with self.rig.disk() as db:
                self.ledger.check(db)
                self.inboxes = unread_by_agent(db)
        except sqlite3.DatabaseError as error:
            raise Loss(f"the database is not readable: {error}") from error

    def finish(self):
        """Retries of the last round are still to be counted: start once more, stop cleanly."""
        self._start()
        with self.rig.wire() as wire:
            self.ledger.recheck(wire, self.rng)
        self.rig.stop()
        self.check()


def run(tmp_path, disk, rounds, rng, **settings):
    """Gives the numbers of answered operations that were checked, and of messages filed meanwhile."""
    answered = filed = 0
    for first in range(0, rounds, EPOCH_ROUNDS):
        campaign = Campaign(tmp_path / f"epoch-{first}", disk, rng, **settings)
        try:
            for _ in range(min(EPOCH_ROUNDS, rounds - first)):
                campaign.round()
            campaign.finish()
        finally:
            campaign.rig.done()
        answered += campaign.ledger.answered
        filed += campaign.filed
        shutil.rmtree(campaign.rig.directory)  # of a failed one it stays, to be looked at
    return answered, filed


@pytest.mark.parametrize("name", DISKS)
def test_answered_operations_survive(tmp_path, name):
    print(f"LAPSE_KILL_SEED={SEED} LAPSE_KILL_ROUNDS={ROUNDS}")
    started = time.monotonic()
    answered, filed = run(tmp_path, DISKS[name], ROUNDS, random.Random(SEED))
    print(f"{name}: {ROUNDS} kills, {answered} answered operations, {filed} messages filed in every fifth "
          f"round, {time.monotonic() - started:.0f} s")
    assert filed > 0 or ROUNDS < 20, "no round was killed while messages were filed"
    assert answered > ROUNDS * 10, "too little load to prove anything"


def prepared(tmp_path, disk, rng):
    """A campaign whose database exists and is sound before the unsafe part begins."""
    campaign = Campaign(tmp_path, disk, rng)
    campaign.round()
    campaign.finish()
    campaign.rig.settings["sqlite_synchronous"] = "off"
    return campaign


@pytest.mark.parametrize("name", ["power-loss", "torn"])
def test_suite_sees_the_loss_when_synchronous_is_off(tmp_path, name):
    """The same rounds, the same checks, an unsafe setting: if they pass, they prove nothing."""
    campaign = prepared(tmp_path, DISKS[name], random.Random(SEED))
    try:
        with pytest.raises(Loss) as loss:
            for _ in range(5):
                campaign.round()
        print(str(loss.value)[:400])
        if name == "power-loss":
            assert "answered messages are gone" in str(loss.value)
    finally:
        campaign.rig.done()


def test_a_kill_alone_forgets_nothing_when_synchronous_is_off(tmp_path):
    """So what the test before saw was the disk, not the daemon: the kernel keeps the pages of the dead."""
    campaign = prepared(tmp_path, DISKS["kill"], random.Random(SEED))
    try:
        for _ in range(3):
            campaign.round()
        campaign.finish()
    finally:
        campaign.rig.done()
