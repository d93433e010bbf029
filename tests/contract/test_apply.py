# SPDX-License-Identifier: Apache-2.0
"""`lapse contract apply`: exactly the due rows go, whatever the table looks like, on both engines."""
import datetime
import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid

import pytest

from world import DAY, Contract, Sqlite, lapse, now_ms, quoted

HOUR = 3_600_000


def removed(ran, code=0):
    assert ran.code == code, ran.err + ran.out
    return {row["bound"].removeprefix("shop:"): row["removed"] for row in ran.json["data"]}


def iso(ms, offset_h=0):
    zone = datetime.timezone(datetime.timedelta(hours=offset_h))
    return datetime.datetime.fromtimestamp(ms / 1000, zone).isoformat(timespec="milliseconds")


def plain(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


# Keys: how a table declares one, and the key of row i.
KEYS = {
    "integer": ("id {big} PRIMARY KEY", ["id"], lambda i: (i,)),
    "text": ("id text NOT NULL PRIMARY KEY", ["id"], lambda i: (f"k'\"\\ {i} ü",)),
    "uuid": ("id {uuid} NOT NULL PRIMARY KEY", ["id"], lambda i: (str(uuid.UUID(int=i * 7919)),)),
    "composite": ("a text NOT NULL, b {big} NOT NULL, PRIMARY KEY (a, b)", ["a", "b"], lambda i: (f"t{i % 3}", i)),
    "unique index": ("a text NOT NULL, b text NOT NULL, UNIQUE (b, a)", ["a", "b"], lambda i: (f"x{i}", f"y{i % 5}")),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_keys(db, contract, key):
    columns, names, make = key
    uuid_type = "uuid" if db.name == "postgres" else "text"
    db.sql(f"CREATE TABLE t ({columns.format(big=db.big, uuid=uuid_type)}, e {db.big}, n {db.big});"
           "CREATE INDEX i ON t (e)" if "UNIQUE" not in columns and "PRIMARY KEY (" not in columns else
           f"CREATE TABLE t (e {db.big}, n {db.big}, {columns.format(big=db.big, uuid=uuid_type)}); CREATE INDEX i ON t (e)")
    now = now_ms()
    # Many rows have the same time, so that a slice must go on by key.
    db.fill("t", [*names, "e", "n"], [(*make(i), now - HOUR if i % 2 else now + HOUR, i) for i in range(700)])
    c = contract([{"table": "t", "key": names, "expires": "e", "time": "ms"}])
    assert removed(c.apply()) == {"t": 350}
    assert sorted(db.column("SELECT n FROM t")) == list(range(0, 700, 2))
    assert removed(c.apply()) == {"t": 0}


# How times are held: (column type on each engine, `time`, value of a time in ms).
TIMES = {
    "ms": ("{big}", "ms", lambda ms: ms),
    "s": ("{big}", "s", lambda ms: ms // 1000),
    "iso8601": ("text", "iso8601", iso),
    "iso8601 with an offset": ("text", "iso8601", lambda ms: iso(ms, 9)),
    "iso8601 behind": ("text", "iso8601", lambda ms: iso(ms, -11)),
    "sqlite_datetime": ("text", "sqlite_datetime", plain),
    "text": ("text", "text", lambda ms: [iso(ms), plain(ms), iso(ms, 5), iso(ms, -7)][ms // 1000 % 4]),
}


@pytest.mark.parametrize("form", TIMES.values(), ids=TIMES.keys())
def test_times(db, contract, form):
    declared, unit, make = form
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {declared.format(big=db.big)}); CREATE INDEX i ON t (e)")
    now = now_ms() // 1000 * 1000
    hours = [-72, -30, -25, -24, -13, -2, -1, 1, 2, 13, 24, 25, 30, 72]
    db.fill("t", ["id", "e"], [(n, make(now + h * HOUR)) for n, h in enumerate(hours)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": unit}])
    assert removed(c.apply()) == {"t": 7}
    assert sorted(db.column("SELECT id FROM t")) == list(range(7, 14))


@pytest.mark.parametrize("declared", ["timestamptz", "timestamp", "date"])
def test_timestamps_of_postgres(tmp_path, pg, declared):
    """The session's zone is another than UTC: nothing may be read in it."""
    pg.sql(f"CREATE TABLE t (id bigint PRIMARY KEY, e {declared}); CREATE INDEX ON t (e)")
    now = now_ms()
    hours = [-50, -30, 30, 50] if declared == "date" else [-3, -1, 1, 3]
    rows = [(n, iso(now + h * HOUR) if declared == "timestamptz" else plain(now + h * HOUR)) for n, h in enumerate(hours)]
    rows += [(8, "infinity"), (9, "-infinity"), (10, None)]
    pg.fill("t", ["id", "e"], rows)
    assert removed(Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e"}]).apply()) == {"t": 2}
    assert sorted(pg.column("SELECT id FROM t")) == [2, 3, 8, 9, 10]


def test_unreadable_times_stay(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e text); CREATE INDEX i ON t (e)")
    texts = [None, "", "yesterday", "2020-13-45T00:00:00Z", "2020-01-01", "2020-01-01T00:00:00", "0", " 2020-01-01 00:00:00",
             "2020-01-01 00:00:00", "2020-01-01T00:00:00Z"]
    db.fill("t", ["id", "e"], list(enumerate(texts)))
    ran = contract([{"table": "t", "key": "id", "expires": "e", "time": "text"}]).apply()
    assert removed(ran) == {"t": 2}
    assert sorted(db.column("SELECT id FROM t")) == list(range(8))
    assert ran.json["data"][0]["undeletable"]["unreadable"] > 0


def test_only(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}, s text, n {db.big}, f boolean); CREATE INDEX i ON t (e)")
    truth = (1, 0) if db.name == "sqlite" else ("true", "false")
    rows = []
    for i, s in enumerate(["done", "failed", "open", None] * 5):
        rows.append((i, 5, s, i % 4, truth[i % 2]))
    db.fill("t", ["id", "e", "s", "n", "f"], rows)
    cases = [({"s": "done"}, lambda r: r[2] == "done"),
             ({"s": ["failed", "open"], "n": 1}, lambda r: r[2] in ("failed", "open") and r[3] == 1),
             ({"s": {"not": "open"}, "f": True}, lambda r: r[2] not in ("open", None) and r[4] == truth[0]),
             ({"s": None}, lambda r: r[2] is None),
             ({"s": {"not": None}}, lambda r: r[2] is not None)]
    for only, matches in cases:
        c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms", "only": only}])
        expected = [r for r in rows if matches(r)]
        assert removed(c.apply()) == {"t": len(expected)}, only
        rows = [r for r in rows if not matches(r)]
        assert sorted(db.column("SELECT id FROM t")) == [r[0] for r in rows]


def test_as_many_values_as_a_contract_may_have(db, contract):
    columns = [f"c{n}" for n in range(8)]
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}, {', '.join(c + ' text' for c in columns)}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e", *columns], [(i, 5, *(["v63"] * 7), "v63" if i % 2 else "v64") for i in range(20)])
    values = [f"v{n}" for n in range(64)]
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms", "only": {c: values for c in columns}}])
    assert removed(c.apply()) == {"t": 10}
    assert sorted(db.column("SELECT id FROM t")) == list(range(0, 20, 2))


def test_a_slice_removes_no_more_than_was_intended(db, contract):
    """The intent is written before the slice. Pages of rows that stay come first, so the slice reads several of them;
    the program ends itself where it would remove more than it wrote."""
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}, s text); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e", "s"], [(i, i, "open" if i < 100 else "done") for i in range(5000)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms", "only": {"s": "done"}, "ask_above": "100%"}])
    assert removed(c.apply()) == {"t": 4900}
    assert sorted(db.column("SELECT id FROM t")) == list(range(100))


