# SPDX-License-Identifier: Apache-2.0
"""Databases with a wanted number of due and of live messages, made through the front door.

Due messages are read and more than 24 h old. To get them without touching the database from outside,
lapsed runs 25 h in the past (libfaketime moves its wall clock), takes the messages, has them marked
read and stops; then it runs in the present and takes the live, unread ones. Both kinds go to the same
agents, so the due ones lie scattered among the live.
"""
import datetime
import os
import shutil
import time

from servers import BenchError, Lapse

AGENTS = 1000
AGE = "-25h"
AGE_S = 25 * 3600
#: about 90 bytes, what agents tell each other
CONTENT = ("Deploy of checkout-api finished: 3 of 3 replicas healthy, p99 41 ms, no rollback "
           "needed now.")

BROADCAST = '{"to":[%L],"from":"bench-sender","content":"' + CONTENT + '"}'


def broadcast(agents, more):
    """Arguments for bench_load: one request is one message to each of `agents` agents."""
    return ["--path", "/v1/messages", "--body", BROADCAST, "--list", str(agents), "--item",
            '"agent-%05u"', "--spread", str(AGENTS), *more]


def fill(load, lapse, count):
    """`count` messages, spread evenly over the agents."""
    if count % AGENTS:
        raise BenchError(f"a store holds a multiple of {AGENTS} messages, not {count}")
    if count:
        load(lapse, broadcast(AGENTS, ["--requests", str(count // AGENTS), "--connections", "4"]))


def mark_all_read(lapse, count):
    """Marks every message read, by a time that is just past in the daemon's own clock."""
    time.sleep(0.05)
    now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=AGE_S)
    before = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
    marked = 0
    for agent in range(AGENTS):
        marked += lapse.call("POST", f"/v1/agents/agent-{agent:05d}/messages/read",
                             {"before": before})["count"]
    if marked != count:
        raise BenchError(f"{marked} messages were marked read instead of {count}")


def build(bench, name, due, live):
    """A stopped store with that many due and live messages; returns its directory."""
    directory = bench.directory(name)
    bench.say(f"making a store with {due:,} due and {live:,} live messages")
    with Lapse(bench.lapsed, directory, fake_time=AGE) as lapse:
        fill(bench.load, lapse, due)
        mark_all_read(lapse, due)
    with Lapse(bench.lapsed, directory) as lapse:
        fill(bench.load, lapse, live)
    return directory


def copy(bench, directory, name):
    """A copy of a stopped store to run on, already on the disk when it is returned."""
    target = bench.directory(name)
    shutil.rmtree(target)
    shutil.copytree(directory, target)
    os.sync()
    return target
