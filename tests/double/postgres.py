# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL server for a test: its own data in a temporary directory, a Unix socket in
it, no port. It runs from Debian's packages; they refuse root, so as root it runs as `postgres`.

    server = Postgres()          # starts it
    server.url                   # postgresql://lapse@/lapse?host=…
    server.run("CREATE TABLE …") # SQL through psql; raises PostgresError with the server's words
    server.stop()                # and everything is gone

As a fixture: `from postgres import postgres_server` (one server for the session)."""
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pytest

USER = "lapse"
START_SECONDS = 60


class PostgresError(Exception):
    """What psql wrote to standard error."""


def binaries():
    """The newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"),
                   key=lambda path: int(path.parents[1].name))
    if not found:
        raise PostgresError("no PostgreSQL server is installed: scripts/deps test")
    return found[-1].parent


class Postgres:
    """A server that lives until stop(), or until this process ends."""

    def __init__(self, settings=None):
        self.bin = binaries()
        self.home = Path(tempfile.mkdtemp(prefix="lapse-postgres-", dir="/tmp"))
        self.data = self.home / "data"
        self.settings = settings or {}
        self.process = None
        os.chmod(self.home, 0o755)
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.home, account.pw_uid, account.pw_gid)
        try:
            self._initialize()
            self.start()
        except BaseException:
            self.stop()
            raise

    def _as_server(self, *command):
        if os.geteuid() != 0:
            return ["setpriv", "--pdeathsig", "QUIT", *map(str, command)]
        return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups",
                "--pdeathsig", "QUIT", *map(str, command)]

    def _initialize(self):
        done = subprocess.run(
            self._as_server(self.bin / "initdb", "-D", self.data, "-U", USER, "-A", "trust",
                            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            capture_output=True, text=True, cwd="/", timeout=120, check=False)
        if done.returncode != 0:
            raise PostgresError(done.stderr)

    def start(self):
        """Starts the server; after stop(keep=True) with the data it had."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.home),
                    "fsync": "off", "shared_buffers": "16MB", "max_connections": "64",
                    "log_min_messages": "fatal", **self.settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = open(self.home / "log", "ab")
        self.process = subprocess.Popen(
            self._as_server(self.bin / "postgres", "-D", self.data, *options),
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
        log.close()
        self._wait()
        if not self.run("SELECT 1 FROM pg_database WHERE datname = 'lapse'", "postgres").strip():
            self.run("CREATE DATABASE lapse", "postgres")

    def _wait(self):
        end = time.monotonic() + START_SECONDS
        while subprocess.run([self.bin / "pg_isready", "-q", "-h", self.home, "-U", USER],
                             check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise PostgresError((self.home / "log").read_text(errors="replace"))
            time.sleep(0.02)

    def stop(self, how=signal.SIGINT, keep=False):
        """Ends the server: SIGINT cleanly, SIGQUIT like a crash. With `keep` its data stays."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)
        self.process = None
        if not keep:
            shutil.rmtree(self.home, ignore_errors=True)

    def make_database(self, name):
        """An empty database, and its URL."""
        self.run(f'CREATE DATABASE "{name}"', "postgres")
        return self.url_of(name)

    def url_of(self, database):
        return f"postgresql://{USER}@/{quote(database)}?host={quote(str(self.home), safe='')}"

    @property
    def url(self):
        return self.url_of("lapse")

    def _psql(self, sql, database, user):
        return subprocess.run(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.home, "-U", user,
             "-d", database, "-f", "-"],
            input=sql, capture_output=True, text=True, timeout=120, check=False)

    def run(self, sql, database="lapse", user=USER):
        """Runs SQL; rows come back as psql's unaligned text."""
        done = self._psql(sql, database, user)
        if done.returncode != 0:
            raise PostgresError(done.stderr)
        return done.stdout

    def run_whole(self, script, database="lapse", user=USER):
        """Runs a script of psql to its end, errors or not, and gives what it said of them."""
        return self._psql(script, database, user).stderr


@pytest.fixture(scope="session")
def postgres_server():
    server = Postgres()
    yield server
    server.stop()
