# SPDX-License-Identifier: Apache-2.0
"""`lapse restored`: a database that came out of pg_dump is told so, and nothing is removed because of it."""
import itertools
import json
import os
import subprocess

import pytest

from harness import DAY_MS, ROOT, Daemon
from postgres import postgres_server  # noqa: F401 (a fixture)
from pq import Connection
from test_stream import Stream

LAPSE = os.environ.get("LAPSE") or str(ROOT / "build-dev" / "lapse")
_names = itertools.count(1)


def restored(url, *more, code=0):
    done = subprocess.run([LAPSE, "restored", "--store", url, "--yes", *more], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture
def dump(postgres_server, tmp_path):  # noqa: F811
    """dump(url) copies a database as pg_dump and pg_restore do, and gives the URL of the copy."""
    def copy(url):
        to = postgres_server.make_database(f"restored-{next(_names)}")
        file = tmp_path / f"dump-{next(_names)}"
        subprocess.run([postgres_server.bin / "pg_dump", "-Fc", "-f", file, url], check=True, timeout=60)
        subprocess.run([postgres_server.bin / "pg_restore", "-d", to, file], check=True, timeout=60)
        return to
    return copy


@pytest.fixture
def old(postgres_server, tmp_path):  # noqa: F811
    """A store with one message that is due, and its data directory."""
    url = postgres_server.make_database(f"restored-{next(_names)}")
    with Daemon(tmp_path / "data", store=url, message_sweep_ms=DAY_MS) as daemon:
        api = daemon.client()
        api.read("a", api.send("a")["id"])
    with Connection(url) as db:
        db.run(f"UPDATE messages SET timestamp = timestamp - {2 * DAY_MS}")
    return url


def test_everything_gets_its_grace(old, dump, tmp_path):
    plain, told = dump(old), dump(old)
    assert "restored_at" in json.loads(restored(told, "--json").stdout)
    pruned = {}
    for url in (plain, told):
        with Daemon(tmp_path / f"on-{len(pruned)}", store=url, message_sweep_ms=DAY_MS) as daemon:
            pruned[url] = daemon.client().sweep("messages")["pruned"]
            events = [row["kind"] for row in Connection(url).run("SELECT kind FROM events")]
            assert ("store.restored" in events) == (url == told)
    assert pruned == {plain: 1, told: 0}


def test_a_cursor_of_the_time_that_was_taken_back_gets_a_gap(old, dump, tmp_path):
    with Daemon(tmp_path / "first", store=old) as daemon:
        with Stream(daemon) as stream:
            daemon.client().send("a", content="kept")
            kept = stream.event()[2]
            copy = dump(old)
            daemon.client().send("a", content="lost")
            lost = stream.event()[2]
    restored(copy)
    for _ in range(2):  # also after another start, and after new events
        with Daemon(tmp_path / "second", store=copy) as daemon:
            api = daemon.client()
            new = api.send("b", content="new")["id"]
            with Stream(daemon, after=lost) as stream:
                kind, data, _id = stream.event()
                assert kind == "gap" and data["reason"] == "unknown" and data["from"] == lost
                kinds = [stream.event()]
                while kinds[-1][2] != new:
                    kinds.append(stream.event())
                assert ("store.restored" in [one[0] for one in kinds]), "everything since the restore follows"
            with Stream(daemon, after=kept) as stream:
                assert stream.event()[0] != "gap", "it was there before the dump"
            with Stream(daemon, after=new) as stream:
                api.send("b")
                assert stream.event()[0] == "message.sent"


def test_a_place_in_the_outbox_of_that_time_has_a_gap(old, dump, tmp_path):
    with Daemon(tmp_path / "first", store=old) as daemon:
        api = daemon.client()
        cursors = []
        for i in range(2):
            api.post("/v1/outbox", {"topic": "t", "payload": {"n": i}}).ok(201)
            cursors.append(api.get("/v1/outbox").ok()["next_cursor"])
            copy = copy if i else dump(old)
    restored(copy)
    with Daemon(tmp_path / "second", store=copy) as daemon:
        api = daemon.client()
        assert [api.get("/v1/outbox", after=one).ok()["gap"] for one in cursors] == [False, True]


def test_what_is_refused(postgres_server, tmp_path, old):  # noqa: F811
    empty = postgres_server.make_database(f"restored-{next(_names)}")
    assert "is not one of lapse" in restored(empty, code=1).stderr
    with Daemon(tmp_path / "data", store=old):
        assert "another lapsed uses this database" in restored(old, code=1).stderr
    assert "cannot use the database" in restored("postgresql:///x?host=/nowhere", code=4).stderr
