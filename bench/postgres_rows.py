# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark about PostgreSQL: a durable POST against a pooled client, and a cluster of two replicas whose
agents beat every 30 seconds, or fall silent.

PostgreSQL runs on the same machine as everybody else, and syncs its commits. Its CPU time is that of all its processes.
"""
import contextlib
import http.client
import json
import math
import re
import subprocess
import time

import fleets
from agent_rows import Evictions, lags
from databases import Database, replica
from rows import (CONNECTIONS, NO_UNREAD_LIMIT, POST, Figure, Row, alternate, client_cpu_s, column, figures_of,
                  share_of_machine)
from servers import START_MAX_S, BenchError, Lapse, Server, machine_cpu_s, read_line

POOL = 16
RATE = "requests/s"


# -- a durable POST -----------------------------------------------------------------------------------


class Pooled(Server):
    """bench_pooled: a thread and a connection of PostgreSQL for each of 16 requests at a time."""

    name = "pooled"

    def __init__(self, bench, url, *more):
        super().__init__(bench.directory("pooled"))
        self.start([bench.pooled, url, str(POOL), *more], stdout=subprocess.PIPE)
        line = read_line(self.process.stdout, START_MAX_S)
        ready = re.match(rb"ready on ([\d.]+:\d+)", line)
        if not ready:
            raise BenchError(f"bench_pooled did not start: {line!r}\n{self.log_tail()}")
        self.address = ready[1].decode()


def posted(bench, database, server, stored):
    """A closed loop, as rows.measure() does it, with PostgreSQL's own time beside the server's."""
    closed = ["--connections", str(CONNECTIONS), *POST, "--seconds"]
    bench.load(server, [*closed, str(bench.scale.warm_s)])
    before = database.sql(stored)
    machine, mine, theirs = machine_cpu_s(), sum(server.cpu_s()), database.cpu_s()
    result = bench.load(server, [*closed, str(bench.scale.seconds)])
    theirs, mine = database.cpu_s() - theirs, sum(server.cpu_s()) - mine
    machine = machine_cpu_s() - machine - mine - theirs - client_cpu_s(result)
    written = int(database.sql(stored)) - int(before)
    if not result["answered"] <= written <= result["answered"] + CONNECTIONS:
        raise BenchError(f"{result['answered']} messages were answered and {written} are in the database")
    return {RATE: result["answered"] / result["seconds"], "CPU µs": mine * 1e6 / result["answered"],
            "PostgreSQL's CPU µs": theirs * 1e6 / result["answered"],
            "both µs": (mine + theirs) * 1e6 / result["answered"],
            "client CPU µs": result["client_cpu_us"], "p50 µs": result["latency_us"]["p50"],
            "p99 µs": result["latency_us"]["p99"],
            "machine used by others %": share_of_machine(machine, result["seconds"])}


STORED = "SELECT count(*) FROM messages"


def lapse_posts(bench, database):
    with Lapse(bench.lapsed, bench.directory("lapse"),
               settings=("--store", database.fresh(), *NO_UNREAD_LIMIT)) as lapse:
        return posted(bench, database, lapse, STORED)


def pooled_posts(bench, database, *more):
    with Pooled(bench, database.fresh(), *more) as pooled:
        return posted(bench, database, pooled, STORED)


def postgres_post(bench):
    with Database() as database:
        samples = alternate(bench, {"lapse": lambda: lapse_posts(bench, database),
                                    "pooled": lambda: pooled_posts(bench, database),
                                    "bare": lambda: pooled_posts(bench, database, "bare")})
    ours, theirs, bare = (Figure(RATE, "/s", column(samples[side], RATE)) for side in samples)
    ratio = ours.median / theirs.median
    row = Row("postgres-post", f"durable POST of a message on PostgreSQL, {CONNECTIONS} connections, against a pool of "
              f"{POOL} threads and connections that run the same statements, one transaction for each message, each "
              "statement waited for, behind the same HTTP server", ours, theirs, ratio, "≥ 3", ratio >= 3)
    row.figures, row.their_figures = (figures_of(samples[side], RATE) for side in ("lapse", "pooled"))
    both = {side: Figure("", "", column(samples[side], "both µs")).median for side in samples}
    row.notes.append(f"By CPU time of server and PostgreSQL together: {both['pooled'] / both['lapse']:.2f}×.")
    row.notes.append(f"Without the two counters that its transactions wait for each other at, the pool does {bare} at "
                     f"{both['bare']:.0f} µs; lapse does {ours.median / bare.median:.2f}× that.")
    return row


# -- a cluster ----------------------------------------------------------------------------------------

EVERY_S = 30  # how often an agent is heard of
EVICT_S = 90
BEATS = "heartbeats/s"
EVICTED = "SELECT count(*) FROM events WHERE kind IN ('agent.evicted', 'agent.suspected')"


@contextlib.contextmanager
def two_replicas(bench, agents, settings):
    """A database and two replicas that know so many agents. Registering them may take longer than the threshold, so
    another replica does it that evicts nobody; after a start everybody has one threshold."""
    with Database() as database:
        url = database.fresh()
        with replica(bench, "maker", url, fleets.NO_EVICTION) as maker:
            start = time.monotonic()
            fleets.beat_all(bench.load, maker, "agent", agents)
            bench.say(f"{agents:,} agents registered, {agents / (time.monotonic() - start):,.0f}/s")
        with replica(bench, "one", url, settings, key_of=maker.directory) as one, \
                replica(bench, "two", url, settings, key_of=maker.directory) as two:
            bench.say(f"the second replica was ready after {two.ready_s:.1f} s")
            yield database, one, two


def beat_in_turn(bench, replicas, agents, seconds):
    """Every agent is heard of each EVERY_S, by another replica each time: {replica: result}."""
    rate = math.ceil(agents / fleets.BATCH / EVERY_S / len(replicas))
    runs = {}
    for one in replicas:
        runs[one] = bench.load.start(one, [*fleets.beats("agent", agents), "--rate", str(rate), "--connections", "8",
                                           "--seconds", "3600"])
        time.sleep(EVERY_S)
    time.sleep(max(0, seconds - EVERY_S * len(replicas)))
    return [bench.load.finish(one, run) for one, run in runs.items()]


def beaten(bench):
    agents, seconds = bench.scale.agents, bench.scale.cluster_s
    settings = ("--agent-evict-after-ms", str(EVICT_S * 1000))
    with two_replicas(bench, agents, settings) as (database, one, two):
        used = [machine_cpu_s(), database.cpu_s(), sum(one.cpu_s()), sum(two.cpu_s())]
        start = time.monotonic()
        results = beat_in_turn(bench, (one, two), agents, seconds)
        elapsed = time.monotonic() - start
        now = [machine_cpu_s(), database.cpu_s(), sum(one.cpu_s()), sum(two.cpu_s())]
        machine, postgres, *ours = (after - before for before, after in zip(used, now))
        gone = int(database.sql(EVICTED))
        for each in (one, two):
            fleets.check_tracked(each, agents)
    beats = sum(result["answered"] for result in results) * fleets.BATCH
    others = machine - postgres - sum(ours) - sum(map(client_cpu_s, results))
    return {"PostgreSQL's CPU %": postgres * 100 / elapsed, "first replica's CPU %": ours[0] * 100 / elapsed,
            "second replica's CPU %": ours[1] * 100 / elapsed, BEATS: beats / elapsed,
            "PostgreSQL's CPU µs a heartbeat": postgres * 1e6 / beats, "wrong evictions": gone,
            "p99 of a batch ms": max(result["latency_us"]["p99"] for result in results) / 1e3,
            "seconds": elapsed, "machine used by others %": share_of_machine(others, elapsed)}


def cluster_heartbeat(bench):
    sample = beaten(bench)
    bench.say(", ".join(f"{key} {value:,.2f}" for key, value in sample.items()))
    row = Row("cluster-heartbeat", f"PostgreSQL's CPU time while {bench.scale.agents:,} agents beat every {EVERY_S} s in "
              f"batches of {fleets.BATCH}, at two replicas in turn, for {sample['seconds']:.0f} s; 100 % is one core",
              Figure("CPU", "%", [sample["PostgreSQL's CPU %"]]), target="no wrong eviction",
              met=sample["wrong evictions"] == 0)
    row.figures = [Figure(key, "", [value]) for key, value in sample.items()]
    return row


class NamedEvictions(Evictions):
    """With the agents' names."""

    def take(self, kind, arrived, event):
        super().take(kind, arrived, event)
        self.seen[-1] += (event["data"]["agent_id"],)


