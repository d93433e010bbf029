# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark about operational tables and contracts: leases, a prune beside a foreground on PostgreSQL
and on SQLite, and a plan.

A prune works on a copy of one table, half of whose rows are due, while an open loop at 30 % of saturation reads and
writes that table. The sides differ only in who removes the rows: no one, `lapse contract apply` at unlimited pace, a plain
loop of DELETEs of 10 000 rows, one single DELETE, and on PostgreSQL a procedure that pg_cron starts.
"""
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

from rows import CONNECTIONS, Figure, Row, alternate, column
from servers import START_MAX_S, BenchError, Lapse, Redis, Server, free_port

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "double"))

from postgres import Postgres, PostgresError  # noqa: E402

LOOP_ROWS = 10_000
FOREGROUND_SHARE = 0.3
PG_CONNECTIONS = 16
SQLITE_READERS = 3
PLAN_DUE = 1000
FAR_MS = 9_000_000_000_000  # a deadline that no run reaches


# -- leases -------------------------------------------------------------------------------------------


class Etcd(Server):
    """etcd as Debian builds it, alone, as durable as it always is."""

    name = "etcd"

    def __init__(self, directory):
        super().__init__(directory)
        port, peer = free_port(), free_port()
        url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        self.start(["etcd", "--data-dir", os.path.join(directory, "data"), "--listen-client-urls", url,
                    "--advertise-client-urls", url, "--listen-peer-urls", peer_url,
                    "--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}",
                    "--log-level", "error"], stdout=subprocess.DEVNULL)
        self.address = f"127.0.0.1:{port}"
        self.await_ready(url)

    def await_ready(self, url):
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline and self.process.poll() is None:
            done = subprocess.run(["curl", "-s", "-m", "2", "-X", "POST", "-d", '{"TTL":30}', url + "/v3/lease/grant"],
                                  capture_output=True, text=True, check=False)
            if '"ID"' in done.stdout:
                return
            time.sleep(0.1)
        raise BenchError(f"etcd did not start\n{self.log_tail()}")


LEASE_STEPS = {
    "lapse": ["http", "PUT", "/v1/leases/workspace_leases/%k", '{"holder":"bench","ttl_ms":30000}',
              "PUT", "/v1/leases/workspace_leases/%k", '{"holder":"bench","ttl_ms":30000}',
              "DELETE", "/v1/leases/workspace_leases/%k?holder=bench", ""],
    "etcd": ["http", "POST", "/v3/lease/grant", '{"TTL":30}',
             "POST", "/v3/kv/txn", '{"compare":[{"target":"CREATE","key":"%k","create_revision":"0"}],'
             '"success":[{"request_put":{"key":"%k","value":"YmVuY2g=","lease":"%i"}}]}',
             "POST", "/v3/lease/revoke", '{"ID":"%i"}'],
    "redis": ["resp", "SET %k bench NX PX 30000", "SET %k bench XX PX 30000", "DEL %k"],
}


def lease_cycles(bench, side, server):
    def run(seconds):
        done = subprocess.run([bench.steps, server.address, str(CONNECTIONS), str(seconds), *LEASE_STEPS[side]],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"the leases of {side} failed: {done.stderr}\n{server.log_tail()}")
        return json.loads(done.stdout)

    run(bench.scale.warm_s)
    before = sum(server.cpu_s())
    result = run(bench.scale.seconds)
    return {"cycles/s": result["sequences"] / result["seconds"], "p50 µs": result["p50_us"], "p99 µs": result["p99_us"],
            "CPU µs": (sum(server.cpu_s()) - before) * 1e6 / max(result["sequences"], 1)}


def lease(bench):
    make = {"lapse": lambda: Lapse(bench.lapsed, bench.directory("lapse")), "etcd": lambda: Etcd(bench.directory("etcd")),
            "redis": lambda: Redis(bench.directory("redis"))}

    def side(name):
        with make[name]() as server:
            return lease_cycles(bench, name, server)

    samples = alternate(bench, {name: lambda name=name: side(name) for name in make})
    rates = {name: Figure(f"{name} cycles/s", "/s", column(samples[name], "cycles/s")) for name in make}
    ratio = rates["lapse"].median / rates["etcd"].median
    row = Row("lease", f"acquire, renew and release of a lease, {CONNECTIONS} connections, each step synced, against etcd's "
              "HTTP gateway (lease/grant, kv/txn, lease/revoke)", rates["lapse"], rates["etcd"], ratio, "> 1", ratio > 1)
    row.figures, row.their_figures = ([Figure(key, "", column(samples[name], key)) for key in samples[name][0]]
                                      for name in ("lapse", "etcd"))
    redis = statistics.median(column(samples["redis"], "cycles/s"))
    row.notes.append(f"Redis, `SET NX PX`, `SET XX PX`, `DEL` with appendfsync always: {redis:,.0f} cycles/s; "
                     f"lapse does {rates['lapse'].median / redis:.2f}× that.")
    return row


# -- a prune beside a foreground ----------------------------------------------------------------------


def quantile(sorted_values, q):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * q))] if sorted_values else 0


def contract_of(bench, name, uri, table="t"):
    path = bench.file(f"{name}.yaml")
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"contract": 1, "name": "bench", "database": uri, "schedulers": {"s": {"every": "1h"}},
                   "bounds": [{"table": table, "scheduler": "s", "key": ["id"], "expires": "e", "time": "ms",
                               "rows_per_second": 0, "ask_above": "100%"}]}, out)
    return path


def lapse_apply(bench, name, uri):
    done = subprocess.run([bench.lapse, "contract", "apply", contract_of(bench, name, uri), "--data-dir",
                           bench.directory(f"{name}-data"), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"lapse contract apply failed: {done.stderr}{done.stdout}")


class OnPostgres:
    """A server whose tables are copied from a template, and pgbench as the foreground."""

    SCRIPT = "\\set n random(0, :rows - 1)\nSELECT d FROM t WHERE id = :n;\n" \
             "\\set m :rows + random(1, 1000000000)\n" \
             "INSERT INTO t (id, e, d) VALUES (:m, 9000000000000, 'x') ON CONFLICT (id) DO NOTHING;\n" \
             "UPDATE t SET d = 'y' WHERE id = :m;\n"

    def __init__(self, bench):
        self.bench, self.rows, self.copies = bench, bench.scale.prune_rows, 0
        self.started = 0  # when pg_cron's job began
        self.parts = {}
        settings = {"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "4GB", "max_connections": "100"}
        self.has_cron = os.path.exists("/usr/lib/postgresql/15/lib/pg_cron.so")
        if self.has_cron:
            settings.update({"shared_preload_libraries": "pg_cron", "cron.database_name": "crondb",
                             "cron.use_background_workers": "on", "max_worker_processes": "20"})
        self.server = Postgres(settings)
        self.server.run("CREATE DATABASE base", "postgres")
        if self.has_cron:
            self.server.run("CREATE DATABASE crondb", "postgres")
            self.server.stop(keep=True)
            self.server.start()
            self.sql("CREATE EXTENSION pg_cron", "crondb")
        self.script = bench.file("foreground.sql")
        with open(self.script, "w", encoding="ascii") as out:
            out.write(self.SCRIPT)
        self.sql("CREATE TABLE t (id bigint PRIMARY KEY, e bigint NOT NULL, d text NOT NULL)", "base")
        self.sql(f"INSERT INTO t SELECT n, CASE WHEN n % 2 = 0 THEN 1000 + n ELSE {FAR_MS} END, repeat('d', 60) "
                 f"FROM generate_series(0, {self.rows - 1}) n", "base")
        self.sql("CREATE INDEX ON t (e); VACUUM ANALYZE t; CHECKPOINT", "base")

    def sql(self, text, database):
        done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.server.home, "-U",
                               "lapse", "-d", database], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(done.stderr)
        return done.stdout.strip()

    def copy(self):
        self.copies += 1
        name = f"copy{self.copies}"
        self.server.run(f"CREATE DATABASE {name} TEMPLATE base", "postgres")
        return name

    def drop(self, name):
        self.server.run(f"DROP DATABASE {name} WITH (FORCE)", "postgres")

    def pgbench(self, name, seconds, rate=None):
        """The command, and where its latencies go."""
        log = os.path.join(self.bench.directory("pgbench"), "log")
        return [str(self.server.bin / "pgbench"), "-n", "-h", str(self.server.home), "-U", "lapse", "-c",
                str(PG_CONNECTIONS), "-j", "2", "-T", str(max(1, int(seconds))), "-f", self.script, "-D",
                f"rows={self.rows}", "--log", f"--log-prefix={log}",
                *(["--rate", str(rate)] if rate else []), name]

    def saturation(self, name):
        done = subprocess.run(self.pgbench(name, self.bench.scale.seconds), capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("tps = "):
                return float(line.split()[2])
        raise BenchError(f"pgbench failed: {done.stderr}{done.stdout}")

    def latencies(self):
        """pgbench's own: with --rate they count from when a transaction was due."""
        directory, all_of = os.path.join(self.bench.data, "pgbench"), []
        for file in os.listdir(directory):
            with open(os.path.join(directory, file), encoding="ascii") as lines:
                # Ended in the middle, it leaves a part of a line.
                all_of += [int(words[2]) for words in map(str.split, lines) if len(words) >= 6]
        return sorted(all_of)

    def beside(self, name, rate, remove):
        """The open loop while `remove` runs: (seconds it took, sorted latencies in µs)."""
        quiet = remove is None
        seconds = self.bench.scale.quiet_s if quiet else self.bench.scale.prune_max_s
        run = subprocess.Popen(self.pgbench(name, seconds, rate), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)  # until it has connected
        start, self.started = time.monotonic(), 0
        try:
            if quiet:
                run.wait()
            else:
                remove(name)
        finally:
            took = time.monotonic() - max(start, self.started)
            run.send_signal(signal.SIGTERM)
            run.wait()
        return took, self.latencies()

    def left(self, name):
        return int(self.sql("SELECT count(*) FROM t WHERE e < 9000000000000", name))

    @staticmethod
    def some(due):
        """The fastest plain form we know: by place, in the order of the index; four times as fast as `id IN (SELECT id …)`."""
        return f"DELETE FROM t WHERE ctid = ANY(ARRAY(SELECT ctid FROM t WHERE {due} ORDER BY e LIMIT {LOOP_ROWS}))"

    def removers(self):
        due = "e <= 8000000000000"
        cron = {"pg_cron": self.by_cron} if self.has_cron else {}
        return {"lapse": lambda name: lapse_apply(self.bench, name, self.server.url_of(name)),
                "loop": lambda name: self.sql(
                    f"DO $$ BEGIN LOOP {self.some(due)}; EXIT WHEN NOT FOUND; COMMIT; END LOOP; END $$;", name),
                "single": lambda name: self.sql(f"DELETE FROM t WHERE {due}", name), **cron}

    def by_cron(self, name):
        """A looping procedure, started by pg_cron every minute; the time counts from its start."""
        self.sql(f"CREATE PROCEDURE prune() LANGUAGE plpgsql AS $$ BEGIN LOOP {self.some('e <= 8000000000000')}; "
                 "EXIT WHEN NOT FOUND; COMMIT; END LOOP; END $$;", name)
        self.sql(f"SELECT cron.schedule_in_database('prune-{name}', '* * * * *', 'CALL prune()', '{name}')", "crondb")
        deadline = time.monotonic() + self.bench.scale.prune_max_s
        due = self.left(name)
        try:
            while self.left(name) == due and time.monotonic() < deadline:
                time.sleep(0.02)  # until the next minute
            self.started = time.monotonic()
            while self.left(name) > 0:
                if time.monotonic() > deadline:
                    raise BenchError("pg_cron's procedure did not finish: "
                                     + self.sql("SELECT status, return_message FROM cron.job_run_details", "crondb"))
                time.sleep(0.5)
        finally:
            self.sql(f"SELECT cron.unschedule('prune-{name}')", "crondb")

    def stop(self):
        self.server.stop()


