# SPDX-License-Identifier: Apache-2.0
"""The rows about messages as a log: appending for long, to very many agents, while messages are filed, and
what consumers and a start cost once they are in the tail or filed."""
import csv
import io
import os
import sqlite3
import statistics
import subprocess
import time

import stores
from broker import RabbitMQ
from rows import (BROADCAST_AGENTS, CONNECTIONS, NO_UNREAD_LIMIT, POST, XADD, Figure, Row, alternate, column,
                  figures_of, measure, number, open_loop, post, saturation)
from servers import BenchError, Lapse, Redis
from stores import CONTENT

WIDE_AGENTS = 100_000
#: as it is; so small that passes follow each other and find few messages for each inbox; so large that none begins
FILING, SMALL, NO_FILING = (), ("--message-tail-max", "8192"), ("--message-tail-max", "10000000")
#: messages before the open loop: with the default tail its first pass is near then
PREFILL = 60_000
INBOX = 10_000
NO_WORSE = 1.05  # of the earlier version; the rest is noise
CLAIMED = 100
#: what XADD has as fields
PUBLISH = ["--queue", "inbox-%02u", "--body", '{"from":"bench-sender","content":"' + CONTENT
           + '","type":"text","metadata":{}}']
QUEUES = 16


def spread(arguments, agents):
    """The arguments of POST or XADD with another number of agents."""
    return [*arguments[:-1], str(agents)] if "--spread" in arguments else ["--spread", str(agents), *arguments]


def beside(bench, name, title, sides, at_least):
    """`sides` are lapse and redis; ratio of messages/s, CPU times beside it."""
    samples = alternate(bench, sides)
    rates = {side: Figure(f"{side} messages/s", "/s", column(samples[side], "messages/s")) for side in samples}
    ratio = rates["lapse"].median / rates["redis"].median
    row = Row(name, title, rates["lapse"], rates["redis"], ratio, f"≥ {at_least}" if at_least else "–",
              ratio >= at_least if at_least else None)
    row.figures, row.their_figures = ([Figure(key, "", column(of_side, key)) for key in of_side[0]
                                       if key != "messages/s"] for of_side in samples.values())
    return row


def appended(bench, server_of, arguments, seconds):
    with server_of() as server:
        sample = measure(bench, server, arguments, seconds=seconds)
        if isinstance(server, Lapse):
            sample["filed"] = server.metric("lapse_messages_filed_total")
        return sample


def against_xadd(bench, name, title, seconds, agents):
    return beside(bench, name, title, {
        "lapse": lambda: appended(bench, lambda: Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT),
                                  spread(POST, agents), seconds),
        "redis": lambda: appended(bench, lambda: Redis(bench.directory("redis")), spread(XADD, agents), seconds),
    }, 0.7)


def durable_post_long(bench):
    return against_xadd(bench, "durable-post-long", f"durable POST for {bench.scale.long_s:.0f} s without a pause, "
                        "filing included, against XADD with appendfsync always", bench.scale.long_s, stores.AGENTS)


def durable_post_wide(bench):
    return against_xadd(bench, "durable-post-wide", f"durable POST to {WIDE_AGENTS:,} agents, against XADD to as many "
                        "streams", bench.scale.seconds, WIDE_AGENTS)


def pipelined_xadd(bench):
    """XADD in pipelines of as many as a broadcast has agents, by redis-benchmark."""
    with Redis(bench.directory("redis")) as redis:
        host, port = redis.address.split(":")
        done = subprocess.run(
            ["redis-benchmark", "-h", host, "-p", port, "-P", str(BROADCAST_AGENTS), "-c", str(CONNECTIONS), "-n",
             str(round(100_000 * bench.scale.seconds)), "-r", str(stores.AGENTS), "--csv", "XADD", "agent-__rand_int__",
             "*", "from", "bench-sender", "content", CONTENT, "type", "text", "metadata", "{}"],
            capture_output=True, text=True, timeout=300, check=False)
        lines = list(csv.DictReader(io.StringIO(done.stdout)))
        if done.returncode != 0 or not lines:
            raise BenchError(f"redis-benchmark failed: {done.stdout}{done.stderr}")
        return {"messages/s": float(lines[-1]["rps"])}


def post_many(bench):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT) as lapse:
        return measure(bench, lapse, stores.broadcast(BROADCAST_AGENTS, []), BROADCAST_AGENTS)


def broadcast_pipelined(bench):
    return beside(bench, "broadcast-pipelined", f"one POST /v1/messages to {BROADCAST_AGENTS} agents, messages/s, against "
                  f"XADD pipelined by {BROADCAST_AGENTS}",
                  {"lapse": lambda: post_many(bench), "redis": lambda: pipelined_xadd(bench)}, None)


# -- a broker ----------------------------------------------------------------------------------------


def publish(bench, queues):
    with RabbitMQ(bench.directory("rabbitmq"), queues) as broker:
        sample = measure(bench, broker, [*PUBLISH, "--spread", str(queues)])
        stored = broker.stored(broker.answered)
    if stored != broker.answered:
        raise BenchError(f"{broker.answered} messages were confirmed and {stored} are in the queues")
    return sample