def beat_by_turns(replicas, names, pass_s):
    """Each agent beats at one replica and then, a pass later, at the other: half of them at the first one last. Gives
    when each one's last heartbeat was answered, in ms since 1970."""
    connections = [http.client.HTTPConnection(one.address, timeout=60) for one in replicas]
    answered = {}
    for turn in range(2):
        start = time.monotonic()
        for i, name in enumerate(names):
            time.sleep(max(0, start + pass_s * i / len(names) - time.monotonic()))
            connection = connections[(i + turn) % 2]
            connection.request("POST", f"/v1/agents/{name}/heartbeat", json.dumps({"cluster_id": fleets.CLUSTER}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise BenchError(f"a heartbeat: {answer.status}")
            answered[name] = time.time() * 1e3
    return answered


def cluster_lag(bench):
    """Agents that both replicas have heard of fall silent one by one, among a fleet that does not."""
    scale, due = bench.scale, bench.scale.due_few
    agents = scale.agents // 10
    silence = ("--agent-evict-after-ms", str(scale.silence_s * 1000))
    with two_replicas(bench, agents, silence) as (_, one, two):
        with fleets.KeptAlive(bench, one, agents, scale.silence_s) as alive:
            machine, start = machine_cpu_s(), time.monotonic()
            evictions = NamedEvictions(two)
            names = [f"gone-{i:011}" for i in range(due)]
            fleets.beat_all(bench.load, one, "gone", due)
            answered = beat_by_turns((one, two), names, scale.silence_s / 4)
            seen = evictions.await_count(due, 4 * scale.silence_s)
            machine, elapsed = machine_cpu_s() - machine, time.monotonic() - start
            alive.end()
        for each in (one, two):
            fleets.check_tracked(each, agents)
    window = scale.silence_s * 1000
    return {**lags("", [arrived - answered[name] - window for arrived, _, _, name in seen]),
            **lags("from last_seen ", [arrived - last - window for arrived, _, last, _ in seen]),
            "machine used by everybody %": share_of_machine(machine, elapsed)}


def cluster_eviction_lag(bench):
    samples = alternate(bench, {"lapse": lambda: cluster_lag(bench)})["lapse"]
    ours = Figure("p99", "ms", column(samples, "p99 ms"))
    row = Row("cluster-eviction-lag", f"p99 from the answer to an agent's last heartbeat + threshold to the arrival of "
              f"agent.evicted on a stream, two replicas alive, {bench.scale.due_few:,} agents that beat at both falling due "
              f"among {bench.scale.agents // 10:,} live",
              ours, target="≤ 2 s", met=ours.median <= 2000)
    row.figures = figures_of(samples, "p99 ms")
    return row


#: name → function, in the order they run
ROWS = {
    "postgres-post": postgres_post,
    "cluster-heartbeat": cluster_heartbeat,
    "cluster-eviction-lag": cluster_eviction_lag,
}
