# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a real daemon: a file that cannot be deleted, because it is a directory."""
import sqlite3
import time

import pytest

from runner import LIMIT_S, Lapse

ID = f"{4711:016x}"


@pytest.fixture
def sick(start):
    """A daemon with one dead letter, and the directory it stumbles over."""
    daemon = start()
    daemon.stop()
    (daemon.data_dir / "blobs").mkdir(exist_ok=True)
    stone = daemon.data_dir / "blobs" / "stone"
    stone.mkdir()
    (stone / "full").write_text("x")
    with sqlite3.connect(daemon.data_dir / "lapse.db") as db:
        db.execute("INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, created_at, error) "
                   "VALUES (4711, 'local', 'file', 'blobs/stone', -1, 3, 0, 1000, 'Is a directory')")
    db.close()
    return Lapse(start(data_dir=daemon.data_dir).url), stone


def test_ls(sick):
    lapse, _ = sick
    head, row = lapse("dead-letters", "ls").lines
    assert head.split()[:3] == ["ID", "KIND", "TARGET"]
    assert row.split()[:4] == [ID, "file", "blobs/stone", "local"] and row.endswith("  Is a directory")
    assert lapse.json("dead-letters", "ls")["data"][0]["attempts"] == 3


def test_status_and_top_tell(sick):
    lapse, _ = sick
    assert "  1 dead letter waits for a decision: lapse dead-letter" in lapse("status").lines
    assert lapse.json("status")["dead_letters"] == 1 and lapse.json("top", "--interval", "100ms")["dead_letters"] == 1


def test_drop(sick):
    lapse, stone = sick
    assert lapse("dead-letters", "drop", ID).out == f"{ID} is dropped\n"
    assert lapse("dead-letters", "ls").out == "no dead letters\n" and stone.exists()
    lapse("dead-letters", "drop", ID, code=5)
    lapse("dead-letters", "retry", ID, code=5)
    assert "dead letters: 0" in lapse("status").out and "waits" not in lapse("status").out


def test_retry_all(sick):
    lapse, stone = sick
    (stone / "full").unlink()
    stone.rmdir()
    assert "give an ID" in lapse("dead-letters", "retry", code=2).err
    assert "give an ID" in lapse("dead-letters", "retry", ID, "--all", code=2).err
    assert lapse("dead-letters", "retry", "--kind", "mailbox").out == "0 dead letters are tried again\n"
    assert lapse.json("dead-letters", "retry", "--older-than", "36500d") == {"retried": 0}
    assert lapse("dead-letters", "retry", "--all").out == "1 dead letters are tried again\n"
    deadline = time.monotonic() + LIMIT_S
    while lapse.json("status")["dead_letters"]:
        assert time.monotonic() < deadline
    assert lapse.json("dead-letters", "retry", "--kind", "file") == {"retried": 0}


def test_retry(sick):
    lapse, stone = sick
    (stone / "full").unlink()
    stone.rmdir()
    stone.write_text("a file after all")
    assert lapse.json("dead-letters", "retry", ID)["state"] == "pending"
    deadline = time.monotonic() + LIMIT_S
    while stone.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert lapse("dead-letters", "ls").out == "no dead letters\n"


def test_none(shared):
    lapse = Lapse(shared.url)
    assert lapse("dead-letters", "ls").out == "no dead letters\n"
    assert "nonsense" not in lapse("dead-letters", "retry", "nonsense", code=5).out