def test_unless_referenced_and_together_with(db, contract):
    db.sql(f"CREATE TABLE inbox (id {db.big} PRIMARY KEY, at {db.big}); CREATE INDEX i ON inbox (at);"
           f"CREATE TABLE outbox (id {db.big} PRIMARY KEY, inbox_id {db.big}); CREATE INDEX j ON outbox (inbox_id);"
           f"CREATE TABLE notes (id {db.big} PRIMARY KEY, inbox_id {db.big} REFERENCES inbox (id)); CREATE INDEX k ON notes (inbox_id)")
    old = now_ms() - 8 * DAY
    db.fill("inbox", ["id", "at"], [(i, old) for i in range(20)])
    db.fill("outbox", ["id", "inbox_id"], [(i, i) for i in range(5)])
    db.fill("notes", ["id", "inbox_id"], [(i, i % 20) for i in range(60)])
    c = contract([{"table": "inbox", "key": "id", "age": {"of": "at", "keep": "7d"}, "time": "ms",
                   "unless_referenced": {"by": "outbox", "on": {"inbox_id": "id"}},
                   "together_with": [{"table": "notes", "on": {"inbox_id": "id"}}]}])
    ran = c.apply()
    assert removed(ran) == {"inbox": 15} and ran.json["data"][0]["together"] == 45
    assert sorted(db.column("SELECT id FROM inbox")) == list(range(5))
    assert db.column("SELECT count(*) FROM notes") == [15]
    assert ran.json["data"][0]["undeletable"]["protected"] == 5


