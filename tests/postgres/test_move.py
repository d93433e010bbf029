# SPDX-License-Identifier: Apache-2.0
"""`lapse migrate`: everything of a SQLite store arrives in PostgreSQL, also when it is interrupted."""
import contextlib
import hashlib
import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess

import pytest

from harness import ROOT, Daemon, run_to_end, wait_until
from postgres import postgres_server  # noqa: F401 (a fixture)
from pq import Connection

LAPSE = os.environ.get("LAPSE") or str(ROOT / "build-dev" / "lapse")
_names = itertools.count(1)

HOSTILE = ["\\", "\\.", "\\N", "\t\n\r\b\f\v", "a\\tb\\\\n", "'\"`$1--;/*", "\x01\x7f", "ß€𝄞\u202e", "{}", "NULL", " ", "x" * 70_000]
NUMBERS = [0, -1, 1, 2**31, -2**63, 2**63 - 1]


@pytest.fixture
def url(postgres_server):  # noqa: F811
    return postgres_server.make_database(f"move-{next(_names)}")


@pytest.fixture
def source(tmp_path):
    """The data directory of a store that lapsed has made, with one of most things in it."""
    data_dir = tmp_path / "data"
    with Daemon(data_dir, store="sqlite", message_tail_max=1000) as daemon:
        fill(daemon.client())
    return data_dir


def fill(api):
    for i in range(20):
        api.send(f"agent-{i % 5}", content=HOSTILE[i % len(HOSTILE)] + str(i))
    read = api.send("reader", content="done")
    api.read("reader", read["id"])
    api.post("/v1/agents/a/heartbeat", {"cluster_id": "c", "capabilities": ["b", "a"]}).ok()
    api.stage(b"bytes \0 of a file" * 1000)
    api.post("/v1/mailboxes", {}).ok(201)


