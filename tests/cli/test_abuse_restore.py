# SPDX-License-Identifier: Apache-2.0
"""Backups that lapse did not write, or that were changed since: none of them gets in."""
import json
import os
import shutil
import sqlite3
import subprocess
import time

import pytest

from runner import LAPSED, Daemon, Lapse, clean_environment


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    """A backup with a row in every table that a client can fill."""
    base = tmp_path_factory.mktemp("backup")
    daemon = Daemon(base / "data")
    lapse = Lapse(daemon.url)
    lapse("send", "a", "precious", "--from", "b")
    lapse("heartbeat", "worker", "--cluster", "c1", "--capability", "build")
    lapse("mailbox", "create")
    (base / "file").write_bytes(b"bytes")
    lapse("stage", str(base / "file"))
    file = base / "data" / lapse.json("backup")["file"]
    yield file
    assert daemon.stop() == 0


BAD = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM messages; END",
    "a view": "CREATE VIEW v AS SELECT * FROM tokens",
    "a table more": "CREATE TABLE extra (id INTEGER PRIMARY KEY)",
    "a table less": "DROP TABLE holds",
    "an index less": "DROP INDEX agents_name",
    "a column more": "ALTER TABLE messages ADD COLUMN extra TEXT",
    "a deletion outside the directory": """INSERT INTO cleanups (owner, kind, target, state, attempts, next_at, created_at,
        error) VALUES ('local', 'file', '../outside/file', 1, 0, 0, 0, '')""",
    "a deletion by an absolute path": """INSERT INTO cleanups (owner, kind, target, state, attempts, next_at, created_at,
        error) VALUES ('local', 'file', '/etc/hostname', 1, 0, 0, 0, '')""",
    "capabilities that are numbers": "UPDATE agents SET capabilities = '[1,{}]'",
    "capabilities that are no list": "UPDATE agents SET capabilities = '{}'",
    "metadata that is no JSON": "UPDATE messages SET metadata = '{'",
    "a name that is too long": "UPDATE agents SET agent = printf('%.300c', 'x')",
    "an owner that is too long": "UPDATE messages SET owner = printf('%.300c', 'x')",
    "a text where a number belongs": "UPDATE messages SET timestamp = 'yesterday'",
    "bytes where a text belongs": "UPDATE messages SET content = x'00ff'",
    "a NUL in a text": "UPDATE messages SET content = 'a' || char(0) || 'b'",
    "no UTF-8": "UPDATE messages SET content = CAST(x'ff41' AS TEXT)",
    "a checksum that is a path": "UPDATE attachments SET checksum = '../../../../etc/passwd'",
}


@pytest.mark.parametrize("sql", BAD.values(), ids=BAD.keys())
def test_a_backup_that_lapse_did_not_write_is_refused(backup, tmp_path, sql):
    file = tmp_path / "changed.db"
    shutil.copy(backup, file)
    db = sqlite3.connect(file, isolation_level=None)
    assert db.execute(sql).rowcount != 0, "the statement must change something"
    db.close()
    ran = Lapse("http://127.0.0.1:1")("restore", str(file), "--data-dir", str(tmp_path / "new"), "--yes", code=1)
    assert str(file) in ran.err and "Traceback" not in ran.err
    assert not (tmp_path / "new" / "lapse.db").exists()


def test_the_same_backup_unchanged_is_taken(backup, tmp_path):
    Lapse("http://127.0.0.1:1")("restore", str(backup), "--data-dir", str(tmp_path / "new"), "--yes")
    assert (tmp_path / "new" / "lapse.db").exists()


def test_a_damaged_page_is_refused_with_a_reason(backup, tmp_path):
    """Found by fuzzing: a page of another kind made the check itself fail, and nothing said why."""
    whole, file = backup.read_bytes(), tmp_path / "damaged.db"
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[:page * 4096] + b"\x05" + whole[page * 4096 + 1:])
        ran = Lapse("http://127.0.0.1:1")("restore", str(file), "--data-dir", str(tmp_path / "new"), "--yes", code=None)
        assert ran.code == 0 or str(file) in ran.err, (page, ran.err)
        shutil.rmtree(tmp_path / "new", ignore_errors=True)


def restores_told(data_dir):
    db = sqlite3.connect(data_dir / "lapse.db")
    return [json.loads(data)["restored_at"] for data, in
            db.execute("SELECT data FROM events WHERE kind = 'store.restored'")]


def test_a_restore_is_told_once(backup, start, tmp_path):
    Lapse("http://127.0.0.1:1")("restore", str(backup), "--data-dir", str(tmp_path / "new"), "--yes")
    for _ in range(2):
        assert start(tmp_path / "new").stop() == 0
        assert len(restores_told(tmp_path / "new")) == 1


def test_a_fifo_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    begun = time.monotonic()
    ran = Lapse("http://127.0.0.1:1")("restore", str(tmp_path / "pipe"), "--data-dir", str(tmp_path / "new"), "--yes",
                                      code=6)
    assert "regular file" in ran.err and time.monotonic() - begun < 5


def test_a_deletion_in_the_store_cannot_leave_the_directory(start, tmp_path):
    """Also when the row got there without a restore."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    daemon = start(tmp_path / "data")
    assert daemon.stop() == 0
    (tmp_path / "data" / "files").mkdir(exist_ok=True)
    (tmp_path / "data" / "files" / "link").symlink_to(outside)
    db = sqlite3.connect(tmp_path / "data" / "lapse.db", isolation_level=None)
    for target in ("../outside/file", "files/link/file", str(outside / "file"), "files/../../outside/file"):
        db.execute("""INSERT INTO cleanups (owner, kind, target, state, attempts, next_at, created_at, error)
                      VALUES ('local', 'file', ?, 1, 0, 0, 0, '')""", (target,))
    db.close()
    lapse = Lapse(start(tmp_path / "data", cleanup_max_attempts=1).url)
    deadline = time.monotonic() + 15
    while len(dead := lapse.json("dead-letters")["data"]) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(dead) == 4 and all("leads out" in letter["error"] for letter in dead), dead
    assert (outside / "file").read_text() == "mine"


# The data directory (line 14) ---------------------------------------------------------------------

def test_a_directory_of_other_files_is_left_as_it_is(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    (home / "thesis.tex").write_text("…")
    ran = subprocess.run([LAPSED, "--data-dir", str(home), "--listen", "127.0.0.1:0"], env=clean_environment(),
                         capture_output=True, text=True, timeout=20, check=False)
    assert ran.returncode != 0 and "thesis.tex" in ran.stderr and str(home) in ran.stderr
    assert home.stat().st_mode & 0o777 == 0o755 and [p.name for p in home.iterdir()] == ["thesis.tex"]


def test_an_empty_directory_is_taken_and_closed(start, tmp_path):
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "lost+found").mkdir()
    start(tmp_path / "data")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
