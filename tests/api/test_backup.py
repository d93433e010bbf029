# SPDX-License-Identifier: Apache-2.0
"""Backups: a consistent copy of the database into the data directory's backups/, the newest kept."""
import concurrent.futures
import pathlib
import re
import sqlite3
import stat

import pytest

from harness import wait_until

pytestmark = pytest.mark.sqlite("a backup is a copy of its file")


def file_of(daemon, answer):
    """The path of a backup; `file` is its name, or its path below or with the data directory."""
    name = pathlib.Path(answer["file"])
    assert len(name.parts) == 1 or name.parent.name == "backups", answer
    path = daemon.data_dir / "backups" / name.name
    assert path.is_file(), list(daemon.data_dir.rglob("*"))
    return path


def query(path, sql):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_a_backup_is_a_database_with_the_data(daemon, api):
    sent = [api.send(f"a{i}") for i in range(50)]
    api.read("a0", sent[0]["id"])
    answer = api.post("/v1/backup").ok(201)
    assert set(answer) == {"file", "bytes", "created_at"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", answer["created_at"])
    path = file_of(daemon, answer)
    assert path.stat().st_size == answer["bytes"] > 0
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, "SELECT count(*) FROM messages") == [(50,)]


def test_what_came_after_a_backup_is_not_in_it(daemon, api):
    api.send("a")
    path = file_of(daemon, api.post("/v1/backup").ok(201))
    api.send("a")
    assert query(path, "SELECT count(*) FROM messages") == [(1,)]
    assert len(daemon.rows("SELECT * FROM messages")) == 2


def test_only_the_owner_of_the_files_can_read_them(daemon, api):
    path = file_of(daemon, api.post("/v1/backup").ok(201))
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_daemon_runs_on_a_backup(daemon, api, tmp_path, start):
    sent = [api.send("a") for _ in range(5)]
    api.read("a", sent[0]["id"])
    before = api.inbox("a")
    path = file_of(daemon, api.post("/v1/backup").ok(201))
    (tmp_path / "copy").mkdir(mode=0o700)
    (tmp_path / "copy" / "lapse.db").write_bytes(path.read_bytes())
    assert start(data_dir=tmp_path / "copy").client().inbox("a") == before


@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_are_kept(start, keep):
    daemon = start(backup_keep=keep)
    api = daemon.client()
    files = []
    for _ in range(keep + 2):
        api.send("a")
        files.append(file_of(daemon, api.post("/v1/backup").ok(201)))
    assert len(set(files)) == keep + 2, "no backup overwrites another"
    wait_until(lambda: sorted((daemon.data_dir / "backups").iterdir()) == sorted(files[-keep:]),
               what="only the newest")
    assert query(files[-1], "SELECT count(*) FROM messages") == [(keep + 2,)]


def test_other_files_beside_the_backups_are_left_alone(start):
    daemon = start(backup_keep=1)
    api = daemon.client()
    api.post("/v1/backup").ok(201)
    mine = daemon.data_dir / "backups" / "notes.txt"
    mine.write_text("keep me")
    for _ in range(2):
        api.post("/v1/backup").ok(201)
    wait_until(lambda: len(list((daemon.data_dir / "backups").iterdir())) == 2, what="one backup and the notes")
    assert mine.read_text() == "keep me"


def test_backups_while_others_write(daemon):
    def write():
        api = daemon.client()
        return [api.send("a")["id"] for _ in range(60)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(write) for _ in range(2)]
        files = [file_of(daemon, daemon.client().post("/v1/backup").ok(201)) for _ in range(3)]
        sent = sum((future.result(30) for future in futures), [])
    for path in files:
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        (messages,), = query(path, "SELECT count(*) FROM messages")
        (filed,), = query(path, "SELECT count(*) FROM messages_unread")
        assert filed <= messages
        assert query(path, "SELECT coalesce(sum(total), 0), coalesce(sum(unread), 0) FROM inboxes") == [
            (filed, filed)]
    assert len(daemon.rows("SELECT * FROM messages")) == len(set(sent)) == 120


def test_the_key_is_in_no_backup(daemon, api):
    key = "5d" * 32
    (daemon.data_dir / "lapse.key").write_text(key + "\n")
    path = file_of(daemon, api.post("/v1/backup").ok(201))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert key.encode() not in path.read_bytes() and bytes.fromhex(key) not in path.read_bytes()