@pytest.mark.parametrize("action", ["CASCADE", "RESTRICT", "NO ACTION", "SET NULL"])
def test_foreign_keys(db, contract, action):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e);"
           f"CREATE TABLE c (id {db.big} PRIMARY KEY, t {db.big} REFERENCES t (id) ON DELETE {action}); CREATE INDEX j ON c (t)")
    db.fill("t", ["id", "e"], [(i, 5) for i in range(10)])
    db.fill("c", ["id", "t"], [(i, i) for i in range(4)])
    gone = 6 if action in ("RESTRICT", "NO ACTION") else 10
    assert removed(contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}]).apply()) == {"t": gone}
    assert db.column("SELECT count(*) FROM c") == [0 if action == "CASCADE" else 4]


def test_a_table_that_refers_to_itself(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, parent {db.big} REFERENCES t (id), e {db.big});"
           "CREATE INDEX i ON t (e); CREATE INDEX j ON t (parent)")
    db.fill("t", ["id", "parent", "e"], [(0, None, 5), (1, 0, 5), (2, 1, 5), (3, 2, now_ms() + DAY)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    assert removed(c.apply()) == {"t": 0}
    db.sql("DELETE FROM t WHERE id = 3")
    total = sum(removed(c.apply())["t"] for _ in range(4))
    assert total == 3 and db.column("SELECT count(*) FROM t") == [0]


def test_an_index_that_leads_with_a_tenant(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, tenant text NOT NULL, region {db.big} NOT NULL, e {db.big});"
           "CREATE INDEX i ON t (tenant, region, e)")
    now = now_ms()
    db.fill("t", ["id", "tenant", "region", "e"],
            [(i, f"t'{i % 7}", i % 3, now - HOUR if i % 5 else now + HOUR) for i in range(1000)])
    assert removed(contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}]).apply()) == {"t": 800}
    assert db.column("SELECT count(*) FROM t") == [200]


