# SPDX-License-Identifier: Apache-2.0
"""What a hostile message or server does to the terminal, the log, and the memory of the command."""
import json
import time

import pytest

from runner import Lapse

HOSTILE = ["\u0080", "\u009b31m", "\u0085", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff", "\U000e0041", "\u007f"]


@pytest.mark.parametrize("options", [["--json"], ["--jsonl"]], ids=" ".join)
def test_hostile_characters_are_escaped_in_json(start, options):
    lapse = Lapse(start().url)
    content = "x".join(HOSTILE)
    lapse("send", "a", content, "--from", "b")
    out = lapse("inbox", "a", *options).out
    assert not any(ord(c) > 0x7e for c in out), out
    shown = json.loads(out)
    assert (shown["data"][0] if "data" in shown else shown)["content"] == content


def test_hostile_characters_in_metadata_and_events(start):
    lapse = Lapse(start().url)
    lapse("send", "a", "x", "--from", "b", "--metadata", json.dumps({"\u202ek": "\u009b"}, ensure_ascii=False))
    for out in (lapse("inbox", "a", "--json").out, lapse("events", "--json").out):
        assert not any(ord(c) > 0x7e for c in out), out


def test_hostile_characters_never_reach_the_log(start, tmp_path):
    daemon = start(tmp_path / "data", agent_evict_after_ms=50, agent_sweep_ms=20)
    lapse = Lapse(daemon.url)
    lapse("heartbeat", "agent-\u202e\u2066", "--cluster", "c")
    deadline = time.monotonic() + 10
    while "evicted" not in (log := open(daemon.log.name, encoding="utf-8").read()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "agent.evicted" in log and not any(ord(c) > 0x7e for c in log), log


# A server that repeats itself (line 17) -----------------------------------------------------------

def page(cursor):
    return 200, {"data": [{"id": "x", "content": "y" * 1000}],
                 "pagination": {"next_cursor": cursor, "has_more": True}}


@pytest.mark.parametrize("circle", [1, 2, 7], ids="a circle of {}".format)
def test_a_server_that_repeats_its_cursor_is_left(stub, circle):
    stub.script = [page(f"c{i % circle}") for i in range(100)]
    ran = Lapse(stub.url)("inbox", "a", "--json", code=1)
    assert "repeats itself" in ran.err and ran.out == ""
    assert len(stub.requests) < 40


def test_many_different_pages_are_fine(stub):
    stub.script = [page(f"c{i}") for i in range(50)] + [(200, {"data": [], "pagination": {"next_cursor": None, "has_more": False}})]
    assert len(Lapse(stub.url).json("inbox", "a")["data"]) == 50
