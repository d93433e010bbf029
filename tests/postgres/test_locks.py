# SPDX-License-Identifier: Apache-2.0
"""Another client of the database holds a row: who needs it waits, and nobody else does."""
import concurrent.futures
import itertools
import statistics
import threading
import time

import pytest

from harness import Daemon
from postgres import postgres_server  # noqa: F401 (a fixture)
from pq import Connection

_names = itertools.count(1)
WAIT_S = 2  # a request waits so long for a locked row

# What a foreign session locks, and a request that needs it.
ROWS = {
    "inbox": ("SELECT 1 FROM inboxes WHERE agent = 'locked' FOR UPDATE",
              lambda client: client.post("/v1/agents/locked/messages", {"from": "me", "content": "x"})),
    "agent": ("SELECT 1 FROM agents WHERE agent = 'locked' FOR UPDATE",
              lambda client: client.put("/v1/agents/locked/capabilities", {"capabilities": [f"c{time.monotonic_ns()}"]})),
}


@pytest.fixture
def daemon(postgres_server, tmp_path):  # noqa: F811
    url = postgres_server.make_database(f"locks-{next(_names)}")
    with Daemon(tmp_path / "data", store=url) as one:
        one.url = url
        client = one.client()
        client.send("locked")
        client.post("/v1/agents/locked/heartbeat", {"cluster_id": "c"}).ok()
        yield one


class Holder:
    """A foreign session that has a row."""

    def __init__(self, url, sql):
        self.db = Connection(url)
        self.db.run("BEGIN")
        assert self.db.run(sql)

    def release(self):
        self.db.run("ROLLBACK")
        self.db.close()


def repeat(daemon, stop, call):
    """(began, took, answer) of every call until `stop`."""
    client, seen = daemon.client(), []
    while not stop.is_set():
        began = time.monotonic()
        answer = call(client)
        seen.append((began, time.monotonic() - began, answer))
    return seen


@pytest.mark.parametrize("row", ROWS)
def test_a_locked_row_holds_up_only_those_who_need_it(daemon, row):
    sql, call = ROWS[row]
    stop = threading.Event()
    holder = Holder(daemon.url, sql)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        locked = [pool.submit(repeat, daemon, stop, call) for _ in range(4)]
        free = [pool.submit(repeat, daemon, stop, lambda client, i=i: client.post(
            f"/v1/agents/free-{i}/messages", {"from": "me", "content": "x"})) for i in range(4)]
        time.sleep(3 * WAIT_S)
        stop.set()
        refused = [one for future in locked for one in future.result()]
        others = [one for future in free for one in future.result()]
    holder.release()
    took = sorted(seconds for _, seconds, _ in others)
    print(f"{row}: {len(others)} others, median {statistics.median(took) * 1e3:.0f} ms, p99 "
          f"{took[len(took) * 99 // 100] * 1e3:.0f} ms, longest {took[-1] * 1e3:.0f} ms; {len(refused)} refused, "
          f"{min(t for _, t, _ in refused):.2f} to {max(t for _, t, _ in refused):.2f} s")
    assert {answer.status for _, _, answer in others} == {201}
    assert took[-1] < 1
    for _, _, answer in refused:
        answer.fails(503, "unavailable")
        assert int(answer.headers["Retry-After"]) >= 1
    assert max(seconds for _, seconds, _ in refused) < WAIT_S + 2


@pytest.mark.parametrize("row", ROWS)
def test_who_waits_in_vain_is_told_while_nothing_else_happens(daemon, row):
    sql, call = ROWS[row]
    holder = Holder(daemon.url, sql)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        began = time.monotonic()
        waiting = [pool.submit(lambda: call(daemon.client())) for _ in range(3)]
        for one in waiting:
            one.result(20).fails(503, "unavailable")
        assert WAIT_S - 0.1 < time.monotonic() - began < WAIT_S + 2
    holder.release()
    assert call(daemon.client()).status in (200, 201)


@pytest.mark.parametrize("row", ROWS)
def test_who_waits_for_a_row_gets_it_when_it_is_free(daemon, row):
    sql, call = ROWS[row]
    holder = Holder(daemon.url, sql)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(lambda: call(daemon.client())) for _ in range(6)]
        time.sleep(WAIT_S / 2)
        assert not any(one.done() for one in waiting)
        holder.release()
        freed = time.monotonic()
        assert all(one.result(10).status in (200, 201) for one in waiting)
        assert time.monotonic() - freed < 1