def test_a_key_that_grows(db, contract):
    """No index on the time; rows without a time are stepped over; the walk stops behind the due ones."""
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, at {db.big})")
    now = now_ms()
    rows = [(i, None if i % 10 == 0 else now - 2 * DAY + i) for i in range(3000)]
    rows += [(3000 + i, now) for i in range(5000)] + [(9000, now - 2 * DAY)]
    db.fill("t", ["id", "at"], rows)
    db.sql("DELETE FROM t WHERE id = 9000")
    c = contract([{"table": "t", "key": "id", "age": {"of": "at", "keep": "1d"}, "time": "ms", "grows_with_key": True,
                   "ask_above": "100%"}])
    db.fill("t", ["id", "at"], [(9000, now - 2 * DAY)])  # behind a thousand rows that are not due: not found
    assert removed(c.apply()) == {"t": 2700}
    assert db.column("SELECT count(*) FROM t") == [300 + 5000 + 1]


def test_keep_newest_and_at_most(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, g text NOT NULL, at {db.big}); CREATE INDEX i ON t (g, at)")
    now = now_ms()
    rows = [(i, "old", now - 40 * DAY + i) for i in range(10)]                 # all due: the newest 3 stay
    rows += [(100 + i, "new", now - i) for i in range(10)]                     # none due: 6 are too many
    rows += [(200 + i, "same", now - 40 * DAY) for i in range(5)]              # one time: the key decides
    db.fill("t", ["id", "g", "at"], rows)
    c = contract([{"table": "t", "key": "id", "age": {"of": "at", "keep": "30d"}, "time": "ms",
                   "keep_newest": {"count": 3, "per": ["g"]}, "at_most": {"count": 4, "per": ["g"]}}])
    planned = c.plan()["shop:t"]
    assert planned["rows"] == 7 + 6 + 2 and planned["exact"]
    assert removed(c.apply()) == {"t": 7 + 6 + 2}
    assert sorted(db.column("SELECT id FROM t")) == [7, 8, 9, 100, 101, 102, 103, 202, 203, 204]


def test_at_most_leaves_what_only_excludes(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, s text, at {db.big}); CREATE INDEX i ON t (at)")
    now = now_ms()
    db.fill("t", ["id", "s", "at"], [(i, "keep" if i < 3 else "go", now + i) for i in range(10)])
    c = contract([{"table": "t", "key": "id", "age": {"of": "at", "keep": "30d"}, "time": "ms", "only": {"s": "go"},
                   "at_most": {"count": 4}}])
    assert removed(c.apply()) == {"t": 3}
    assert sorted(db.column("SELECT id FROM t")) == [0, 1, 2, 6, 7, 8, 9]


HOSTILE = ['select', 'Group By', 'a"b', "it's", 'x; DROP TABLE t; --', 'Ünï', '$1', '?1', '%s', 'a.b', '"', '\\']


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(db, contract, name):
    """As the name of the table and of every column, and as a value."""
    column = {k: f"{name}_{k}" for k in ("id", "e", "s", "r")}
    q = {k: quoted(v) for k, v in column.items()}
    other = quoted(name + " other")
    db.sql(f"CREATE TABLE {quoted(name)} ({q['id']} {db.big} PRIMARY KEY, {q['e']} {db.big}, {q['s']} text)")
    db.sql(f"CREATE INDEX hostile_i ON {quoted(name)} ({q['e']})")
    db.sql(f"CREATE TABLE {other} ({q['id']} {db.big} PRIMARY KEY, {q['r']} {db.big})")
    db.sql(f"CREATE INDEX hostile_j ON {other} ({q['r']})")
    db.sql(f"CREATE TABLE bystander (id {db.big} PRIMARY KEY)")
    db.fill("bystander", ["id"], [(1,), (2,)])
    db.fill(quoted(name), [column["id"], column["e"], column["s"]], [(1, 5, name), (2, 5, "other"), (3, 5, name)])
    db.fill(other, [column["id"], column["r"]], [(7, 1), (8, 2)])
    c = contract([{"table": name, "name": "h", "key": [column["id"]], "expires": column["e"], "time": "ms",
                   "only": {column["s"]: name},
                   "together_with": [{"table": name + " other", "on": {column["r"]: column["id"]}}]}])
    assert removed(c.apply()) == {"h": 2}
    assert [r[0] for r in db.sql(f"SELECT {q['id']} FROM {quoted(name)}")] == [2]
    assert [r[0] for r in db.sql(f"SELECT {q['id']} FROM {other}")] == [8]
    assert db.column("SELECT count(*) FROM bystander") == [2]


