# SPDX-License-Identifier: Apache-2.0
"""`lapse contract check`: what it finds in databases that look like real ones, on both engines."""
import os
import sqlite3

import pytest

from world import DAY, Contract, lapse, now_ms

KEYED = {"key": ["id"], "expires": "e"}
AGED = {"key": ["id"], "age": {"of": "e", "keep": "1d"}}

# A schema ({big} is a 64-bit integer), a bound, and the (level, part of the message) of every finding
# that is no note.
CASES = {
    "an index leads with the time": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", "time": "ms", **KEYED}, []),
    "no index": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big})",
        {"table": "t", "time": "ms", **KEYED}, [("error", "no index leads to the due rows")]),
    "a partial index does not count": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e) WHERE e > 5",
        {"table": "t", "time": "ms", **KEYED}, [("error", "no index leads")]),
    "a tenant before the time": (
        "CREATE TABLE t (id {big} PRIMARY KEY, tenant text NOT NULL, e {big}); CREATE INDEX i ON t (tenant, e)",
        {"table": "t", "time": "ms", **KEYED}, []),
    "a tenant that may be NULL": (
        "CREATE TABLE t (id {big} PRIMARY KEY, tenant text, e {big}); CREATE INDEX i ON t (tenant, e)",
        {"table": "t", "time": "ms", **KEYED}, [("error", "no index leads")]),
    "a column that `only` fixes": (
        "CREATE TABLE t (id {big} PRIMARY KEY, status text, e {big}); CREATE INDEX i ON t (status, e)",
        {"table": "t", "time": "ms", "only": {"status": "done"}, **KEYED}, []),
    "the key grows with the time": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big})",
        {"table": "t", "time": "ms", "grows_with_key": True, **AGED}, []),
    "no such table": (
        "CREATE TABLE tasks (id {big} PRIMARY KEY, e {big})",
        {"table": "task", "time": "ms", **KEYED}, [("error", "there is no table 'task'; did you mean 'tasks'?")]),
    "no such column": (
        "CREATE TABLE t (id {big} PRIMARY KEY, expires {big}); CREATE INDEX i ON t (expires)",
        {"table": "t", "key": ["id"], "expires": "expirs", "time": "ms"},
        [("error", "'t' has no column 'expirs'; did you mean 'expires'?")]),
    "several mistakes at once": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", "key": ["idd"], "expires": "f", "time": "ms", "only": {"statuss": 1}},
        [("error", "no column 'idd'; did you mean 'id'?"), ("error", "no column 'f'"),
         ("error", "no column 'statuss'")]),
    "a key that is not unique": (
        "CREATE TABLE t (id {big} PRIMARY KEY, a {big} NOT NULL, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", "key": ["a"], "expires": "e", "time": "ms"},
        [("error", "no primary key or unique index of 't' has exactly the columns of 'key'")]),
    "a unique index in another order": (
        "CREATE TABLE t (a {big} NOT NULL, b {big} NOT NULL, e {big}, UNIQUE (b, a)); CREATE INDEX i ON t (e)",
        {"table": "t", "key": ["a", "b"], "expires": "e", "time": "ms"}, []),
    "a unique index that may be NULL": (
        "CREATE TABLE t (a {big} UNIQUE, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", "key": ["a"], "expires": "e", "time": "ms"}, [("error", "the key column 'a' may be NULL")]),
    "milliseconds or seconds": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", **KEYED}, [("error", "set 'time: ms' or 'time: s'")]),
    "a column that holds no time": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e boolean); CREATE INDEX i ON t (e)",
        {"table": "t", **KEYED}, [("error", "'e' is of type boolean, which holds no time")]),
    "milliseconds in a text": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e text); CREATE INDEX i ON t (e)",
        {"table": "t", "time": "ms", **KEYED}, [("error", "'e' is of type")]),
    "a view": (
        "CREATE TABLE u (id {big} PRIMARY KEY, e {big}); CREATE VIEW t AS SELECT * FROM u",
        {"table": "t", "time": "ms", **KEYED}, [("error", "'t' is a view")]),
    "a foreign key that blocks": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e);"
        "CREATE TABLE c (id {big} PRIMARY KEY, t {big} REFERENCES t (id)); CREATE INDEX j ON c (t)",
        {"table": "t", "time": "ms", **KEYED},
        [("warning", "a foreign key of 'c' (0 rows, ON DELETE NO ACTION) keeps rows it refers to")]),
    "a foreign key that cascades": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e);"
        "CREATE TABLE c (id {big} PRIMARY KEY, t {big} REFERENCES t (id) ON DELETE CASCADE); CREATE INDEX j ON c (t);"
        "INSERT INTO t VALUES (1, 5); INSERT INTO c VALUES (1, 1), (2, 1)",
        {"table": "t", "time": "ms", **KEYED},
        [("warning", "deleting a row also deletes rows of 'c' (2 rows, ON DELETE CASCADE)")]),
    "a foreign key that the contract knows": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e);"
        "CREATE TABLE c (id {big} PRIMARY KEY, t {big} REFERENCES t (id)); CREATE INDEX j ON c (t)",
        {"table": "t", "time": "ms", "unless_referenced": {"by": "c", "on": {"t": "id"}}, **KEYED}, []),
    "a foreign key without an index": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e);"
        "CREATE TABLE c (id {big} PRIMARY KEY, t {big} REFERENCES t (id) ON DELETE SET NULL)",
        {"table": "t", "time": "ms", **KEYED},
        [("warning", "also changes rows of 'c'"), ("warning", "reads the whole of 'c'")]),
    "a reference without an index": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e {big}); CREATE INDEX i ON t (e);"
        "CREATE TABLE c (id {big} PRIMARY KEY, t {big})",
        {"table": "t", "time": "ms", "together_with": [{"table": "c", "on": {"t": "id"}}], **KEYED},
        [("error", "looking up rows of 'c' needs an index")]),
    "keep_newest without an index": (
        "CREATE TABLE t (id {big} PRIMARY KEY, g text, e {big}); CREATE INDEX i ON t (e)",
        {"table": "t", "time": "ms", "keep_newest": {"count": 3, "per": ["g"]}, **AGED},
        [("error", "'keep_newest' needs an index on its groups and the time")]),
    "at_most of a text": (
        "CREATE TABLE t (id {big} PRIMARY KEY, e text); CREATE INDEX i ON t (e)",
        {"table": "t", "at_most": {"count": 3}, **AGED},
        [("error", "need times that sort as they are: not text")]),
}