def sqlite_worker(kind, path, rows, period_s, seconds, stop, results):
    """One connection of the foreground in an open loop (period_s 0: closed): latencies count from when each was due."""
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    chance = random.Random(os.getpid())
    taken, start = [], time.monotonic()
    due, number = start, 0
    while not stop.is_set() and time.monotonic() - start < seconds:
        if period_s and (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        began = due if period_s else time.monotonic()
        if kind == "read":
            db.execute("SELECT d FROM t WHERE id = ?", (chance.randrange(rows),)).fetchone()
        else:
            number += 1
            db.execute("INSERT OR REPLACE INTO t (id, e, d) VALUES (?, 9000000000000, 'x')",
                       (rows + chance.randrange(10 ** 9),))
        taken.append(int((time.monotonic() - began) * 1e6))
        due += period_s
    ended = time.monotonic()
    served = len(taken)
    while period_s and due < ended:  # those it was too late for have waited at least so long
        taken.append(int((ended - due) * 1e6))
        due += period_s
    results.put((kind, served / (ended - start), taken))
    db.close()


class OnSqlite:
    """A file that is copied, one writer and three readers as processes."""

    def __init__(self, bench):
        self.bench, self.rows, self.copies = bench, bench.scale.prune_rows, 0
        self.base = bench.file("base.db")
        self.parts = {}
        with sqlite3.connect(self.base) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, e INTEGER NOT NULL, d TEXT NOT NULL)")
            db.execute(f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {self.rows - 1}) "
                       f"INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 1000 + i ELSE {FAR_MS} END, '{'d' * 60}' FROM n")
            db.execute("CREATE INDEX i ON t (e)")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()

    def copy(self):
        self.copies += 1
        path = self.bench.file(f"copy{self.copies}.db")
        shutil.copyfile(self.base, path)
        os.sync()
        return path

    def drop(self, path):
        for end in ("", "-wal", "-shm"):
            if os.path.exists(path + end):
                os.unlink(path + end)

    def foreground(self, path, rates, seconds, remove):
        """rates: {kind: operations a second of one process, 0 = as many as it can}."""
        context = multiprocessing.get_context("fork")
        stop, results = context.Event(), context.Queue()
        kinds = ["write", *["read"] * SQLITE_READERS]
        workers = [context.Process(target=sqlite_worker, args=(
            kind, path, self.rows, 1 / rates[kind] if rates[kind] else 0, seconds, stop, results)) for kind in kinds]
        for worker in workers:
            worker.start()
        start = time.monotonic()
        try:
            if remove:
                time.sleep(0.3)
                start = time.monotonic()
                remove(path)
        finally:
            took = time.monotonic() - start
            if remove:
                stop.set()
            got = [results.get() for _ in workers]
            for worker in workers:
                worker.join()
        return took, got

    def saturation(self, path):
        _, got = self.foreground(path, {"write": 0, "read": 0}, self.bench.scale.seconds, None)
        return {kind: statistics.mean(rate for k, rate, _ in got if k == kind) for kind in ("write", "read")}

    def beside(self, path, rate, remove):
        seconds = self.bench.scale.prune_max_s if remove else self.bench.scale.quiet_s
        took, got = self.foreground(path, rate, seconds, remove)
        # Of about 40 operations one is a write: what writers wait for hardly shows in the p99 of all.
        self.parts = {f"{kind}s p99 ms": quantile(sorted(us for k, _, taken in got if k == kind for us in taken), 0.99) / 1e3
                      for kind in ("write", "read")}
        return took, sorted(us for _, _, taken in got for us in taken)

    def left(self, path):
        db = sqlite3.connect(path, timeout=60)
        try:
            return db.execute("SELECT count(*) FROM t WHERE e < 9000000000000").fetchone()[0]
        finally:
            db.close()

    @staticmethod
    def delete(path, limit):
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        db.execute("PRAGMA synchronous=FULL")
        part = f" ORDER BY e LIMIT {limit}" if limit else ""
        while db.execute(f"DELETE FROM t WHERE id IN (SELECT id FROM t WHERE e <= 8000000000000{part})").rowcount > 0 and limit:
            pass
        db.close()

    def removers(self):
        return {"lapse": lambda path: lapse_apply(self.bench, os.path.basename(path), f"sqlite:{path}"),
                "loop": lambda path: self.delete(path, LOOP_ROWS), "single": lambda path: self.delete(path, 0)}

    def stop(self):
        os.unlink(self.base)


