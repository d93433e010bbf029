# SPDX-License-Identifier: Apache-2.0
"""What a contract's sweeps removed is told once, and never too little, whichever replica removed it."""
import concurrent.futures
import json

import pytest

from harness import wait_until
from test_hold_races import Shop


@pytest.fixture
def shop(cluster, server, tmp_path):
    return Shop(cluster, server, tmp_path)


def told(shop):
    """What the events of the sweeps say."""
    rows = shop.cluster.rows("SELECT data FROM events WHERE kind = 's.lifecycle_pruned' ORDER BY seq")
    return [json.loads(row["data"]) for row in rows]


def test_a_replica_that_joins_leaves_a_sweep_to_the_one_that_is_in_it(shop):
    shop.put([1], nap=3)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sweep = pool.submit(lambda: shop.sweeper.client(timeout_s=60).sweep("shop:s"))
        shop.await_nap()
        shop.cluster.add()
        assert shop.has(1), "it joined in the middle of the sweep"
        sweep.result(60)
    assert [(one["count"], one.get("upper_bound", False)) for one in told(shop)] == [(1, False)]


def test_the_replica_that_takes_over_tells_what_the_dead_one_removed(shop):
    shop.put(range(1, 201), nap=0.01)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: shop.sweeper.client(timeout_s=60).post("/v1/sweep/shop:s"))
        wait_until(lambda: shop.db.run("SELECT count(*) AS n FROM t")[0]["n"] < 150, 30, "some rows are gone")
        shop.sweeper.kill()
    left = shop.db.run("SELECT count(*) AS n FROM t")[0]["n"]
    wait_until(lambda: shop.holder.client(timeout_s=60).post("/v1/sweep/shop:s").status == 200
               and not shop.db.run("SELECT 1 FROM t"), 60, "the other one has swept", every_s=0.2)
    events = told(shop)
    assert left > 0 and [one["count"] for one in events if one.get("upper_bound")]
    assert 200 <= sum(one["count"] for one in events) < 400