def serious(contract):
    return [f for f in contract.findings() if f["level"] != "note"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_found(db, contract, case):
    schema, bound, wanted = case
    db.sql(schema.format(big=db.big))
    c = contract([bound])
    found = serious(c)
    assert len(found) == len(wanted), found
    for finding, (level, part) in zip(found, wanted):
        assert finding["level"] == level and part in finding["message"], finding
        assert finding["line"] > 1 and finding["bound"].startswith("shop:")
    assert c.check().code == (1 if wanted else 0)


def test_the_index_it_asks_for_is_enough(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, g text NOT NULL, s text, e {db.big})")
    c = contract([{"table": "t", "time": "ms", "only": {"s": "x"}, "at_most": {"count": 3, "per": ["g"]}, **AGED}])
    for _ in range(3):
        fixes = [f["fix"] for f in serious(c) if f["fix"]]
        for fix in fixes:
            db.sql(fix.rstrip(";"))
    assert serious(c) == []


def test_units_are_told(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, a {db.big}, b {db.big}, c_ms {db.big}, d text);"
           "CREATE INDEX i1 ON t (a); CREATE INDEX i2 ON t (b); CREATE INDEX i3 ON t (c_ms); CREATE INDEX i4 ON t (d)")
    db.sql(f"INSERT INTO t VALUES (1, {now_ms()}, {now_ms() // 1000}, 5, '2026-01-01')")
    c = contract([{"name": n, "table": "t", "key": "id", "expires": n} for n in ("a", "b", "c_ms", "d")])
    times = {b["bound"]: b["time"] for b in c.check().json["bounds"]}
    assert times == {"shop:a": "ms", "shop:b": "s", "shop:c_ms": "ms", "shop:d": "text"}
    assert any("seems to hold seconds" in f["message"] for f in c.findings("note"))


def test_a_key_that_does_not_grow_is_refused(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big})")
    db.fill("t", ["id", "e"], [(i, now_ms() - i * DAY) for i in range(50)])
    found = serious(contract([{"table": "t", "time": "ms", "grows_with_key": True, **AGED}]))
    assert ["does not grow with" in f["message"] for f in found] == [True]


