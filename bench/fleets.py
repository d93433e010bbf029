# SPDX-License-Identifier: Apache-2.0
"""Fleets: agents that are registered, kept alive or left to fall silent, all through the front door.

Names have 16 bytes. Agents of the large fleet are `agent-…`; those that a row lets die have a prefix of
their own, so that whoever keeps the fleet alive never mentions them.
"""
import time

from servers import DAY_MS, BenchError, Lapse

CLUSTER = "bench"
BATCH = 1000
#: Nobody falls silent while a fleet is being made.
NO_EVICTION = ("--agent-evict-after-ms", str(DAY_MS))
#: The fleet is heard of so many times before its threshold. The breaker counts an agent as silent at half
#: of it, since the checks are a day apart, and half of the fleet silent would be an alarm.
PASSES = 4


def name(prefix, number="n"):
    """The template of a 16 byte name; the number is `n` (in sequence) or `u` (at random)."""
    return f"{prefix}-%0{15 - len(prefix)}{number}"


def beats(prefix, agents, number="n"):
    """Arguments for bench_load: one request is the heartbeat of BATCH agents out of so many, as CSV."""
    return ["--path", "/v1/heartbeats", "--type", "text/csv", "--body", "%L\n", "--join", "\n", "--item",
            f"{name(prefix, number)},{CLUSTER}", "--list", str(min(BATCH, agents)), "--spread",
            str(agents)]


def beat_all(load, lapse, prefix, agents):
    """One heartbeat of each agent: registers those that are new."""
    if agents % min(BATCH, agents):
        raise BenchError(f"a fleet has a multiple of {BATCH} agents, not {agents}")
    load(lapse, [*beats(prefix, agents), "--requests", str(max(1, agents // BATCH)), "--connections", "4"])


def tracked(lapse):
    return int(lapse.metric("lapse_agents_tracked"))


def check_tracked(lapse, agents):
    """Neither lost anyone nor raised the alarm: the breaker would make suspects."""
    found, suspects = tracked(lapse), int(lapse.metric("lapse_agents_suspect"))
    if found != agents or suspects:
        raise BenchError(f"{found} agents are tracked instead of {agents}, {suspects} of them suspect")


def build(bench, directory_name, agents):
    """A stopped store that knows so many agents; returns its directory."""
    directory = bench.directory(directory_name)
    bench.say(f"making a store with {agents:,} agents")
    with Lapse(bench.lapsed, directory, settings=NO_EVICTION) as lapse:
        beat_all(bench.load, lapse, "agent", agents)
        check_tracked(lapse, agents)
    return directory


class KeptAlive:
    """Lets the whole fleet be heard of again and again, in the background, until its end:
    `PASSES` times within the threshold."""

    def __init__(self, bench, lapse, agents, silence_s):
        self.load, self.lapse = bench.load, lapse
        self.pass_s = silence_s / PASSES
        rate = max(1, round(agents / BATCH / self.pass_s))
        self.run = self.load.start(lapse, [*beats("agent", agents), "--rate", str(rate),
                                           "--connections", "8", "--seconds", "3600"])
        self.start = time.monotonic()
        self.result = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.run.kill()
            self.run.communicate()
        else:
            self.end()

    def end(self):
        """From here the fleet has a quarter of the threshold until the breaker would count it as silent.
        Waits for the first pass to be over."""
        if self.result is None:
            time.sleep(max(0, self.start + self.pass_s - time.monotonic()))
            self.result = self.load.finish(self.lapse, self.run)
        return self.result
