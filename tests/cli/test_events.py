# SPDX-License-Identifier: Apache-2.0
"""`lapse events`: readable lines, gaps, and a stream that breaks."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from runner import LAPSE, LIMIT_S, Lapse, catches_interrupt
from stub import BREAK, Stream
from terminal import Terminal

HELLO = b": lapse\nretry: 10\nid: 0000000000000009\n\n"
CLOCK = 200, {"trusted": "2030-01-01T00:00:00.000Z", "wall": "2030-01-01T00:00:00.000Z", "state": "trusted",
              "leap_ms": 0, "accepted_in_ms": None}

LATER = "2030-01-01T00:00:00.001Z"


def event(n, kind="agent.seen", at="2026-01-01T00:00:00.000Z", **data):
    body = json.dumps({"at": at, "owner": "local", "data": data})
    return f"id: {n:016x}\nevent: {kind}\ndata: {body}\n\n".encode()


def gap(**data):
    return b"id: 0000000000000020\nevent: gap\ndata: " + json.dumps(data).encode() + b"\n\n"


class Follower:
    """`lapse events …` in the background; its lines as they come."""

    def __init__(self, lapse, *words):
        self.process = lapse.start("events", *words)
        self.out, self.err = [], []
        self.threads = [threading.Thread(target=self._collect, args=pair) for pair in
                        ((self.process.stdout, self.out), (self.process.stderr, self.err))]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _collect(pipe, lines):
        for line in pipe:
            lines.append(line.decode().rstrip("\n"))

    def until(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.out, self.err)
            time.sleep(0.01)

    def provoke(self, lapse, **options):
        """Makes events until it prints one: it begins at some moment from now."""
        while not self.out:
            assert self.process.poll() is None, self.err
            lapse("send", "a", "hi", "--from", "x", **options)
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self):
        code = self.process.wait(LIMIT_S)
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.wait()


def last_ids(stub):
    return [headers["Last-Event-ID"] for _, path, headers, _ in stub.requests if path == "/v1/events"]


# Lines -------------------------------------------------------------------------------------------

def stored(stub, *parts, words=()):
    stub.routes = {"/v1/clock": CLOCK, "/v1/events": Stream(HELLO, *parts, event(0xff, at=LATER), hold=True)}
    return Lapse(stub.url)("events", *words)


def test_lines(stub):
    ran = stored(stub, event(1, "agent.seen", agent_id="a1", cluster_id="west", capabilities=["gpu", "x"]),
                 event(2, "message.sent", **{"from": "ci", "messages": [{"id": "7", "to": "b"}], "count": 1}),
                 event(3, "hold.placed", table="messages", key="k", reason="incident 42", until=None))
    assert ran.lines == [
        "2026-01-01T00:00:00.000Z  0000000000000001  agent.seen          agent_id=a1 cluster_id=west capabilities=gpu,x",
        "2026-01-01T00:00:00.000Z  0000000000000002  message.sent        from=ci messages=7:b count=1",
        '2026-01-01T00:00:00.000Z  0000000000000003  hold.placed         table=messages key=k reason="incident 42" until=-']
    assert ran.err == "" and last_ids(stub) == ["0000000000000000"]


def test_long_lists_are_counted(stub):
    ran = stored(stub, event(1, "x", ids=[1, 2, 3, 4, 5], deep={"a": {"b": 1}}, none=[]))
    assert ran.lines[0].endswith('ids=1,2,3,+2 deep=(a=(b=1)) none=')


def test_json_lines(stub):
    ran = stored(stub, event(1, "agent.seen", agent_id="\x1bé"), event(2), words=["--json"])
    rows = [json.loads(line) for line in ran.lines]
    assert rows[0] == {"id": "0000000000000001", "event": "agent.seen", "at": "2026-01-01T00:00:00.000Z",
                       "owner": "local", "data": {"agent_id": "\x1bé"}}
    assert rows[1]["id"] == "0000000000000002"


def test_hostile_events(stub):
    ran = stored(stub, event(1, "evil\x1b[2J", **{"\x1b]0;k": "\u202e\nfake line", "id": "mine"}),
                 b"id: 2\nevent: x\ndata: no json \x1b[2J\n\n", b"data: [1]\n\n", b"data: {}\n\n")
    assert "\x1b" not in ran.out and len(ran.lines) == 4
    assert "evil\\x1b[2J" in ran.lines[0] and '\\x1b]0;k="\\u202e\\nfake line"' in ran.lines[0]
    assert ran.lines[1].endswith('"no json \\x1b[2J"')


def test_an_event_without_end(stub):
    stub.routes = {"/v1/clock": CLOCK, "/v1/events": Stream(*[b"data: " + b"x" * 1_000_000] * 20)}
    assert "without end" in Lapse(stub.url)("events", code=3).err


def test_after(stub):
    stored(stub, words=["--after", "00000000000000ff"])
    assert last_ids(stub) == ["00000000000000ff"]


@pytest.mark.parametrize("text", ["", "ff", "00000000000000FF\r\nX: 1", "zz00000000000000", "8" * 16])
def test_bad_after(text):
    assert "--after must be" in Lapse()("events", "--after", text, code=2).err


def test_the_gap_before_everything_is_not_shown(stub):
    first, later = gap(**{"from": "0" * 16, "reason": "retention"}), gap(**{"from": "21", "reason": "backlog"})
    shown = stored(stub, first, event(0x21), later)
    assert [line.split()[2] for line in shown.lines] == ["agent.seen", "gap"]
    shown = stored(stub, gap(**{"from": "01", "to": "20", "reason": "retention"}), event(0x21),
                   words=["--after", "0000000000000001"])
    assert shown.lines[0].split(maxsplit=3) == \
        ["-", "0000000000000020", "gap", "events are missing here from=01 to=20 reason=retention"]


def test_what_happens_meanwhile_is_not_waited_for(stub):
    assert len(stored(stub, event(1), *[event(n, at=LATER) for n in range(2, 1000)]).lines) == 1


def test_a_quiet_stream_has_told_all(stub):
    stub.routes = {"/v1/clock": CLOCK, "/v1/events": Stream(HELLO, event(1), 0.5, event(2), hold=True)}
    before = time.monotonic()
    assert len(Lapse(stub.url)("events").lines) == 2
    assert 5 < time.monotonic() - before < 12


def test_a_live_stream_has_told_all_and_ends_at_once(stub):
    stub.routes = {"/v1/clock": CLOCK,
                   "/v1/events": Stream(HELLO, event(1), 0.3, event(2), b": live\n\n", event(3), hold=True)}
    before = time.monotonic()
    assert len(Lapse(stub.url)("events").lines) == 2
    assert time.monotonic() - before < 4


def test_a_stream_that_ends_too_early_is_no_success(stub):
    stub.routes = {"/v1/clock": CLOCK, "/v1/events": Stream(HELLO, event(1))}
    assert "too early" in Lapse(stub.url)("events", code=3).err


def test_refused(stub):
    stub.routes = {"/v1/clock": CLOCK, "/v1/events": (401, {"error": {"code": "x", "message": "no token"}})}
    assert "LAPSE_TOKEN" in Lapse(stub.url)("events", code=6).err
    assert "LAPSE_TOKEN" in Lapse(stub.url)("events", "--follow", code=6).err


@pytest.mark.parametrize("answer", [Stream(b"<html>", content_type="text/html"), (200, {"data": []})])
def test_not_lapsed(stub, answer):
    stub.routes = {"/v1/events": answer}
    assert "does not answer like lapsed" in Lapse(stub.url)("events", "--follow", code=3).err


def test_no_daemon():
    lapse = Lapse("http://127.0.0.1:1")
    assert "no daemon at" in lapse("events", code=3).err
    ran = lapse("events", "--follow", code=3)
    assert "no daemon at" in ran.err and "again" not in ran.err


def test_colours_on_a_terminal(stub):
    stub.routes = {"/v1/events": Stream(HELLO, event(1, "agent.evicted"), event(2, "agent.seen"), gap(), hold=True)}
    with Terminal(Lapse(stub.url), "events", "--follow", columns=120) as t:
        t.until("missing")
        assert "\x1b[33magent.evicted\x1b[0m" in t.raw and "\x1b[32magent.seen\x1b[0m" in t.raw
        assert "\x1b[31mgap\x1b[0m" in t.raw
        t.type("\x03")
        assert t.end() == 130


# Following ---------------------------------------------------------------------------------------

def test_pieces_of_any_size(stub):
    whole = HELLO + event(1, agent_id="é漢") + event(2)
    stub.routes = {"/v1/events": Stream(*[part for i in range(0, len(whole), 7)
                                          for part in (whole[i:i + 7], 0.002)], hold=True)}
    with Follower(Lapse(stub.url), "--follow") as f:
        f.until(lambda: len(f.out) == 2)
        assert f.out[0].endswith("agent_id=é漢") and f.end() == 130
    assert last_ids(stub) == [None] and f.err == []


@pytest.mark.parametrize("trouble, says", [(BREAK, "no answer from"), ((503, {"error": {"message": "soon"}}), "soon"),
                                           ((429, {"error": {"message": "too many"}}), "too many")])
def test_a_broken_stream_goes_on_after_the_last_event(stub, trouble, says):
    stub.script = [Stream(HELLO, event(0x11), b"id: 12\nevent: half"), trouble,
                   Stream(HELLO, gap(), event(0x21), hold=True)]
    with Follower(Lapse(stub.url), "--follow") as f:
        f.until(lambda: len(f.out) == 3)
        assert f.end() == 130
    assert last_ids(stub) == [None] + ["0000000000000011"] * 2
    assert [line.split()[2] for line in f.out] == ["agent.seen", "gap", "agent.seen"]
    first, second, last = f.err
    assert first.startswith("lapse: the stream ended; trying again in ")
    assert says in second and "; trying again in " in second and last == "lapse: connected again"


def test_pauses_grow(stub):
    stub.script = [Stream(HELLO), BREAK]
    with Follower(Lapse(stub.url), "--follow") as f:
        f.until(lambda: len(f.err) == 3)  # the third is announced, not waited for
        assert f.end() == 130
    text = [re.search(r"again in (?:(\d+)s)? ?(?:(\d+)ms)?", line) for line in f.err]
    pauses = [1000 * int(m[1] or 0) + int(m[2] or 0) for m in text]
    assert 125 <= pauses[0] <= 250 <= pauses[1] <= 500 <= pauses[2] <= 1000


def test_the_cursor_of_the_hello_counts_too(stub):
    stub.script = [Stream(HELLO), Stream(HELLO, event(0x11), hold=True)]
    with Follower(Lapse(stub.url), "--follow") as f:
        f.until(lambda: f.out)
        f.end()
    assert last_ids(stub) == [None, "0000000000000009"]


def test_a_revoked_token_ends_it(stub):
    stub.script = [Stream(HELLO), (401, {"error": {"code": "unauthorized", "message": "revoked"}})]
    with Follower(Lapse(stub.url, LAPSE_TOKEN="t"), "--follow") as f:
        assert f.wait() == 6
    assert f.err[-1] == "lapse: revoked"


def test_a_closed_pipe_ends_it_quietly(stub):
    stub.routes = {"/v1/events": Stream(HELLO, *[event(n) for n in range(100)], 0.2,
                                        *[event(n) for n in range(100)], hold=True)}
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {LAPSE} events --follow | head -n 1"], check=False,
                          capture_output=True, env={**os.environ, "LAPSE_URL": stub.url}, timeout=LIMIT_S)
    assert done.stdout.count(b"\n") == 1 and done.stderr == b"" and done.returncode in (0, 141)


def test_a_closed_pipe_is_noticed_without_events(stub):
    stub.routes = {"/v1/events": Stream(HELLO, hold=True)}
    process = Lapse(stub.url).start("events", "--follow")
    process.stdout.close()
    assert process.wait(LIMIT_S) == 0 and process.stderr.read() == b""
    process.stderr.close()


def test_interrupt_before_the_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = Lapse(f"http://127.0.0.1:{silent.getsockname()[1]}").start("events", "--follow")
        connection, _ = silent.accept()
        catches_interrupt(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=5)
        connection.close()
    assert (process.returncode, out, err) == (130, b"", b"")


# The real daemon ---------------------------------------------------------------------------------

def test_stored_events_of_the_daemon(start):
    lapse = Lapse(start().url)
    lapse("send", "planner", "hi", "--from", "ci")
    lapse("read", "planner", "--all")
    rows = [json.loads(line) for line in lapse("events", "--json", "--type", "message").lines]
    assert [row["event"] for row in rows] == ["message.sent", "message.read"]
    assert rows[0]["data"]["from"] == "ci" and rows[0]["owner"] == "local"
    after, = lapse("events", "--after", rows[0]["id"]).lines
    assert "message.read" in after and "planner" in after


def test_following_the_daemon_through_a_restart(start, tmp_path):
    daemon = start(tmp_path / "data")
    lapse = Lapse(daemon.url)
    with Follower(lapse, "--follow", "--json", "--type", "message") as f:
        f.provoke(lapse)
        first = len(f.out)
        assert daemon.stop() == 0
        f.until(lambda: f.err)
        daemon = start(tmp_path / "data", listen=daemon.url.removeprefix("http://"))
        lapse("send", "a", "while it is away", "--from", "y")
        f.until(lambda: len(f.out) > first)
        assert f.end() == 130
    rows = [json.loads(line) for line in f.out]
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids)) and rows[-1]["data"]["from"] == "y"
    assert f.err[0].startswith("lapse: the stream ended; trying again in ")
    assert f.err[-1] == "lapse: connected again"


def test_only_the_owners_events(start):
    lapse = Lapse(start().url)
    admin = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "ops", "--admin").out.strip()}
    fleet = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "fleet", env=admin).out.strip()}
    lapse("send", "a", "hi", "--from", "x", env=fleet)
    lapse.env.update(admin)
    both = lapse.start("events", "--owner", "fleet"), lapse.start("events")
    theirs, own = (process.communicate(timeout=LIMIT_S)[0].decode() for process in both)
    assert theirs.count("message.sent") == 1 and "message.sent" not in own
    assert [process.returncode for process in both] == [0, 0]


def test_revoking_a_token_ends_its_stream(start):
    lapse = Lapse(start().url)
    admin = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "ops", "--admin").out.strip()}
    fleet = lapse("token", "create", "--owner", "fleet", "--json", env=admin).json()
    with Follower(Lapse(lapse.env["LAPSE_URL"], LAPSE_TOKEN=fleet["token"]), "--follow") as f:
        f.provoke(lapse, env={"LAPSE_TOKEN": fleet["token"]})
        lapse("token", "revoke", fleet["prefix"], env=admin)
        assert f.wait() == 6


# filters ------------------------------------------------------------------------------------------

def kinds(ran):
    return [line.split()[2] for line in ran.lines]


@pytest.mark.parametrize("types, wanted", [
    (["agent.seen"], ["agent.seen"]), (["agent"], ["agent.seen", "agent.evicted"]),
    (["*.evicted"], ["agent.evicted"]), (["message", "agent.seen"], ["agent.seen", "message.sent"]),
    (["agen"], []), (["AGENT"], [])])
def test_types(stub, types, wanted):
    words = [word for name in types for word in ("--type", name)]
    assert kinds(stored(stub, event(1, "agent.seen"), event(2, "agent.evicted"), event(3, "message.sent"),
                        words=words)) == wanted


def test_limit(stub):
    assert kinds(stored(stub, *[event(n) for n in range(1, 9)], words=["--limit", "3"])) == ["agent.seen"] * 3


def test_a_gap_is_told_whatever_the_type(stub):
    assert kinds(stored(stub, event(1), gap(**{"from": "5", "reason": "backlog"}), words=["--type", "x"])) == ["gap"]


def test_limit_ends_a_follower(start):
    lapse = Lapse(start().url)
    with Follower(lapse, "--follow", "--limit", "2", "--type", "message.sent") as f:
        while len(f.out) < 2:
            lapse("send", "a", "hi", "--from", "x")
        assert f.process.wait(LIMIT_S) == 0


def test_since(start):
    lapse = Lapse(start().url)
    lapse("send", "a", "old", "--from", "x")
    time.sleep(1.5)
    lapse("send", "a", "new", "--from", "x")
    assert lapse("events", "--since", "1h", "--type", "message.sent").out.count("message.sent") == 2
    assert lapse("events", "--since", "1s", "--type", "message.sent").out.count("message.sent") == 1
    assert lapse("events", "--since", "2000-01-01T00:00:00Z", "--type", "message").out.count("message.sent") == 2
    assert "gap" not in lapse("events", "--since", "1000w").out
    assert "not both" in lapse("events", "--since", "1h", "--after", "0000000000000001", code=2).err


def test_the_id_in_a_line_is_what_after_takes(start):
    lapse = Lapse(start().url)
    for _ in range(3):
        lapse("send", "a", "x", "--from", "x")
    lines = lapse("events", "--type", "message.sent").lines
    assert lapse("events", "--after", lines[0].split()[1], "--type", "message.sent").lines == lines[1:]