def prune_beside(bench, engine):
    """One round for each side: copies of the table are large, and a prune takes long enough to be steady."""
    world = engine(bench)
    try:
        place = world.copy()
        full = world.saturation(place)
        rate = ({kind: FOREGROUND_SHARE * value for kind, value in full.items()} if isinstance(full, dict)
                else FOREGROUND_SHARE * full)
        _, quiet = world.beside(place, rate, None)
        world.drop(place)
        none = {f"no prune: {key}": value for key, value in world.parts.items()}
        bench.say(f"saturation {full}, p99 without a prune {quantile(quiet, 0.99) / 1e3:.2f} ms {none or ''}")
        sides = {}
        for side, remove in world.removers().items():
            place = world.copy()
            took, latencies = world.beside(place, rate, remove)
            if world.left(place) != 0:
                raise BenchError(f"{side} left {world.left(place)} due rows")
            world.drop(place)
            sides[side] = {"seconds": took, "p50 ms": quantile(latencies, 0.5) / 1e3, "p99 ms": quantile(latencies, 0.99) / 1e3,
                           "max ms": latencies[-1] / 1e3 if latencies else 0, **world.parts}
            bench.say(f"{side:<8} " + ", ".join(f"{key} {value:.2f}" for key, value in sides[side].items()))
    except PostgresError as error:
        raise BenchError(str(error)) from error
    finally:
        world.stop()
    return sides, {"no prune: p99 ms": quantile(quiet, 0.99) / 1e3, **none}, bench.scale.prune_rows // 2


