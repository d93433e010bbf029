# SPDX-License-Identifier: Apache-2.0
"""The database is away: for a while, at a host that says nothing, or because its primary was killed."""
import concurrent.futures
import itertools
import os
import signal
import socket
import statistics
import subprocess
import threading
import time

import pytest

from harness import Daemon, wait_until
from postgres import USER, Postgres
from pq import Connection

LOAD_S = float(os.environ.get("FAILOVER_SECONDS", "2"))  # of load before and after each failover
ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "1"))
BACK_S = 15  # "within seconds": measured below 2 on a quiet machine


@pytest.fixture
def server():
    one = Postgres()
    yield one
    one.stop()


def beat(client, agent, **more):
    return client.post(f"/v1/agents/{agent}/heartbeat", {"cluster_id": "c", **more}).status


def live(client):
    return {one["agent_id"] for one in client.get("/v1/agents").ok()["data"]}


# Away for a while --------------------------------------------------------------------------------

def test_an_outage_evicts_nobody(server, tmp_path):
    """Longer than the threshold. One agent's heartbeats are answered from memory, the other's are 503."""
    with Daemon(tmp_path / "data", store=server.url, agent_evict_after_ms=3000, agent_sweep_ms=500) as daemon:
        client = daemon.client()
        assert [beat(client, agent) for agent in ("known", "silent")] == [200, 200]
        server.stop(signal.SIGQUIT, keep=True)
        refused = set()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            assert beat(client, "known") == 200, "a known agent that says nothing new needs no database"
            answer = client.post("/v1/agents/silent/heartbeat", {"cluster_id": "another"})
            answer.fails(503, "unavailable")
            refused.add(answer.headers["Retry-After"])
            assert beat(client, "unknown") == 503 == client.get("/v1/agents").status
            time.sleep(0.2)
        assert all(int(seconds) >= 1 for seconds in refused)
        server.start()
        wait_until(lambda: client.get("/v1/agents").status == 200, what="back again")
        assert live(client) == {"known", "silent"}
        back = time.monotonic()
        wait_until(lambda: "silent" not in live(client), what="who stays silent goes one threshold later")
        assert time.monotonic() - back > 2


# A host that says nothing ------------------------------------------------------------------------

class Silence:
    """Accepts connections and never says a word: a host whose answers are lost."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.socket.close()


def test_connecting_does_not_block_the_loop(server, tmp_path):
    """The server is gone and its place says nothing: libpq waits for it for seconds, heartbeats do not."""
    with Silence() as silence:
        url = f"postgresql://{USER}@/lapse?host={server.home},127.0.0.1&port=5432,{silence.port}"
        with Daemon(tmp_path / "data", store=url) as daemon:
            client = daemon.client()
            assert beat(client, "a") == 200
            server.stop(signal.SIGQUIT, keep=True)
            took = []
            end = time.monotonic() + 8
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                writes = pool.submit(write_until, daemon, end)
                while time.monotonic() < end:
                    began = time.monotonic()
                    assert beat(client, "a") == 200
                    took.append(time.monotonic() - began)
                    time.sleep(0.005)
                assert set(writes.result()) == {503}
            print(f"heartbeats while a host is silent: {len(took)}, median {statistics.median(took) * 1e3:.1f} ms, "
                  f"longest {max(took) * 1e3:.0f} ms")
            assert max(took) < 3, "libpq's wait for one host is 5 s"
            server.start()
            wait_until(lambda: client.post("/v1/agents/a/messages", {"from": "b", "content": "x"}).status == 201, timeout_s=30)


def write_until(daemon, end):
    client, statuses = daemon.client(), []
    while time.monotonic() < end:
        statuses.append(client.post("/v1/agents/a/messages", {"from": "b", "content": "x"}).status)
        time.sleep(0.02)
    return statuses


# The primary is killed ---------------------------------------------------------------------------

class Standby(Postgres):
    """A streaming copy of a primary, which waits for it with every commit."""

    def __init__(self, primary):
        self.primary = primary
        super().__init__({"hot_standby": "on"})

    def _initialize(self):
        subprocess.run(self._as_server(self.bin / "pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast",
                                       "-d", f"postgresql://{USER}@/postgres?host={self.primary.home}&application_name=standby"),
                       check=True, timeout=120, cwd="/", capture_output=True)

    def start(self):
        """A standby has every database of its primary."""
        run, self.run = self.run, lambda *_args: "1"
        try:
            super().start()
        finally:
            self.run = run

    def promote(self):
        assert self.run("SELECT pg_promote(true, 60)", "postgres").strip() == "t"


class Load:
    """Clients that send, and remember what was answered."""

    def __init__(self, daemon, clients):
        self.daemon, self.stop = daemon, threading.Event()
        self.sent = []      # of every 201
        self.statuses = []  # (when, status)
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self, i):
        client = self.daemon.client()
        while not self.stop.is_set():
            answer = client.post(f"/v1/agents/agent-{i}/messages", {"from": "load", "content": str(next(self.numbers))})
            self.statuses.append((time.monotonic(), answer.status))
            if answer.status == 201:
                self.sent.append(answer.json()["id"])
            else:
                assert answer.status == 503, answer
                time.sleep(0.01)


def stored(url):
    with Connection(url) as db:
        return {f"{row['id']:016x}" for row in db.run("SELECT id FROM messages")}


def wait_for_sync(primary):
    wait_until(lambda: primary.run("SELECT sync_state FROM pg_stat_replication", "postgres").strip() in ("sync", "quorum"),
               timeout_s=30, what="the standby follows")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_answered_write_is_lost_when_the_primary_is_killed(tmp_path, number):
    primary = Postgres({"wal_level": "replica", "synchronous_commit": "on"})
    standby = None
    try:
        standby = Standby(primary)
        primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'", "postgres")
        primary.run("SELECT pg_reload_conf()", "postgres")
        wait_for_sync(primary)
        url = f"postgresql://{USER}@/lapse?host={primary.home},{standby.home}"
        with Daemon(tmp_path / "data", store=url) as daemon:
            with Load(daemon, 8) as load:
                wait_until(lambda: len(load.sent) > 200, timeout_s=60, what="load")
                time.sleep(LOAD_S)
                primary.stop(signal.SIGKILL, keep=True)
                killed = time.monotonic()
                before = len(load.sent)
                wait_until(lambda: load.statuses[-1][1] == 503, what="nobody answers a write")
                standby.promote()
                promoted = time.monotonic()
                wait_until(lambda: len(load.sent) > before + 50, timeout_s=60, what="service is back")
                time.sleep(LOAD_S)
            first = min(at for at, status in load.statuses if status == 201 and at > promoted)
            print(f"{len(load.sent)} answered writes; promoted {promoted - killed:.2f} s after the kill, "
                  f"the first write {first - promoted:.2f} s after that")
            lost = set(load.sent) - stored(standby.url)
            assert not lost, f"{len(lost)} of {len(load.sent)}"
            assert first - promoted < BACK_S
    finally:
        primary.stop(signal.SIGKILL)
        if standby:
            standby.stop()
