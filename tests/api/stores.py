# SPDX-License-Identifier: Apache-2.0
"""What a test daemon keeps its data in: SQLite in its directory, or with TEST_STORE=postgres a database
of its own on a private PostgreSQL server, one server for each test process.

Time. lapsed takes its time from its database, so a test that owns the clock owns the database's, too:
such a database has a function clock_timestamp() of its own, which PostgreSQL finds before the built-in
one and which reads the very file that libfaketime reads. The server itself keeps real time."""
import atexit
import contextlib
import functools
import itertools
import os
import pathlib
import re
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "double"))

KIND = os.environ.get("TEST_STORE") or "sqlite"


class SqliteStore:
    """The file lapse.db of a data directory."""

    def __init__(self, data_dir):
        self.path = data_dir / "lapse.db"

    def flags(self):
        return {}

    def prepare(self, clock, faketime):
        pass

    def drop(self):
        pass

    def rows(self, sql, *values):
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, values)]

    def execute(self, sql, *values):
        with contextlib.closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as db:
            db.execute(sql, values)

    def tables_with(self, column):
        return [row["t"] for row in self.rows("SELECT name AS t FROM sqlite_master WHERE type = 'table'")
                if column in [one["name"] for one in self.rows(f"PRAGMA table_info({row['t']})")]]

    def size(self):
        return self.path.stat().st_size

    def writes(self):
        """A number that grows with every write transaction."""
        return self.path.with_name("lapse.db-wal").stat().st_size

    @contextlib.contextmanager
    def locked(self):
        with contextlib.closing(sqlite3.connect(self.path, timeout=5, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            yield

    @contextlib.contextmanager
    def undeletable(self, table, column, value):
        self.execute(f"CREATE TRIGGER poison BEFORE DELETE ON {table} WHEN old.{column} = '{value}' "
                     "BEGIN SELECT RAISE(ABORT, 'no'); END")
        yield
        self.execute("DROP TRIGGER poison")


@functools.lru_cache(maxsize=None)
def server():
    from postgres import Postgres  # only those who use it need PostgreSQL
    one = Postgres({"autovacuum": "off", "max_connections": "200"})
    atexit.register(one.stop)
    return one


@functools.lru_cache(maxsize=None)
def administrator():
    from pq import Connection
    return Connection(server().url_of("postgres"))


_numbers = itertools.count(1)


class PostgresStore:
    """A database that lives until drop()."""

    def __init__(self, _data_dir):
        self.name = f"t{next(_numbers)}"
        self.url = server().url_of(self.name)
        self.exists = False

    def flags(self):
        return {"store": self.url}

    def _connect(self):
        from pq import Connection
        return Connection(self.url)

    def prepare(self, clock, faketime):
        """Before each start: the database is there, and its time is the daemon's."""
        if not self.exists:
            administrator().run(f"CREATE DATABASE {self.name}")
            administrator().run(f"ALTER DATABASE {self.name} SET search_path = public, pg_catalog")
            self.exists = True
        if clock:
            body = f"SELECT (trim(pg_read_file('{clock.path}')) || '+00')::timestamptz"
        elif faketime:
            body = f"SELECT pg_catalog.clock_timestamp() + interval '{faketime}'"
        else:
            body = "SELECT pg_catalog.clock_timestamp()"
        self.execute("CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz "
                     f"LANGUAGE sql VOLATILE AS $${body}$$")

    def drop(self):
        if self.exists:
            administrator().run(f"DROP DATABASE {self.name} WITH (FORCE)")
            self.exists = False

    def rows(self, sql, *values):
        numbers = itertools.count(1)
        with self._connect() as db:
            return db.run(re.sub(r"\?", lambda _: f"${next(numbers)}", sql), *values)

    execute = rows

    def tables_with(self, column):
        return [row["t"] for row in self.rows(
            "SELECT table_name AS t FROM information_schema.columns WHERE table_schema = 'public' AND column_name = ?", column)]

    def size(self):
        return self.rows("SELECT pg_database_size(current_database()) AS n")[0]["n"]

    def writes(self):
        return self.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS n")[0]["n"]

    @contextlib.contextmanager
    def locked(self):
        with self._connect() as db:
            tables = [row["t"] for row in db.run("SELECT tablename AS t FROM pg_tables WHERE schemaname = 'public'")]
            db.run(f"BEGIN; LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")
            yield

    @contextlib.contextmanager
    def undeletable(self, table, column, value):
        self.execute("CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS "
                     "$$BEGIN RAISE EXCEPTION 'no'; END$$; "
                     f"CREATE TRIGGER poison BEFORE DELETE ON {table} FOR EACH ROW "
                     f"WHEN (old.{column} = '{value}') EXECUTE FUNCTION poison()")
        yield
        self.execute(f"DROP TRIGGER poison ON {table}")


_stores = {}


def store_of(data_dir):
    """The same directory has the same store, whichever daemon runs on it."""
    if data_dir not in _stores:
        _stores[data_dir] = (PostgresStore if KIND == "postgres" else SqliteStore)(data_dir)
    return _stores[data_dir]


def forget(data_dirs):
    """Nothing will run on these any more."""
    for data_dir in data_dirs:
        _stores.pop(data_dir).drop()


def known():
    return set(_stores)


def clock_directory(directory):
    """Where a clock's file can be read by the database, too."""
    return server().home if KIND == "postgres" else directory