def prune_row(bench, name, engine, where):
    sides, none, due = prune_beside(bench, engine)
    ours, loop, quiet = sides["lapse"], sides["loop"], none["no prune: p99 ms"]
    ratio, tail = ours["seconds"] / loop["seconds"], ours["p99 ms"] / quiet
    row = Row(name, f"{due:,} due of {2 * due:,} rows pruned on {where} at unlimited pace beside an open loop at 30 % of saturation: "
              f"total time against a plain loop of DELETEs of {LOOP_ROWS:,} rows; p99 of the open loop against none",
              Figure("total", "s", [ours["seconds"]]), Figure("total", "s", [loop["seconds"]]), ratio,
              "time ≤ 2, p99 ≤ 1.5", ratio <= 2 and tail <= 1.5)
    row.figures = [Figure(f"{side}: {key}", "", [value]) for side, figures in sides.items() for key, value in figures.items()]
    row.figures += [Figure(key, "", [value]) for key, value in none.items()]
    row.notes.append("p99 of the foreground against none: " + ", ".join(
        f"{side} {figures['p99 ms'] / quiet:.2f}×" for side, figures in sides.items()) + ".")
    return row


def prune_postgres(bench):
    return prune_row(bench, "prune-postgres", OnPostgres, f"PostgreSQL, {PG_CONNECTIONS} connections")


