# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: each measures one promise of lapse and compares it with its target.

To add a row: a function `name(bench)` that returns a Row, and its entry in ROWS at the end. It gets a
`Bench` (run.py) with the binaries, the load generator, fresh directories, the scale and say().
"""
import dataclasses
import os
import statistics
import threading
import time

import callgrind
import stores
from servers import BenchError, Lapse, Redis, machine_cpu_s
from stores import AGENTS, CONTENT

CONNECTIONS = 64
BROADCAST_AGENTS = 100
#: Loads never reach it: a row measures speed, not the limit.
NO_UNREAD_LIMIT = ("--unread-max-per-agent", "1000000000")

POST = ["--path", "/v1/agents/agent-%05u/messages", "--body",
        '{"from":"bench-sender","content":"' + CONTENT + '"}', "--spread", str(AGENTS)]
XADD = ["--", "XADD", "agent-%05u", "*", "from", "bench-sender", "content", CONTENT, "type", "text",
        "metadata", "{}"]


@dataclasses.dataclass
class Figure:
    """One measured quantity over the rounds."""

    label: str
    unit: str
    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    def __str__(self):
        text = f"{number(self.median)} {self.unit}".strip()
        if len(self.values) > 1:
            text += f" ({number(min(self.values))}–{number(max(self.values))})"
        return text


@dataclasses.dataclass
class Row:
    """A line of the table: `ours` against `theirs`, and below it further figures of both."""

    name: str
    title: str
    ours: Figure
    theirs: Figure = None
    ratio: float = None
    target: str = ""
    met: bool = None
    figures: list = dataclasses.field(default_factory=list)
    their_figures: list = dataclasses.field(default_factory=list)  # with the labels of `figures`
    notes: list = dataclasses.field(default_factory=list)


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def column(samples, key):
    return [sample[key] for sample in samples]


def figures_of(samples, without):
    return [Figure(key, "", column(samples, key)) for key in samples[0] if key != without]


def alternate(bench, sides):
    """Runs the sides in turn, once a round: {side: [sample, …]}."""
    samples = {side: [] for side in sides}
    for turn in range(bench.scale.rounds):
        for side, measure in sides.items():
            sample = measure()
            samples[side].append(sample)
            shown = ", ".join(f"{key} {number(value)}" for key, value in sample.items())
            bench.say(f"round {turn + 1}/{bench.scale.rounds}  {side:<6} {shown}")
    return samples


# -- throughput: durable writes against Redis ------------------------------------------------------


def measure(bench, server, arguments, messages_per_request=1, unit="messages", seconds=None):
    """A closed loop of a few seconds on a fresh server, after a short one to warm it up."""
    closed = ["--connections", str(CONNECTIONS), "--seconds"]
    bench.load(server, [*closed, str(bench.scale.warm_s), *arguments])
    machine, user, system = machine_cpu_s(), *server.cpu_s()
    result = bench.load(server, [*closed, str(seconds or bench.scale.seconds), *arguments])
    machine, user, system = (end - start for start, end in
                             zip((machine, user, system), (machine_cpu_s(), *server.cpu_s())))
    others = machine - user - system - client_cpu_s(result)
    messages = result["answered"] * messages_per_request
    return {
        f"{unit}/s": messages / result["seconds"],
        "CPU µs": (user + system) * 1e6 / messages,
        "user µs": user * 1e6 / messages,
        "system µs": system * 1e6 / messages,
        "client CPU µs": result["client_cpu_us"] / messages_per_request,
        "p50 µs": result["latency_us"]["p50"],
        "p99 µs": result["latency_us"]["p99"],
        "machine used by others %": share_of_machine(others, result["seconds"]),
    }


def client_cpu_s(result):
    return result["client_cpu_us"] * result["answered"] / 1e6


def share_of_machine(cpu_s, seconds):
    """CPU time as a percentage of what all cores could do in that many seconds."""
    return max(0, cpu_s) * 100 / seconds / os.cpu_count()


def xadd(bench):
    with Redis(bench.directory("redis")) as redis:
        return measure(bench, redis, ["--spread", str(AGENTS), *XADD])


def post(bench):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT) as lapse:
        sample = measure(bench, lapse, POST)
        commits = lapse.metric("lapse_commit_batch_size_count")
        requests = lapse.metric("lapse_commit_batch_size_sum")
        return {**sample, "requests/commit": requests / max(commits, 1)}


def post_many(bench):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT) as lapse:
        return measure(bench, lapse, stores.broadcast(BROADCAST_AGENTS, []), BROADCAST_AGENTS)


def against_redis(bench, name, title, ours, at_least):
    samples = alternate(bench, {"lapse": ours, "redis": lambda: xadd(bench)})
    rates = {side: Figure(f"{side} messages/s", "/s", column(samples[side], "messages/s"))
             for side in samples}
    ratio = rates["lapse"].median / rates["redis"].median
    row = Row(name, title, rates["lapse"], rates["redis"], ratio, f"≥ {at_least}", ratio >= at_least)
    row.figures, row.their_figures = (
        [Figure(key, "", column(of_side, key)) for key in of_side[0] if key != "messages/s"]
        for of_side in (samples["lapse"], samples["redis"]))
    cpu = {side: statistics.median(column(samples[side], "CPU µs")) for side in samples}
    row.notes.append(f"Measured by the servers' CPU time a message instead, lapse does "
                     f"{cpu['redis'] / cpu['lapse']:.2f}× what Redis does.")
    return row


def durable_post(bench):
    return against_redis(bench, "durable-post",
                         f"durable POST of a message, {CONNECTIONS} connections, against XADD with "
                         "appendfsync always", lambda: post(bench), 0.9)


def broadcast(bench):
    return against_redis(bench, "broadcast",
                         f"one POST /v1/messages to {BROADCAST_AGENTS} agents, messages/s, against "
                         "the same XADD", lambda: post_many(bench), 3)


# -- instructions of a write ------------------------------------------------------------------------


#: Enough that nearly every agent has had a message and its stream or rows exist.
WARM_REQUESTS = 5 * AGENTS


def count_writes(bench, label, start, arguments, requests, messages):
    """Instructions a message of a server under callgrind, warmed up before counting starts."""
    out = bench.file(f"callgrind.{label}")
    with start(callgrind.tool(out, "--instr-atstart=no")) as server:
        closed = ["--connections", str(CONNECTIONS), "--requests"]
        bench.load(server, [*closed, str(WARM_REQUESTS), *arguments])
        callgrind.instrument(server, True)
        bench.load(server, [*closed, str(requests), *arguments])
        callgrind.instrument(server, False)
    per_message = callgrind.total(out) / messages
    bench.say(f"{label}: {number(per_message)} instructions a message")
    return Figure(label, "", [per_message]), out


def count_posts(bench):
    return count_writes(
        bench, "lapse-post",
        lambda tool: Lapse(bench.lapsed, bench.directory("lapse"), tool=tool,
                           settings=NO_UNREAD_LIMIT),
        POST, bench.scale.counted, bench.scale.counted)


def instructions(bench):
    """No target: says how much work a message is, free of the machine's noise."""
    single, _ = count_posts(bench)
    requests = bench.scale.counted // BROADCAST_AGENTS + 1
    many, _ = count_writes(
        bench, "lapse-broadcast",
        lambda tool: Lapse(bench.lapsed, bench.directory("lapse"), tool=tool,
                           settings=NO_UNREAD_LIMIT),
        stores.broadcast(BROADCAST_AGENTS, []), requests, requests * BROADCAST_AGENTS)
    redis, _ = count_writes(
        bench, "redis-xadd", lambda tool: Redis(bench.directory("redis"), tool=tool),
        ["--spread", str(AGENTS), *XADD], bench.scale.counted, bench.scale.counted)
    row = Row("instructions", "instructions a message in user space (callgrind): a single POST, "
              "against XADD", single, redis, single.median / redis.median)
    row.figures = [Figure("a message of a broadcast", "", many.values)]
    row.notes.append(f"In a broadcast to {BROADCAST_AGENTS} agents a message costs "
                     f"{many.median / redis.median:.2f}× an XADD.")
    return row


