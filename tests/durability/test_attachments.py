# SPDX-License-Identifier: Apache-2.0
"""Attachments and their files: `kill -9` at every step, power loss, a full and a broken disk.

What always holds after a restart: a row has its file with the right bytes, a file has a row, what was answered as
staged is there, what was answered as deleted is not.

LAPSE_KILL_ROUNDS (200): kills under load, a quarter of them for each disk.
"""
import hashlib
import http.client
import json
import os
import random
import socket
import sqlite3
import threading
import time

import pytest

from rig import Rig, binary, wait_until

ROUNDS = max(4, int(os.environ.get("LAPSE_KILL_ROUNDS", "200")) // 4)
SEED = int(os.environ.get("LAPSE_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
STEPS = ("create", "write", "link", "sync", "sync-dir", "unlink")
SIZES = (0, 10, 5_000, 70_000, 700_000)


def sha(content):
    return hashlib.sha256(content).hexdigest()


class FileRig(Rig):
    """A rig whose calls on attachments' files fail, or end the daemon, at a named step."""

    def __init__(self, directory, fault=None, **settings):
        super().__init__(directory, fault, **settings)
        self.trace_path = self.directory / "trace"
        self.step = None

    def environment(self):
        library = binary("LAPSED_FAULT_FILES", "tests/durability/libfault_files.so")
        env = {**super().environment(), "LD_PRELOAD": library, "FAULT_FILES_TRACE": str(self.trace_path)}
        if self.step:
            env["FAULT_FILES"] = self.step
        return env

    def trace(self):
        return self.trace_path.read_text().split() if self.trace_path.exists() else []

    def files(self):
        return sorted((self.data_dir / "files").glob("??/*"))


class Gone(Exception):
    """The daemon went away before it answered."""


def call(rig, method, path, body=b""):
    """One request on a connection of its own; (status, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=20)
    try:
        connection.request(method, path, body=body if method == "POST" else None)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Gone(str(error)) from None
    finally:
        connection.close()


class Book:
    """What clients were told. `open` holds contents whose last operation got no answer."""

    def __init__(self):
        self.staged, self.open = {}, {}

    def stage(self, rig, content):
        self.open[sha(content)] = content
        status, body = call(rig, "POST", "/v1/attachments", content)
        del self.open[sha(content)]
        if status == 201:
            self.staged[sha(content)] = content
        elif status >= 500 and sha(content) not in self.staged:
            self.staged.pop(sha(content), None)
        return status

    def delete(self, rig, checksum):
        content = self.staged.pop(checksum)
        self.open[checksum] = content
        status, _ = call(rig, "DELETE", f"/v1/attachments/{checksum}")
        del self.open[checksum]
        if status != 200:
            self.staged[checksum] = content
        return status

    def expire(self, rig, content):
        """Stages bytes that are due at once, and sweeps."""
        self.open[sha(content)] = content
        call(rig, "POST", "/v1/attachments?ttl_ms=0", content)
        call(rig, "POST", "/v1/attachments/cleanup")
        self.staged.pop(sha(content), None)
        del self.open[sha(content)]


def rows(rig):
    """checksum → size of all attachments, as the daemon tells them: the disk may still be in its memory."""
    found, after = {}, ""
    while after is not None:
        status, body = call(rig, "GET", f"/v1/attachments?limit=100{after}")
        assert status == 200, body
        page = json.loads(body)
        found.update((row["checksum"], row["size"]) for row in page["data"])
        after = f"&after={page['pagination']['next_cursor']}" if page["pagination"]["has_more"] else None
    return found


def names(rig):
    return sorted(path.name.split("-")[0] for path in rig.files())


def settle_dues(rig):
    """An intent that was taken by a daemon that died waits a minute for its next try: not here."""
    db = sqlite3.connect(rig.data_dir / "lapse.db", timeout=5)
    try:
        db.execute("UPDATE cleanups SET next_at = 0")
        db.commit()
    finally:
        db.close()


def check(rig, book):
    """On a running daemon, once its check after the start is over."""
    wait_until(lambda: names(rig) == sorted(rows(rig)), 20, "files and rows agree")
    stored = {}
    for path in rig.files():
        content, checksum = path.read_bytes(), path.name.split("-")[0]
        assert sha(content) == checksum and rows(rig)[checksum] == len(content), path
        stored[checksum] = content
    for checksum in book.staged:
        assert checksum in stored, f"answered and lost: {checksum}"
        status, body = call(rig, "GET", f"/v1/attachments/{checksum}/content")
        assert status == 200 and sha(body) == checksum
    unknown = set(stored) - set(book.staged) - set(book.open)
    assert not unknown, f"there, but never staged or deleted: {unknown}"
    for checksum, content in book.open.items():  # whatever became of them, they are known now
        if checksum in stored:
            book.staged[checksum] = content
        else:
            book.staged.pop(checksum, None)
    book.open.clear()


def restart(rig, book):
    if rig.process is not None:
        rig.kill()
    rig.step = None
    if (rig.data_dir / "lapse.db").exists():
        if rig.fault is None:
            settle_dues(rig)
    rig.start()
    check(rig, book)


# A step at a time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["kill", "killed"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_kill_at_every_step(tmp_path, step, number, when):
    rig, book = FileRig(tmp_path), Book()
    try:
        rig.start()
        for i in range(3):
            book.stage(rig, b"before %d" % i)
        rig.stop()
        rig.step = f"{step}:{number}:{when}"
        rig.start()
        with pytest.raises(Gone):
            for i in range(20):
                book.stage(rig, b"new %d" % i + bytes(SIZES[i % len(SIZES)]))
                book.stage(rig, b"new %d" % i + bytes(SIZES[i % len(SIZES)]))
                book.delete(rig, sha(b"before 0") if sha(b"before 0") in book.staged
                            else next(iter(book.staged)))
                book.expire(rig, b"short %d" % i)
                time.sleep(0.05)  # deletions are done beside the requests
        restart(rig, book)
        assert book.stage(rig, b"after") == 201
        restart(rig, book)
    finally:
        rig.done()


def test_a_file_is_durable_before_it_is_answered(tmp_path):
    rig, book = FileRig(tmp_path), Book()
    try:
        rig.start()
        book.stage(rig, b"first")  # makes the directories
        for content in (b"x", bytes(500_000)):
            before = len(rig.trace())
            assert book.stage(rig, content) == 201
            steps = [step for step in rig.trace()[before:] if step != "link-failed"]
            order = [steps.index(step) for step in ("create", "write", "link", "sync")]
            assert order == sorted(order), steps
            assert steps[-1] == "sync-dir" and len(steps) - 1 - steps[::-1].index("write") < steps.index("sync"), steps
    finally:
        rig.done()


# Under load ---------------------------------------------------------------------------------------------------


class Load:
    """Clients that stage, stage again, delete and expire until the daemon goes away."""

    def __init__(self, rig, rng, clients=4):
        self.rig, self.books = rig, [Book() for _ in range(clients)]
        self.threads = [threading.Thread(target=self._run, args=(i, random.Random(rng.random())))
                        for i in range(clients)]

    def _run(self, number, rng):
        book, count = self.books[number], 0
        try:
            while True:
                count += 1
                content = b"%d %d " % (number, count % 7) + bytes(rng.choice(SIZES))
                what = rng.random()
                if what < 0.6:
                    book.stage(self.rig, content)
                elif what < 0.8 and book.staged:
                    book.delete(self.rig, rng.choice(sorted(book.staged)))
                elif sha(content) not in book.staged:
                    book.expire(self.rig, content)
        except Gone:
            pass

    def start(self):
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join()

    def book(self, whole):
        for book in self.books:
            for checksum, content in book.open.items():
                whole.staged.pop(checksum, None)
                whole.open[checksum] = content
            whole.staged.update(book.staged)


@pytest.mark.parametrize("disk", [None, "power-loss"])
def test_kills_under_load(tmp_path, disk):
    print(f"LAPSE_KILL_SEED={SEED}")
    rng, rig = random.Random(SEED), FileRig(tmp_path, disk, attachment_sweep_ms=20)
    answered = 0
    try:
        for _ in range(ROUNDS):
            book = Book()
            rig.start()
            load = Load(rig, rng)
            load.start()
            time.sleep(rng.uniform(0.02, 0.3))
            rig.signal_kill()
            load.join()
            rig.kill()
            load.book(book)
            answered += len(book.staged)
            rig.start()
            rig.stop()
            settle_dues(rig)
            rig.start()
            check(rig, book)
            for path in book.staged:
                assert call(rig, "DELETE", f"/v1/attachments/{path}")[0] == 200
            rig.stop()
        print(f"{disk}: {ROUNDS} kills, {answered} answered attachments checked")
        assert answered > ROUNDS
    finally:
        rig.done()


# A disk that is full or broken --------------------------------------------------------------------------------


@pytest.mark.parametrize("error, sentence", [("ENOSPC", "full"), ("EDQUOT", "full"), ("EIO", "cannot"), ("EROFS", "cannot")])
@pytest.mark.parametrize("step", ["create", "write", "link", "sync", "sync-dir"])
def test_a_failing_disk_is_answered_and_nothing_is_lost(tmp_path, step, error, sentence):
    rig, book = FileRig(tmp_path), Book()
    try:
        rig.start()
        book.stage(rig, b"before")
        rig.stop()
        rig.step = f"{step}:0:{error}"
        rig.start()
        for content in (b"small", bytes(1_000_000)):
            status, body = call(rig, "POST", "/v1/attachments", content)
            assert status == 503 and b'"unavailable"' in body and sentence.encode() in body, body
        status, body = call(rig, "GET", f"/v1/attachments/{sha(b'before')}/content")
        assert (status, body) == (200, b"before")
        status, _ = call(rig, "GET", "/healthz")
        assert status == 200
        restart(rig, book)
        assert book.stage(rig, b"small") == 201
        assert len(rig.files()) == 2
    finally:
        rig.done()


def test_a_failing_unlink_is_tried_again_and_becomes_a_dead_letter(tmp_path):
    rig, book = FileRig(tmp_path, cleanup_max_attempts=1), Book()
    try:
        rig.step = "unlink:0:EROFS"
        rig.start()
        book.stage(rig, b"stuck")
        assert book.delete(rig, sha(b"stuck")) == 200
        wait_until(lambda: rig.metric("lapse_dead_letters") == 1, 10, "a dead letter")
        assert len(rig.files()) == 1, "the file is still there, and somebody knows"
        rig.stop()
        rig.step = None
        rig.start()
        status, body = call(rig, "GET", "/v1/dead-letters")
        assert status == 200 and sha(b"stuck").encode() in body
    finally:
        rig.done()


def test_a_download_that_cannot_be_read_is_an_error_or_is_cut(tmp_path):
    rig, book = FileRig(tmp_path), Book()
    content = os.urandom(1_000_000)
    try:
        rig.start()
        book.stage(rig, b"short")
        book.stage(rig, content)
        rig.stop()
        rig.step = "read:0:EIO"
        rig.start()
        status, body = call(rig, "GET", f"/v1/attachments/{sha(b'short')}/content")
        assert status == 503 and b"cannot read" in body
        with pytest.raises(Gone):
            call(rig, "GET", f"/v1/attachments/{sha(content)}/content")
        restart(rig, book)
    finally:
        rig.done()


def test_a_file_system_without_unnamed_files(tmp_path):
    """Then a file has a name from the start, and what a kill leaves of it goes at the next start."""
    rig, book = FileRig(tmp_path), Book()
    try:
        rig.step = "create:1:EOPNOTSUPP"  # only the first try of the first upload is without a name
        rig.start()
        assert book.stage(rig, bytes(700_000)) == 201
        assert list((rig.data_dir / "files").glob("new-*")) == []
        check(rig, book)
        rig.stop()
        rig.step = "create:1:EOPNOTSUPP"
        rig.start()
        half = socket.create_connection(("127.0.0.1", rig.port))
        half.sendall(b"POST /v1/attachments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n" + bytes(600_000))
        wait_until(lambda: list((rig.data_dir / "files").glob("new-*")), 10, "it has a name")
        rig.kill()
        half.close()
        restart(rig, book)
        assert list((rig.data_dir / "files").glob("new-*")) == []
    finally:
        rig.done()


def test_a_file_goes_only_once_its_row_is_durably_gone(tmp_path):
    """A sweep commits without a sync. Were the power lost after the unlink, its row would be back without a file."""
    rig = FileRig(tmp_path, "power-loss", attachment_sweep_ms=20)
    try:
        for _ in range(3):
            rig.start()
            assert call(rig, "POST", "/v1/attachments?ttl_ms=200", b"short")[0] == 201
            wait_until(lambda: not rig.files(), 10, "the file is gone")
            rig.kill()
        rig.start()
        time.sleep(0.3)
        assert "file_missing" not in rig.log_tail(1000) and "reconciled" not in rig.log_tail(1000), rig.log_tail()
    finally:
        rig.done()
