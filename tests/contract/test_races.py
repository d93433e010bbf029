# SPDX-License-Identifier: Apache-2.0
"""Rows that are renewed, referenced and held while a sweep removes them: what committed first wins. On
PostgreSQL, where several sessions write one table at once."""
import concurrent.futures
import os
import threading
from urllib.parse import quote

import pytest
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


HOLDS_AT_ONCE = 50


class Holds:
    """Due rows appear, and every third one is held, a batch at a time. A hold that was answered while its row is there keeps
    the row until it is released, which is looked at when the next batch has been placed."""

    def __init__(self, pg, daemon, first):
        self.pg, self.daemon, self.next, self.kept, self.lost = pg, daemon, first, 0, []

    def path(self, key):
        return f"/v1/holds/{quote('shop:t')}/{key}"

    def there(self, keys):
        return self.pg.column(f"SELECT id FROM t WHERE id IN ({', '.join(map(str, [-1, *keys]))})")

    def place(self, n):
        keys = range(self.next, self.next + 3 * n, 3)
        self.next += 3 * n
        self.pg.sql(f"INSERT INTO t SELECT n, 5 FROM generate_series({keys[0]}, {self.next - 1}) n")
        self.for_each(keys, "PUT", {"reason": "race"})
        return keys, self.there(keys)

    def look_and_release(self, keys, held):
        now = set(self.there(held))
        self.lost += [key for key in held if key not in now]
        self.kept += len(held)
        self.for_each(keys, "DELETE")

    def for_each(self, keys, method, body=None):
        """Several at once: each waits for the slice under way."""
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda key: self.daemon.call(method, self.path(key), body), keys))

    def run(self):
        before, left = ([], []), ROUNDS
        while left > 0:
            batch = self.place(min(HOLDS_AT_ONCE, left))
            left -= HOLDS_AT_ONCE
            self.look_and_release(*before)
            before = batch
        self.look_and_release(*before)


@pytest.mark.parametrize("plain", [False, True], ids=["in two statements", "at once"])
def test_what_committed_first_wins(pg, tmp_path, plain):
    """A plain bound without holds goes by one statement for each slice; one with dependents or holds by two."""
    rows = max(ROUNDS * 2, 2000)
    pg.sql(SCHEMA)
    pg.sql(f"INSERT INTO t SELECT n, 5 FROM generate_series(0, {rows - 1}) n")
    bound = {"table": "t", "key": "id", "expires": "e", "time": "ms", "slice_ms": 5, "ask_above": "100%", "rows_per_second": 4000}
    if not plain:
        bound["unless_referenced"] = {"by": "dep", "on": {"t": "id"}}
    c = Contract(tmp_path, pg, [bound], every="20ms")
    with Daemon(tmp_path / "d", c) as d:
        holds = Holds(pg, d, rows)
        renew, refer = f"CALL renew({ROUNDS}, {rows})", f"CALL refer({ROUNDS}, {rows})"
        in_threads(lambda: pg.sql(renew), *([] if plain else [lambda: pg.sql(refer), holds.run]))
        stays = "e >= 9000000000000 OR EXISTS (SELECT 1 FROM dep WHERE dep.t = t.id)"
        until(lambda: pg.column(f"SELECT count(*) FROM t WHERE NOT ({stays})") == [0], 120)
        assert d.row("shop:t")["problem"] is None
    assert pg.column("SELECT count(*) FROM renewed r WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = r.id)") == [0]
    assert pg.column("SELECT count(*) FROM dep WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = dep.t)") == [0]
    assert holds.lost == []
    # All of it happened while rows went: otherwise nothing raced.
    assert pg.column("SELECT count(*) > 0 FROM renewed") == ["t"] and pg.column(f"SELECT count(*) < {rows} FROM t") == ["t"]
    assert plain or (holds.kept and pg.column("SELECT count(*) > 0 FROM dep") == ["t"])


def test_a_row_renewed_under_the_statement_that_deletes_it_stays(pg, tmp_path):
    """The statement has begun, and is at another row, when this one is renewed: it is judged again."""
    pg.sql("CREATE TABLE t (id bigint PRIMARY KEY, e bigint NOT NULL); CREATE INDEX ON t (e);"
           "INSERT INTO t SELECT n, 5 FROM generate_series(1, 20) n;"
           "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
           "WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 77) LOOP PERFORM pg_sleep(0.02); "
           "END LOOP; RETURN OLD; END $$;"
           "CREATE TRIGGER waits BEFORE DELETE ON t FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION wait()")
    c = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    ran = []

    def renew():
        until(lambda: pg.column("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%DELETE%' "
                                "AND pid <> pg_backend_pid()") == [1])
        pg.sql("UPDATE t SET e = 9000000000000 WHERE id IN (7, 20); SELECT pg_advisory_lock(77); SELECT pg_sleep(1)")

    in_threads(lambda: ran.append(c.apply()), renew)
    assert ran[0].code == 0 and ran[0].json["removed"] == 18, ran[0].err + ran[0].out
    assert pg.column("SELECT id FROM t ORDER BY id") == [7, 20]


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
