# SPDX-License-Identifier: Apache-2.0
"""`lapsed --contract`: a contract that is kept for good, on both engines."""
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from urllib.parse import quote

import pytest

from world import DAY, LAPSE, Contract, Daemon, Postgres, Sqlite, lapse, now_ms, until

BOUND = {"table": "t", "key": "id", "expires": "e", "time": "ms"}


def simple(db, rows=0):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    if rows:
        db.fill("t", ["id", "e"], [(i, 5) for i in range(rows)])


def left(db):
    return db.column("SELECT count(*) FROM t")[0]


def test_rows_go_and_everything_tells_of_it(db, contract, tmp_path):
    simple(db, 30)
    db.fill("t", ["id", "e"], [(100, now_ms() + DAY), (101, None)])
    with Daemon(tmp_path / "d", contract([BOUND], every="200ms")) as d:
        until(lambda: left(db) == 2)
        until(lambda: d.row("shop:t")["pruned_total"] == 30)
        row = d.row("shop:t")
        assert row["contract"] == "shop" and row["scheduler"] == "shop:s" and row["paths"] == ["sweep"]
        metrics = d.call("GET", "/metrics")
        assert 'lifecycle_prune_rows_total{scheduler="shop:s",table="shop:t",contract="shop"} 30' in metrics
        assert 'lifecycle_tick_errors_total{scheduler="shop:s"} 0' in metrics
        event = d.events("s.lifecycle_pruned")[0]
        assert event["data"] == {"contract": "shop", "scheduler": "shop:s", "count": 30, "tables": {"shop:t": 30}}
        assert '"event":"contract.loaded","message":"shop"' in d.lines()
        assert d.call("GET", "/v1/contracts/shop")["bounds"][0]["pruned_total"] == 30
        d.call("GET", "/v1/contracts/other", status=404)


def test_a_sweep_by_hand_and_a_dry_run(db, contract, tmp_path):
    simple(db, 7)
    with Daemon(tmp_path / "d", contract([BOUND])) as d:
        dry = d.call("POST", "/v1/sweep/shop:s?dry_run=true")
        assert dry["pruned"] == 7 and dry["tables"] == {"shop:t": 7} and left(db) == 7
        assert d.call("POST", "/v1/contracts/shop/plan")["data"][0]["rows"] == 7
        assert d.call("POST", "/v1/sweep/shop:s")["pruned"] == 7 and left(db) == 0
        ran = lapse("contract", "apply", contract([BOUND]).path, "--url", d.url)
        assert ran.code == 0 and "shop:s: 0 rows removed" in ran.out


def test_apply_asks_the_daemon_that_has_the_directory(db, contract, tmp_path):
    simple(db, 7)
    c = contract([BOUND])
    with Daemon(tmp_path / "d", c) as d:
        ran = lapse("contract", "apply", c.path, "--data-dir", d.data, "--url", d.url)
        assert ran.code == 0 and "shop:s: 7 rows removed" in ran.out


def test_the_matrix_tells_from_the_start(db, contract, tmp_path):
    """Before the first sweep: what is due, the oldest, what stays and why, and how long it will take."""
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e);"
           f"CREATE TABLE dep (id {db.big} PRIMARY KEY, t {db.big}); CREATE INDEX k ON dep (t)")
    oldest = now_ms() - DAY
    db.fill("t", ["id", "e"], [(i, oldest + i) for i in range(500)] + [(900, now_ms() + DAY)])
    db.fill("dep", ["id", "t"], [(i, i) for i in range(7)])
    bound = {**BOUND, "rows_per_second": 100, "ask_above": "100%", "unless_referenced": {"by": "dep", "on": {"t": "id"}}}
    with Daemon(tmp_path / "d", contract([bound])) as d:
        until(lambda: d.row("shop:t")["due_rows"] == 493)
        row = d.row("shop:t")
        assert DAY - 10_000 <= row["oldest_due_age_ms"] <= DAY + 60_000
        assert row["undeletable"] == {"unreadable": 0, "held": 0, "protected": 7, "locked": 0}
        assert row["undeletable_rows"] == 7 and row["last_success_at"] is None and row["pruned_total"] == 0
        assert row["rows_per_second"] == 100 and row["clears_in_ms"] > 4930
        assert 'lapse_undeletable_rows{table="shop:t",contract="shop",reason="protected"} 7' in d.call("GET", "/metrics")
        assert left(db) == 501 and d.events("s.lifecycle_pruned") == []
        d.call("POST", "/v1/sweep/shop:s")
        row = d.row("shop:t")
        assert row["due_rows"] == 0 and row["oldest_due_age_ms"] is None and row["clears_in_ms"] == 0
        assert row["undeletable_rows"] == 7 and row["last_success_at"] and row["pruned_total"] == 493
        assert 50 <= row["rows_per_second"] <= 200
        shown = lapse("matrix", "--url", d.url).out
        assert "protected 7" in next(line for line in shown.splitlines() if line.startswith("shop:t"))
    with Daemon(tmp_path / "d", contract([bound])) as d:
        assert d.row("shop:t")["last_success_at"] >= row["last_success_at"]  # the history's, which ends a moment later


