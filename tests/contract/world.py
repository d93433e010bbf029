# SPDX-License-Identifier: Apache-2.0
"""What the contract tests share: a user's database on either engine, and running `lapse` on it.

The binaries are $LAPSE and $LAPSED, or those of build-dev/."""
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "double"))
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
LAPSE = os.environ.get("LAPSE", str(ROOT / "build-dev" / "lapse"))
LIMIT_S = 60
DAY = 86_400_000


def now_ms():
    return int(time.time() * 1000)


class Sqlite:
    """A SQLite file."""
    name = "sqlite"
    big = "INTEGER"

    def __init__(self, directory):
        self.path = str(pathlib.Path(directory) / "app.db")
        self.uri = f"sqlite:{self.path}"
        self.sql("PRAGMA journal_mode=WAL")

    def sql(self, script, *values):
        connection = sqlite3.connect(self.path, timeout=20, isolation_level=None)
        try:
            if values:
                return connection.execute(script, values).fetchall()
            if ";" in script.strip().rstrip(";") and not script.startswith("SELECT"):
                connection.executescript(script)
                return []
            return connection.execute(script).fetchall()
        finally:
            connection.close()

    def fill(self, table, columns, rows):
        connection = sqlite3.connect(self.path, timeout=20, isolation_level=None)
        marks = ", ".join("?" * len(columns))
        names = ", ".join(quoted(c) for c in columns)
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
        connection.execute("COMMIT")
        connection.close()

    def column(self, query):
        return [row[0] for row in self.sql(query)]


class Postgres:
    """A database of its own in the tests' server."""
    name = "postgres"
    big = "bigint"

    def __init__(self, server, database):
        self.server, self.database = server, database
        self.uri = server.make_database(database)

    def uri_of(self, user):
        return self.uri.replace("//lapse@", f"//{user}@")

    def sql(self, script):
        out = self.server.run(script, self.database)
        return [tuple(number(v) for v in line.split("|")) for line in out.splitlines()]

    def fill(self, table, columns, rows):
        names = ", ".join(quoted(c) for c in columns)
        for start in range(0, len(rows), 5000):
            part = rows[start:start + 5000]
            values = ", ".join("(" + ", ".join(literal(v) for v in row) + ")" for row in part)
            self.server.run(f"INSERT INTO {table} ({names}) VALUES {values}", self.database)

    def column(self, query):
        return [row[0] for row in self.sql(query)]


def number(text):
    try:
        return int(text)
    except ValueError:
        return text if text != "" else None


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)):
        return str(value)
    return "E'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


class Ran:
    """How a run of `lapse` ended."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


def lapse(*arguments, env=None, **options):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAPSE") and k != "TERM"}
    done = subprocess.run([LAPSE, *map(str, arguments)], env={**clean, **(env or {})}, text=True,
                          capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                          **options)
    return Ran(done)


class Contract:
    """A contract file for a database; bounds are dictionaries, written as JSON, which is YAML."""

    def __init__(self, directory, db, bounds, name="shop", every="1h", **defaults):
        self.path = str(pathlib.Path(directory) / f"{name}.yaml")
        self.data_dir = str(pathlib.Path(directory) / "lapse")
        self.name, self.db = name, db
        self.write(bounds, every, **defaults)

    def write(self, bounds, every="1h", **defaults):
        document = {"contract": 1, "name": self.name, "database": self.db.uri,
                    "schedulers": {"s": {"every": every}},
                    "bounds": [{"scheduler": "s", **b} for b in bounds]}
        if defaults:
            document["defaults"] = defaults
        pathlib.Path(self.path).write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")

    def check(self):
        return lapse("contract", "check", self.path, "--json")

    def findings(self, level=None):
        found = self.check().json["findings"]
        return [f for f in found if level is None or f["level"] == level]

    def plan(self):
        ran = lapse("contract", "plan", self.path, "--json")
        assert ran.code == 0, ran.err + ran.out
        return {row["bound"]: row for row in ran.json["data"]}

    def apply(self, *more):
        return lapse("contract", "apply", self.path, "--data-dir", self.data_dir, "--json", *more)


class Daemon:
    """`lapsed` with contracts, in a data directory of its own."""

    def __init__(self, directory, *contracts, **settings):
        self.data = str(pathlib.Path(directory))
        flags = [f for c in contracts for f in ("--contract", c.path)]
        flags += [f for name, value in settings.items() for f in ("--" + name.replace("_", "-"), str(value))]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LAPSE")}
        self.log = open(self.data + ".log", "ab")
        self.process = subprocess.Popen([LAPSED, "--data-dir", self.data, "--listen", "127.0.0.1:0", *flags],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True, env=clean)
        line = self.process.stdout.readline()
        assert line.startswith("lapsed ready on "), self.lines()
        self.url = line.split()[-1]

    def lines(self):
        return pathlib.Path(self.data + ".log").read_text(encoding="utf-8")

    def call(self, method, path, body=None, status=200):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"} if data else {})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                got, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            got, text = e.code, e.read().decode()
        assert got == status, f"{method} {path}: {got} {text}"
        return json.loads(text) if text.startswith("{") else text

    def row(self, bound):
        return next(r for r in self.call("GET", "/v1/matrix")["data"] if r["table"] == bound)

    def events(self, kind):
        ran = lapse("events", "--json", "--url", self.url)
        assert ran.code == 0, ran.err
        return [e for e in map(json.loads, ran.out.splitlines()) if e["event"] == kind]

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


def until(condition, seconds=20):
    """Waits for something to become true, and says what it was instead."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("did not happen in time")
