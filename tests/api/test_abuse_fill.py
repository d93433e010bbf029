# SPDX-License-Identifier: Apache-2.0
"""Abuse of room: one client fills what all share."""
import contextlib
import os
import signal
import time

import pytest

from client import head
from harness import wait_until

MIB = 1 << 20


def files_bytes(daemon):
    """What the data directory's files take on the disk, those without a name included."""
    named = sum(path.stat().st_blocks * 512 for path in (daemon.data_dir / "files").rglob("*") if path.is_file())
    for link in os.listdir(f"/proc/{daemon.process.pid}/fd"):
        with contextlib.suppress(OSError):
            path = f"/proc/{daemon.process.pid}/fd/{link}"
            if "/files/#" in os.readlink(path):
                named += os.stat(path).st_blocks * 512
    return named


# Unfinished uploads (line 9) ----------------------------------------------------------------------

def test_bytes_of_unfinished_uploads_count(start):
    daemon = start(attachment_total_bytes=4 * MIB)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(daemon.raw())
            connection.sock.settimeout(0.5)
            with contextlib.suppress(OSError):
                connection.send(head("POST", "/v1/attachments", Transfer_Encoding="chunked"))
                for _ in range(6):
                    connection.send(b"100000\r\n" + os.urandom(MIB) + b"\r\n")
        assert files_bytes(daemon) <= 6 * MIB
        daemon.client().upload(b"x" * (4 * MIB)).fails(429, "limit_reached", names="attachment_total_bytes")
    wait_until(lambda: files_bytes(daemon) == 0, what="all of it is let go")
    daemon.client().stage(os.urandom(4 * MIB - 1))


def test_an_announced_upload_counts_what_others_have_sent(start):
    daemon = start(attachment_total_bytes=2 * MIB)
    with daemon.raw() as first:
        first.send(head("POST", "/v1/attachments", Content_Length=2 * MIB) + os.urandom(MIB + 300_000))
        wait_until(lambda: files_bytes(daemon) >= MIB, what="most of it is on the disk")
        daemon.client().upload(os.urandom(MIB)).fails(429, "limit_reached")
        first.send(os.urandom(MIB - 300_000))
        first.answer("POST").ok(201)


def test_staging_the_same_bytes_again_needs_no_room(start):
    daemon = start(attachment_total_bytes=2 * MIB)
    content = os.urandom(2 * MIB - 10)
    api = daemon.client()
    assert not api.stage(content)["cached"]
    assert api.stage(content)["cached"]
    api.upload(os.urandom(100_000)).fails(429, "limit_reached", names="attachment_total_bytes")


# One owner and another (line 10) ------------------------------------------------------------------

def fleets(start, **limits):
    """Clients of two owners, and of an admin, of a daemon with these limits."""
    daemon = start(**limits)
    admin = daemon.client(token=daemon.client().token("root", admin=True)["token"])
    return admin, *(daemon.client(token=admin.token(owner)["token"]) for owner in ("greedy", "modest"))


def test_one_owner_cannot_take_the_room_of_attachments(start):
    _, greedy, modest = fleets(start, attachment_bytes_per_owner=MIB, attachment_total_bytes=4 * MIB)
    greedy.stage(os.urandom(MIB - 1000))
    greedy.upload(os.urandom(5000)).fails(429, "limit_reached", names="attachment_bytes_per_owner")
    modest.stage(os.urandom(MIB - 1000))


@pytest.mark.parametrize("n", [100, MIB + 300_000])
def test_the_daemon_stops_while_an_upload_is_not_complete(start, n):
    daemon = start()
    with daemon.raw() as connection:
        connection.send(head("POST", "/v1/attachments", Content_Length=4 * MIB) + os.urandom(n))
        wait_until(lambda: daemon.metric("lapse_transfers") == 1, what="the upload has begun")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(15) == 0, daemon.log()
