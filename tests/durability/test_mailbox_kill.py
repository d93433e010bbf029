# SPDX-License-Identifier: Apache-2.0
"""`kill -9` and power loss while accounts are made and deleted at a mail server: afterwards each account is
its active mailbox's, gone, or a dead letter, and no mailbox was ever served as active after its deadline.

The mail server is the double of tests/double and survives the daemon, as a real one would. LAPSE_KILL_ROUNDS
(200) kills a disk, LAPSE_KILL_SEED repeats a run's choices. The last start of a run has its clock two
minutes ahead, so that what a killed daemon had under way is due again at once.
"""
import datetime
import glob
import os
import pathlib
import random
import sqlite3
import sys
import threading
import time

import pytest

from rig import ROOT, Rig, wait_until
from wire import Unanswered, Wire

sys.path.insert(0, str(pathlib.Path(ROOT) / "tests" / "double"))
import stalwart  # noqa: E402

ROUNDS = int(os.environ.get("LAPSE_KILL_ROUNDS", "200"))
SEED = int(os.environ.get("LAPSE_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
DOMAIN = "example.test"
TIMEOUT_MS = 400
LONG_MS = 86_400_000
CREATE = {"rest": "POST /api/principal", "registry": "x:Account/set"}
DELETE = {"rest": "DELETE /api/principal", "registry": "x:Account/set"}


class World:
    """A mail server and a daemon that may die."""

    def __init__(self, directory, server, fault=None):
        self.server = server
        directory.mkdir(parents=True, exist_ok=True)
        secret = directory / "credentials"
        secret.write_text(stalwart.ADMIN)
        secret.chmod(0o600)
        self.rig = Rig(directory, fault, mailbox_provider="stalwart", stalwart_url=server.url,
                       stalwart_credentials=f"@{secret}", stalwart_timeout_ms=TIMEOUT_MS, mailbox_domain=DOMAIN,
                       mailbox_min_ttl_ms=1, mailbox_sweep_ms=100, wal_max_bytes=1048576)

    def start_ahead(self):
        """Two minutes later, as far as the daemon can tell, and on a sound disk, which others can read."""
        self.rig.fault = None
        (preload,) = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        ahead = {"LD_PRELOAD": preload, "FAKETIME": "+2m", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        environment = self.rig.environment
        self.rig.environment = lambda: {**environment(), **ahead}
        self.rig.start()

    def check(self):
        """Everything settles; then the store and the server agree."""
        self.server.clear()
        self.start_ahead()
        with self.rig.wire() as wire:
            wait_until(lambda: wire.get("/healthz").status == 200 and self.open_ends() == 0, 60, "everything settles")
            letters = {letter["target"] for letter in wire.get("/v1/dead-letters?limit=100").json()["data"]}
            active = {box["address"] for box in pages(wire, "/v1/mailboxes?limit=100")}
        self.rig.stop()
        with self.rig.disk() as db:
            rows = db.execute("SELECT printf('mbx_%016x', id), address, status FROM mailboxes").fetchall()
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            counted = dict(db.execute("SELECT tbl, live FROM counts WHERE tbl LIKE 'mailboxes%'").fetchall())
        assert {address for _, address, status in rows if status == "active"} == active
        dead = {address for id, address, _ in rows if id in letters}
        assert set(self.server.accounts) <= active | dead, "an account nobody knows of"
        assert active <= set(self.server.accounts), "an active mailbox without its account"
        statuses = [status for _, _, status in rows]
        assert counted == {"mailboxes": statuses.count("active"),
                           "mailboxes_expired": statuses.count("expired") + statuses.count("deleted")}
        return len(rows)

    def open_ends(self):
        db = sqlite3.connect(f"file:{self.rig.data_dir / 'lapse.db'}?mode=ro", uri=True, timeout=5)
        try:
            return db.execute("SELECT (SELECT count(*) FROM cleanups WHERE state = 1) + "
                              "(SELECT count(*) FROM mailboxes WHERE status = 'provisioning')").fetchone()[0]
        finally:
            db.close()


def pages(wire, path):
    after = ""
    while after is not None:
        page = wire.get(path + (f"&after={after}" if after else "")).json()
        yield from page["data"]
        after = page["pagination"]["next_cursor"]


def ms_now():
    return time.time() * 1000


def ms_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


@pytest.fixture(params=("rest", "registry"))
def server(request):
    with stalwart.Stalwart(request.param, domains=(DOMAIN,)) as double:
        yield double


@pytest.fixture
def world(tmp_path, server):
    world = World(tmp_path / "world", server)
    yield world
    world.rig.done()


# Between any two steps ----------------------------------------------------------------------------

def post_and_forget(world, body):
    """A request whose client does not wait for an answer it will not get."""
    def run():
        try:
            with world.rig.wire() as wire:
                wire.post("/v1/mailboxes", body)
        except (Unanswered, OSError):
            pass
    thread = threading.Thread(target=run)
    thread.start()
    return thread


CREATION_STEPS = {
    "asked_and_not_heard": ("hang", {}),           # the intent is durable, the server has done nothing
    "done_and_not_answered": ("act_then_hang", {}),  # the account is there, nobody knows
    "done_after_the_kill": ("delay", {"ms": 250}),   # it appears when the daemon is up again
}


@pytest.mark.parametrize("step", CREATION_STEPS)
def test_killed_while_an_account_is_made(world, server, step):
    kind, options = CREATION_STEPS[step]
    world.rig.start()
    server.fault(CREATE[server.generation], kind, times=None, **options)
    thread = post_and_forget(world, {"username": "alice", "ttl_ms": LONG_MS})
    wait_until(lambda: server.seen(CREATE[server.generation]) > 0, 10, "the server is asked")
    world.rig.kill()
    thread.join()
    world.rig.start()
    with world.rig.wire() as wire:
        assert wire.get("/v1/mailboxes?include_expired=true").json()["data"] == []
    time.sleep(0.4)
    world.rig.kill()
    world.check()
    assert server.accounts == {}


def test_killed_right_after_the_answer(world, server):
    world.rig.start()
    with world.rig.wire() as wire:
        box = wire.post("/v1/mailboxes", {"ttl_ms": LONG_MS}).json()
    world.rig.kill()
    world.check()
    assert list(server.accounts) == [box["address"]]


DELETION_STEPS = {
    "asked_and_not_heard": "hang",
    "done_and_not_answered": "act_then_hang",
    "answered_badly": "reset",
}


@pytest.mark.parametrize("step", DELETION_STEPS)
@pytest.mark.parametrize("way", ["expiry", "delete"])
def test_killed_while_an_account_is_deleted(world, server, way, step):
    world.rig.start()
    with world.rig.wire() as wire:
        box = wire.post("/v1/mailboxes", {"ttl_ms": LONG_MS}).json()
        server.fault(DELETE[server.generation], DELETION_STEPS[step], times=None)
        before = server.seen(DELETE[server.generation])
        if way == "delete":
            wire.send("DELETE", f"/v1/mailboxes/{box['id']}")
        else:
            wire.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": 1})
        wait_until(lambda: server.seen(DELETE[server.generation]) > before, 10, "the server is asked")
    world.rig.kill()
    world.check()
    assert server.accounts == {}


def test_a_deadline_that_passes_while_the_daemon_is_dead(world, server):
    world.rig.start()
    with world.rig.wire() as wire:
        box = wire.post("/v1/mailboxes", {"ttl_ms": 200}).json()
    world.rig.kill()
    time.sleep(0.25)
    world.rig.start()
    with world.rig.wire() as wire:
        assert wire.get(f"/v1/mailboxes/{box['id']}").json()["status"] == "expired"
    world.rig.kill()
    world.check()
    assert server.accounts == {}


# At any moment ------------------------------------------------------------------------------------

class Load:
    """Clients that create, look, renew and delete until the daemon is gone; each notes what it was shown."""

    def __init__(self, world, rng):
        self.world, self.lies = world, []
        self.seeds = [rng.random() for _ in range(4)]
        self.threads = [threading.Thread(target=self._run, args=(seed,)) for seed in self.seeds]
        self.answered = 0

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        for thread in self.threads:
            thread.join()

    def _run(self, seed):
        rng, boxes = random.Random(seed), []
        try:
            with Wire(self.world.rig.port) as wire:
                while True:
                    self._step(wire, rng, boxes)
                    self.answered += 1
        except (Unanswered, OSError):
            pass

    def _step(self, wire, rng, boxes):
        if not boxes or rng.random() < 0.4:
            answer = wire.post("/v1/mailboxes", {"ttl_ms": rng.choice((5, 20, 60, LONG_MS))})
            if answer.status == 201:
                boxes.append(answer.json()["id"])
            return
        path = f"/v1/mailboxes/{rng.choice(boxes)}"
        before = ms_now()
        choice = rng.random()
        if choice < 0.6:
            answer = wire.get(path)
        elif choice < 0.85:
            answer = wire.post(path + "/renew", {"ttl_ms": rng.choice((5, 50))})
        else:
            answer = wire.send("DELETE", path)
            return
        if answer.status == 200 and answer.json()["status"] == "active" and \
                ms_of(answer.json()["expires_at"]) < before - 1:
            self.lies.append(answer.json())


DISKS = {
    "kill": lambda rng: None,
    "power-loss": lambda rng: "power-loss",
}


@pytest.mark.parametrize("disk", DISKS)
def test_killed_at_any_moment(tmp_path, disk):
    print(f"LAPSE_KILL_SEED={SEED} LAPSE_KILL_ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    generation = rng.choice(("rest", "registry"))
    with stalwart.Stalwart(generation, domains=(DOMAIN,)) as server:
        world = World(tmp_path / "world", server, DISKS[disk](rng))
        answered = 0
        try:
            for _ in range(ROUNDS):
                server.clear()
                if rng.random() < 0.5:
                    kind = rng.choice(("reset", "act_then_reset", "status"))
                    server.fault(rng.choice((CREATE, DELETE))[generation], kind, times=2, status=502)
                world.rig.start()
                with Load(world, rng) as load:
                    time.sleep(rng.uniform(0.02, 0.3))
                    world.rig.signal_kill()
                world.rig.kill()
                assert load.lies == [], "served as active after its deadline"
                answered += load.answered
            rows = world.check()
        finally:
            world.rig.done()
    print(f"{disk}: {ROUNDS} kills, {answered} answers, {rows} rows at the end")
    assert answered > ROUNDS * 5, "too little load to prove anything"
