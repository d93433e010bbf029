# SPDX-License-Identifier: Apache-2.0
"""`lapse fetch`: where it goes, what is left of a broken one, and servers that lie."""
import os
import signal

import pytest

from depot import Zeros, digest
from runner import LIMIT_S, Lapse
from terminal import Terminal
from test_stage import eventually, peak_kib

DATA = os.urandom(400_000)


@pytest.fixture
def lapse(depot):
    return Lapse(depot.url)


def content(checksum):
    return f"/v1/attachments/{checksum}/content"


def files(path):
    return sorted(os.listdir(path))


# Where it goes -----------------------------------------------------------------------------------

def test_into_a_pipe(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    ran = lapse("fetch", checksum, binary=True, cwd=tmp_path)
    assert ran.out == DATA and ran.err == "" and files(tmp_path) == []
    assert lapse("fetch", checksum, "-o", "-", binary=True).out == DATA
    assert lapse("fetch", checksum[:8], binary=True).out == DATA


@pytest.mark.parametrize("option", [["-o", "out"], ["--output", "out"], ["--output=out"]])
def test_into_a_file(depot, lapse, tmp_path, option):
    checksum = depot.add(DATA)
    assert lapse("fetch", checksum, *option, cwd=tmp_path).out == "out  391 KiB\n"
    assert (tmp_path / "out").read_bytes() == DATA and files(tmp_path) == ["out"]
    request = depot.asked("GET", content(checksum))[0][2]
    assert request["Range"] is None and request["If-Range"] is None


def test_json(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    assert lapse.json("fetch", checksum, "-o", "out", cwd=tmp_path) == {
        "checksum": checksum, "file": "out", "size": len(DATA), "resumed_at": 0}
    assert "--json needs --output FILE" in lapse("fetch", checksum, "--json", code=2).err


def test_on_a_terminal_it_gets_its_own_name(depot, lapse, tmp_path):
    checksum = depot.add(DATA, "report é.pdf")
    code, shown = lapse.on_terminal("fetch", checksum, cwd=tmp_path)
    assert code == 0 and shown == "report é.pdf  391 KiB\n"
    assert (tmp_path / "report é.pdf").read_bytes() == DATA


@pytest.mark.parametrize("name, file", [
    ("../../etc/passwd", "passwd"), ("/abs/olute", "olute"), ("a\x1b[2J\nb\u202ec", "a_[2J_b_c"), (".bashrc", "_bashrc"),
    ("-rf", "_rf"), (".", "_"), ("..", "_."), ("a" * 1000, "a" * 250), ("é" * 200, "é" * 125), ("dir/", None),
    ("", None), (None, None)])
def test_names_are_made_safe(depot, lapse, tmp_path, name, file):
    checksum = depot.add(b"x", name)
    code, _ = lapse.on_terminal("fetch", checksum, cwd=tmp_path)
    assert code == 0 and files(tmp_path) == [file or checksum]


def test_a_terminal_gets_no_bytes(depot, lapse):
    checksum = depot.add(b"\x1b[2J")
    code, shown = lapse.on_terminal("fetch", checksum, "-o", "-")
    assert code == 2 and "standard output is a terminal" in shown and "\x1b" not in shown
    code, shown = lapse.on_terminal("fetch", checksum, "-o", "/dev/tty")
    assert code != 0 and "\x1b" not in shown
    assert depot.asked("GET", content(checksum)) == []


def test_an_empty_attachment(depot, lapse, tmp_path):
    checksum = depot.add(b"", "empty")
    assert lapse("fetch", checksum, "-o", "out", cwd=tmp_path).out == "out  0 B\n"
    assert (tmp_path / "out").read_bytes() == b"" and lapse("fetch", checksum, binary=True).out == b""


def test_a_file_that_exists_stays(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    (tmp_path / "out").write_bytes(b"mine")
    os.symlink("nowhere", tmp_path / "link")
    for name in ("out", "link"):
        assert lapse("fetch", checksum, "-o", name, cwd=tmp_path, code=1).err == \
            f"lapse: {name} exists: give --force to replace it, or --output FILE\n"
    assert (tmp_path / "out").read_bytes() == b"mine" and files(tmp_path) == ["link", "out"]
    assert depot.asked("GET", content(checksum)) == []
    lapse("fetch", checksum, "-o", "out", "--force", cwd=tmp_path)
    assert (tmp_path / "out").read_bytes() == DATA


def test_a_file_that_appears_meanwhile_stays(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.piece, depot.pause_s = 40_000, 0.05
    process = lapse.start("fetch", checksum, "-o", "out", cwd=tmp_path)
    eventually(lambda: depot.asked("GET", content(checksum)))
    (tmp_path / "out").write_bytes(b"mine")
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1 and b"out exists by now; what was fetched is in out.part" in err
    assert (tmp_path / "out").read_bytes() == b"mine" and (tmp_path / "out.part").read_bytes() == DATA


def test_a_link_is_replaced_not_followed(depot, lapse, tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    os.symlink("target", tmp_path / "link")
    lapse("fetch", depot.add(DATA), "-o", "link", "--force", cwd=tmp_path)
    assert (tmp_path / "target").read_bytes() == b"mine" and (tmp_path / "link").read_bytes() == DATA


def test_a_link_in_the_place_of_the_part_is_not_followed(depot, lapse, tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    os.symlink("target", tmp_path / "out.part")
    assert "cannot open out.part" in lapse("fetch", depot.add(DATA), "-o", "out", cwd=tmp_path, code=1).err
    assert (tmp_path / "target").read_bytes() == b"mine"


def test_into_a_device(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    assert lapse("fetch", checksum, "-o", "/dev/null", cwd=tmp_path).out == "/dev/null  391 KiB\n"
    assert not os.path.isfile("/dev/null") and "No space left" in lapse("fetch", checksum, "-o", "/dev/full", code=1).err
    os.mkfifo(tmp_path / "pipe")
    process = lapse.start("fetch", checksum, "-o", "pipe", cwd=tmp_path)
    assert (tmp_path / "pipe").read_bytes() == DATA and process.wait(LIMIT_S) == 0
    process.stdout.close()
    process.stderr.close()
    assert files(tmp_path) == ["pipe"]


@pytest.mark.parametrize("output, code, says", [
    ("", 2, "--output must not be empty"), ("dir", 2, "dir is a directory: give --output FILE"),
    ("none/out", 2, "cannot open none/out.part: No such file or directory"),
    ("x" * 300, 1, "File name too long"), ("file/out", 1, "Not a directory")])
def test_outputs_that_cannot_be(depot, lapse, tmp_path, output, code, says):
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_bytes(b"")
    assert says in lapse("fetch", depot.add(b"x"), "-o", output, cwd=tmp_path, code=code).err
    assert files(tmp_path) == ["dir", "file"]


def test_a_part_that_is_no_file(depot, lapse, tmp_path):
    os.mkfifo(tmp_path / "out.part")
    assert "out.part is not a file: move it away" in lapse("fetch", depot.add(b"x"), "-o", "out", cwd=tmp_path, code=2).err
    assert files(tmp_path) == ["out.part"]


def test_not_there(depot, lapse, tmp_path):
    assert lapse("fetch", "0" * 64, code=5, cwd=tmp_path).err == "lapse: Attachment not found\n"
    assert "no attachment begins with" in lapse("fetch", "0" * 12, code=5, cwd=tmp_path).err
    assert files(tmp_path) == []
    assert depot.asked("GET", content("0" * 64)) == []


@pytest.mark.parametrize("words, says", [
    (["fetch"], "CHECKSUM is missing"), (["fetch", "0" * 64, "x"], "unexpected argument 'x'"),
    (["fetch", "0" * 64, "-o"], "--output needs a value: FILE"),
    (["fetch", "0" * 64, "-o", "a", "--output", "b"], "--output is given twice")])
def test_usage(words, says):
    assert says in Lapse("http://127.0.0.1:1")(*words, code=2).err


def test_memory_does_not_grow(depot, lapse, tmp_path):
    small, big = depot.add(b"x"), depot.add(Zeros(200_000_000))
    base = peak_kib(lapse, "fetch", small)
    assert peak_kib(lapse, "fetch", big, "-o", str(tmp_path / "big")) < base + 8192
    os.truncate(tmp_path / "big", 190_000_000)
    os.rename(tmp_path / "big", tmp_path / "big.part")
    assert peak_kib(lapse, "fetch", big, "-o", str(tmp_path / "big")) < base + 8192
    assert os.path.getsize(tmp_path / "big") == 200_000_000


def test_nobody_reads(depot, lapse):
    checksum = depot.add(Zeros(50_000_000))
    process = lapse.start("fetch", checksum)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(LIMIT_S) == 1 and b"cannot write the output: Broken pipe" in process.stderr.read()
    process.stderr.close()


# Broken connections ------------------------------------------------------------------------------

def test_goes_on_by_itself(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.send_only = [100_000, 50_000]
    assert lapse("fetch", checksum, "-o", "out", cwd=tmp_path).out == "out  391 KiB\n"
    assert (tmp_path / "out").read_bytes() == DATA
    asked = [(request["Range"], request["If-Range"]) for _, _, request in depot.asked("GET", content(checksum))]
    assert asked == [(None, None), ("bytes=100000-", f'"{checksum}"'), ("bytes=150000-", f'"{checksum}"')]


@pytest.mark.parametrize("has_ranges", [True, False])
def test_goes_on_into_a_pipe(depot, lapse, has_ranges):
    checksum = depot.add(DATA)
    depot.send_only, depot.has_ranges = [100_000, 150_000], has_ranges
    assert lapse("fetch", checksum, binary=True).out == DATA


def test_an_end_without_a_length(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.send_only, depot.length = [100_000], False
    lapse("fetch", checksum, "-o", "out", cwd=tmp_path)
    assert (tmp_path / "out").read_bytes() == DATA and len(depot.asked("GET", content(checksum))) == 2


def test_gives_up(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.send_only = [100_000, 0]
    ran = lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=3)
    assert ran.err.endswith("; out.part has 97.7 KiB of it, the same command goes on from there\n")
    assert files(tmp_path) == ["out.part"]
    ran = lapse("fetch", checksum, "-o", "out", cwd=tmp_path)
    assert ran.out == "out  391 KiB, the first 97.7 KiB from before\n"
    assert (tmp_path / "out").read_bytes() == DATA and files(tmp_path) == ["out"]


def test_gives_up_on_drops(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.send_only = [1000] * 100
    lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=3)
    assert len(depot.asked("GET", content(checksum))) == 4 and os.path.getsize(tmp_path / "out.part") == 4000


def test_gives_up_before_the_first_byte(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.send_only = [0]
    lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=3)
    assert files(tmp_path) == []


def test_the_server_dies(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.piece, depot.pause_s, depot.send_only = 20_000, 0.05, [200_000]
    process = lapse.start("fetch", checksum, "-o", "out", cwd=tmp_path)
    eventually(lambda: depot.asked("GET", content(checksum)))
    depot.shutdown()
    depot.socket.close()
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3 and b"no daemon at" in err and b"out.part has 195 KiB of it" in err
    assert (tmp_path / "out.part").read_bytes() == DATA[:200_000] and files(tmp_path) == ["out.part"]


@pytest.mark.parametrize("typed", [False, True])
def test_interrupted(depot, lapse, tmp_path, typed):
    checksum = depot.add(DATA, "a.bin")
    depot.piece, depot.pause_s = 10_000, 0.05
    if typed:
        with Terminal(lapse, "fetch", checksum, cwd=tmp_path) as t:
            t.until("%")
            os.write(t.ours, b"\x03")
            assert t.end() == 130 and t.raw.endswith("\n") and t.screen.x == 0
            t.assert_restored()
    else:
        process = lapse.start("fetch", checksum, "-o", "a.bin", cwd=tmp_path)
        eventually(lambda: (tmp_path / "a.bin.part").exists() and os.path.getsize(tmp_path / "a.bin.part"))
        process.send_signal(signal.SIGINT)
        assert (*process.communicate(timeout=5), process.returncode) == (b"", b"", 130)
    got = (tmp_path / "a.bin.part").read_bytes()
    assert 0 < len(got) < len(DATA) and DATA.startswith(got) and files(tmp_path) == ["a.bin.part"]
    depot.pause_s = 0
    assert "from before" in lapse("fetch", checksum, "-o", "a.bin", cwd=tmp_path).out
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert depot.asked("GET", content(checksum))[-1][2]["Range"] == f"bytes={len(got)}-"


@pytest.mark.parametrize("size, requests", [(200_000, 1), (len(DATA), 0)])
def test_a_part_is_taken_over(depot, lapse, tmp_path, size, requests):
    checksum = depot.add(DATA)
    (tmp_path / "out.part").write_bytes(DATA[:size])
    assert lapse.json("fetch", checksum, "-o", "out", cwd=tmp_path)["resumed_at"] == size
    assert (tmp_path / "out").read_bytes() == DATA and len(depot.asked("GET", content(checksum))) == requests


def test_a_part_without_ranges(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.has_ranges = False
    (tmp_path / "out.part").write_bytes(DATA[:150_000])
    lapse("fetch", checksum, "-o", "out", cwd=tmp_path)
    assert (tmp_path / "out").read_bytes() == DATA and files(tmp_path) == ["out"]


@pytest.mark.parametrize("size", [0, 1, 200_000, len(DATA), 500_000])
def test_a_part_of_something_else(depot, lapse, tmp_path, size):
    checksum = depot.add(DATA)
    (tmp_path / "out.part").write_bytes(bytes([DATA[0] ^ 255]) * size)  # it differs from the first byte on
    assert lapse.json("fetch", checksum, "-o", "out", cwd=tmp_path)["resumed_at"] == 0
    assert (tmp_path / "out").read_bytes() == DATA and files(tmp_path) == ["out"]


def test_two_at_once(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.piece, depot.pause_s = 20_000, 0.1
    process = lapse.start("fetch", checksum, "-o", "out", cwd=tmp_path)
    eventually(lambda: depot.asked("GET", content(checksum)))
    assert "another process is writing out.part" in lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1).err
    assert process.wait(LIMIT_S) == 0 and (tmp_path / "out").read_bytes() == DATA
    process.communicate()


# Servers that lie --------------------------------------------------------------------------------

def test_wrong_bytes(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.sends = bytes(len(DATA))
    ran = lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1)
    assert ran.out == "" and f"sent wrong bytes: their SHA-256 is {digest(depot.sends)}; they are thrown away" in ran.err
    assert files(tmp_path) == []
    assert "do not use them" in lapse("fetch", checksum, binary=True, code=1).err


def test_wrong_bytes_after_a_part(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.sends = DATA[:-1] + bytes([DATA[-1] ^ 1])
    (tmp_path / "out.part").write_bytes(DATA[:300_000])
    assert "sent wrong bytes" in lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1).err
    assert files(tmp_path) == [] and len(depot.asked("GET", content(checksum))) == 2


def test_a_file_that_exists_survives_wrong_bytes(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.sends = bytes(len(DATA))
    (tmp_path / "out").write_bytes(b"mine")
    lapse("fetch", checksum, "-o", "out", "--force", cwd=tmp_path, code=1)
    assert (tmp_path / "out").read_bytes() == b"mine" and files(tmp_path) == ["out"]


def test_too_many_bytes(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.sends = Zeros(100_000_000)
    ran = lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1)
    assert "the daemon sends more than the attachment has" in ran.err
    assert not (tmp_path / "out").exists() and os.path.getsize(tmp_path / "out.part") <= len(DATA)


def test_another_range(depot, lapse, tmp_path):
    checksum = depot.add(DATA)
    depot.range_from = 5
    (tmp_path / "out.part").write_bytes(DATA[:1000])
    assert "another part than was asked for" in lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1).err
    assert (tmp_path / "out.part").read_bytes() == DATA[:1000]


def test_another_checksum_in_the_answer(depot, lapse, tmp_path):
    wanted, other = depot.add(DATA), depot.add(b"other")
    depot.rows[wanted] = {**depot.rows[other]}
    depot.sends = b"other"
    assert "sent wrong bytes" in lapse("fetch", wanted, "-o", "out", cwd=tmp_path, code=1).err


@pytest.mark.parametrize("size", [None, -1, "12", 1.5])
def test_no_size(depot, lapse, tmp_path, size):
    checksum = depot.add(DATA)
    depot.rows[checksum]["size"] = size
    assert "does not answer like lapsed" in lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=3).err
    assert files(tmp_path) == []


def test_it_expires_in_between(depot, lapse, tmp_path, monkeypatch):
    checksum = depot.add(DATA)
    monkeypatch.setattr("depot._Handler._content", lambda self, _: self._error(410, "Attachment has expired"))
    assert lapse("fetch", checksum, "-o", "out", cwd=tmp_path, code=1).err == "lapse: Attachment has expired\n"
    assert files(tmp_path) == []


# The bar -----------------------------------------------------------------------------------------

def test_the_bar(depot, lapse, tmp_path):
    checksum = depot.add(DATA, "a.bin")
    depot.piece, depot.pause_s = 10_000, 0.03
    (tmp_path / "a.bin.part").write_bytes(DATA[:200_000])
    with Terminal(lapse, "fetch", checksum, cwd=tmp_path) as t:
        text = t.until(lambda text: "a.bin  [" in text and "of 391 KiB" in text and "ETA" in text)
        assert int(text.split("%")[0].split()[-1]) >= 50
        assert t.end() == 0 and t.screen.text == "a.bin  391 KiB, the first 195 KiB from before"
        t.assert_restored()


def test_the_bar_beside_a_pipe(depot, lapse):
    checksum = depot.add(DATA, "a.bin")
    depot.piece, depot.pause_s = 10_000, 0.03
    with Terminal(lapse, "version") as t:
        assert t.end() == 0
        process = lapse.start("fetch", checksum, stderr=t.theirs)
        assert process.communicate(timeout=LIMIT_S)[0] == DATA and process.returncode == 0
        t.end()
        assert "ETA" in t.raw and "ETA" not in t.screen.text
