# SPDX-License-Identifier: Apache-2.0
"""Replicas that share a database: started, stopped, killed and asked by tests."""
import itertools
import shutil
import signal

import harness
from harness import wait_until
from pq import Connection

_databases = itertools.count(1)
LEASE_MS = 2000


class Shared:
    """What a harness.Daemon asks of its store, for a database that others use, too."""

    def __init__(self, url):
        self.url = url

    def flags(self):
        return {"store": self.url, "cluster": "true"}

    def prepare(self, clock, faketime):
        pass


class Replica(harness.Daemon):
    def __init__(self, cluster, data_dir, url, **settings):
        self.cluster = cluster
        super().__init__(data_dir, **settings)
        self.store = Shared(url)

    def get(self, path, **query):
        return self.client().get(path, **query).ok()

    def number(self):
        return next(row["number"] for row in self.get("/v1/replicas")["data"] if row["self"])

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Cluster:
    """Replicas on a database of their own. They share the key of secrets; files they do not share."""

    def __init__(self, server, home, count=3, **settings):
        name = f"cluster{next(_databases)}"
        self.server, self.home = server, home
        self.home.mkdir()
        self.database = name
        self.url = server.make_database(name)
        self.settings = {"cluster_lease_ms": LEASE_MS, **settings}
        self.replicas = []
        for _ in range(count):
            self.add()

    def make(self, url=None, **settings):
        data = self.home / f"data-{len(self.replicas)}"
        if self.replicas and (self.replicas[0].data_dir / "lapse.key").exists():
            data.mkdir(mode=0o700)
            shutil.copy(self.replicas[0].data_dir / "lapse.key", data)
        replica = Replica(self, data, url or self.url, **{**self.settings, **settings})
        self.replicas.append(replica)
        return replica

    def add(self, **settings):
        return self.make(**settings).start()

    def __getitem__(self, i):
        return self.replicas[i]

    def __iter__(self):
        return iter(self.replicas)

    def live(self):
        return [one for one in self.replicas if one.process is not None]

    def rows(self, sql, *values):
        with Connection(self.url) as db:
            return db.run(sql, *values)

    def leaders(self):
        """The number of the replica that leads each scheduler."""
        return {row["scheduler"]: row["replica"] for row in self.rows("SELECT * FROM scheduler_leases")}

    def wait_for_leaders(self, timeout_s=20):
        """Until every scheduler is led by a live replica, and every live replica leads one."""
        def settled():
            numbers = {row["number"] for row in self.rows("SELECT number FROM replicas WHERE state = 1")}
            leaders = self.leaders()
            return len(leaders) >= 8 and set(leaders.values()) == numbers and leaders
        return wait_until(settled, timeout_s, "leases are shared")

    def close(self):
        for one in self.replicas:
            if one.process is None:
                continue
            one.go_on()
            one.process.terminate()
            try:
                one.end()
            except AssertionError:
                pass
