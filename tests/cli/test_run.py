# SPDX-License-Identifier: Apache-2.0
"""`lapse run`: a program as an agent, and for each message of one."""
import json
import os
import signal
import sys
import time

import pytest

from runner import LIMIT_S, Lapse

PYTHON = sys.executable


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def names(lapse):
    return [a["agent_id"] for a in lapse.json("agents")["data"]]


def send(lapse, agent, content="hi", *more):
    return lapse("send", agent, content, "--from", "me", *more).out.strip()


# --heartbeat ---------------------------------------------------------------------------------------

def test_an_agent_lives_as_long_as_its_program(start):
    lapse = Lapse(start(agent_evict_after="600ms", agent_sweep="100ms").url)
    process = lapse.start("run", "--heartbeat", "worker", "--cluster", "west", "--capability", "gpu",
                          "sleep", "3")
    until(lambda: "worker" in names(lapse), "never there")
    assert lapse.json("agent", "show", "worker")["capabilities"] == ["gpu"]
    time.sleep(1.5)  # well past the threshold
    assert process.poll() is None and "worker" in names(lapse)
    assert process.wait(LIMIT_S) == 0 and process.stderr.read() == b""
    assert names(lapse) == []
    events = lapse("events").out
    assert events.count("agent.seen") == 1 and "agent.evicted" not in events and "agent.deleted" in events
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("program, code", [
    (["true"], 0), (["false"], 1), (["sh", "-c", "exit 42"], 42), (["sh", "-c", "kill -KILL $$"], 137)])
def test_the_exit_code_is_the_programs(lapse, agent, program, code):
    lapse("run", "--heartbeat", agent, "--cluster", "c", *program, code=code, silent=True)
    assert agent not in names(lapse)


def test_a_program_that_is_not_there(lapse, agent):
    assert "cannot run no-such-program: No such file" in \
        lapse("run", "--heartbeat", agent, "--cluster", "c", "no-such-program", code=127).err
    lapse("run", "--heartbeat", agent, "--cluster", "c", "/etc/passwd", code=126)
    assert agent not in names(lapse)


def test_options_after_the_program_are_its_own(lapse, agent):
    ran = lapse("run", "--heartbeat", agent, "--cluster", "c", "echo", "--json", "-n", "x")
    assert ran.out == "--json -n x\n"
    assert lapse("run", "--heartbeat", agent, "--cluster", "c", "--", "echo", "a").out == "a\n"


def test_standard_input_and_environment(lapse, agent):
    ran = lapse("run", "--heartbeat", agent, "--cluster", "c", "sh", "-c", "echo $LAPSE_AGENT; cat", stdin=b"typed")
    assert ran.out == f"{agent}\ntyped"


def test_no_program_without_a_daemon(tmp_path):
    lapse = Lapse("http://127.0.0.1:1")
    lapse("run", "--heartbeat", "a", "--cluster", "c", "touch", str(tmp_path / "x"), code=3)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_reach_the_program(lapse, agent, number):
    script = ("import signal, sys, time\n"
              "for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(n, lambda n, f: sys.exit(n))\n"
              "print('up', flush=True)\nwhile True: time.sleep(0.1)")
    process = lapse.start("run", "--heartbeat", agent, "--cluster", "c", PYTHON, "-c", script)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(LIMIT_S) == number
    assert agent not in names(lapse)
    process.stdout.close()
    process.stderr.close()


def test_a_daemon_that_goes_away_meanwhile(start, tmp_path):
    daemon = start(tmp_path / "data", agent_evict_after="600ms")
    lapse = Lapse(daemon.url)
    process = lapse.start("run", "--heartbeat", "w", "--cluster", "c", "sleep", "2")
    until(lambda: "w" in names(lapse), "never there")
    assert daemon.stop() == 0
    assert process.wait(LIMIT_S) == 0
    err = process.stderr.read().decode()
    assert err.count("heartbeat: no daemon") == 1
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("words, says", [
    (["run", "true"], "give --heartbeat AGENT, or --claim AGENT, or both"),
    (["run", "--heartbeat", "a", "true"], "--cluster NAME is missing"),
    (["run", "--claim", "a"], "PROGRAM is missing"),
    (["run", "--heartbeat", "a", "--cluster", "c", "--once", "true"], "belong to --claim")])
