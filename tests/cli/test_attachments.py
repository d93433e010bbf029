# SPDX-License-Identifier: Apache-2.0
"""Attachments of a real daemon: staged, listed, fetched, gone. What only a sick one does is in
test_stage.py and test_fetch.py."""
import hashlib
import os
import time

import pytest
import requests

from runner import LIMIT_S, Lapse
from test_stage import eventually, peak_kib

DATA = os.urandom(3_000_000)
CHECKSUM = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def own(start):
    return Lapse(start().url)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "data.bin").write_bytes(DATA)
    return str(tmp_path / "data.bin")


def test_there_and_back(own, file, tmp_path):
    assert own("attachments").out == "no attachments\n"
    assert own("stage", file).out == f"{CHECKSUM}  2.9 MiB  expires in 24h  data.bin\n"
    assert own("stage", file).out.endswith("data.bin (cached)\n")
    assert own("fetch", CHECKSUM, binary=True).out == DATA
    assert own("fetch", CHECKSUM[:8], "-o", "copy", cwd=tmp_path).out == "copy  2.9 MiB\n"
    assert (tmp_path / "copy").read_bytes() == DATA
    assert [line.split()[0] for line in own("attachments").lines] == ["CHECKSUM", CHECKSUM]
    assert own("attachments", "ls").lines == own("attachments").lines


def test_show(own, file):
    own("stage", file, "--ttl", "2h")
    fields = dict(line.split(None, 1) for line in own("attachments", "show", CHECKSUM).lines)
    assert fields["name"] == "data.bin" and fields["lifetime"] == "2h" and fields["persist"] == "no"
    assert fields["expires"].endswith("(in 2h)")
    own("stage", file, "--persist", "--ttl", "infinity")
    row = own.json("attachments", "show", CHECKSUM)
    assert row["persist"] is True and row["ttl_ms"] == "infinity" and row["expires_at"] is None


def test_standard_input(own):
    assert own("stage", "-", "--name", "dump", stdin=DATA).out.startswith(CHECKSUM)
    assert own.json("attachments", "show", CHECKSUM)["name"] == "dump"
    own("stage", "-", stdin=b"")
    assert own("fetch", hashlib.sha256(b"").hexdigest(), binary=True).out == b""


def test_a_part_goes_on_with_the_daemon_ranges(own, file, tmp_path):
    own("stage", file)
    (tmp_path / "copy.part").write_bytes(DATA[:1_000_000])
    assert own.json("fetch", CHECKSUM, "-o", "copy", cwd=tmp_path)["resumed_at"] == 1_000_000
    assert (tmp_path / "copy").read_bytes() == DATA


def test_several_files(own, tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name)
    ran = own("stage", "a", "missing", "b", "c", cwd=tmp_path, code=2)
    assert [line.split()[-1] for line in ran.lines] == ["a", "b", "c"]
    assert len(own.json("attachments")["data"]) == 3


def test_names(own, tmp_path):
    (tmp_path / "a").write_text("x")
    own("stage", "a", "--name", "évil name", cwd=tmp_path)
    code, _ = own.on_terminal("fetch", hashlib.sha256(b"x").hexdigest(), cwd=tmp_path)
    assert code == 0 and (tmp_path / "évil name").read_text() == "x"
    ran = own("stage", "a", "--name", "n" * 5000, cwd=tmp_path, code=1)
    assert ran.err.startswith("lapse: a: ") and "name" in ran.err
    own("stage", "a", "--name", "two\nlines", cwd=tmp_path, code=1)


def test_rm_and_metrics(own, file, tmp_path):
    (tmp_path / "kept").write_text("kept")
    own("stage", file)
    own("stage", str(tmp_path / "kept"), "--persist")
    assert [line.split() for line in own("attachments", "metrics").lines][1:] == [
        ["persistent", "1", "4", "B"], ["expirable", "1", "2.9", "MiB"], ["total", "2", "2.9", "MiB"]]
    assert own("attachments", "rm", CHECKSUM[:12]).out == f"{CHECKSUM} is removed\n"
    own("attachments", "rm", CHECKSUM, code=5)
    own("attachments", "show", CHECKSUM, code=5)
    own("fetch", CHECKSUM, code=5)


def test_expired_and_cleanup(start, file):
    own = Lapse(start(attachment_sweep_ms=86400000).url)
    own("stage", file, "--ttl", "0s")
    assert "expired" in own("fetch", CHECKSUM, code=1).err.lower()
    assert own("cleanup").out in ("removed 1 attachment (2.9 MiB)\n", "removed 0 attachments (0 B)\n")
    own("fetch", CHECKSUM, code=5)
    assert own("cleanup").out == "removed 0 attachments (0 B)\n"
    assert own.json("attachments")["data"] == []


def test_too_large(start, tmp_path):
    own = Lapse(start(attachment_max_bytes=1000).url)
    with open(tmp_path / "huge", "wb") as f:
        f.truncate(5_000_000_000)
    started = time.monotonic()
    assert own("stage", "huge", cwd=tmp_path, code=1).err.startswith("lapse: huge: ")
    assert time.monotonic() - started < 5  # refused before it was sent
    own("stage", "-", stdin=bytes(2_000_000), code=1)
    assert own("attachments").out == "no attachments\n"