def durable_post_rabbitmq(bench):
    samples = alternate(bench, {"lapse": lambda: post(bench), "rabbitmq": lambda: publish(bench, 1),
                                "queues": lambda: publish(bench, QUEUES)})
    ours, theirs, many = (Figure(f"{side} messages/s", "/s", column(samples[side], "messages/s")) for side in samples)
    row = Row("durable-post-rabbitmq", f"durable POST of a message to {stores.AGENTS} agents, {CONNECTIONS} connections, "
              "against persistent messages to one quorum queue of a single RabbitMQ node, each connection publishing its "
              "next message after the confirm of the last", ours, theirs, ours.median / theirs.median, "–")
    row.figures, row.their_figures = (figures_of(samples[side], "messages/s") for side in ("lapse", "rabbitmq"))
    cpu = {side: Figure("", "µs", column(samples[side], "CPU µs")) for side in samples}
    row.notes.append("Measured by the servers' CPU time per message instead, lapse does "
                     f"{cpu['rabbitmq'].median / cpu['lapse'].median:.2f}× what RabbitMQ does.")
    row.notes.append(f"Spread over {QUEUES} quorum queues, RabbitMQ does {many} at {cpu['queues']} of CPU; lapse does "
                     f"{ours.median / many.median:.2f}× that.")
    return row


# -- latency while messages are filed ---------------------------------------------------------------


def unfiled_rate(bench):
    """How much it can do; from a daemon of its own, so that no side of the comparison follows it."""
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=(*NO_UNREAD_LIMIT, *NO_FILING)) as lapse:
        return saturation(bench, lapse)


def filing_round(bench, tail, rate):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=(*NO_UNREAD_LIMIT, *tail)) as lapse:
        bench.load(lapse, ["--connections", str(CONNECTIONS), "--requests", str(PREFILL), *POST])
        before = lapse.metric("lapse_messages_filed_total")
        latency = bench.load(lapse, open_loop(rate, bench.scale.quiet_s))["latency_us"]
        filed = lapse.metric("lapse_messages_filed_total") - before
    if (filed > 0) is (tail is NO_FILING):
        raise BenchError(f"{filed:.0f} messages were filed, which is not what the round is about")
    return {"p50 ms": latency["p50"] / 1e3, "p99 ms": latency["p99"] / 1e3, "max ms": latency["max"] / 1e3, "filed": filed}


def filing_latency(bench):
    rate = round(0.3 * unfiled_rate(bench))
    samples = alternate(bench, {"without": lambda: filing_round(bench, NO_FILING, rate),
                                "filing": lambda: filing_round(bench, FILING, rate),
                                "small": lambda: filing_round(bench, SMALL, rate)})
    p99 = {side: Figure(f"p99 {side}", "ms", column(samples[side], "p99 ms")) for side in samples}
    ratio = p99["filing"].median / p99["without"].median
    row = Row("filing-latency", "p99 of an open loop at 30 % of saturation while messages are filed, against without filing",
              p99["filing"], p99["without"], ratio, "≤ 1.3", ratio <= 1.3)
    row.figures, row.their_figures = ([Figure(key, "", column(samples[side], key)) for key in samples[side][0]]
                                      for side in ("filing", "without"))
    row.notes.append(f"With a tail of {SMALL[1]}, so that filing never ends and finds few messages for each inbox, p99 is "
                     f"{p99['small']}: {p99['small'].median / p99['without'].median:.2f}× without.")
    return row


# -- consumers: CPU time ------------------------------------------------------------------------------


def cpu_of(lapse, work, count):
    """CPU time of the daemon in µs for each of `count` messages or inboxes."""
    before = lapse.run_us()
    work()
    return (lapse.run_us() - before) / count


def claim_and_read(lapse):
    claim = lapse.call("POST", "/v1/agents/agent-00000/messages/claim", {"limit": CLAIMED})
    ids = [message["id"] for message in claim["data"]]
    if len(ids) != CLAIMED:
        raise BenchError(f"{len(ids)} messages were claimed instead of {CLAIMED}")
    lapse.call("POST", "/v1/agents/agent-00000/messages/read", {"ids": ids})


def pages(lapse, path):
    after, seen = "", 0
    while after is not None:
        page = lapse.call("GET", f"{path}?limit=100{after and '&after=' + after}")
        after, seen = page["pagination"]["next_cursor"], seen + len(page["data"])
    return seen