def test_without_rowid_and_generated_columns(tmp_path):
    db = Sqlite(tmp_path)
    db.sql("CREATE TABLE t (a TEXT, b INTEGER, at INTEGER, due INTEGER GENERATED ALWAYS AS (at + 1000) STORED, "
           "PRIMARY KEY (a, b)) WITHOUT ROWID; CREATE INDEX i ON t (due)")
    now = now_ms()
    db.fill("t", ["a", "b", "at"], [("x", i, now - HOUR if i % 2 else now + HOUR) for i in range(300)])
    c = Contract(tmp_path, db, [{"table": "t", "key": ["a", "b"], "expires": "due", "time": "ms"}])
    assert removed(c.apply()) == {"t": 150}


def test_partitions_and_another_schema(tmp_path, pg):
    pg.sql("CREATE SCHEMA \"App Data\"; CREATE TABLE \"App Data\".t (id bigint, e timestamptz NOT NULL, PRIMARY KEY (id, e))"
           " PARTITION BY RANGE (e); CREATE INDEX ON \"App Data\".t (e);"
           "CREATE TABLE \"App Data\".old PARTITION OF \"App Data\".t FOR VALUES FROM ('2000-01-01') TO ('2020-01-01');"
           "CREATE TABLE \"App Data\".new PARTITION OF \"App Data\".t FOR VALUES FROM ('2020-01-01') TO ('2100-01-01');"
           "INSERT INTO \"App Data\".t SELECT n, '2010-01-01'::timestamptz + n * interval '1 hour' FROM generate_series(1, 500) n;"
           "INSERT INTO \"App Data\".t SELECT n, now() + (n - 100) * interval '1 hour' FROM generate_series(1, 200) n")
    c = Contract(tmp_path, pg, [{"table": "t", "schema": "App Data", "key": ["id", "e"], "expires": "e", "ask_above": "100%"}])
    assert removed(c.apply()) == {"t": 600}
    assert pg.column('SELECT count(*) FROM "App Data".t') == [100]


def test_what_fails_leaves_the_other_bounds(db, contract):
    db.sql(f"CREATE TABLE a (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON a (e);"
           f"CREATE TABLE b (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX j ON b (e)")
    for table in "ab":
        db.fill(table, ["id", "e"], [(1, 5)])
    c = contract([{"table": t, "key": "id", "expires": "e", "time": "ms"} for t in ("a", "gone", "b")])
    ran = c.apply()
    assert removed(ran, 1) == {"a": 1, "gone": 0, "b": 1}
    assert "there is no table 'gone'" in ran.json["data"][1]["problem"]


