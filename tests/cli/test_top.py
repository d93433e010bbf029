# SPDX-License-Identifier: Apache-2.0
"""`lapse top` in a terminal, and the one frame it prints elsewhere."""
import os
import signal
import subprocess
import threading
import time

import pytest
import requests

from runner import LAPSE, Lapse
from stub import BREAK
from terminal import Terminal

QUICK = ["--interval", "100ms"]


def histogram(name, *counts):
    """counts: (upper bound, observations up to it)."""
    lines = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in counts]
    return "\n".join([*lines, f"{name}_count {counts[-1][1]}", f"{name}_sum 1"]) + "\n"


def table(name, **fields):
    return {"table": name, "scheduler": name, "live_rows": 1234567, "due_rows": 0, "oldest_due_age_ms": None,
            "last_sweep_at": None, "pruned_total": 0, **fields}


class Fleet:
    """The answers of a stub that looks like a busy daemon. Each frame finds 5 more pruned rows."""

    def __init__(self, stub, tables=3):
        self.stub, self.tick, self.tables = stub, 0, tables
        self.ready, self.clock, self.agents, self.dead = (200, {"status": "ready"}), "trusted", (40, 0), 0
        stub.next_step = self.answer

    def answer(self, path):
        return {"/readyz": lambda: self.ready, "/v1/matrix": self.matrix, "/v1/clock": self.time,
                "/metrics": self.metrics}[path]()

    def matrix(self):
        self.tick += 1
        rows = [table(f"table_{n}") for n in range(self.tables - 1)]
        return 200, {"data": [table("messages", due_rows=3, oldest_due_age_ms=90061000,
                                    pruned_total=5 * self.tick), *rows]}

    def time(self):
        return 200, {"trusted": "2026-01-01T00:00:00.000Z", "wall": "2026-01-03T00:00:00.000Z",
                     "state": self.clock, "leap_ms": 172800000, "accepted_in_ms": None}

    def metrics(self):
        n = self.tick * 100
        live, suspect = self.agents
        return 200, (f"lapse_agents_tracked {live}\nlapse_agents_suspect {suspect}\n"
                     f'lapse_http_requests_total{{route="/a",status="200"}} {n}\n'
                     f'lapse_http_requests_total{{route="/b",status="200"}} {n}\n'
                     f"lapse_dead_letters {self.dead}\n"
                     + histogram("lapse_expiry_lag_seconds", (0.002, n), (0.005, n), ("+Inf", n))
                     + histogram("lapse_commit_seconds", (0.01, n), ("+Inf", n))).encode()


@pytest.fixture
def fleet(stub):
    return Fleet(stub)


# One frame ---------------------------------------------------------------------------------------

def test_once(stub, fleet):
    shown = Lapse(stub.url)("top", "--once", *QUICK).out
    assert f"lapsed at {stub.url} is ready\n" in shown
    assert "agents 40 live, 0 suspect" in shown and "clock trusted" in shown and "dead letters 0" in shown
    assert "commit p99 9.9ms" in shown and "lag p50 1.0ms p99 2.0ms" in shown
    row = next(line.split() for line in shown.splitlines() if line.startswith("messages"))
    assert row[:5] == ["messages", "1,234,567", "3", "1d", "1h"]
    assert 5 < float(row[5]) < 50.1, "five rows every tenth of a second, or a little more"
    assert "\x1b" not in shown and all(line == line.rstrip() for line in shown.splitlines())


def test_not_on_a_terminal_means_once(stub, fleet):
    ran = Lapse(stub.url)("top", *QUICK)
    assert ran.out.count("lapsed at") == 1 and "\x1b" not in ran.out


def test_a_dumb_terminal_means_once(stub, fleet):
    code, shown = Lapse(stub.url).on_terminal("top", *QUICK, env={"TERM": "dumb"})
    assert code == 0 and "is ready" in shown and "\x1b" not in shown


def test_json(stub, fleet):
    view = Lapse(stub.url).json("top", *QUICK)
    assert view["is_ready"] is True and view["agents_live"] == 40 and view["clock"]["state"] == "trusted"
    assert abs(view["requests_per_second"] * view["interval_seconds"] - 196) < 0.01  # 4 are its own
    assert 0.1 <= view["interval_seconds"] < 5
    assert view["lag"]["count"] == 100 and view["lag"]["count_total"] == 200
    assert abs(view["lag"]["p50_seconds"] - 0.001) < 1e-9
    assert [row["table"] for row in view["tables"]] == ["messages", "table_0", "table_1"]
    assert view["tables"][1]["pruned_per_second"] == 0


