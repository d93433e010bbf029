# SPDX-License-Identifier: Apache-2.0
"""Rows that are renewed, referenced and held while a sweep removes them: what committed first wins. On
PostgreSQL, where several sessions write one table at once."""
import os
import threading
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings, strategies as st

from world import DAY, Contract, Daemon, now_ms, quoted, until

# A short form; `make test-contract` is the long one.
ROUNDS = int(os.environ.get("RACE_ROUNDS", "500"))
HOSTILE_NAMES = int(os.environ.get("HOSTILE_NAMES", "10"))

SCHEMA = """
CREATE TABLE t (id bigint PRIMARY KEY, e bigint NOT NULL);
CREATE INDEX ON t (e);
CREATE TABLE dep (id bigserial PRIMARY KEY, t bigint NOT NULL);
CREATE INDEX ON dep (t);
CREATE TABLE renewed (id bigint);
-- Each round is a transaction of its own; the witness is part of it.
CREATE PROCEDURE renew(rounds int, rows int) LANGUAGE plpgsql AS $$
DECLARE r bigint; BEGIN
  FOR i IN 1..rounds LOOP
    r := (i::bigint * 7919) % rows;
    UPDATE t SET e = 9000000000000 WHERE id = r AND e < 9000000000000;
    IF FOUND THEN INSERT INTO renewed VALUES (r); END IF;
    COMMIT;
  END LOOP; END $$;
CREATE PROCEDURE refer(rounds int, rows int) LANGUAGE plpgsql AS $$
DECLARE r bigint; BEGIN
  FOR i IN 1..rounds LOOP
    r := (i::bigint * 104729) % rows;
    INSERT INTO dep (t) SELECT id FROM t WHERE id = r FOR KEY SHARE;
    COMMIT;
  END LOOP; END $$;
"""


def in_threads(*work):
    failures = []

    def guard(f):
        try:
            f()
        except BaseException as error:  # a failure in a thread is the test's
            failures.append(error)

    threads = [threading.Thread(target=guard, args=(f,)) for f in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_what_committed_first_wins(pg, tmp_path):
    rows = max(ROUNDS * 2, 2000)
    pg.sql(SCHEMA)
    pg.sql(f"INSERT INTO t SELECT n, 5 FROM generate_series(0, {rows - 1}) n")
    c = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e", "time": "ms", "slice_ms": 5, "ask_above": "100%",
                                 "rows_per_second": 4000,
                                 "unless_referenced": {"by": "dep", "on": {"t": "id"}}}], every="20ms")
    held = []
    with Daemon(tmp_path / "d", c) as d:
        def hold():
            """A hold that is answered while its row is there keeps it."""
            for n in range(200):
                key = rows - 1 - n * 5
                d.call("PUT", f"/v1/holds/{quote('shop:t')}/{key}", {"reason": "race"})
                if pg.column(f"SELECT count(*) FROM t WHERE id = {key}") == [1]:
                    held.append(key)

        in_threads(lambda: pg.sql(f"CALL renew({ROUNDS}, {rows})"), lambda: pg.sql(f"CALL refer({ROUNDS}, {rows})"), hold)
        stays = "e >= 9000000000000 OR EXISTS (SELECT 1 FROM dep WHERE dep.t = t.id)"
        listed = ", ".join(map(str, held)) or "NULL"
        until(lambda: pg.column(f"SELECT count(*) FROM t WHERE NOT ({stays}) AND id NOT IN ({listed}, -1)") == [0], 60)
        assert d.row("shop:t")["problem"] is None
    assert pg.column("SELECT count(*) FROM renewed r WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = r.id)") == [0]
    assert pg.column("SELECT count(*) FROM dep WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = dep.t)") == [0]
    assert pg.column(f"SELECT count(*) FROM t WHERE id IN ({listed})") == [len(held)]
    # All three happened while rows went: otherwise nothing raced.
    assert held and pg.column("SELECT count(*) > 0 FROM renewed") == ["t"] and pg.column("SELECT count(*) > 0 FROM dep") == ["t"]


# What a database allows as a name in quotes: anything but NUL, at most 63 bytes on PostgreSQL.
NAME = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda s: len(s.encode()) <= 40 and not s.lower().startswith("sqlite_"))


@settings(max_examples=HOSTILE_NAMES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow,
                                                              HealthCheck.filter_too_much])
@given(table=NAME, column=NAME, value=NAME)
def test_names_and_values_are_never_sql(db, tmp_path, table, column, value):
    """Whatever a table, a column and a value are called: exactly the rows that are meant go."""
    key, time_, status = ("k" + column, "t" + column, "s" + column)
    db.sql(f"DROP TABLE IF EXISTS {quoted(table)}")
    db.sql(f"CREATE TABLE {quoted(table)} ({quoted(key)} {db.big} PRIMARY KEY, {quoted(time_)} {db.big}, {quoted(status)} text)")
    db.sql("DROP INDEX IF EXISTS property_i")
    db.sql(f"CREATE INDEX property_i ON {quoted(table)} ({quoted(status)}, {quoted(time_)})")
    db.fill(quoted(table), [key, time_, status],
            [(1, 5, value), (2, 5, value + "x"), (3, now_ms() + DAY, value), (4, 5, value), (5, 5, None)])
    c = Contract(tmp_path, db, [{"table": table, "name": "p", "key": [key], "expires": time_, "time": "ms",
                                 "only": {status: value}}])
    ran = c.apply()
    assert ran.code == 0 and ran.json["removed"] == 2, ran.err + ran.out
    assert sorted(r[0] for r in db.sql(f"SELECT {quoted(key)} FROM {quoted(table)}")) == [2, 3, 5]
    db.sql(f"DROP TABLE {quoted(table)}")