def lapse(*words, code=0, **options):
    done = subprocess.run([LAPSE, *map(str, words)], capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def migrate(source, url, *more, code=0):
    return lapse("migrate", "--from", f"sqlite:{source}", "--to", url, "--yes", *more, code=code)


@contextlib.contextmanager
def sqlite(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


def tables_of(db):
    return [name for name, in db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name")]


def columns_of(db, table):
    return [(name, kind, bool(notnull or key), key) for _, name, kind, notnull, _, key in db.execute(f"PRAGMA table_info({table})")]


def contents(path):
    """{table: rows as texts, in order}"""
    with sqlite(path) as db:
        return {table: sorted(tuple(None if value is None else str(value) for value in row)
                              for row in db.execute(f"SELECT * FROM {table}"))
                for table in tables_of(db)}


def contents_there(url, tables):
    with Connection(url) as db:
        return {table: sorted(tuple(None if value is None else str(value) for value in row.values())
                              for row in db.run(f"SELECT * FROM {table}"))
                for table in tables}


def widen(path, rows=len(HOSTILE)):
    """Puts rows into every table, whatever it is: hostile texts, extreme numbers, NULL where it may be."""
    with sqlite(path) as db:
        for table in tables_of(db):
            columns = columns_of(db, table)
            for i in range(rows):
                values = [value_for(table, i, *column) for column in columns]
                db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        return tables_of(db)


# What the check before a move, and code that reads the rows, insist on.
KNOWN = {"owner": "local", "capabilities": "[]", "metadata": "{}", "data": "{}", "payload": "{}", "attachments": "[]",
         "recipients": "[]", "cc": "[]", "types": "[]"}


PLAIN = {"agent", "key", "tbl", "name", "address", "state", "checksum", "prefix", "target", "kind", "cluster_id", "sender", "hash"}


def value_for(table, i, name, kind, needed, key):
    if kind == "INTEGER":
        if key:
            return 1 if table == "models_dev_cache" else i + 1_000  # which has one row
        return None if not needed and i % 3 == 0 else NUMBERS[i % len(NUMBERS)]
    if key or name in PLAIN:
        return hashlib.sha256(f"{table} {name} {i}".encode()).hexdigest()
    if name in KNOWN:
        return KNOWN[name]
    return None if not needed and i % 3 == 0 else HOSTILE[i % len(HOSTILE)][:1000]


def counters(api):
    return {agent: (row["total"], row["unread"]) for agent, row in api.stats().items()}


def test_a_daemon_on_the_result_sees_everything(source, url):
    with Daemon(source, store="sqlite") as daemon:
        before = {agent: daemon.client().inbox(agent) for agent in [f"agent-{i}" for i in range(5)] + ["reader"]}
        stats = counters(daemon.client())
        files = daemon.client().attachments()
        mailboxes = daemon.client().get("/v1/mailboxes").ok()["data"]
    with sqlite(source / "lapse.db") as db:
        filed, = db.execute("SELECT count(*) FROM messages_unread").fetchone()
        assert filed < 20, "the tail is not filed: that is what the next start must find"
    said = migrate(source, url).stdout
    assert re.search(r"^messages +21 rows  [0-9a-f]{64}$", said, re.M), said
    assert not (source / "lapse.db").exists() and list(source.glob("lapse.db.moved-*"))
    with Daemon(source, store=url) as daemon:
        api = daemon.client()
        assert {agent: api.inbox(agent) for agent in before} == before
        assert counters(api) == stats
        assert api.attachments() == files and len(files) == 1
        assert api.content(files[0]["checksum"]).body == b"bytes \0 of a file" * 1000
        assert api.get("/v1/mailboxes").ok()["data"] == mailboxes
        assert [one["agent_id"] for one in api.get("/v1/agents").ok()["data"]] == ["a"]
        assert len(api.claim("agent-0").ok()["data"]) == 4
        sent = api.send("agent-0", content="new")
        assert api.inbox("agent-0")[0] == sent


def test_every_table_arrives_row_by_row(source, url):
    """Of every table there is: one that a later schema adds is moved without a word here, and checked here, too."""
    tables = widen(source / "lapse.db")
    before = contents(source / "lapse.db")
    assert all(before.values()), f"nothing was put into {[table for table, rows in before.items() if not rows]}"
    report = json.loads(migrate(source, url, "--json").stdout)
    assert {one["table"]: one["rows"] for one in report["tables"]} == {table: len(rows) for table, rows in before.items()}
    assert contents_there(url, tables) == before
    assert report["kept"].startswith(str(source)) and not report["resumed"]


def many_messages(source, n):
    with sqlite(source / "lapse.db") as db:
        columns = {name: "NULL" if not needed else "0" if kind == "INTEGER" else "''"
                   for name, kind, needed, _ in columns_of(db, "messages")}
        values = {"id": "value", "read": "0", "event": "0", "timestamp": "1", "owner": "'local'", "agent": "'many'",
                  "sender": "'s'", "type": "'text'", "metadata": "'{}'", "content": "hex(randomblob(500))"}
        db.execute("BEGIN")
        db.execute(f"WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {n}) "
                   f"INSERT INTO messages ({', '.join(columns)}) "
                   f"SELECT {', '.join(values.get(name, other) for name, other in columns.items())} FROM n")
        db.execute("COMMIT")


def kill_when(source, url, is_time):
    """Starts a move and kills it once is_time() says so; False = it was done before."""
    process = subprocess.Popen([LAPSE, "migrate", "--from", f"sqlite:{source}", "--to", url, "--yes"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: process.poll() is not None or is_time(), timeout_s=60, every_s=0.001)
    finally:
        process.kill()
        process.communicate()
    return process.returncode == -signal.SIGKILL


def there(url, sql):
    with Connection(url) as db:
        return db.run(sql)[0]["n"]


def has_rows(url, n):
    exists = there(url, "SELECT count(*) AS n FROM pg_class WHERE relname = 'messages'")
    return exists and there(url, "SELECT count(*) AS n FROM messages") >= n


def test_an_interrupted_move_goes_on(source, url, tmp_path):
    many_messages(source, 20_000)
    before = contents(source / "lapse.db")
    assert kill_when(source, url, lambda: has_rows(url, 1))
    wait_until(lambda: there(url, "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'lapsed' "
                             "AND datname = current_database()") == 0, what="the server has noticed")
    begun = there(url, "SELECT count(*) AS n FROM messages")
    assert 0 < begun < 20_000
    code, said = run_to_end(tmp_path / "early", f"--store={url}")
    assert code == 1 and "a move into this database was not finished" in said, said
    report = json.loads(migrate(source, url, "--json").stdout)
    assert report["resumed"] and contents_there(url, before) == before


def test_a_source_that_changed_in_between_is_copied_as_it_is_now(source, url):
    many_messages(source, 20_000)
    assert kill_when(source, url, lambda: has_rows(url, 1))
    with sqlite(source / "lapse.db") as db:
        db.execute("UPDATE messages SET content = 'changed' WHERE id = 1")
        db.execute("DELETE FROM messages WHERE id = 2")
    before = contents(source / "lapse.db")
    report = json.loads(migrate(source, url, "--json").stdout)
    assert report["resumed"] and contents_there(url, before) == before


def test_killed_at_the_very_end(source, url):
    """Both sides are the same, the source has its new name, and lapse_move is still there."""
    rows = contents(source / "lapse.db")
    migrate(source, url)
    with Connection(url) as db:
        db.run("CREATE TABLE lapse_move (state bigint, source bigint, schema_version bigint)")
        db.run("INSERT INTO lapse_move VALUES (3, 0, 0)")
    assert json.loads(migrate(source, url, "--json").stdout)["resumed"]
    assert there(url, "SELECT count(*) AS n FROM pg_class WHERE relname = 'lapse_move'") == 0
    assert contents_there(url, rows)["messages"] == rows["messages"]
    assert "there is no database" in migrate(source, url, code=5).stderr


# What it refuses ---------------------------------------------------------------------------------

def test_a_source_that_is_in_use_is_refused(source, url):
    with Daemon(source, store="sqlite"):
        assert "is in use by process" in migrate(source, url, code=1).stderr
    assert there(url, "SELECT count(*) AS n FROM pg_class WHERE relname = 'meta'") == 0


def test_a_target_that_is_in_use_is_refused(source, url, tmp_path):
    with Daemon(tmp_path / "other", store=url):
        assert "another lapsed uses this database" in migrate(source, url, code=1).stderr


@pytest.mark.parametrize("sql", ["CREATE TABLE theirs (a int)", "CREATE SCHEMA s; CREATE VIEW s.theirs AS SELECT 1"])
def test_a_target_with_other_data_is_refused(source, url, sql):
    with Connection(url) as db:
        db.run(sql)
    assert re.search(r"the target has data already \(\w+\.theirs, for one\)", migrate(source, url, code=1).stderr)
    assert (source / "lapse.db").exists()


def test_a_target_that_another_store_was_moving_to_is_refused(source, url, tmp_path):
    other = tmp_path / "other"
    with Daemon(other, store="sqlite"):
        pass
    with sqlite(other / "lapse.db") as db:
        db.execute("UPDATE meta SET value = value + 1 WHERE key = 'created_at'")
    many_messages(source, 20_000)
    assert kill_when(source, url, lambda: has_rows(url, 1))
    wait_until(lambda: "a part of another store" in migrate(other, url, code=1).stderr)


@pytest.mark.parametrize("words, code, said", [
    (["--from", "sqlite:/nowhere", "--to", "postgresql:///x?host=/nowhere"], 5, "there is no directory /nowhere"),
    (["--from", "/nowhere", "--to", "postgresql:///x"], 2, "--from must be sqlite:DIR"),
    (["--from", "sqlite:", "--to", "postgresql:///x"], 2, "--from must be sqlite:DIR"),
    (["--from", "sqlite:/nowhere", "--to", "postgresql://u:hunter2@h/x"], 2, "can be read by everybody"),
    (["--from", "sqlite:/nowhere"], 2, "--to"),
])
def test_what_the_command_line_must_be(words, code, said):
    ran = lapse("migrate", "--yes", *words, code=code)
    assert said in ran.stderr and "hunter2" not in ran.stderr


def test_a_target_that_is_away(source):
    assert "cannot use the database" in migrate(source, "postgresql:///x?host=/nowhere", code=4).stderr
    assert (source / "lapse.db").exists()


def test_text_that_postgresql_does_not_take_is_named(source, url):
    with sqlite(source / "lapse.db") as db:
        db.execute("UPDATE messages SET content = CAST(x'ff61' AS TEXT)")
    said = migrate(source, url, code=1).stderr
    assert "a row of messages has a value in content" in said, said


def test_a_damaged_source_is_refused(source, url):
    path = source / "lapse.db"
    data = bytearray(path.read_bytes())
    for i in range(4096 * 3, len(data), 4096):
        data[i:i + 512] = os.urandom(512)
    path.write_bytes(data)
    migrate(source, url, code=1)


def test_the_uri_may_come_from_a_file_here_too(source, url, tmp_path):
    path = tmp_path / "uri"
    path.write_text(url + "\n")
    path.chmod(0o600)
    migrate(source, f"@{path}")