def test_holds(db, tmp_path):
    db.sql(f"CREATE TABLE t (a text NOT NULL, b {db.big} NOT NULL, e {db.big}, PRIMARY KEY (a, b)); CREATE INDEX i ON t (e)")
    db.fill("t", ["a", "b", "e"], [("x/y", i, 5) for i in range(10)])
    c = Contract(tmp_path, db, [{"table": "t", "key": ["a", "b"], "expires": "e", "time": "ms"}])
    with Daemon(tmp_path / "d", c) as d:
        key = quote(json.dumps(["x/y", 3]), safe="")
        d.call("PUT", f"/v1/holds/{quote('shop:t')}/{key}", {"reason": "audit"})
        d.call("PUT", f"/v1/holds/{quote('shop:t')}/{quote('[1]')}", {"reason": "audit"}, status=400)
        d.call("PUT", f"/v1/holds/{quote('shop:t')}/nonsense", {"reason": "audit"}, status=400)
        assert d.call("POST", "/v1/sweep/shop:s")["pruned"] == 9
        assert db.column("SELECT b FROM t") == [3]
        assert d.row("shop:t")["undeletable"]["held"] == 1
        d.call("DELETE", f"/v1/holds/{quote('shop:t')}/" + quote('["x/y","3"]', safe=""))
        assert d.call("POST", "/v1/sweep/shop:s")["pruned"] == 1


def test_apply_with_approve_removes_what_would_wait(db, contract):
    """And what needs no approval is told with it."""
    simple(db, 1500)
    db.sql(f"CREATE TABLE small (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX small_e ON small (e)")
    db.fill("small", ["id", "e"], [(i, 5) for i in range(10)])
    c = contract([BOUND, {**BOUND, "table": "small"}])
    ran = c.apply()
    told = {row["bound"]: (row["removed"], row["waits_for_approval"]) for row in ran.json["data"]}
    assert ran.code == 1 and told == {"shop:t": (0, True), "shop:small": (10, False)}
    assert "--approve" in lapse("contract", "apply", c.path, "--data-dir", c.data_dir).out
    db.fill("small", ["id", "e"], [(i, 5) for i in range(7)])
    ran = c.apply("--approve")
    assert ran.code == 0, ran.err
    told = {row["bound"]: (row["removed"], row["waits_for_approval"]) for row in ran.json["data"]}
    assert told == {"shop:t": (1500, False), "shop:small": (7, False)}
    assert left(db) == 0


def test_a_wait_for_approval_outlives_a_restart(db, contract, tmp_path):
    simple(db, 1500)
    c = contract([BOUND])
    assert c.apply().code == 1
    with Daemon(c.data_dir, c) as d:
        assert d.row("shop:t")["waits_for_approval"]
        assert "shop:t" in d.call("GET", "/readyz")["warnings"][0]
        until(lambda: d.row("shop:t")["due_rows"] == 1500)
        assert d.row("shop:t")["clears_in_ms"] is None, "a person decides when"


def test_approvals(db, contract, tmp_path):
    simple(db, 1500)
    with Daemon(tmp_path / "d", contract([BOUND], every="300ms")) as d:
        until(lambda: d.row("shop:t")["waits_for_approval"])
        assert left(db) == 1500
        waiting = d.call("GET", "/v1/approvals")["data"]
        assert [(a["bound"], a["due_rows"], a["table_rows"]) for a in waiting] == [("shop:t", 1500, 1500)]
        assert "shop:t" in d.call("GET", "/readyz")["warnings"][0]
        d.call("POST", "/v1/approvals/shop:other", status=404)
        assert "shop:t" in lapse("approvals", "--url", d.url).out
        assert lapse("approve", "shop:t", "--url", d.url).code == 0
        until(lambda: left(db) == 0)
        until(lambda: d.call("GET", "/v1/approvals")["data"] == [])
        assert len(d.events("approval.wanted")) == 1 and len(d.events("approval.given")) == 1
        # The rule is known now: as many deadlines again need no one.
        db.fill("t", ["id", "e"], [(i, 5) for i in range(1500)])
        until(lambda: left(db) == 0)