def consumers(bench, lapsed, tail):
    with Lapse(lapsed, bench.directory("lapse"), settings=(*NO_UNREAD_LIMIT, *tail)) as lapse:
        to_one = [*POST[:-1], "1"]
        bench.load(lapse, ["--connections", str(CONNECTIONS), "--requests", str(2 * INBOX), *to_one])
        claimed = cpu_of(lapse, lambda: [claim_and_read(lapse) for _ in range(INBOX // CLAIMED)], INBOX)
        listed = cpu_of(lapse, lambda: pages(lapse, "/v1/agents/agent-00000/messages"), 2 * INBOX)
        bench.load(lapse, stores.broadcast(1000, ["--requests", "40", "--connections", "4", "--spread", str(INBOX)]))
        found = []
        stats = cpu_of(lapse, lambda: found.append(pages(lapse, "/v1/messages/stats")), INBOX)
        return {"claim + read µs": claimed, "list µs": listed, "stats µs": stats * INBOX / found[0], "inboxes": found[0]}


def consumer_cpu(bench):
    """Against out of the table; or against an earlier version, out of the tail as well as out of the table."""
    sides = {"tail": lambda: consumers(bench, bench.lapsed, NO_FILING),
             "filed": lambda: consumers(bench, bench.lapsed, ("--message-tail-max", "0"))}
    if bench.earlier:
        sides["earlier"] = lambda: consumers(bench, bench.earlier, ())
    samples = alternate(bench, sides)
    other = "earlier" if bench.earlier else "filed"
    ours, theirs = (Figure(f"claim + read, {side}", "µs", column(samples[side], "claim + read µs"))
                    for side in ("tail", other))
    row = Row("consumer-cpu", f"CPU time of claiming and reading a message, {CLAIMED} at a time, out of the tail, against "
              + ("an earlier version" if bench.earlier else "out of the table"), ours, theirs, ours.median / theirs.median)
    row.figures, row.their_figures = ([Figure(key, "", column(samples[side], key)) for key in samples[side][0]]
                                      for side in ("tail", other))
    if bench.earlier:
        row.figures += [Figure(f"{key}, out of the table", "", column(samples["filed"], key))
                        for key in samples["filed"][0] if key != "inboxes"]
        worst = max(statistics.median(column(samples[side], key)) / statistics.median(column(samples[other], key))
                    for side in ("tail", "filed") for key in samples[side][0] if key != "inboxes")
        row.target, row.met = f"each ≤ {NO_WORSE}", worst <= NO_WORSE
        row.notes.append(f"The worst of the six ratios is {worst:.2f}.")
    return row


# -- a start with very many messages ------------------------------------------------------------------

FILL = """WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < :n)
    INSERT INTO messages (id, read, event, timestamp, owner, agent, sender, type, metadata, content)
    SELECT :base + i, 0, 1, :now, 'local', printf('agent-%05d', i % 1000), 'bench-sender', 'text', '{}', :content FROM k"""


def fill(directory, count):
    """Writes the rows itself: posting them would take longer than what is measured."""
    with sqlite3.connect(os.path.join(directory, "lapse.db")) as db:
        now = int(time.time() * 1000) - 3_600_000
        (last,), = db.execute("SELECT coalesce(max(seq), 0) FROM events")
        db.execute(FILL, {"n": count, "base": last - count - 1, "now": now, "content": CONTENT})
        db.execute("INSERT INTO messages_unread SELECT owner, agent, id FROM messages ORDER BY owner, agent, id")
        db.execute("INSERT INTO inboxes SELECT owner, agent, count(*), count(*) FROM messages GROUP BY 1, 2")
        db.execute("UPDATE counts SET live = ? WHERE tbl = 'messages'", (count,))
    db.close()


def timed_start(bench, directory):
    began = time.monotonic()
    with Lapse(bench.lapsed, directory, settings=NO_UNREAD_LIMIT) as lapse:
        ready = time.monotonic() - began
        return {"ms": ready * 1e3, "tail": lapse.metric("lapse_message_tail")}


def message_start(bench):
    directory, count = bench.directory("many"), bench.scale.messages
    with Lapse(bench.lapsed, directory, settings=NO_UNREAD_LIMIT) as lapse:
        lapse.metric("lapse_message_tail")
    bench.say(f"writing {count:,} messages")
    fill(directory, count)
    with Lapse(bench.lapsed, directory, settings=NO_UNREAD_LIMIT) as lapse:  # and a tail that was not filed
        bench.load(lapse, ["--connections", str(CONNECTIONS), "--requests", "60000", *POST])
        lapse.process.kill()
    samples = alternate(bench, {"lapse": lambda: timed_start(bench, directory)})["lapse"]
    ours = Figure("to lapsed ready", "ms", column(samples, "ms"))
    row = Row("message-start", f"from the start of lapsed with {count:,} messages, of which 60,000 are not filed, to `lapsed ready`",
              ours, target="≤ 1 s", met=ours.median <= 1000)
    row.figures = [Figure("messages not filed", "", column(samples, "tail"))]
    row.notes.append(f"The slowest took {number(max(ours.values))} ms.")
    return row


#: name → function, in the order they run
ROWS = {
    "durable-post-long": durable_post_long,
    "durable-post-wide": durable_post_wide,
    "broadcast-pipelined": broadcast_pipelined,
    "durable-post-rabbitmq": durable_post_rabbitmq,
    "filing-latency": filing_latency,
    "consumer-cpu": consumer_cpu,
    "message-start": message_start,
}
