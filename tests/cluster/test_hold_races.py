# SPDX-License-Identifier: Apache-2.0
"""Once a hold is answered nothing it covers goes, whichever replica was asked and whichever one sweeps."""
import concurrent.futures
import itertools
import json
import random
import time

import pytest

from harness import NEVER_MS, wait_until
from pq import Connection

ROUNDS = 300
_databases = itertools.count(1)


def two_sides(cluster, scheduler):
    """(the replica that leads the scheduler, another one)"""
    leader = wait_until(lambda: cluster.leaders().get(scheduler), 20, "a leader")
    return sorted(cluster, key=lambda one: one.number() != leader)[:2]


def test_holds_race_the_sweep_of_another_replica(cluster):
    """The rows of lapse's own tables: the answer is 200 and the row stays, or 404 and it is gone."""
    two = cluster(count=2, message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    sweeper, holder = two_sides(two, "messages")
    api = holder.client()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answered = []
        for _ in range(ROUNDS // 20):
            ids = [api.send("bob")["id"] for _ in range(20)]
            api.read_many("bob", before="2100-01-01T00:00:00.000Z").ok()
            sweep = pool.submit(lambda: time.sleep(random.random() * 0.04) or sweeper.client().sweep())
            for one in random.sample(ids, len(ids)):
                answered.append((one, api.put(f"/v1/holds/messages/{one}", {"reason": "audit"}).status))
            sweep.result(60)
    sweeper.client().sweep()
    left = {f"{row['id']:016x}" for row in two.rows("SELECT id FROM messages")}
    assert {status for _, status in answered} <= {200, 404}
    assert left == {one for one, status in answered if status == 200}
    print(f"{len(left)} held of {len(answered)}")


class Shop:
    """A user's table with a contract, which two replicas keep. A row that goes sleeps as long as it says."""

    def __init__(self, cluster, server, directory):
        self.name = f"shop{next(_databases)}"
        self.db = Connection(server.make_database(self.name))
        self.db.run("CREATE TABLE t (id bigint PRIMARY KEY, e bigint, nap float8 NOT NULL); CREATE INDEX i ON t (e);"
                    "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(old.nap); "
                    "RETURN old; END $$; CREATE TRIGGER nap BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION nap()")
        contract = directory / f"{self.name}.yaml"
        contract.write_text(json.dumps({
            "contract": 1, "name": "shop", "database": server.url_of(self.name),
            "schedulers": {"s": {"every": "1h"}},
            "bounds": [{"scheduler": "s", "table": "t", "key": "id", "expires": "e", "time": "ms",
                        "ask_above": "100%", "slice_ms": 20}]}))
        self.cluster = cluster(count=2, contract=contract)
        self.sweeper, self.holder = two_sides(self.cluster, "shop:s")

    def put(self, ids, nap=0.0):
        self.db.run("INSERT INTO t SELECT v::bigint, 5, $2::float8 FROM unnest(string_to_array($1, ',')) AS v",
                    ",".join(map(str, ids)), nap)

    def has(self, one):
        return bool(self.db.run("SELECT 1 FROM t WHERE id = $1", one))

    def hold(self, one, replica=None):
        return (replica or self.holder).client(timeout_s=90).put(f"/v1/holds/shop:t/{one}", {"reason": "audit"}).ok()

    def await_nap(self):
        wait_until(lambda: self.db.run("SELECT 1 FROM pg_stat_activity WHERE datname = $1 AND wait_event = 'PgSleep'",
                                       self.name), 30, "a row goes")


@pytest.fixture
def shop(cluster, server, tmp_path):
    return Shop(cluster, server, tmp_path)


def test_a_hold_waits_for_the_slice_of_another_replica(shop):
    shop.put([1], nap=2)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sweep = pool.submit(lambda: shop.sweeper.client(timeout_s=60).sweep("shop:s"))
        shop.await_nap()
        shop.hold(1)
        there = shop.has(1)
        sweep.result(60)
    assert not there and not shop.has(1), "the row was there when the hold was answered, and went afterwards"
    began = time.monotonic()
    shop.put([2])
    shop.hold(2)
    assert time.monotonic() - began < 2
    shop.sweeper.client().sweep("shop:s")
    assert shop.has(2)


def test_holds_race_the_slices_of_another_replica(shop):
    """The table is swept all the time, in slices of a few rows, and a hold comes at any moment of them."""
    ids, kept = iter(range(1, 100_000)), set()
    held = []
    for _ in range(ROUNDS // 20):
        some = list(itertools.islice(ids, 300))
        shop.put(some, nap=0.002)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sweep = pool.submit(lambda: shop.sweeper.client(timeout_s=60).sweep("shop:s"))
            for one in random.sample(some, 20):
                time.sleep(random.random() * 0.01)
                shop.hold(one)
                held.append(one)
                if shop.has(one):
                    kept.add(one)
            sweep.result(60)
        assert {row["id"] for row in shop.db.run("SELECT id FROM t")} == kept
    print(f"{len(kept)} of {len(held)} held rows were there when the hold was answered")
    assert kept


@pytest.mark.limit_s(150)
def test_a_replica_that_stops_in_a_slice_removes_nothing_that_was_held_meanwhile(shop):
    shop.put([1], nap=1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: shop.sweeper.client(timeout_s=60).post("/v1/sweep/shop:s"))
        shop.await_nap()
        shop.sweeper.pause()
        shop.hold(1)
        assert shop.has(1), "its transaction has ended"
        shop.sweeper.go_on()
        assert shop.sweeper.end(30) == 3  # the other one has left it out
    assert shop.has(1)
    shop.holder.client(timeout_s=60).sweep("shop:s")
    assert shop.has(1)