def test_reload(db, contract, tmp_path):
    simple(db)
    c = contract([BOUND], every="200ms")
    with Daemon(tmp_path / "d", c) as d:
        c.write([{**BOUND, "name": "renamed"}], every="200ms")
        d.process.send_signal(signal.SIGHUP)
        until(lambda: any(r["table"] == "shop:renamed" for r in d.call("GET", "/v1/matrix")["data"]))
        assert not any(r["table"] == "shop:t" for r in d.call("GET", "/v1/matrix")["data"])
        for broken in ([{**BOUND, "tabel": "x"}], [{**BOUND, "table": "missing"}]):
            c.write(broken, every="200ms")
            d.process.send_signal(signal.SIGHUP)
            until(lambda: d.call("GET", "/v1/contracts/shop")["refused"])
            assert d.row("shop:renamed")
        db.fill("t", ["id", "e"], [(1, 5)])
        until(lambda: left(db) == 0)  # the old one is in force
        assert len(d.events("contract.refused")) == 2
        c.write([BOUND], every="200ms")
        d.process.send_signal(signal.SIGHUP)
        until(lambda: d.call("GET", "/v1/contracts/shop")["refused"] is None)


def test_a_contract_that_cannot_be_read_stops_the_start(db, tmp_path, contract):
    c = contract([BOUND])
    open(c.path, "w", encoding="utf-8").write("contract: 1\nnam: x\n")
    with pytest.raises(AssertionError, match="unknown field 'nam' in a contract; did you mean 'name'"):
        Daemon(tmp_path / "d", c)


def test_what_changes_under_it(db, contract, tmp_path):
    """A table that disappears and a column that changes its type fail the tick; other bounds go on."""
    simple(db)
    db.sql(f"CREATE TABLE u (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX j ON u (e)")
    c = contract([BOUND, {**BOUND, "table": "u"}], every="200ms")
    with Daemon(tmp_path / "d", c) as d:
        until(lambda: d.row("shop:t")["last_sweep_at"])
        db.sql("DROP TABLE t")
        db.fill("u", ["id", "e"], [(1, 5)])
        until(lambda: db.column("SELECT count(*) FROM u") == [0])
        until(lambda: "there is no table 't'" in (d.row("shop:t")["problem"] or ""))
        assert "s.lifecycle_tick_failed" in d.lines()
        db.sql("CREATE TABLE t (id text PRIMARY KEY NOT NULL, e boolean); CREATE INDEX i2 ON t (e)")
        until(lambda: "which does not hold time: ms" in (d.row("shop:t")["problem"] or ""))
        db.sql("DROP TABLE t")
        simple(db, 3)
        until(lambda: left(db) == 0)
        until(lambda: d.row("shop:t")["problem"] is None)


def test_a_server_that_restarts(tmp_path):
    import postgres
    server = postgres.Postgres()
    try:
        db = Postgres(server, "app")
        simple(db, 3)
        with Daemon(tmp_path / "d", Contract(tmp_path, db, [BOUND], every="300ms")) as d:
            until(lambda: left(db) == 0)
            server.stop(signal.SIGQUIT, keep=True)
            until(lambda: "s.lifecycle_tick_failed" in d.lines())
            server.start()
            db.fill("t", ["id", "e"], [(1, 5)])
            until(lambda: left(db) == 0)
    finally:
        server.stop()


def test_a_server_that_restarts_in_the_middle_of_a_sweep(tmp_path):
    """Nothing is half done, the rest goes when the server is back, and what is told is no less than what went."""
    import postgres
    server = postgres.Postgres()
    try:
        db = Postgres(server, "app")
        simple(db, 600)
        db.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.004); RETURN NULL; END $$;"
               "CREATE TRIGGER slow AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()")
        bound = {**BOUND, "ask_above": "100%", "slice_ms": 50}
        with Daemon(tmp_path / "d", Contract(tmp_path, db, [bound], every="300ms")) as d:
            until(lambda: left(db) < 600)
            server.stop(signal.SIGQUIT, keep=True)
            until(lambda: "s.lifecycle_tick_failed" in d.lines())
            server.start()
            assert 0 < left(db) < 600, "the sweep was under way"
            until(lambda: left(db) == 0)
            until(lambda: d.row("shop:t")["due_rows"] == 0)
            told = [event["data"]["count"] for event in d.events("s.lifecycle_pruned")]
            assert sum(told) >= 600 and d.row("shop:t")["pruned_total"] == sum(told)
    finally:
        server.stop()