def prune_sqlite(bench):
    return prune_row(bench, "prune-sqlite", OnSqlite, "SQLite, one writer and three readers")


# -- plan ---------------------------------------------------------------------------------------------


def plan(bench):
    """`lapse contract plan` of a large table with few due rows, while a writer updates one row after another."""
    rows = bench.scale.plan_rows
    server = Postgres({"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "4GB"})
    try:
        server.run("CREATE DATABASE base", "postgres")
        psql = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(server.home), "-U", "lapse", "-d", "base"]
        subprocess.run(psql, text=True, check=True, input=(
            "CREATE TABLE t (id bigint PRIMARY KEY, e bigint NOT NULL, d text NOT NULL);"
            f"INSERT INTO t SELECT n, CASE WHEN n < {PLAN_DUE} THEN 1000 + n ELSE {FAR_MS} END, repeat('d', 60) "
            f"FROM generate_series(0, {rows - 1}) n; CREATE INDEX ON t (e); ANALYZE t; CHECKPOINT;"))
        contract = contract_of(bench, "plan", server.url_of("base"))
        waits, stop = [], threading.Event()

        def write():
            """A writer that waits for a lock for more than 100 ms fails."""
            done = subprocess.run(psql, text=True, capture_output=True, check=False, input="SET lock_timeout = '100ms';" + "".join(
                f"UPDATE t SET d = 'w' WHERE id = {n};" for n in range(2 * PLAN_DUE)))
            waits.append(done.stderr)
            stop.set()

        times = []
        writer = threading.Thread(target=write)
        writer.start()
        while len(times) < max(3, bench.scale.rounds):
            start = time.monotonic()
            done = subprocess.run([bench.lapse, "contract", "plan", contract, "--json"], capture_output=True, text=True, check=False)
            times.append(time.monotonic() - start)
            if done.returncode != 0 or json.loads(done.stdout)["data"][0]["rows"] != PLAN_DUE:
                raise BenchError(f"lapse contract plan: {done.stderr}{done.stdout}")
        writer.join()
    finally:
        server.stop()
    ours = Figure("plan", "s", times)
    row = Row("plan", f"lapse contract plan of {rows:,} rows of which {PLAN_DUE:,} are due, beside a writer on the same rows", ours,
              target="≤ 1 s, no writer waits", met=ours.median <= 1 and waits == [""])
    row.notes.append("The writer waited for no lock." if waits == [""] else f"The writer: {waits}")
    return row


#: name → function, in the order they run
ROWS = {"lease": lease, "prune-postgres": prune_postgres, "prune-sqlite": prune_sqlite, "plan": plan}