def test_a_read_only_file(tmp_path):
    """Root may write any file, so as root the command runs as nobody, in a directory that nobody may enter."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="lapse-read-only-"))
    try:
        db = Sqlite(home)
        db.sql("PRAGMA journal_mode=DELETE")
        db.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, e INTEGER); CREATE INDEX i ON t (e); INSERT INTO t VALUES (1, 5)")
        c = Contract(home, db, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
        os.chmod(db.path, 0o444)
        os.chmod(home, 0o755)
        os.mkdir(c.data_dir)
        os.chmod(c.data_dir, 0o700)
        user = {}
        if os.getuid() == 0:
            user = {"user": 65534, "group": 65534, "extra_groups": []}
            os.chown(c.data_dir, 65534, 65534)
        found = lapse("contract", "check", c.path, "--json", **user)
        assert found.code == 1 and "the database is read-only" in found.json["findings"][0]["message"], found.err
        ran = lapse("contract", "apply", c.path, "--data-dir", c.data_dir, "--json", **user)
        assert ran.code == 1 and db.column("SELECT id FROM t") == [1], ran.err
    finally:
        shutil.rmtree(home)


def test_a_read_only_server(tmp_path, pg):
    """A database whose owner lets transactions only read by default is left alone."""
    pg.sql("CREATE TABLE t (id bigint PRIMARY KEY, e bigint); CREATE INDEX ON t (e); INSERT INTO t VALUES (1, 5)")
    pg.sql(f"ALTER DATABASE {pg.database} SET default_transaction_read_only = on")
    c = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    assert "the database is read-only" in c.findings("error")[0]["message"]
    ran = c.apply()
    assert removed(ran, 1) == {"t": 0} and "read-only" in ran.json["data"][0]["problem"]
    refused = c.apply("--create-lease-table")
    assert refused.code != 0 and "read-only" in refused.err + refused.out
    assert pg.column("SELECT id FROM t") == [1] and pg.column("SELECT to_regclass('lapse_leases') IS NULL") == ["t"]
    pg.sql(f"SET default_transaction_read_only = off; ALTER DATABASE {pg.database} RESET default_transaction_read_only")
    assert removed(c.apply()) == {"t": 1}


def test_generated_columns_of_postgres(tmp_path, pg):
    now = now_ms()
    pg.sql("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint, "
           "due bigint GENERATED ALWAYS AS (at + 1000) STORED); CREATE INDEX ON t (due)")
    pg.sql(f"INSERT INTO t (at) SELECT CASE WHEN n % 2 = 0 THEN {now - HOUR} ELSE {now + HOUR} END FROM generate_series(1, 300) n")
    c = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "due", "time": "ms"}])
    assert removed(c.apply()) == {"t": 150}
    assert pg.column(f"SELECT count(*) FROM t WHERE at > {now}") == [150]


def test_a_table_with_a_rewrite_rule(tmp_path, pg):
    """CREATE RULE … DO ALSO: its action runs, as for any DELETE."""
    pg.sql("CREATE TABLE t (id bigint PRIMARY KEY, e bigint); CREATE INDEX ON t (e); CREATE TABLE record (id bigint);"
           "CREATE RULE remember AS ON DELETE TO t DO ALSO INSERT INTO record VALUES (OLD.id);"
           "INSERT INTO t SELECT n, CASE WHEN n % 2 = 0 THEN 5 ELSE 9000000000000 END FROM generate_series(1, 300) n")
    c = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    assert removed(c.apply()) == {"t": 150}
    assert pg.column("SELECT count(*) FROM t") == [150] and pg.column("SELECT count(*) FROM record") == [150]


def test_triggers_run_and_may_keep_a_row(db, contract):
    """One trigger records every deletion, another refuses some: what is told is what is gone, and the sweep ends."""
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e);"
           f"CREATE TABLE record (id {db.big})")
    if db.name == "sqlite":
        db.sql("CREATE TRIGGER keeper BEFORE DELETE ON t WHEN OLD.id % 3 = 0 BEGIN SELECT RAISE(IGNORE); END;"
               "CREATE TRIGGER recorder AFTER DELETE ON t BEGIN INSERT INTO record VALUES (OLD.id); END")
    else:
        db.sql("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id % 3 = 0 THEN RETURN NULL; END IF; "
               "INSERT INTO record VALUES (OLD.id); RETURN OLD; END $$;"
               "CREATE TRIGGER keeper BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()")
    db.fill("t", ["id", "e"], [(i, 5 + i % 7) for i in range(3000)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms", "ask_above": "100%", "rows_per_second": 0}])
    assert removed(c.apply()) == {"t": 2000}
    assert db.column("SELECT count(*) FROM t WHERE id % 3 = 0") == [1000] and db.column("SELECT count(*) FROM t") == [1000]
    assert db.column("SELECT count(*) FROM record") == [2000]
    assert removed(c.apply()) == {"t": 0}


def test_a_role_that_may_not_delete(tmp_path, pg):
    pg.sql("CREATE TABLE t (id bigint PRIMARY KEY, e bigint); CREATE INDEX ON t (e); INSERT INTO t VALUES (1, 5);"
           "CREATE ROLE looker LOGIN; GRANT SELECT ON t TO looker")
    pg.uri = pg.uri_of("looker")
    ran = Contract(tmp_path, pg, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}]).apply()
    assert removed(ran, 1) == {"t": 0} and "may not delete rows of 't'" in ran.json["data"][0]["problem"]


def test_a_writer_that_holds_a_lock(db, contract, tmp_path):
    """A row that another session has locked stays, and goes with the next sweep; a whole SQLite file that is
    locked fails the bound, and removes nothing."""
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(i, 5) for i in range(10)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    if db.name == "sqlite":
        holder = sqlite3.connect(db.path, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(2.5, lambda: holder.execute("ROLLBACK"))
        timer.start()
        ran = c.apply()
        timer.join()
        holder.close()
        assert removed(ran) == {"t": 10}  # tried again until the lock was gone
        return
    thread = threading.Thread(target=db.sql, args=("BEGIN; SELECT * FROM t WHERE id < 4 FOR UPDATE; SELECT pg_sleep(3); COMMIT",))
    thread.start()
    time.sleep(0.7)
    ran = c.apply()
    assert removed(ran) == {"t": 6} and ran.json["data"][0]["undeletable"]["locked"] == 4
    thread.join()
    assert removed(c.apply()) == {"t": 4}


def test_a_reader_with_a_long_transaction_does_not_matter(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(i, 5) for i in range(10)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    if db.name == "sqlite":
        reader = sqlite3.connect(db.path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchall()
        assert removed(c.apply()) == {"t": 10}
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (10,)
        reader.close()
        return
    thread = threading.Thread(target=db.sql, args=("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t; SELECT pg_sleep(2); COMMIT",))
    thread.start()
    time.sleep(0.5)
    assert removed(c.apply()) == {"t": 10}
    thread.join()


def test_large_removals_are_paced_and_adapt(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(i, i % 50) for i in range(20_000)])
    bound = {"table": "t", "key": "id", "expires": "e", "time": "ms", "ask_above": "100%"}
    c = contract([{**bound, "rows_per_second": 20_000}])
    began = time.monotonic()
    assert removed(c.apply()) == {"t": 20_000}
    assert time.monotonic() - began >= 0.8


def test_a_first_sweep_of_most_rows_asks(db, contract, tmp_path):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(i, 5) for i in range(1500)])
    bound = {"table": "t", "key": "id", "expires": "e", "time": "ms"}
    c = contract([bound])
    assert c.plan()["shop:t"]["asks"]
    ran = c.apply()
    assert removed(ran, 1) == {"t": 0} and ran.json["data"][0]["waits_for_approval"]
    c.write([{**bound, "ask_min_rows": 2000}])
    assert removed(c.apply()) == {"t": 1500}


def test_journal_mode_and_log_stay(tmp_path):
    db = Sqlite(tmp_path)
    db.sql("PRAGMA journal_mode=DELETE")
    db.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, e INTEGER); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(1, 5)])
    assert removed(Contract(tmp_path, db, [{"table": "t", "key": "id", "expires": "e", "time": "ms"}]).apply()) == {"t": 1}
    assert db.sql("PRAGMA journal_mode") == [("delete",)]


def test_the_lease_table_is_made_when_asked(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e)")
    db.fill("t", ["id", "e"], [(1, 5)])
    c = contract([{"table": "t", "key": "id", "expires": "e", "time": "ms"}])
    assert removed(c.apply("--create-lease-table")) == {"t": 1}
    assert db.sql("SELECT scheduler, token, expires_at_ms FROM lapse_leases") == [("shop:s", 1, 0)]
    assert removed(c.apply()) == {"t": 0}
    assert db.column("SELECT token FROM lapse_leases") == [2]
