# SPDX-License-Identifier: Apache-2.0
"""`lapse stage` and the small commands about attachments, against a server with faults."""
import json
import os
import signal
import subprocess
import time

import pytest

from depot import Depot, Zeros, digest
from runner import LIMIT_S, Lapse, wall_clock_from
from terminal import Terminal

# With a sanitizer: else its allocator asks for the time, and libfaketime allocates to tell it.
FAST_ALLOCATOR = "allocator_release_to_os_interval_ms=-1"
GONE = "http://127.0.0.1:1"


@pytest.fixture
def lapse(depot):
    return Lapse(depot.url)


def eventually(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def peak_kib(lapse, *words, **options):
    """Runs it and gives the most memory it had."""
    process = lapse.start(*words, **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss


# One file ----------------------------------------------------------------------------------------

def test_a_file(depot, lapse, tmp_path):
    (tmp_path / "notes é.txt").write_bytes(b"hello\n")
    ran = lapse("stage", str(tmp_path / "notes é.txt"))
    years = ran.out.split("expires in ")[1].split("d")[0]
    assert ran.out == f"{digest(b'hello' + bytes([10]))}  6 B  expires in {years}d  notes é.txt\n" and ran.err == ""
    query, headers, size, checksum = depot.uploads[0]
    assert (query, size, checksum) == ({"name": "notes é.txt"}, 6, digest(b"hello\n"))
    assert headers["Content-Length"] == "6" and headers["Transfer-Encoding"] is None
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Idempotency-Key"] is None


def test_again_is_cached(lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    assert "(cached)" not in lapse("stage", str(tmp_path / "a")).out
    assert lapse("stage", str(tmp_path / "a")).out.endswith("  a (cached)\n")


def test_an_empty_file(depot, lapse, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert lapse("stage", str(tmp_path / "empty")).out.startswith(f"{digest(b'')}  0 B  ")
    assert depot.uploads[0][1]["Content-Length"] == "0"


@pytest.mark.parametrize("words, query", [
    (["--ttl", "2h"], {"ttl_ms": "7200000"}), (["--ttl", "0s"], {"ttl_ms": "0"}),
    (["--ttl", "infinity"], {"ttl_ms": "infinity"}), (["--persist"], {"persist": "true"}),
    (["--name", "b & c"], {"name": "b & c"})])
def test_options(depot, lapse, tmp_path, words, query):
    (tmp_path / "a").write_bytes(b"x")
    lapse("stage", str(tmp_path / "a"), *words)
    assert depot.uploads[0][0] == {"name": "a", **query}


def test_what_does_not_expire_is_said(depot, lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    depot.answers = [(201, Depot.row(digest(b"x"), 1, "a", persist=True, expires_at=None))]
    assert lapse("stage", str(tmp_path / "a"), "--persist").out == f"{digest(b'x')}  1 B  does not expire  a\n"


def test_hostile_answer(depot, lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    depot.answers = [(201, Depot.row("\x1b[2J", 1, "\u202ea\n", expires_at="\x07"))]
    assert "\\x1b[2J  1 B  expires \\x07  \\u202ea\\n\n" == lapse("stage", str(tmp_path / "a")).out


def test_json_is_the_answer(depot, lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    assert lapse.json("stage", str(tmp_path / "a")) == depot.rows[digest(b"x")]


def test_a_large_file_asks_first_and_is_whole(depot, lapse, tmp_path):
    data = os.urandom(5_000_000)
    (tmp_path / "large").write_bytes(data)
    lapse("stage", str(tmp_path / "large"))
    assert depot.uploads[0][2:] == (5_000_000, digest(data))
    assert depot.uploads[0][1]["Expect"] == "100-continue"


def test_a_long_name(depot, lapse, tmp_path):
    name = "n" * 255
    (tmp_path / name).write_bytes(b"x")
    lapse("stage", str(tmp_path / name))
    lapse("stage", str(tmp_path / name), "--name", "é" * 5000)
    assert [query["name"] for query, _, _, _ in depot.uploads] == [name, "é" * 5000]


def test_memory_does_not_grow_with_the_file(lapse, tmp_path):
    for name, size in (("small", 1000), ("big", 200_000_000)):
        with open(tmp_path / name, "wb") as f:
            f.truncate(size)
    small = peak_kib(lapse, "stage", str(tmp_path / "small"))
    with open(tmp_path / "big", "rb") as f:
        piped = peak_kib(lapse, "stage", "-", stdin=f)
    assert max(piped, peak_kib(lapse, "stage", str(tmp_path / "big"))) < small + 8192


# Standard input and things that are no files ------------------------------------------------------

def test_standard_input(depot, lapse):
    data = os.urandom(300_000)
    assert lapse("stage", "-", stdin=data).out.startswith(digest(data))
    lapse("stage", "-", "--name", "dump", stdin=b"")
    query, headers, size, checksum = depot.uploads[0]
    assert (query, size, checksum) == ({}, 300_000, digest(data))
    assert headers["Transfer-Encoding"] == "chunked" and headers["Content-Length"] is None
    assert depot.uploads[1][0] == {"name": "dump"} and depot.uploads[1][3] == digest(b"")


def test_a_pipe_by_name(depot, lapse, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = lapse.start("stage", str(tmp_path / "pipe"))
    (tmp_path / "pipe").write_bytes(b"through a pipe")
    assert process.communicate(timeout=LIMIT_S)[0].decode().startswith(digest(b"through a pipe"))
    assert depot.uploads[0][0] == {"name": "pipe"}


def test_a_slow_pipe_is_no_silence(depot, lapse):
    faked = wall_clock_from("/dev/null")
    if not faked:
        pytest.skip("needs libfaketime")
    # A hundred seconds pass with each, so that the two pauses are longer than the limit.
    env = {"LD_PRELOAD": faked["LD_PRELOAD"], "FAKETIME": "+0 x100", "ASAN_OPTIONS": FAST_ALLOCATOR}
    process = lapse.start("stage", "-", stdin=subprocess.PIPE, env={**lapse.env, **env})
    for part in (b"one", b"two"):
        time.sleep(1.5)
        process.stdin.write(part)
        process.stdin.flush()
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0 and depot.uploads[0][3] == digest(b"onetwo")
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("words, says", [
    (["none"], "none: No such file or directory"),
    ([""], ": No such file or directory"),
    (["dir"], "dir: it is a directory: give the files in it"),
    ([b"\xff\xfe"], "its name is not UTF-8: give --name"),
    (["a", "--name", b"\xff"], "its name is not UTF-8: give --name"),
])
def test_files_that_cannot_be(depot, lapse, tmp_path, words, says):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "dir").mkdir()
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb"):
        pass
    assert lapse("stage", *words, code=2, cwd=tmp_path).err.rstrip().endswith(says)
    assert depot.uploads == []


def test_a_name_that_is_not_utf8_with_name(depot, lapse, tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff", "wb") as f:
        f.write(b"x")
    lapse("stage", os.fsencode(tmp_path) + b"/\xff", "--name", "ok")
    assert depot.uploads[0][0] == {"name": "ok"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0)
    assert lapse("stage", "a", code=2, cwd=tmp_path).err == "lapse: a: Permission denied\n"


def test_a_file_that_shrinks(depot, lapse, tmp_path):
    with open(tmp_path / "log", "wb") as f:
        f.truncate(50_000_000)
    depot.pause_s = 0.05
    process = lapse.start("stage", "log", cwd=tmp_path)
    eventually(lambda: depot.requests)
    os.truncate(tmp_path / "log", 10)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err) == (2, b"", b"lapse: log: it became shorter while it was read\n")
    assert depot.uploads == []


def test_a_file_that_grows_is_staged_as_it_was(depot, lapse, tmp_path):
    with open(tmp_path / "log", "wb") as f:
        f.truncate(2_000_000)
    depot.pause_s = 0.01
    process = lapse.start("stage", "log", cwd=tmp_path)
    eventually(lambda: depot.requests)
    with open(tmp_path / "log", "ab") as f:
        f.write(b"x" * 100_000)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and depot.uploads[0][2] == 2_000_000 and out.startswith(Zeros(2_000_000).checksum.encode())


# Several files -----------------------------------------------------------------------------------

def test_several_files(lapse, tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    ran = lapse("stage", "a", "b", "c", cwd=tmp_path)
    assert [line.split()[0] for line in ran.lines] == [digest(name) for name in (b"a", b"b", b"c")]
    rows = [json.loads(line) for line in lapse("stage", "a", "b", "--json", cwd=tmp_path).lines]
    assert [row["name"] for row in rows] == ["a", "b"]


def test_the_others_go_on_after_a_failure(depot, lapse, tmp_path):
    for name in "acd":
        (tmp_path / name).write_bytes(name.encode())
    depot.answers = [(201, Depot.row(digest(b"a"), 1, "a")), (429, {"error": {"code": "x", "message": "full"}})]
    ran = lapse("stage", "a", "missing", "c", "d", cwd=tmp_path, code=2)
    assert [line.split()[-1] for line in ran.lines] == ["a", "d"]
    assert ran.err == "lapse: missing: No such file or directory\nlapse: c: full\n"


@pytest.mark.parametrize("status, code", [(401, 6), (403, 6)])
def test_a_token_that_is_not_enough_ends_it(depot, lapse, tmp_path, status, code):
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    depot.answers = [(status, {"error": {"code": "x", "message": "no"}})] * 2
    assert lapse("stage", "a", "b", cwd=tmp_path, code=code).err.startswith("lapse: no")
    assert len(depot.uploads) == 1


def test_no_daemon_is_said_once(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    assert Lapse(GONE)("stage", "a", "b", cwd=tmp_path, code=3).err.count("no daemon at") == 1


# Faults ------------------------------------------------------------------------------------------

def test_a_refusal_before_the_body(depot, lapse, tmp_path):
    with open(tmp_path / "huge", "wb") as f:
        f.truncate(5_000_000_000)
    depot.refuse = 413, "too large"
    assert lapse("stage", "huge", cwd=tmp_path, code=1).err == "lapse: huge: too large\n"
    assert depot.uploads == []


def test_a_broken_connection_is_tried_again(depot, lapse, tmp_path):
    data = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(data)
    depot.receive_only = [1_000_000]
    assert lapse("stage", "a", cwd=tmp_path).out.startswith(digest(data))
    assert len(depot.requests) == 2 and len(depot.uploads) == 1


def test_a_connection_that_breaks_twice(depot, lapse, tmp_path):
    with open(tmp_path / "a", "wb") as f:
        f.truncate(3_000_000)
    depot.receive_only = [1_000_000, 2_000_000]
    ran = lapse("stage", "a", "a", cwd=tmp_path, code=3)
    assert ran.out == "" and "no answer from" in ran.err and len(depot.requests) == 2


def test_standard_input_cannot_be_sent_again(depot, lapse):
    depot.receive_only = [1_000_000]
    lapse("stage", "-", stdin=bytes(3_000_000), code=3)
    assert len(depot.requests) == 1


def test_standard_input_after_a_connection_was_closed(depot, lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    ran = lapse("stage", "a", "-", "a", cwd=tmp_path, stdin=b"piped")
    assert [line.split()[0] for line in ran.lines] == [digest(b"a"), digest(b"piped"), digest(b"a")]


def test_a_server_that_falls_silent(depot, lapse, tmp_path):
    faked = wall_clock_from("/dev/null")
    if not faked:
        pytest.skip("needs libfaketime")
    (tmp_path / "a").write_bytes(b"a")
    depot.pause_s = 5
    env = {"LD_PRELOAD": faked["LD_PRELOAD"], "FAKETIME": "+0 x100", "ASAN_OPTIONS": FAST_ALLOCATOR}
    started = time.monotonic()
    assert "has gone silent" in lapse("stage", "a", cwd=tmp_path, code=3, env=env).err
    assert time.monotonic() - started < 4


def test_interrupted(depot, lapse, tmp_path):
    with open(tmp_path / "a", "wb") as f:
        f.truncate(50_000_000)
    depot.pause_s = 0.05
    process = lapse.start("stage", "a", cwd=tmp_path)
    eventually(lambda: depot.requests)
    process.send_signal(signal.SIGINT)
    assert (*process.communicate(timeout=5), process.returncode) == (b"", b"", 130)
    assert depot.uploads == []


# The bar -----------------------------------------------------------------------------------------

def slow_file(depot, tmp_path, name="big.bin"):
    with open(tmp_path / name, "wb") as f:
        f.truncate(6_000_000)
    depot.pause_s = 0.02  # 92 pieces: two seconds
    return name


def test_the_bar_moves_and_goes_away(depot, lapse, tmp_path):
    with Terminal(lapse, "stage", slow_file(depot, tmp_path), cwd=tmp_path, columns=120) as t:
        t.until(lambda text: "big.bin  [" in text and "of 5.7 MiB" in text and "/s  ETA " in text)
        t.until(lambda text: any(f" {n}%" in text for n in range(50, 101)))
        assert t.end() == 0
        assert t.raw.count("\n") == 1 and t.raw.count("\r") > 5  # drawn in place; one line at the end
        assert "[" not in t.screen.text and "big.bin" in t.screen.text
        t.assert_restored()


def test_the_bar_fits_the_terminal(depot, lapse, tmp_path):
    with Terminal(lapse, "stage", slow_file(depot, tmp_path, "n" * 200), cwd=tmp_path, columns=60) as t:
        t.until("%")
        t.resize(30, 24)
        assert t.end() == 0
    frames = [frame.split("\x1b[K")[0] for frame in t.raw.split("\r")[1:] if "%" in frame]
    assert frames and all(len(frame) < 60 for frame in frames) and len(frames[-1]) < 30


def test_the_bar_when_interrupted(depot, lapse, tmp_path):
    with Terminal(lapse, "stage", slow_file(depot, tmp_path), cwd=tmp_path) as t:
        t.until("%")
        os.write(t.ours, b"\x03")
        assert t.end() == 130
        assert t.raw.endswith("\n") and t.screen.x == 0
        t.assert_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_bar_when_terminated(depot, lapse, tmp_path, number):
    with Terminal(lapse, "stage", slow_file(depot, tmp_path), cwd=tmp_path) as t:
        t.until("%")
        t.signal(number)
        assert t.end() == -number and t.raw.endswith("\n")


def test_the_bar_before_an_error(depot, lapse, tmp_path):
    depot.receive_only = [3_000_000, 1]
    with Terminal(lapse, "stage", slow_file(depot, tmp_path), cwd=tmp_path) as t:
        t.until("%")
        assert t.end() == 3
        assert t.screen.text.startswith("lapse: no answer from") and "[" not in t.screen.text


def test_a_pipe_has_a_bar_without_an_end(depot, lapse, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with Terminal(lapse, "stage", "pipe", cwd=tmp_path) as t, open(tmp_path / "pipe", "wb") as pipe:
        for _ in range(12):
            pipe.write(bytes(50_000))
            pipe.flush()
            time.sleep(0.05)
        t.until(lambda text: "pipe  " in text and "/s" in text and "%" not in text and "ETA" not in text)
        pipe.close()
        assert t.end() == 0


def test_no_bar_over_what_is_typed(depot, lapse):
    with Terminal(lapse, "stage", "-", columns=120) as t:
        for _ in range(4):
            time.sleep(0.2)
            os.write(t.ours, b"typed\n")
        t.until("typed")
        os.write(t.ours, b"\x04")
        assert t.end() == 0 and depot.uploads[0][3] == digest(b"typed\n" * 4)
        assert "/s" not in t.raw


def test_no_bar_without_a_terminal(depot, lapse, tmp_path):
    assert lapse("stage", slow_file(depot, tmp_path), cwd=tmp_path).err == ""


def test_no_bar_on_a_dumb_terminal_or_for_small_files(depot, lapse, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    _, shown = lapse.on_terminal("stage", "a", cwd=tmp_path)
    assert "\r" not in shown and shown.count("\n") == 1
    _, shown = lapse.on_terminal("stage", slow_file(depot, tmp_path), cwd=tmp_path, env={"TERM": "dumb"})
    assert "\r" not in shown and "%" not in shown


# Lists and the small commands --------------------------------------------------------------------

def test_ls(depot, lapse):
    one = depot.add(b"x" * 1536, "report.pdf")
    two = depot.add(b"y", "\x1b[2Jevil", persist=True, expires_at=None, ttl_ms="infinity")
    head, first, second = lapse("attachments").lines
    assert head.split() == ["CHECKSUM", "SIZE", "STAGED", "EXPIRES", "PERSIST", "NAME"]
    assert first.startswith(f"{one}  1.5 KiB  ") and first.endswith("  no       report.pdf")
    assert second.startswith(f"{two}      1 B") and second.split()[3:] == \
        [first.split()[3], "ago", "-", "yes", "\\x1b[2Jevil"]
    assert lapse("attachments", "ls").lines[1:] == [first, second]
    _, shown = lapse.on_terminal("attachments", env={"NO_COLOR": "1"}, columns=100)
    assert one not in shown and f"\n{one[:16]}  1.5 KiB" in shown


def test_ls_is_paged(depot, lapse):
    for n in range(5):
        depot.add(bytes([n]))
    depot.page_rows = 2
    assert len(lapse.json("attachments")["data"]) == 5
    assert len(lapse("attachments", "--limit", "3").lines) == 4


def test_empty_ls(lapse):
    assert lapse("attachments").out == "no attachments\n"


def test_show(depot, lapse):
    checksum = depot.add(b"x", "report.pdf", ttl_ms="infinity", expires_at=None)
    fields = dict(line.split(None, 1) for line in lapse("attachments", "show", checksum).lines)
    assert fields["checksum"] == checksum and fields["name"] == "report.pdf" and fields["size"] == "1 B"
    assert fields["lifetime"] == "infinity" and fields["expires"] == "-" and fields["persist"] == "no"
    assert fields["staged"].startswith("2026-01-01T00:00:00.000Z (")
    assert lapse.json("attachments", "show", checksum) == depot.rows[checksum]
    assert lapse("attachments", "show", "0" * 64, code=5).err == "lapse: Attachment not found\n"


def test_show_expired(stub):
    stub.script = [(410, {"error": {"code": "expired", "message": "Attachment has expired"}})]
    assert "expired" in Lapse(stub.url)("attachments", "show", "0" * 64, code=1).err


def test_rm(depot, lapse):
    checksum = depot.add(b"x")
    assert lapse("attachments", "rm", checksum.upper()).out == f"{checksum} is removed\n"
    lapse("attachments", "rm", checksum, code=5)
    checksum = depot.add(b"y")
    assert lapse.json("attachments", "rm", checksum) == {"checksum": checksum, "deleted": True}


def test_a_prefix(depot, lapse):
    depot.page_rows = 2
    checksums = [depot.add(bytes([n])) for n in range(7)]
    assert lapse.json("attachments", "show", checksums[6][:8])["checksum"] == checksums[6]
    assert lapse("attachments", "rm", checksums[5][:20]).out == f"{checksums[5]} is removed\n"
    assert lapse("attachments", "rm", checksums[5][:20], code=5).err == \
        f"lapse: no attachment begins with {checksums[5][:20]}\n"
    assert checksums[6] in depot.rows


def test_a_prefix_of_several(depot, lapse):
    depot.page_rows = 1
    for last in "ab":
        depot.rows["01234567" * 7 + "0123456" + last] = Depot.row("01234567" * 7 + "0123456" + last, 1, "x")
    assert lapse("attachments", "rm", "0123456701234567", code=1).err == \
        "lapse: more than one attachment begins with 0123456701234567: give more of it\n"
    assert len(depot.rows) == 2 and not depot.asked("DELETE", "/v1/attachments/" + "0123456701234567")


@pytest.mark.parametrize("verb", [["fetch"], ["attachments", "show"], ["attachments", "rm"]])
@pytest.mark.parametrize("typed", ["", "0123456", "0" * 65, "g" * 64, "../../etc", "0123456 ", "١٢٣٤٥٦٧٨"])
def test_no_checksum(verb, typed):
    ran = Lapse(GONE)(*verb, typed, code=2)
    assert "CHECKSUM must be the 64 hexadecimal digits of a SHA-256, or the first of them, at least 8" in ran.err


def test_metrics(depot, lapse):
    assert [line.split() for line in lapse("attachments", "metrics").lines] == [
        ["ATTACHMENTS", "COUNT", "SIZE"], ["persistent", "1", "1.5", "KiB"], ["expirable", "2", "2.0", "KiB"],
        ["total", "3", "3.5", "KiB"]]
    assert lapse.json("attachments", "metrics")["total_bytes"] == 3584
    assert depot.asked("GET", "/v1/attachments/metrics")


def test_cleanup(depot, lapse):
    assert lapse("cleanup").out == "removed 3 attachments (1.5 KiB)\n"
    assert lapse.json("cleanup") == {"count": 3, "bytes": 1536}


def test_cleanup_of_one(stub):
    stub.script = [(200, {"count": 1, "bytes": 0})]
    assert Lapse(stub.url)("cleanup").out == "removed 1 attachment (0 B)\n"
    assert [request[:2] for request in stub.requests] == [("POST", "/v1/attachments/cleanup")]


@pytest.mark.parametrize("words, says", [
    (["stage"], "FILE... is missing"),
    (["stage", "a", "b", "--name", "x"], "--name is for one FILE"),
    (["stage", "a", "--name", ""], "--name must not be empty"),
    (["stage", "-", "a", "-"], "- can be given only once"),
    (["stage", "a", "--ttl", "5"], "--ttl must be a duration like 500ms, 30s, 5m, 1h30m, 7d or 2w, or infinity, not '5'"),
    (["stage", "a", "--ttl", "-1s"], "--ttl must be"),
    (["stage", "a", "--ttl", "Infinity"], "--ttl must be"),
    (["stage", "a", "--ttl", "1s", "--ttl", "2s"], "--ttl is given twice"),
    (["stage", "a", "-o", "b"], "unknown option '-o'"),
    (["attachments", "rm"], "CHECKSUM is missing"),
    (["attachments", "show", "a", "b"], "unexpected argument 'b'"),
    (["attachments", "nonsense"], "unknown command 'attachment nonsense'"),
    (["attachments", "--limit", "0"], "--limit must be"),
    (["cleanup", "x"], "unexpected argument 'x'"),
])
def test_usage(words, says):
    ran = Lapse(GONE)(*words, code=2)
    assert says in ran.err and ran.out == "", repr(ran)