def test_owners_do_not_see_each_other(own, file):
    own("stage", file, "--owner", "team")
    own("fetch", CHECKSUM, code=5)
    own("fetch", CHECKSUM[:10], code=5)
    assert own("fetch", CHECKSUM, "--owner", "team", binary=True).out == DATA


def test_pages(own):
    url = own.env["LAPSE_URL"] + "/v1/attachments"
    checksums = []
    for n in range(230):
        checksums.append(requests.post(url, data=str(n), params={"name": f"f{n}"}, timeout=LIMIT_S).json()["checksum"])
    assert {row["checksum"] for row in own.json("attachments")["data"]} == set(checksums)
    assert len(own("attachments", "--limit", "101").lines) == 102
    for checksum in (checksums[0], checksums[-1]):
        assert own.json("attachments", "show", checksum[:16])["checksum"] == checksum


def test_large_ones_need_no_memory(own, tmp_path):
    with open(tmp_path / "big", "wb") as f:
        f.truncate(300_000_000)
    (tmp_path / "small").write_text("x")
    base = peak_kib(own, "stage", str(tmp_path / "small"))
    assert peak_kib(own, "stage", str(tmp_path / "big")) < base + 8192
    checksum = next(row["checksum"] for row in own.json("attachments")["data"] if row["size"] > 1)
    assert peak_kib(own, "fetch", checksum, "-o", str(tmp_path / "copy")) < base + 8192
    assert os.path.getsize(tmp_path / "copy") == 300_000_000


def test_the_daemon_dies_under_an_upload(start):
    daemon = start()
    lapse = Lapse(daemon.url)
    reading, writing = os.pipe()
    process = lapse.start("stage", "-", stdin=reading)
    os.close(reading)
    os.write(writing, b"x" * 60_000)
    time.sleep(0.3)
    daemon.process.kill()
    daemon.process.wait()
    try:
        while process.poll() is None:
            os.write(writing, b"x" * 60_000)
    except BrokenPipeError:
        pass
    os.close(writing)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3 and err.startswith(b"lapse: no ")
    daemon.process.stdout.close()
    again = Lapse(start(data_dir=daemon.data_dir).url)
    assert again("attachments").out == "no attachments\n"


def test_events_and_status(own, file):
    own("stage", file)
    eventually(lambda: "attachment.staged" in own("events").out)
    line = next(line for line in own("events").lines if "attachment.staged" in line)
    assert f"checksum={CHECKSUM}" in line and 'size_bytes="2.9 MiB"' in line and "name=data.bin" in line
    assert any(line.split()[:2] == ["attachments", "1"] for line in own("status").lines)
    assert "attachments" in own("top", "--once", "--interval", "100ms").out


def test_bytes_that_are_there_are_not_sent_again(start, tmp_path):
    """The command asks with the checksum first; the answer refreshes the attachment."""
    daemon = start()
    lapse = Lapse(daemon.url)
    (tmp_path / "big").write_bytes(os.urandom(3 << 20))
    first = lapse.json("stage", str(tmp_path / "big"), "--ttl", "1h")
    assert first["cached"] is False
    before = received(daemon)
    again = lapse.json("stage", str(tmp_path / "big"), "--ttl", "2h", "--persist")
    assert received(daemon) - before < 1 << 20
    assert again["cached"] is True and again["persist"] is True and again["ttl_ms"] == 7200000
    assert again["checksum"] == first["checksum"] and again["inserted_at"] >= first["inserted_at"]
    assert lapse("events").out.count("attachment.staged") == 2
    lapse("attachment", "rm", first["checksum"][:8])
    assert lapse.json("stage", str(tmp_path / "big"))["cached"] is False


def received(daemon):
    """Bytes that the daemon has read so far, from anywhere."""
    with open(f"/proc/{daemon.process.pid}/io", encoding="ascii") as f:
        return int(f.readline().split()[1])


def test_another_owner_has_to_send_its_bytes(start, tmp_path):
    lapse = Lapse(start().url)
    (tmp_path / "big").write_bytes(os.urandom(200_000))
    checksum = lapse.json("stage", str(tmp_path / "big"))["checksum"]
    assert lapse.json("stage", str(tmp_path / "big"), "--owner", "other")["cached"] is False
    assert lapse.json("attachment", "show", checksum, "--owner", "other")["checksum"] == checksum


def test_a_file_that_is_gone_is_sent_again(start, tmp_path):
    daemon = start()
    lapse = Lapse(daemon.url)
    (tmp_path / "big").write_bytes(os.urandom(200_000))
    checksum = lapse.json("stage", str(tmp_path / "big"))["checksum"]
    for file in daemon.data_dir.rglob(f"*{checksum[:16]}*"):
        if file.is_file():
            file.unlink()
    assert lapse.json("stage", str(tmp_path / "big"))["cached"] is False
    assert lapse("fetch", checksum, "--output", "-", binary=True).out == (tmp_path / "big").read_bytes()