# -- sweeps: cost by what expired, not by what is alive ---------------------------------------------


def sweep(lapse, due):
    """One sweep through the front door: the seconds it took a client to get the answer."""
    before, start = lapse.pruned(), time.monotonic()
    lapse.call("POST", "/v1/sweep/messages")
    elapsed = time.monotonic() - start
    pruned = lapse.pruned() - before
    if pruned != due:
        raise BenchError(f"the sweep removed {pruned} messages instead of {due}")
    return elapsed


def count_sweep(bench, store, label, options, whole):
    """Instructions of the sweep on a copy of the store: of sweep_slice, or of the whole daemon."""
    out = bench.file(f"callgrind.{label}")
    directory = stores.copy(bench, store, "swept")
    with Lapse(bench.lapsed, directory, tool=callgrind.tool(out, *options)) as lapse:
        lapse.metric("lapse_build_info")  # the first request pays for what is set up once
        if whole:
            callgrind.instrument(lapse, True)
        sweep(lapse, bench.scale.due_few)
        if whole:
            callgrind.instrument(lapse, False)
    count = callgrind.total(out)
    bench.say(f"{label}: {count:,} instructions")
    return count


def sweep_instructions(bench):
    scale = bench.scale
    few = bench.store(scale.due_few, scale.live_few)
    many = bench.store(scale.due_few, scale.live_many)
    in_slice = ("--collect-atstart=no", f"--toggle-collect={bench.sweep_function}")
    counts = {(size, whole): count_sweep(bench, store, f"sweep-{size}-{'whole' if whole else 'slice'}",
                                         ("--instr-atstart=no",) if whole else in_slice, whole)
              for whole in (False, True) for size, store in (("few", few), ("many", many))}
    ours = Figure(f"among {scale.live_many:,}", "", [counts["many", False]])
    theirs = Figure(f"among {scale.live_few:,}", "", [counts["few", False]])
    ratio = ours.median / theirs.median
    row = Row("sweep-instructions",
              f"instructions to sweep {scale.due_few:,} due messages among {scale.live_many:,} live, "
              f"against among {scale.live_few:,}", ours, theirs, ratio, "≤ 1.2", ratio <= 1.2)
    whole = counts["many", True] / counts["few", True]
    row.figures = [Figure("whole daemon", "", [counts["many", True]])]
    row.their_figures = [Figure("whole daemon", "", [counts["few", True]])]
    row.notes.append(f"With the commit, the answer and two GET /metrics around it (the whole daemon) "
                     f"the ratio is {whole:.2f}.")
    return row