def test_what_was_told_survives_a_crash_of_the_server(tmp_path):
    """Beside another writer commits are not synced one by one, but all of them are before the end is told. The server's
    own writer of the log would hide that: it writes whole pages at once, and the last one after its delay."""
    import postgres
    server = postgres.Postgres({"wal_writer_delay": "10s", "autovacuum": "off"})
    stop = threading.Event()

    def write(db):
        while not stop.wait(0.1):
            db.sql("SET synchronous_commit = off; INSERT INTO other VALUES (1)")

    try:
        db = Postgres(server, "app")
        simple(db, 300)
        db.sql("CREATE TABLE other (n int);"
               "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.004); RETURN NULL; END $$;"
               "CREATE TRIGGER slow AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()")
        c = Contract(tmp_path, db, [{**BOUND, "ask_above": "100%"}])
        writer = threading.Thread(target=write, args=(db,))
        writer.start()
        try:
            ran = c.apply()
        finally:
            stop.set()
            writer.join()
        server.stop(signal.SIGQUIT, keep=True)
        server.start()
        assert ran.json["removed"] == 300 and left(db) == 0
    finally:
        server.stop()


def watch(db, tabled):
    """A trigger records every deletion: the row, its transaction and when; with the table of leases also whose it was."""
    lease = "(SELECT scheduler || ' ' || holder FROM lapse_leases), (SELECT token FROM lapse_leases)" if tabled else "'', 0"
    if db.name == "sqlite":
        db.sql("CREATE TABLE audit (n INTEGER PRIMARY KEY, id INTEGER, lease TEXT, token INTEGER)")
        db.sql("CREATE TRIGGER watch AFTER DELETE ON t BEGIN INSERT INTO audit (id, lease, token) "
               f"VALUES (old.id, {lease}); END;")
    else:
        db.sql("CREATE TABLE audit (n bigserial PRIMARY KEY, id bigint, lease text, token bigint, pid int, tx bigint, at timestamptz);"
               "CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); "
               f"INSERT INTO audit (id, lease, token, pid, tx, at) VALUES (old.id, {lease}, pg_backend_pid(), txid_current(), "
               "clock_timestamp()); RETURN NULL; END $$;"
               "CREATE TRIGGER watch AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION watch()")


@pytest.mark.parametrize("tabled", [False, True], ids=["without the table", "with lapse_leases"])
def test_two_daemons_never_delete_at_once(db, tmp_path, tabled):
    """A trigger in the database is the witness: no two transactions of the daemons overlap, and fencing tokens only grow."""
    simple(db)
    first = Contract(tmp_path, db, [{**BOUND, "ask_above": "100%", "slice_ms": 20}], every="50ms")
    if tabled:
        assert first.apply("--create-lease-table").code == 0
    watch(db, tabled)
    with Daemon(tmp_path / "a", first) as a, Daemon(tmp_path / "b", first) as b:
        for round_ in range(5):
            db.fill("t", ["id", "e"], [(round_ * 1000 + i, 5) for i in range(200)])
            until(lambda: left(db) == 0, 40)
        until(lambda: a.row("shop:t")["pruned_total"] + b.row("shop:t")["pruned_total"] == 1000)
    assert sorted(db.column("SELECT id FROM audit")) == sorted(r * 1000 + i for r in range(5) for i in range(200))
    if db.name == "postgres":
        overlaps = db.sql("WITH s AS (SELECT pid, tx, min(at) AS began, max(at) AS ended FROM audit GROUP BY 1, 2) "
                          "SELECT count(*) FROM s x JOIN s y ON x.pid <> y.pid AND x.began < y.ended AND y.began < x.ended")
        assert overlaps == [(0,)]
        assert db.sql("SELECT count(*) FROM (SELECT tx FROM audit GROUP BY tx HAVING count(DISTINCT token) > 1) AS x") == [(0,)]
    if tabled:
        told = db.sql("SELECT token, lease FROM audit ORDER BY n")
        assert [token for token, _ in told] == sorted(token for token, _ in told) and told[0][0] > 0
        holders = {}
        for token, lease in told:
            assert lease.startswith("shop:s ") and holders.setdefault(token, lease) == lease  # a token has one holder


