# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark about presence: heartbeats, memory, eviction, checks, the start."""
import csv
import datetime
import http.client
import io
import json
import math
import re
import resource
import statistics
import subprocess
import threading
import time

import fleets
import stores
from rows import (CONNECTIONS, Figure, Row, alternate, client_cpu_s, column, figures_of, measure,
                  number, share_of_machine)
from servers import LOAD_MAX_S, BenchError, Lapse, Redis, machine_cpu_s

EX_S = 90
HEARTBEAT_AGENTS = 100_000
HEARTBEAT = ["--path", "/v1/agents/agent-%05u/heartbeat", "--body",
             f'{{"cluster_id":"{fleets.CLUSTER}"}}', "--spread", str(HEARTBEAT_AGENTS)]
SET = ["--spread", str(HEARTBEAT_AGENTS), "--", "SET", "agent-%05u", "x", "EX", str(EX_S)]


def sides_of(samples, key, unit):
    """The two figures of a quantity, lapse's and Redis's."""
    return (Figure(key, unit, column(samples["lapse"], key)),
            Figure(key, unit, column(samples["redis"], key)))


# -- heartbeats one by one -------------------------------------------------------------------------


def single_beats(bench):
    with Lapse(bench.lapsed, bench.directory("lapse")) as lapse:
        bench.load(lapse, ["--path", "/v1/heartbeats", "--type", "text/csv", "--body", "%L", "--join",
                           "\n", "--item", f"agent-%05n,{fleets.CLUSTER}", "--list", str(fleets.BATCH),
                           "--spread", str(HEARTBEAT_AGENTS), "--connections", "4", "--requests",
                           str(HEARTBEAT_AGENTS // fleets.BATCH)])
        sample = measure(bench, lapse, HEARTBEAT, unit="requests")
        fleets.check_tracked(lapse, HEARTBEAT_AGENTS)  # they were known, each of them
        return sample


def single_sets(bench):
    with Redis(bench.directory("redis"), durable=False) as redis:
        redis.command_many(f"SET agent-{key:05d} x EX {EX_S}" for key in range(HEARTBEAT_AGENTS))
        return measure(bench, redis, SET, unit="requests")


def heartbeat(bench):
    samples = alternate(bench, {"lapse": lambda: single_beats(bench),
                                "redis": lambda: single_sets(bench)})
    ours, theirs = sides_of(samples, "CPU µs", "µs")
    ratio = ours.median / theirs.median
    row = Row("heartbeat", f"CPU time of a single heartbeat over HTTP, {HEARTBEAT_AGENTS:,} known agents, "
              f"{CONNECTIONS} connections, against SET … EX {EX_S}, unpipelined and without AOF",
              ours, theirs, ratio, "≤ 1.0", ratio <= 1.0)
    row.figures, row.their_figures = (figures_of(samples[side], "CPU µs") for side in samples)
    rates = [statistics.median(column(samples[side], "requests/s")) for side in samples]
    row.notes.append(f"By requests a second lapse does {rates[0] / rates[1]:.2f}× what Redis does.")
    return row


# -- heartbeats by the thousand --------------------------------------------------------------------

PIPELINE = 16
PIPELINE_CONNECTIONS = 50
#: redis-benchmark writes twelve digits for __rand_int__: a name has 16 bytes here, too.
PIPELINED_KEY = "agen__rand_int__"
BEATS = "heartbeats/s"
PLAIN = "plain SET heartbeats/s"


def many_beats(bench):
    agents = bench.scale.agents
    with Lapse(bench.lapsed, stores.copy(bench, bench.fleet(), "lapse")) as lapse:
        sample = measure(bench, lapse, fleets.beats("agent", agents, "u"), fleets.BATCH, "heartbeats")
        fleets.check_tracked(lapse, agents)
        return sample


def redis_benchmark(redis, count, arguments):
    """Requests a second of so many SETs, as redis-benchmark itself says."""
    host, port = redis.address.split(":")
    done = subprocess.run(["redis-benchmark", "-h", host, "-p", port, "-P", str(PIPELINE), "-c",
                           str(PIPELINE_CONNECTIONS), "-n", str(count), "--csv", *arguments],
                          capture_output=True, text=True, timeout=LOAD_MAX_S, check=False)
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    if done.returncode != 0 or not lines:
        raise BenchError(f"redis-benchmark failed: {done.stdout}{done.stderr}")
    return float(lines[-1]["rps"])


def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def many_sets(bench):
    """SET … EX and then redis-benchmark's own `-t set`, each as long as the other side's measurement."""
    agents, scale = bench.scale.agents, bench.scale
    with Redis(bench.directory("redis"), durable=False) as redis:
        redis.command_many(f"SET agen{key:012d} x EX {EX_S}" for key in range(agents))
        with_ex = ["-r", str(agents), "SET", PIPELINED_KEY, "x", "EX", str(EX_S)]
        count = round(redis_benchmark(redis, 100_000, with_ex) * scale.seconds)
        machine, client, server = machine_cpu_s(), children_cpu_s(), redis.cpu_s()
        start = time.monotonic()
        rate = redis_benchmark(redis, count, with_ex)
        seconds = time.monotonic() - start
        client = children_cpu_s() - client
        user, system = (end - begin for begin, end in zip(server, redis.cpu_s()))
        others = machine_cpu_s() - machine - client - user - system
        return {
            BEATS: rate,
            "CPU µs": (user + system) * 1e6 / count,
            "user µs": user * 1e6 / count,
            "system µs": system * 1e6 / count,
            "client CPU µs": client * 1e6 / count,
            "machine used by others %": share_of_machine(others, seconds),
            PLAIN: redis_benchmark(redis, count, ["-t", "set"]),
        }


def heartbeat_batch(bench):
    samples = alternate(bench, {"lapse": lambda: many_beats(bench), "redis": lambda: many_sets(bench)})
    ours, theirs = sides_of(samples, BEATS, "/s")
    ratio = ours.median / theirs.median
    row = Row("heartbeat-batch",
              f"heartbeats/s, {fleets.BATCH} a request as CSV, {bench.scale.agents:,} known agents, "
              f"{CONNECTIONS} connections, against redis-benchmark -P {PIPELINE} -c {PIPELINE_CONNECTIONS} "
              f"SET … EX {EX_S} on as many keys, without AOF", ours, theirs, ratio, "≥ 2", ratio >= 2)
    row.figures = figures_of(samples["lapse"], BEATS)
    row.their_figures = figures_of(samples["redis"], BEATS)
    plain = statistics.median(column(samples["redis"], PLAIN))
    row.notes.append(f"redis-benchmark's own -t set (no EX, one key) does {number(plain)}/s: against that "
                     f"the ratio is {ours.median / plain:.2f}. bench_load cannot pipeline, so the client "
                     "of the two sides differs here.")
    return row


# -- memory ----------------------------------------------------------------------------------------

PER_AGENT = "B/agent"


def lapse_memory(bench):
    """What the daemon grows by while it learns the fleet, and how much larger it starts with it."""
    agents, directory = bench.scale.agents, bench.directory("lapse")
    with Lapse(bench.lapsed, directory, settings=fleets.NO_EVICTION) as lapse:
        lapse.metric("lapse_build_info")  # the first request pays for what is set up once
        empty, anonymous = lapse.rss_bytes(), lapse.rss_bytes("RssAnon")
        start = time.monotonic()
        fleets.beat_all(bench.load, lapse, "agent", agents)
        elapsed, full = time.monotonic() - start, lapse.rss_bytes()
        anonymous = lapse.rss_bytes("RssAnon") - anonymous
        fleets.check_tracked(lapse, agents)
    with Lapse(bench.lapsed, directory, settings=fleets.NO_EVICTION) as lapse:
        again = lapse.rss_bytes()
    return {PER_AGENT: (full - empty) / agents, "without mapped files B": anonymous / agents,
            "after a restart B": (again - empty) / agents, "RSS MiB empty": empty / 2**20,
            "RSS MiB full": full / 2**20,
            "registered/s": agents / elapsed}


def redis_memory(bench):
    agents = bench.scale.agents
    with Redis(bench.directory("redis"), durable=False) as redis:
        empty, rss = redis.info("used_memory"), redis.rss_bytes()
        redis.command_many(f"SET agent-{key:010d} x EX {EX_S}" for key in range(agents))
        full, rss_full = redis.info("used_memory"), redis.rss_bytes()
        if redis.command("DBSIZE") != str(agents):
            raise BenchError(f"keys expired before all of them were set, in {EX_S} s")
        return {PER_AGENT: (full - empty) / agents, "RSS MiB empty": rss / 2**20,
                "RSS MiB full": rss_full / 2**20}


def agent_memory(bench):
    samples = alternate(bench, {"lapse": lambda: lapse_memory(bench),
                                "redis": lambda: redis_memory(bench)})
    ours, theirs = sides_of(samples, PER_AGENT, "B")
    row = Row("agent-memory", f"growth of the RSS a tracked agent, {bench.scale.agents:,} agents with 16 byte "
              f"ids, one owner, no metadata, against the growth of used_memory a SET … EX {EX_S}",
              ours, theirs, ours.median / theirs.median, "≤ 150 B", ours.median <= 150)
    row.figures, row.their_figures = (figures_of(samples[side], PER_AGENT) for side in samples)
    row.notes.append("It includes whatever else grew meanwhile: the store's cache, the ring of events, "
                     "buffers.")
    return row


# -- eviction at the deadline ----------------------------------------------------------------------

EXPIRED = b"__keyevent@0__:expired"


def quantile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


def lags(prefix, values):
    return {f"{prefix}{key} ms": quantile(values, share)
            for key, share in (("p50", 0.5), ("p99", 0.99), ("max", 1))}


def parse_ms(text):
    moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1e3


class Evictions:
    """Follows GET /v1/events: for each agent.evicted when it arrived here, its `at`, its last_seen, in
    ms since 1970. The daemon and we share a wall clock."""

    def __init__(self, lapse):
        self.seen = []
        self.failure = None
        self.connection = http.client.HTTPConnection(lapse.address, timeout=60)
        self.connection.request("GET", "/v1/events")
        self.stream = self.connection.getresponse()
        if self.stream.status != 200:
            raise BenchError(f"GET /v1/events: {self.stream.status}")
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        kind = b""
        try:
            while line := self.stream.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip()
                elif line.startswith(b"data: ") and kind in (b"agent.evicted", b"gap"):
                    self.take(kind, time.time() * 1e3, json.loads(line[6:]))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.failure = self.failure or error

    def take(self, kind, arrived, event):
        if kind == b"gap":
            raise ValueError("the stream has a gap")
        self.seen.append((arrived, parse_ms(event["at"]), parse_ms(event["data"]["last_seen"])))

    def await_count(self, count, limit_s):
        deadline = time.monotonic() + limit_s
        while len(self.seen) < count and time.monotonic() < deadline and not self.failure:
            time.sleep(0.1)
        if len(self.seen) != count:
            raise BenchError(f"{len(self.seen)} agents were evicted instead of {count}: {self.failure}")
        return list(self.seen)


def bucket_quantile_ms(lapse, metric, share):
    """The upper bound of the bucket in which that share of a histogram is reached."""
    found = re.findall(metric + r'_bucket\{le="([^"]+)"\} (\d+)', lapse.call("GET", "/metrics"))
    total = int(found[-1][1])
    return next(float(bound) * 1e3 for bound, count in found if int(count) >= share * total)


def lapse_lag(bench):
    """Known agents are heard of one by one and never again, among a fleet that is."""
    scale, due = bench.scale, bench.scale.due_few
    silence = ("--agent-evict-after-ms", str(scale.silence_s * 1000))
    with Lapse(bench.lapsed, stores.copy(bench, bench.fleet(), "lapse"), settings=silence) as lapse:
        with fleets.KeptAlive(bench, lapse, scale.agents, scale.silence_s) as alive:
            machine, server, start = machine_cpu_s(), sum(lapse.cpu_s()), time.monotonic()
            evictions = Evictions(lapse)
            fleets.beat_all(bench.load, lapse, "gone", due)
            rate = math.ceil(due / (scale.silence_s / 2))
            bench.load(lapse, ["--path", f"/v1/agents/{fleets.name('gone')}/heartbeat", "--body",
                               f'{{"cluster_id":"{fleets.CLUSTER}"}}', "--spread", str(due), "--requests",
                               str(due), "--rate", str(rate), "--connections", "4"])
            seen = evictions.await_count(due, 3 * scale.silence_s)
            server = sum(lapse.cpu_s()) - server
            machine, elapsed = machine_cpu_s() - machine, time.monotonic() - start
            kept = alive.end()
        by_metric = bucket_quantile_ms(lapse, "lapse_expiry_lag_seconds", 0.99)
        fleets.check_tracked(lapse, scale.agents)
    window = scale.silence_s * 1000
    return {**lags("", [arrived - last - window for arrived, _, last in seen]),
            **lags("event's at ", [at - last - window for _, at, last in seen]),
            "p99 by lapse_expiry_lag_seconds ≤ ms": by_metric,
            "heartbeats/s meanwhile": kept["rate"] * fleets.BATCH,
            "p99 of a batch ms": kept["latency_us"]["p99"] / 1e3,
            "machine used by others %": share_of_machine(machine - server - client_cpu_s(kept), elapsed)}


def expired_keys(redis, until):
    """{key: when its `expired` event arrived, in ms since 1970}, of those that came in time."""
    arrived = {}
    with redis.connect(timeout_s=until - time.time()) as link:
        link.write(b"SUBSCRIBE " + EXPIRED + b"\r\n")
        link.flush()
        while time.time() < until:
            try:
                line = link.readline().strip()
            except TimeoutError:  # nothing came for so long that the time is over
                break
            if line.startswith(b"gone-"):
                arrived[line.decode()] = time.time() * 1e3
    return arrived


def redis_lag(bench):
    """The same with keys that have deadlines of their own; Redis is given a while to notice."""
    scale, due = bench.scale, bench.scale.due_few
    window_s = scale.redis_lag_s / scale.rounds
    with Redis(bench.directory("redis"), durable=False) as redis:
        redis.command("CONFIG SET notify-keyspace-events Ex")
        redis.command_many(f"SET agent-{key:010d} x EX 3600" for key in range(scale.agents))
        first = time.time() * 1e3 + 1000
        step = scale.silence_s / 2 * 1e3 / due
        deadlines = {f"gone-{key:011d}": round(first + key * step) for key in range(due)}
        redis.command_many(f"SET {key} x PXAT {at}" for key, at in deadlines.items())
        until = first / 1e3 + window_s
        arrived = expired_keys(redis, until)
    end = until * 1e3
    late = [arrived.get(key, end) - at for key, at in deadlines.items()]
    return {**lags("", late), "came in time": len(arrived)}


def eviction_lag(bench):
    scale = bench.scale
    samples = alternate(bench, {"lapse": lambda: lapse_lag(bench), "redis": lambda: redis_lag(bench)})
    ours, theirs = sides_of(samples, "p99 ms", "ms")
    row = Row("eviction-lag", f"p99 from last_seen + threshold to the arrival of agent.evicted on a stream, "
              f"{scale.due_few:,} agents falling due one by one among {scale.agents:,} live, against "
              "Redis's expired events", ours, theirs, ours.median / theirs.median, "≤ 20 ms",
              ours.median <= 20)
    row.figures, row.their_figures = (figures_of(samples[side], "p99 ms") for side in samples)
    row.notes.append(f"Redis was given {scale.redis_lag_s / scale.rounds:.0f} s a round; keys whose event had "
                     "not come by then count with the age they had, so its true lag is larger.")
    return row


# -- a check -----------------------------------------------------------------------------------------


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))


def sweeps(lapse):
    """(checks of agents so far, milliseconds of all of them)."""
    return (int(lapse.metric("lapse_sweep_seconds_count", '"agents"')),
            lapse.metric("lapse_sweep_seconds_sum", '"agents"') * 1e3)


def asked_for(bench, lapse):
    """Milliseconds that the caller of a check waits for its answer."""
    return bench.load(lapse, ["--path", "/v1/sweep/agents", "--method", "POST", "--requests", "1",
                              "--connections", "1"])["latency_us"]["max"] / 1e3


def check_round(bench):
    """A group is heard of in one request, so that all of it falls due in the same millisecond, and goes
    right then: nobody has to ask for it."""
    scale, due = bench.scale, bench.scale.due_few
    silence = ("--agent-evict-after-ms", str(scale.silence_s * 1000))
    with Lapse(bench.lapsed, stores.copy(bench, bench.fleet(), "lapse"), settings=silence) as lapse:
        with fleets.KeptAlive(bench, lapse, scale.agents, scale.silence_s):
            fleets.beat_all(bench.load, lapse, "gone", due)
            due_at = time.monotonic() + scale.silence_s
            sleep_until(due_at - 1)
        fleets.check_tracked(lapse, scale.agents + due)
        checks, before = sweeps(lapse)
        evictions = Evictions(lapse)
        seen = evictions.await_count(due, 30)
        fleets.check_tracked(lapse, scale.agents)  # the check is over: it is counted by now
        checks, inside = sweeps(lapse)[0] - checks, sweeps(lapse)[1] - before
        nobody = asked_for(bench, lapse)
    if checks < 1 or len({last for _, _, last in seen}) != 1:
        raise BenchError(f"{checks} checks; the agents did not fall due together")
    return {"check ms": inside, "checks": checks,
            "arrival ms": max(arrived - last for arrived, _, last in seen) - scale.silence_s * 1000,
            "nobody due ms": nobody}


def agent_check(bench):
    scale = bench.scale
    samples = alternate(bench, {"lapse": lambda: check_round(bench)})["lapse"]
    ours = Figure("check", "ms", column(samples, "check ms"))
    row = Row("agent-check", f"check of {scale.agents:,} agents of which {scale.due_few:,} fall due in one millisecond, by "
              "lapse_sweep_seconds", ours, target="≤ 5 ms", met=ours.median <= 5)
    row.figures = [Figure(label, unit, column(samples, key)) for label, unit, key in (
        ("checks it took", "", "checks"),
        ("from the deadline to the arrival of the last event on a stream", "ms", "arrival ms"),
        ("POST /v1/sweep/agents with nobody due, as its caller sees it", "ms", "nobody due ms"))]
    row.notes.append("The check includes everything: finding who is due, their rows deleted from SQLite, an "
                     "event and a log line for each, the commits, and the memory following.")
    return row


# -- the start ---------------------------------------------------------------------------------------


def started(bench, directory):
    with Lapse(bench.lapsed, directory) as lapse:
        user, system = lapse.cpu_s()
        fleets.check_tracked(lapse, bench.scale.agents)
        return {"ready s": lapse.ready_s, "user s": user, "system s": system,
                "RSS MiB": lapse.rss_bytes() / 2**20}


def agent_start(bench):
    directory = stores.copy(bench, bench.fleet(), "lapse")
    samples = alternate(bench, {"lapse": lambda: started(bench, directory)})["lapse"]
    ours = Figure("ready", "s", column(samples, "ready s"))
    row = Row("agent-start", f"from the start of lapsed with {bench.scale.agents:,} known agents to its line "
              "`lapsed ready`, files in the page cache", ours, target="≤ 2 s", met=ours.median <= 2)
    row.figures = figures_of(samples, "ready s")
    return row


#: name → function, in the order they run
ROWS = {
    "heartbeat": heartbeat,
    "heartbeat-batch": heartbeat_batch,
    "agent-memory": agent_memory,
    "eviction-lag": eviction_lag,
    "agent-check": agent_check,
    "agent-start": agent_start,
}