def timed_sweep(bench, store):
    with Lapse(bench.lapsed, stores.copy(bench, store, "swept")) as lapse:
        inside = lapse.metric("lapse_sweep_seconds_sum", "messages")
        outside = sweep(lapse, bench.scale.due_few)
        inside = lapse.metric("lapse_sweep_seconds_sum", "messages") - inside
        return {"outside ms": outside * 1e3, "inside ms": inside * 1e3}


def sweep_time(bench):
    scale = bench.scale
    store = bench.store(scale.due_few, scale.live_many)
    samples = alternate(bench, {"lapse": lambda: timed_sweep(bench, store)})["lapse"]
    ours = Figure("outside", "ms", column(samples, "outside ms"))
    row = Row("sweep-time", f"time of that sweep among {scale.live_many:,} live, as its caller sees it",
              ours, target="≤ 50 ms", met=ours.median <= 50)
    row.figures = [Figure("by lapse_sweep_seconds", "ms", column(samples, "inside ms"))]
    return row


# -- foreground latency during a large prune --------------------------------------------------------

QUANTILES = ("p50", "p90", "p99", "p99.9", "max")


def open_loop(rate, seconds):
    return ["--connections", str(CONNECTIONS), "--rate", str(rate), "--seconds", str(seconds), *POST]


def saturation(bench, lapse):
    closed = ["--connections", str(CONNECTIONS), "--seconds", str(bench.scale.seconds), *POST]
    return bench.load(lapse, closed)["rate"]


def under_prune(bench, lapse, rate, due):
    """The open loop for exactly as long as the prune takes: its result and that time."""
    failure = []

    def prune():
        try:
            sweep(lapse, due)
        except Exception as error:  # pylint: disable=broad-except  # raised again below
            failure.append(error)

    run = bench.load.start(lapse, open_loop(rate, bench.scale.prune_max_s))
    time.sleep(0.2)  # until it has connected
    start = time.monotonic()
    pruner = threading.Thread(target=prune, daemon=True)
    pruner.start()
    pruner.join(bench.scale.prune_max_s)
    elapsed = time.monotonic() - start
    result = bench.load.finish(lapse, run)
    if pruner.is_alive() or failure:
        raise failure[0] if failure else BenchError(f"the prune took over {elapsed:.0f} s")
    return result, elapsed


def prune_round(bench, store, rates):
    """Quiet first, then the same load during the prune, on one daemon with one fresh copy."""
    due = bench.scale.due_many
    with Lapse(bench.lapsed, stores.copy(bench, store, "pruned"), settings=NO_UNREAD_LIMIT) as lapse:
        rates.append(saturation(bench, lapse))
        rate = round(0.3 * statistics.median(rates))
        os.sync()
        quiet = bench.load(lapse, open_loop(rate, bench.scale.quiet_s))["latency_us"]
        busy, elapsed = under_prune(bench, lapse, rate, due)
        busy = busy["latency_us"]
    return {**{f"quiet {key} ms": quiet[key] / 1e3 for key in QUANTILES},
            **{f"{key} ms": busy[key] / 1e3 for key in QUANTILES},
            "offered/s": rate, "prune s": elapsed, "pruned/s": due / elapsed}


def prune_latency(bench):
    store = bench.store(bench.scale.due_many, 0)
    rates = []
    samples = alternate(bench, {"lapse": lambda: prune_round(bench, store, rates)})["lapse"]
    ours = Figure("p99 during the prune", "ms", column(samples, "p99 ms"))
    theirs = Figure("p99 without", "ms", column(samples, "quiet p99 ms"))
    ratio = ours.median / theirs.median
    row = Row("prune-latency",
              "p99 of an open loop at 30 % of saturation while "
              f"{bench.scale.due_many:,} due messages are pruned, against without", ours, theirs, ratio,
              "≤ 2 or +5 ms", ratio <= 2 or ours.median - theirs.median <= 5)
    row.figures = [Figure(f"{key} ms", "", column(samples, f"{key} ms")) for key in QUANTILES]
    row.their_figures = [Figure(f"{key} ms", "", column(samples, f"quiet {key} ms"))
                         for key in QUANTILES]
    row.figures += [Figure(key, "", column(samples, key))
                    for key in ("offered/s", "prune s", "pruned/s")]
    row.figures.append(Figure("saturation/s", "", rates))
    return row


#: name → function, in the order they run
ROWS = {
    "durable-post": durable_post,
    "broadcast": broadcast,
    "instructions": instructions,
    "sweep-instructions": sweep_instructions,
    "sweep-time": sweep_time,
    "prune-latency": prune_latency,
}