def test_bad_news(stub, fleet):
    fleet.ready = 503, {"status": "unavailable", "reasons": ["the clock jumped\x1b[2J"]}
    fleet.clock, fleet.agents, fleet.dead = "jumped", (12, 28), 7
    shown = Lapse(stub.url)("top", "--once", *QUICK).out
    assert "is not ready\n  the clock jumped\\x1b[2J\n" in shown
    assert "clock jumped, 2d ahead" in shown and "12 live, 28 suspect" in shown and "dead letters 7" in shown


def test_a_daemon_without_some_numbers(stub, fleet):
    fleet.metrics = lambda: (200, b"# nothing here\n")
    shown = Lapse(stub.url)("top", "--once", *QUICK).out
    assert "agents - live, - suspect" in shown and "requests/s -" in shown and "lag p50 - p99 -" in shown


@pytest.mark.parametrize("words", [["--interval", "99ms"], ["--interval", "2d"], ["--interval", "1"]])
def test_bad_interval(words):
    assert "--interval must be" in Lapse()("top", *words, code=2).err


def test_no_daemon():
    lapse = Lapse("http://127.0.0.1:1")
    assert "no daemon at" in lapse("top", "--once", code=3).err
    with Terminal(lapse, "top") as t:
        assert t.end() == 3 and "\x1b[?1049h" not in t.raw and "no daemon at" in t.raw


def test_refused(stub):
    stub.script = [(200, {"status": "ready"}), (401, {"error": {"code": "x", "message": "no token"}})]
    assert "LAPSE_TOKEN" in Lapse(stub.url)("top", code=6).err


# The live view -----------------------------------------------------------------------------------

def test_frames_follow_each_other_in_place(stub, fleet):
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        t.until("PRUNED/S")
        first = t.until(lambda text: " live, 0 suspect" in text)
        fleet.agents = 41, 2
        second = t.until("41 live, 2 suspect")
        assert first.splitlines()[0] == second.splitlines()[0] and second.count("TABLE") == 1
        assert t.screen.modes == {"1049": True, "25": False, "7": False}
        assert t.raw.count("\x1b[?1049h") == 1 and "\x1b[33m41 live, 2 suspect\x1b[0m" in t.raw
        t.until(lambda text: "requests/s -" not in text)
        t.type("q")
        assert t.end() == 0
        t.assert_restored()


def test_no_colour(stub, fleet):
    with Terminal(Lapse(stub.url), "top", *QUICK, env={"NO_COLOR": "1"}) as t:
        t.until("messages")
        assert "m" not in [c[-1] for c in t.raw.split("\x1b[")[1:] if c[0].isdigit()]


@pytest.mark.parametrize("how, code", [("\x03", 130), (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM),
                                       (signal.SIGHUP, -signal.SIGHUP), ("\x1c", -signal.SIGQUIT),
                                       (signal.SIGABRT, -signal.SIGABRT), ("Q", 0)])
def test_the_terminal_is_put_back(stub, fleet, how, code):
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        t.until("messages")
        assert t.screen.modes["1049"]
        t.type(how) if isinstance(how, str) else t.signal(how)
        assert t.end() == code
        t.assert_restored()


def test_what_was_ignored_stays_ignored(stub, fleet):
    """As below nohup."""
    with Terminal(Lapse(stub.url), "top", *QUICK, ignored=(signal.SIGHUP,)) as t:
        t.until("messages")
        t.signal(signal.SIGHUP)
        fleet.agents = 41, 2
        t.until("41 live, 2 suspect")
        t.type("q")
        assert t.end() == 0
        t.assert_restored()


def test_interrupt_while_the_daemon_hangs(stub, fleet):
    hangs = threading.Event()
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        t.until("messages")
        fleet.time = lambda: hangs.wait(10) or BREAK
        time.sleep(0.3)
        t.type("\x03")
        assert t.end() == 130
        t.assert_restored()
        hangs.set()


def test_stop_and_go_on(stub, fleet):
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        t.until("messages")
        t.type("\x1a")
        deadline = time.monotonic() + 10
        while not t.is_stopped():
            assert time.monotonic() < deadline
            t.read(0.02)
        while t.read(0.1):
            pass
        t.assert_restored()
        t.resume()
        fleet.agents = 99, 0
        t.until("99 live")
        assert t.screen.modes == {"1049": True, "25": False, "7": False}
        t.type("q")
        assert t.end() == 0
        t.assert_restored()


def test_another_size(stub):
    Fleet(stub, tables=30)
    with Terminal(Lapse(stub.url), "top", "--interval", "1h", columns=100, lines=50) as t:
        t.until("table_28")
        t.resize(60, 20)  # drawn at once, long before the next frame
        text = t.until("more lines")
        lines = text.splitlines()
        assert len(lines) == 20 and all(len(line) <= 60 for line in lines)
        hidden = int(lines[-1].split()[1])
        assert lines[-2].startswith(f"table_{28 - hidden}")
        t.resize(100, 50)
        t.until("table_28")
        t.type("q")
        assert t.end() == 0


