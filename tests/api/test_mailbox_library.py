# SPDX-License-Identifier: Apache-2.0
"""A daemon with a mail server, then a program with the library in its directory, then the daemon again.

The library asks no mail server. What ended while it had the directory is deleted by the next daemon, as if
nothing had been tried before.
"""
import os
import pathlib
import subprocess

import pytest

from harness import NEVER_MS, binary, wait_until
from mailrig import DOMAIN, GENERATIONS, Rig, stalwart

LONG_MS = 3_600_000


@pytest.fixture(params=GENERATIONS)
def server(request):
    with stalwart.Stalwart(request.param, domains=(DOMAIN,)) as double:
        yield double


@pytest.fixture
def rig(start, server):
    return Rig(start, server=server, mailbox_sweep_ms=NEVER_MS)


pytestmark = pytest.mark.sqlite("the library keeps its data there only")


def visit(data_dir):
    """Lets the library into the directory (tests/lib/visit.c): the mailboxes it saw, by their ids."""
    program = pathlib.Path(binary()).parent / "tests" / "lib" / "visit"
    if not os.access(program, os.X_OK):
        pytest.skip("tests/lib/visit is not beside this lapsed")
    done = subprocess.run([program, data_dir], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def end(rig, box):
    """Its time was up a moment after it was made."""
    rig.daemon.execute("UPDATE mailboxes SET expires_at = created_at WHERE id = ?", int(box["id"][4:], 16))


def test_the_next_daemon_deletes_what_ended_meanwhile(rig, server):
    over, alive = rig.create("over", ttl_ms=LONG_MS), rig.create("alive", ttl_ms=LONG_MS)
    rig.daemon.stop()
    end(rig, over)
    asked = len(server.log)

    assert visit(rig.daemon.data_dir) == {over["id"]: ["stalwart", "expired", "pending"],
                                          alive["id"]: ["stalwart", "active", "clean"]}
    row = rig.row(over)
    assert (row["status"], row["stalwart_cleanup_failed"], row["cleanup_attempts"]) == ("expired", 1, 0)
    assert len(server.log) == asked
    assert set(server.accounts) == {over["address"], alive["address"]}

    rig.daemon.start()
    rig.api = rig.daemon.client()
    wait_until(lambda: set(server.accounts) == {alive["address"]}, what="the account to go")
    rig.settled(over, 0, 0)
    assert rig.get(alive)["status"] == "active"
    assert rig.api.get(f"/v1/mailboxes/{alive['id']}/messages").ok()["data"] == []
    assert rig.api.get("/v1/dead-letters").data == []
