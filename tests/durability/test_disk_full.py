# SPDX-License-Identifier: Apache-2.0
"""A disk that is full or broken while the daemon runs: refusals instead of lies, and no restart afterwards.

All of it runs on a disk that also forgets what was not synced, and ends with kill -9 and a look at what is
left, so that nothing the daemon said while it was in trouble goes unchecked.
"""
import random
import threading

import pytest

from ledger import Ledger, Notes, Send, ids_of
from rig import Rig, wait_until
from wire import Unanswered

BURST = 8
BURSTS_MAX = 60
PAGES = 12_000  # bytes of a content: about three pages
RECOVERY_S = 10


class Posts:
    """Sends bursts of messages at once, so that several share a turn, and notes what came back.

    A sync that failed proves nothing about its data. So with `syncs_fail` a refusal leaves both outcomes
    open, and the daemon may also choose to end: then it is started again, as its supervisor would.
    """

    def __init__(self, rig, syncs_fail=False, calm="power-loss"):
        self.rig, self.syncs_fail = rig, syncs_fail
        self.calm = calm  # the disk after the daemon ended: it works again
        self.notes = Notes()
        self.number = 0
        self.lock = threading.Lock()
        self.answers = []  # (send, answer) of the last burst
        self.ended = False  # whether the daemon did, in the last burst

    def make(self, size=PAGES):
        self.number += 1
        content = f"{self.number} " + "x" * size
        key = f"key-{self.number}" if self.number % 2 else None
        if self.number % 4 == 0:
            agents = ["one", "two", "three"]
            return Send("/v1/messages", {"to": agents, "from": "f", "content": content}, agents, content, key)
        agent = f"agent-{self.number % 3}"
        return Send(f"/v1/agents/{agent}/messages", {"from": "f", "content": content}, [agent], content, key)

    def post(self, wire, send):
        answer = wire.post(send.path, send.body, send.key)
        if answer.status == 201:
            send.fate, send.ids = "answered", ids_of(answer)
        elif not self.syncs_fail:
            send.fate = "refused"
        with self.lock:
            self.answers.append((send, answer))

    def burst(self, count=BURST, size=PAGES):
        """Gives the answers that are not 201."""
        self.answers, self.ended = [], False
        sends = [self.make(size) for _ in range(count)]
        self.notes.sends += sends
        gate = threading.Barrier(count, timeout=10)

        def one(send):
            try:
                with self.rig.wire() as wire:
                    gate.wait()
                    self.post(wire, send)
            except (Unanswered, threading.BrokenBarrierError):
                gate.abort()

        threads = [threading.Thread(target=one, args=(send,)) for send in sends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive(), f"a request got no answer\n{self.rig.log_tail()}"
        if len(self.answers) < count:
            assert self.syncs_fail, f"lapsed went away\n{self.rig.log_tail()}"
            self.rig.steer(self.calm)
            self.rig.revive()
            self.ended = True
        return [(send, answer) for send, answer in self.answers if answer.status != 201]

    def until_refused(self):
        for _ in range(BURSTS_MAX):
            refused = self.burst()
            if refused or self.ended:
                return refused
        raise AssertionError(f"the disk fails and {BURSTS_MAX} bursts were accepted")

    def retry(self, refused):
        """The refused requests with a key are repeated, and now they work, once."""
        with self.rig.wire() as wire:
            for send, _ in refused:
                if send.key:
                    self.post(wire, send)
                    assert send.fate == "answered", self.answers[-1]


def assert_unavailable(answer):
    assert answer.status == 503, answer
    assert answer.json()["error"]["code"] == "unavailable", answer
    assert int(answer.headers["retry-after"]) >= 1, answer.headers


def assert_reads_work(rig, posts):
    answered = [send for send in posts.notes.sends if send.fate == "answered"]
    with rig.wire() as wire:
        for send in random.sample(answered, min(5, len(answered))):
            answer = wire.get(f"/v1/agents/{send.agents[0]}/messages/{send.ids[0]}")
            assert answer.status == 200 and answer.json()["content"] == send.content, answer
        assert wire.get("/v1/agents/agent-0/messages?limit=100").status == 200
        assert wire.get("/healthz").status == 200


def contents_shown(rig):
    """The contents of all messages, by the API."""
    shown = []
    with rig.wire() as wire:
        for agent in ("one", "two", "three", "agent-0", "agent-1", "agent-2"):
            after = ""
            while after is not None:
                page = wire.get(f"/v1/agents/{agent}/messages?limit=100{after}").json()
                shown += [message["content"] for message in page["data"]]
                cursor = page["pagination"]["next_cursor"]
                after = f"&after={cursor}" if page["pagination"]["has_more"] else None
    return shown


def assert_accepts_again(rig, posts):
    wait_until(lambda: not posts.burst(2), RECOVERY_S, "writes are accepted again", every_s=0.1)
    assert rig.running()


def pull_the_plug_and_check(rig, posts):
    rig.kill()
    ledger = Ledger()
    ledger.merge([posts.notes])
    with rig.disk() as db:
        ledger.check(db)
    return ledger


@pytest.fixture
def start(tmp_path):
    rigs = []

    def start_one(words="power-loss", **settings):
        rigs.append(Rig(tmp_path / str(len(rigs)), words, **settings))
        return rigs[-1].start()

    yield start_one
    for rig in rigs:
        rig.done()


@pytest.mark.parametrize("fault", ["full", "ioerr-write"])
def test_turn_is_503_leaves_nothing_and_the_next_works(start, fault):
    """At every place of a turn: the first write of the log, the second, …, one after the turn's end."""
    rig = start()
    posts = Posts(rig)
    posts.burst(30, size=100)
    assert all(answer.status == 201 for _, answer in posts.answers)
    for after in (*range(12), 20, 30, 60):
        rig.steer(f"power-loss {fault} after={after}")
        refused = posts.until_refused()
        for _, answer in refused:
            assert_unavailable(answer)
        assert_reads_work(rig, posts)
        rig.steer("power-loss")
        assert_accepts_again(rig, posts)
        posts.retry(refused[::2])
    shown = set(contents_shown(rig))
    assert not [send for send in posts.notes.sends if send.fate == "refused" and send.content in shown]
    assert rig.running()
    pull_the_plug_and_check(rig, posts)


@pytest.mark.parametrize("fault", ["full", "ioerr-write", "ioerr-sync only=wal"])
def test_power_loss_while_the_disk_fails(start, fault):
    """The plug is pulled while requests are being refused: nothing answered before is gone."""
    rig = start()
    posts = Posts(rig, syncs_fail="sync" in fault)
    for after in (0, 1, 3, 7, 20):
        posts.burst()
        rig.steer(f"power-loss {fault} after={after}")
        posts.until_refused()
        posts.burst()
        pull_the_plug_and_check(rig, posts)
        rig.steer("power-loss")
        rig.start()
    assert_accepts_again(rig, posts)
    pull_the_plug_and_check(rig, posts)


@pytest.mark.parametrize("loss", ["power-loss", "torn seed=7"])
def test_failed_sync_of_the_log_is_never_answered_as_done(start, loss):
    """After a failed fsync the kernel forgets the pages: no later answer may rest on them."""
    rig = start(loss)
    posts = Posts(rig, syncs_fail=True, calm=loss)
    ended = 0
    for after in range(12):
        rig.steer(f"{loss} ioerr-sync only=wal after={after} for=1")
        for _ in range(4):
            for _, answer in posts.burst():
                assert_unavailable(answer)
            ended += posts.ended
    assert ended >= 6, "failed syncs were not noticed"
    assert "store.sync_failed" in rig.log_path.read_text()
    rig.steer(loss)
    assert_accepts_again(rig, posts)
    pull_the_plug_and_check(rig, posts)


def test_failed_sync_of_the_database_loses_nothing(start):
    """A checkpoint's sync fails, later ones work, the log starts over: then the plug is pulled.

    A passive checkpoint that did not reach the end of the log counts its pages as done without a sync. If
    the next sync fails, the kernel forgets them, and no later checkpoint writes them again: only a new
    recovery from the log does.
    """
    rig = start()
    posts = Posts(rig, syncs_fail=True)
    for _ in range(3):
        rig.steer("power-loss ioerr-sync only=db")
        for _ in range(50):
            posts.burst()
        rig.steer("power-loss")
        assert_accepts_again(rig, posts)
        for _ in range(15):
            posts.burst()
        pull_the_plug_and_check(rig, posts)
        rig.start()


@pytest.mark.parametrize("fault", ["full only=db", "ioerr-write only=db"])
def test_checkpoints_that_fail_cost_nothing(start, fault):
    """The log can be written, the database cannot: every request is answered, and its answer is true."""
    rig = start(wal_max_bytes=1048576)
    posts = Posts(rig)
    rig.steer(f"power-loss {fault}")
    for _ in range(60):
        for _, answer in posts.burst():
            assert_unavailable(answer)
    assert_reads_work(rig, posts)
    rig.steer("power-loss")
    assert_accepts_again(rig, posts)
    for _ in range(10):
        assert not posts.burst()
    pull_the_plug_and_check(rig, posts)


def test_reads_that_fail_are_errors_not_lies(start):
    rig = start()
    posts = Posts(rig)
    posts.burst(30)
    rig.kill()
    rig.start()  # with an empty cache, so that reads reach the disk
    rig.steer("power-loss ioerr-read after=5")
    with rig.wire() as wire:
        for send in posts.notes.sends:
            answer = wire.get(f"/v1/agents/{send.agents[0]}/messages/{send.ids[0]}")
            if answer.status == 200:
                assert answer.json()["content"] == send.content
            else:
                assert_unavailable(answer)
    posts.burst()
    rig.steer("power-loss")
    assert_accepts_again(rig, posts)
    assert_reads_work(rig, posts)
    pull_the_plug_and_check(rig, posts)


def test_start_on_a_full_disk(start):
    """It may refuse to start or start; it must not hurt what is there."""
    rig = start()
    posts = Posts(rig)
    posts.burst(30)
    for after in (0, 1, 2, 5):
        pull_the_plug_and_check(rig, posts)
        rig.steer(f"power-loss full after={after}")
        try:
            rig.start()
        except AssertionError:
            pass
        rig.done()
        rig.steer("power-loss")
        rig.start()
    assert_reads_work(rig, posts)
    assert_accepts_again(rig, posts)
    pull_the_plug_and_check(rig, posts)


@pytest.mark.parametrize("fault", ["full", "ioerr-write"])
def test_failing_store_costs_ticks_not_data(start, fault):
    """Sweeps fail, are counted, go on; when the store is back they remove what is due and nothing else."""
    rig = start(message_ttl_ms=1000, message_sweep_ms=30, message_tail_max=0)  # counters in the table
    keep, drop = send_some(rig, 10), send_some(rig, 10)
    with rig.wire() as wire:
        for id_ in drop:
            assert wire.post(f"/v1/agents/a/messages/{id_}/read", {}).status == 200
    rig.steer(f"power-loss {fault}")
    before = tick_errors(rig)
    wait_until(lambda: tick_errors(rig) >= before + 3, 20, "ticks fail and are counted")
    assert [status_of(rig, id_) for id_ in keep + drop] == [200] * 20, "a failed tick removed something"
    assert pruned(rig) == 0
    rig.steer("power-loss")
    wait_until(lambda: pruned(rig) == 10, 20, "sweeps resume")
    assert [status_of(rig, id_) for id_ in keep] == [200] * 10
    assert [status_of(rig, id_) for id_ in drop] == [404] * 10
    errors = tick_errors(rig)
    send_some(rig, 1)  # a removal need not be durable by itself; it is before the next answer
    rig.kill()
    with rig.disk() as db:
        assert [row[0] for row in db.execute("PRAGMA integrity_check")] == ["ok"]
        assert db.execute("SELECT count(*), sum(read) FROM messages").fetchone() == (11, 0)
        assert db.execute("SELECT sum(total), sum(unread) FROM inboxes").fetchone() == (11, 11)
    assert errors >= before + 3


def send_some(rig, count):
    with rig.wire() as wire:
        body = {"from": "f", "content": "x" * 5000}
        answers = [wire.post("/v1/agents/a/messages", body) for _ in range(count)]
    assert all(answer.status == 201 for answer in answers), answers
    return [answer.json()["id"] for answer in answers]


def status_of(rig, id_):
    with rig.wire() as wire:
        return wire.get(f"/v1/agents/a/messages/{id_}").status


def tick_errors(rig):
    return rig.metric("lifecycle_tick_errors_total", scheduler="messages")


def pruned(rig):
    return rig.metric("lifecycle_prune_rows_total", scheduler="messages", table="messages")
