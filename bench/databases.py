# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL under lapse: a private server that syncs its commits, and what it has used.

The server lies in a directory of its own below the temporary directory, which must be on a disk, not in memory.
All processes of the server count: the sessions, the writer of the log, the checkpointer, the vacuum.
"""
import os
import shutil
import sys

from servers import HZ, BenchError, Lapse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "double"))

from postgres import Postgres, PostgresError  # noqa: E402

#: What a person would set for such a load on a small machine; commits are synced, as by default.
SETTINGS = {"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "4GB", "max_connections": "100"}


def stat_of(pid):
    """(user, system, those of ended children, theirs) in seconds; zeros for a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0, 0, 0, 0
    return tuple(int(field) / HZ for field in fields[11:15])


class Database:
    """A server with fresh databases. Use it in a `with` statement."""

    def __init__(self):
        self.made = 0
        try:
            self.server = Postgres(SETTINGS)
        except PostgresError as error:
            raise BenchError(f"PostgreSQL did not start: {error}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()

    def fresh(self):
        """The URL of a new, empty database; one that was there before is gone."""
        if self.made:
            self.server.run(f"DROP DATABASE bench{self.made} WITH (FORCE)", "postgres")
        self.made += 1
        url = self.server.make_database(f"bench{self.made}")
        self.server.run("CHECKPOINT", "postgres")
        return url

    def sql(self, text):
        """SQL in the newest database, with psql's unaligned answer."""
        try:
            return self.server.run(text, f"bench{self.made}").strip()
        except PostgresError as error:
            raise BenchError(str(error)) from error

    def cpu_s(self):
        """Seconds that all processes of the server have used so far, also those that have ended."""
        main = self.server.process.pid
        with open(f"/proc/{main}/task/{main}/children", encoding="ascii") as children:
            pids = children.read().split()
        return sum(stat_of(main)) + sum(sum(stat_of(pid)[:2]) for pid in pids)


#: A load of a few requests a second leaves connections unused for longer than lapsed lets them be.
PATIENT = ("--head-timeout-ms", "3600000", "--request-timeout-ms", "3600000")


def replica(bench, name, url, settings=(), key_of=None):
    """A lapsed of a cluster on this database. The first one makes the key, which `key_of`, a directory, has."""
    directory = bench.directory(name)
    if key_of:
        shutil.copy(os.path.join(key_of, "lapse.key"), directory)
    return Lapse(bench.lapsed, directory, settings=("--store", url, "--cluster", *PATIENT, *settings))