def test_many_values_before_the_time_are_refused(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, u {db.big} NOT NULL, e {db.big}); CREATE INDEX i ON t (u, e)")
    db.fill("t", ["id", "u", "e"], [(i, i, 5) for i in range(10_050)])
    found = serious(contract([{"table": "t", "time": "ms", **KEYED}]))
    assert ["many values" in f["message"] for f in found] == [True]


def test_triggers_and_untimed_rows_are_named(db, contract):
    db.sql(f"CREATE TABLE t (id {db.big} PRIMARY KEY, e {db.big}); CREATE INDEX i ON t (e);"
           "INSERT INTO t VALUES (1, NULL), (2, NULL), (3, 5)")
    if db.name == "sqlite":
        db.sql("CREATE TRIGGER bell AFTER DELETE ON t BEGIN SELECT 1; END;")
    else:
        db.sql("CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
               "CREATE TRIGGER bell AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION ring()")
    c = contract([{"table": "t", "time": "ms", **KEYED}])
    notes = [f["message"] for f in c.findings("note")]
    assert "the trigger 'bell' runs on each deletion" in notes
    assert "2 rows have no 'e' and are undeletable" in notes
    assert c.check().code == 0


def test_a_file_or_database_that_cannot_be_read(tmp_path, db):
    broken = tmp_path / "broken.yaml"
    broken.write_text("contract: 1\nnam: shop\n")
    ran = lapse("contract", "check", broken)
    assert ran.code == 2 and f"{broken}:2:1: unknown field 'nam' in a contract; did you mean 'name'?" in ran.err
    away = Contract(tmp_path, db, [{"table": "t", **KEYED}])
    db.uri = "sqlite:/nonexistent/app.db" if db.name == "sqlite" else "postgresql:///x?host=/nonexistent"
    away.write([{"table": "t", **KEYED}])
    ran = away.check()
    assert ran.code == 2 and "cannot" in ran.err


def test_a_password_is_never_repeated(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("contract: 1\nname: a\ndatabase: ${U}\nschedulers: {s: {every: 1m}}\n"
                    "bounds: [{table: t, scheduler: s, key: id, expires: e}]\n")
    ran = lapse("contract", "check", path, env={"U": "postgresql://u:hunter2@127.0.0.1:1/x"})
    assert ran.code == 2 and "hunter2" not in ran.err + ran.out


def test_our_own_store_is_refused(tmp_path):
    data = tmp_path / "data"
    os.makedirs(data)
    path = str(data / "app.db")
    connection = sqlite3.connect(path)
    for table in ("holds", "idempotency_keys", "sweeps", "cleanups", "counts"):
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    connection.close()
    ran = lapse("contract", "init", f"sqlite:{path}")
    assert ran.code == 2 and "lapse's own store" in ran.err


# What only PostgreSQL has.

def test_another_schema(tmp_path, pg):
    pg.sql("CREATE SCHEMA app; CREATE TABLE app.t (id bigint PRIMARY KEY, e timestamptz); CREATE INDEX ON app.t (e)")
    here = Contract(tmp_path, pg, [{"table": "t", **KEYED}])
    assert "there is no table public.t, but app.t: set 'schema'" in here.findings("error")[0]["message"]
    here.write([{"table": "t", "schema": "app", **KEYED}])
    assert here.findings("error") == []


def test_a_role_without_rights(tmp_path, pg):
    pg.sql("CREATE TABLE t (id bigint PRIMARY KEY, e timestamptz); CREATE INDEX ON t (e);"
           "CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader")
    pg.uri = pg.uri_of("reader")
    c = Contract(tmp_path, pg, [{"table": "t", **KEYED}])
    assert [f["message"] for f in c.findings("error")] == ["the connection may not delete rows of 't'"]


def test_a_value_that_the_type_refuses(tmp_path, pg):
    pg.sql("CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (id bigint PRIMARY KEY, m mood, e timestamptz);"
           "CREATE INDEX ON t (e)")
    c = Contract(tmp_path, pg, [{"table": "t", "only": {"m": "baad"}, **KEYED}])
    assert "invalid input value for enum" in c.findings("error")[0]["message"]


def test_a_partitioned_table(tmp_path, pg):
    pg.sql("CREATE TABLE t (id bigint, e timestamptz NOT NULL, PRIMARY KEY (id, e)) PARTITION BY RANGE (e);"
           "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM ('2020-01-01') TO ('2030-01-01'); CREATE INDEX ON t (e)")
    c = Contract(tmp_path, pg, [{"table": "t", "key": ["id", "e"], "expires": "e"}])
    assert serious(c) == []
