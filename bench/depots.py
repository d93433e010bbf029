# SPDX-License-Identifier: Apache-2.0
"""Stores with very many attachments, made the quick way: lapsed makes the schema, the rows come by SQL
and the files are written where lapsed would have put them, since a million uploads take many minutes.
Contents are small and distinct, checksums real. This is the one store made behind the daemon's back: after
a change of the schema or of the layout of files/, change it here, too; a row fails when lapsed disagrees.
"""
import hashlib
import os
import sqlite3
import time

from servers import DAY_MS, Lapse

OWNER = "default"
COUNTER_BITS = 21  # of an id; the bits above are milliseconds


def content(number):
    return b"attachment %08d\n" % number


def write_file(files, checksum, identity, data):
    path = os.path.join(files, checksum[:2], f"{checksum}-{identity:016x}")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(descriptor, data)
    os.close(descriptor)


def write_files(files, first, count):
    """The files, and (id, checksum, size) of each."""
    for number in range(count):
        data = content(number)
        checksum, identity = hashlib.sha256(data).hexdigest(), first + number
        write_file(files, checksum, identity, data)
        yield identity, checksum, len(data)


def insert(db, files, inserted_at, ttl_ms, count):
    """One transaction for all of them: nobody needs half of a store."""
    made = write_files(files, inserted_at << COUNTER_BITS, count)
    size = count * len(content(0))
    with db:
        db.executemany(
            "INSERT INTO attachments (id, owner, checksum, name, size, persist, ttl_ms, inserted_at, due_at, "
            "cached) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, 0)",
            ((identity, OWNER, checksum, f"f{identity:x}", length, ttl_ms, inserted_at, inserted_at + ttl_ms)
             for identity, checksum, length in made))
        db.execute("UPDATE counts SET live = live + ? WHERE tbl = 'attachments'", (count,))
        for owner in ("", OWNER):
            db.execute("INSERT INTO attachment_totals VALUES (?, ?, ?, 0, 0) ON CONFLICT (owner) DO UPDATE SET "
                       "total_count = total_count + excluded.total_count, "
                       "total_bytes = total_bytes + excluded.total_bytes", (owner, count, size))


def leave_orphan(directory):
    """A file without a row, as a crash leaves it. The check after a start is over when it has told of it."""
    files, data = os.path.join(directory, "files"), os.urandom(16)
    write_file(files, hashlib.sha256(data).hexdigest(), int(time.time() * 1000) << COUNTER_BITS, data)


def build(bench, name, count, due=False):
    """A stopped store with so many attachments, all due or none for days; returns its directory."""
    directory = bench.directory(name)
    bench.say(f"making a store with {count:,} {'due ' if due else ''}attachments")
    with Lapse(bench.lapsed, directory):
        pass
    files = os.path.join(directory, "files")
    for number in range(256):
        os.makedirs(os.path.join(files, f"{number:02x}"), mode=0o700, exist_ok=True)
    inserted_at = int(time.time() * 1000) - 3600 * 1000
    db = sqlite3.connect(os.path.join(directory, "lapse.db"))
    insert(db, files, inserted_at, 1000 if due else 30 * DAY_MS, count)
    db.close()
    os.sync()
    return directory