@pytest.fixture
def small_disk():
    """A file system of 3 MiB, and a function that fills it; skipped where the tests may not mount one."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="lapse-small-", dir="/tmp"))  # where PostgreSQL's account may go, too
    where.chmod(0o755)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0777", "lapse-test", str(where)], check=False,
                      capture_output=True).returncode != 0:
        where.rmdir()
        pytest.skip("needs the right to mount a file system")

    def fill():
        with open(where / "filler", "wb", buffering=0) as out:
            try:
                while out.write(bytes(4096)):
                    pass
            except OSError:
                pass
        return where / "filler"

    yield where, fill
    subprocess.run(["umount", "-l", str(where)], check=True)
    where.rmdir()


def until_full(d, table):
    until(lambda: d.row("shop:t")["problem"])
    assert re.search("full|no space", d.row("shop:t")["problem"], re.I), d.row("shop:t")["problem"]
    assert d.row("shop:t")["pruned_total"] == 0 and left(table) == 400
    assert "s.lifecycle_tick_failed" in d.lines()


def test_a_full_disk_of_sqlite(tmp_path, small_disk):
    """The tick fails, nothing is half done, and it goes on by itself when there is room."""
    where, fill = small_disk
    db = Sqlite(where)
    simple(db, 400)
    stays = sqlite3.connect(db.path)  # so that the log and its index are there
    stays.execute("SELECT 1 FROM t").fetchone()
    filler = fill()
    with Daemon(tmp_path / "d", Contract(tmp_path, db, [{**BOUND, "ask_above": "100%"}], every="200ms")) as d:
        until_full(d, db)
        filler.unlink()
        until(lambda: left(db) == 0)
        until(lambda: d.row("shop:t")["problem"] is None and d.row("shop:t")["pruned_total"] == 400)
    stays.close()


def test_a_full_disk_of_postgres(tmp_path, small_disk, pg):
    where, fill = small_disk
    space = where / "space"
    space.mkdir()
    if os.geteuid() == 0:
        shutil.chown(space, "postgres", "postgres")
    simple(pg, 400)
    pg.sql(f"CREATE TABLESPACE small{os.getpid()} LOCATION '{space}'")
    pg.sql(f"CREATE TABLE audit (d text) TABLESPACE small{os.getpid()}")
    pg.sql("CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
           "INSERT INTO audit VALUES (repeat(md5(old.id::text), 100)); RETURN NULL; END $$;"
           "CREATE TRIGGER watch AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION watch()")
    filler = fill()
    with Daemon(tmp_path / "d", Contract(tmp_path, pg, [{**BOUND, "ask_above": "100%"}], every="200ms")) as d:
        until_full(d, pg)
        filler.unlink()
        until(lambda: left(pg) == 0)
        until(lambda: d.row("shop:t")["problem"] is None and d.row("shop:t")["pruned_total"] == 400)
    pg.sql("DROP TABLE audit CASCADE")
    pg.sql(f"DROP TABLESPACE small{os.getpid()}")


def test_killed_in_the_middle_of_apply(db, tmp_path):
    """Nothing is half done, the next run goes on, and what is told is never less than what is gone."""
    simple(db)
    db.sql(f"CREATE TABLE child (id {db.big} PRIMARY KEY, t {db.big}); CREATE INDEX k ON child (t)")
    rows = 4000
    db.fill("t", ["id", "e"], [(i, 5) for i in range(rows)])
    db.fill("child", ["id", "t"], [(i, i) for i in range(rows)])
    c = Contract(tmp_path, db, [{**BOUND, "ask_above": "100%", "slice_ms": 5, "rows_per_second": 4000,
                                 "together_with": [{"table": "child", "on": {"t": "id"}}]}])
    for round_ in range(3):
        process = subprocess.Popen([LAPSE, "contract", "apply", c.path, "--data-dir", c.data_dir],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = left(db)
        until(lambda: left(db) < before)
        time.sleep(0.03 * round_)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert left(db) == db.column("SELECT count(*) FROM child")[0]  # both or neither
    ran = c.apply()
    assert ran.code == 0, ran.err
    assert left(db) == 0 and db.column("SELECT count(*) FROM child") == [0]
    with Daemon(c.data_dir, c) as d:
        events = [e["data"] for e in d.events("s.lifecycle_pruned")]
    assert any(e.get("upper_bound") for e in events)
    # A slice removes at most so many rows, so this is as far as an upper bound can be off.
    assert rows <= sum(e["count"] for e in events) <= rows + 3 * 10_000


def test_interrupted_apply_tells_what_it_did(db, tmp_path):
    simple(db, 3000)
    c = Contract(tmp_path, db, [{**BOUND, "ask_above": "100%", "rows_per_second": 2000}])
    process = subprocess.Popen([LAPSE, "contract", "apply", c.path, "--data-dir", c.data_dir, "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: left(db) < 3000)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    told = json.loads(out)
    assert process.returncode == 130 and told["interrupted"]
    assert told["removed"] == 3000 - left(db) and 0 < told["removed"] < 3000
    assert c.apply().json["earlier_at_most"] == 0