@pytest.mark.parametrize("columns, lines", [(20, 10), (5, 3), (1, 1), (80, 1), (300, 4)])
def test_small_terminals(stub, fleet, columns, lines):
    with Terminal(Lapse(stub.url), "top", *QUICK, columns=columns, lines=lines) as t:
        t.until(lambda text: text.strip())
        ticks = fleet.tick
        t.until(lambda _: fleet.tick > ticks + 2)  # the screen asserts that nothing runs over
        t.type("q")
        assert t.end() == 0
        t.assert_restored()


def test_a_narrow_terminal_still_has_every_fact(stub, fleet):
    with Terminal(Lapse(stub.url), "top", *QUICK, columns=32, lines=24) as t:
        text = t.until("TABLE")
        for fact in ("agents 40 live", "clock trusted", "dead letters 0", "requests/s", "commit p99", "lag p50"):
            assert fact in text


def test_hostile_names(stub, fleet):
    fleet.matrix = lambda: (200, {"data": [table("\x1b[2J\u202eevil\n"), "nonsense", 7]})
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        assert "\\x1b[2J\\u202eevil\\n" in t.until("evil")


def test_a_daemon_that_goes_away_and_comes_back(stub, fleet):
    with Terminal(Lapse(stub.url), "top", *QUICK) as t:
        t.until(lambda text: "requests/s -" not in text and "messages" in text)
        answer, stub.next_step = stub.next_step, lambda path: BREAK
        text = t.until("is away")
        assert "no answer from" in text and "last answer" in text and "messages" in text
        assert t.process.poll() is None
        stub.next_step = answer
        t.until("is ready")
        t.type("q")
        assert t.end() == 0
        t.assert_restored()


# The real daemon ---------------------------------------------------------------------------------

def test_the_real_daemon(start, tmp_path):
    daemon = start(tmp_path / "data", message_ttl_ms=1, message_sweep_ms=100)
    lapse, address = Lapse(daemon.url), daemon.url.removeprefix("http://")
    is_over = threading.Event()

    def work():
        with requests.Session() as session:
            while not is_over.wait(0.005):
                try:
                    sent = session.post(f"{daemon.url}/v1/agents/a/messages",
                                        json={"from": "x", "content": "y"}).json()
                    session.post(f"{daemon.url}/v1/agents/a/messages/{sent['id']}/read")
                except (requests.RequestException, KeyError):
                    pass

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with Terminal(lapse, "top", "--interval", "500ms", lines=40) as t:
            t.until(lambda text: " is ready" in text and "messages" in text)
            t.until(lambda text: any(line.startswith("messages") and float(line.split()[4]) > 0
                                     for line in text.splitlines() if line.split()[4:5] != ["-"]),
                    what="messages are pruned")
            t.until(lambda text: "lag p50 -" not in text and "commit p99 -" not in text)
            assert daemon.stop() == 0
            t.until("is away")
            assert "connection refused" in t.screen.text
            daemon = start(tmp_path / "data", listen=address)
            t.until("is ready")
            t.type("\x03")
            assert t.end() == 130
            t.assert_restored()
    finally:
        is_over.set()
        worker.join()


def test_once_against_the_real_daemon(lapse):
    view = lapse.json("top", "--once", *QUICK)
    assert view["requests_per_second"] < 5 and view["dead_letters"] == 0
    assert "messages" in [row["table"] for row in view["tables"]]
    assert view["agents_live"] is not None and view["agents_suspect"] == 0


def test_a_closed_pipe(stub, fleet):
    done = subprocess.run(f"{LAPSE} top --once --json --interval 100ms | head -c 1", shell=True, check=False,
                          capture_output=True, env={**os.environ, "LAPSE_URL": stub.url})
    assert (done.stdout, done.stderr) == (b"{", b"")


def test_it_does_not_count_itself(start):
    lapse = Lapse(start().url)
    assert lapse.json("top", "--once", *QUICK)["requests_per_second"] == 0


def test_keys(stub, fleet):
    with Terminal(Lapse(stub.url), "top", "--interval", "400ms", columns=100) as t:
        t.until("q quit   space pause   + faster   - slower   every 400ms")
        t.type("+")
        t.until("every 200ms")
        t.type("--")
        t.until("every 400ms")
        t.type(" ")
        t.until("paused")
        ticks = fleet.tick
        time.sleep(1)
        assert fleet.tick <= ticks + 1
        t.type("p")
        t.until("every 400ms")
        t.until(lambda _: fleet.tick > ticks + 1)
        t.type("x")
        t.type("q")
        assert t.end() == 0