def test_usage(words, says):
    assert says in Lapse("http://127.0.0.1:1")(*words, code=2).err


# --claim ---------------------------------------------------------------------------------------------

def test_a_worker(lapse, agent):
    ids = [send(lapse, agent, f"job {n}", "--metadata", '{"n":%d}' % n, "--type", "job") for n in range(3)]
    script = ("echo \"$LAPSE_AGENT $LAPSE_MESSAGE_ID $LAPSE_MESSAGE_FROM $LAPSE_MESSAGE_TYPE "
              "$LAPSE_MESSAGE_METADATA $(cat)\"")
    ran = lapse("run", "--claim", agent, "--wait", "200ms", "sh", "-c", script, code=7, silent=True)
    assert ran.lines == [f'{agent} {message_id} me job {{"n":{n}}} job {n}' for n, message_id in enumerate(ids)]
    assert all(m["read"] for m in lapse.json("inbox", agent)["data"])


def test_a_failed_job_comes_again(lapse, agent, tmp_path):
    send(lapse, agent, "job")
    script = f"if [ -e {tmp_path}/tried ]; then exit 0; fi; touch {tmp_path}/tried; exit 3"
    words = ["run", "--claim", agent, "--visibility", "300ms"]
    assert "ended with 3; message" in lapse(*words, "--once", "sh", "-c", script, code=3).err
    assert lapse.json("inbox", agent, "--unread")["data"]
    lapse(*words, "--once", "--wait", "10s", "sh", "-c", script)
    assert lapse.json("inbox", agent, "--unread")["data"] == []


def test_the_claim_is_extended(lapse, agent):
    """A program that takes longer than the claim keeps its message."""
    send(lapse, agent, "long job")
    process = lapse.start("run", "--claim", agent, "--visibility", "600ms", "--once", "sleep", "2")
    for _ in range(8):
        time.sleep(0.2)
        assert process.poll() is not None or lapse.json("claim", agent, code=7, silent=True)["data"] == []
    assert process.wait(LIMIT_S) == 0
    assert lapse.json("inbox", agent, "--unread")["data"] == []
    process.stdout.close()
    process.stderr.close()


def test_a_lost_claim_ends_the_program(lapse, agent, shared):
    """Another worker has the message: going on would do its work twice."""
    send(lapse, agent, "job")
    process = lapse.start("run", "--claim", agent, "--visibility", "700ms", "--once",
                          "sh", "-c", "echo up; exec sleep 30")
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, signal.SIGSTOP)  # it cannot extend
    other = []
    until(lambda: other or other.extend(lapse.json("claim", agent, "--visibility", "1m", code=None)["data"]),
          "never offered")
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert b"has passed to another worker" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_a_worker_the_fleet_can_see(start):
    lapse = Lapse(start(agent_evict_after="900ms", agent_sweep="100ms").url)
    process = lapse.start("run", "--claim", "w", "--heartbeat", "w", "--cluster", "c", "sh", "-c", "cat; echo")
    until(lambda: "w" in names(lapse), "never there")
    time.sleep(1.5)  # it lives while it waits too
    assert "w" in names(lapse)
    send(lapse, "w", "one")
    assert process.stdout.readline() == b"one\n"
    send(lapse, "w", "two")
    assert process.stdout.readline() == b"two\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 130
    process.stdout.close()
    process.stderr.close()


def test_lapsed_starts_inside(lapse, agent, tmp_path):
    """The variables of the program are no settings of a daemon that it starts."""
    send(lapse, agent)
    from runner import LAPSED
    lapse("run", "--claim", agent, "--once", LAPSED, "--help")
    lapse("send", agent, "x", "--from", "me")
    ran = lapse("run", "--claim", agent, "--once", os.environ.get("LAPSE", "build-dev/lapse"), "config", "--offline",
                "--json")
    assert json.loads(ran.out)["data"]
