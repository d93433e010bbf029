# SPDX-License-Identifier: Apache-2.0
"""The row of the benchmark about mailboxes: very many that expire together, at a slow mail server."""
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import time

import stores
from rows import CONNECTIONS, NO_UNREAD_LIMIT, QUANTILES, Figure, Row, open_loop, saturation
from servers import BenchError, Lapse, Server, faked, free_port

DOUBLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "double", "stalwart.py")
ADMIN = "admin:correct-horse"
DELAY_MS = 50
LEAP = "+25h"


class MailServer(Server):
    """The double of the mail server. It must outlive the daemons that use it."""

    name = "mail server"

    def __init__(self, directory):
        super().__init__(directory)
        port = free_port()
        self.start([sys.executable, DOUBLE, "--port", str(port)], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        self.address = f"127.0.0.1:{port}"

    def control(self, order):
        """How many accounts it has; `order` as its POST /_control takes it."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request("POST", "/_control", json.dumps(order))
            return json.loads(connection.getresponse().read())["accounts"]
        finally:
            connection.close()


def settings_of(bench, server):
    secret = bench.file("stalwart-credentials")
    with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as out:
        out.write(ADMIN)
    return ("--mailbox-provider", "stalwart", "--stalwart-url", f"http://{server.address}",
            "--stalwart-credentials", f"@{secret}", "--mailbox-domain", "example.test",
            "--mailbox-sweep-ms", "86400000", *NO_UNREAD_LIMIT)


def make(bench, server, directory, count):
    """So many mailboxes with a day to live."""
    with Lapse(bench.lapsed, directory, settings=settings_of(bench, server)) as lapse:
        start = time.monotonic()
        bench.load(lapse, ["--path", "/v1/mailboxes", "--body", "{}", "--connections", str(CONNECTIONS),
                           "--requests", str(count)])
        elapsed = time.monotonic() - start
    if server.control({}) != count:
        raise BenchError(f"{server.control({})} accounts were made, not {count}")
    return count / elapsed


class MovedClock:
    """A wall clock that a file moves, read once a second."""

    def __init__(self, path):
        self.path = path
        self.set("+0")

    def set(self, offset):
        with open(self.path + ".new", "w", encoding="ascii") as out:
            out.write(offset + "\n")
        os.rename(self.path + ".new", self.path)

    def environment(self):
        env = faked("+0")
        del env["FAKETIME"], env["FAKETIME_NO_CACHE"]
        return {**env, "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_CACHE_DURATION": "1"}


def leap(lapse, clock):
    clock.set(LEAP)
    deadline = time.monotonic() + 20
    while lapse.call("GET", "/v1/clock")["state"] != "jumped":
        if time.monotonic() > deadline:
            raise BenchError("the clock did not leap")
        time.sleep(0.05)


def expire_all(bench, lapse, server, rate, clock):
    """The open loop while they expire: its latencies, the time, the largest memory on the way."""
    run = bench.load.start(lapse, open_loop(rate, bench.scale.prune_max_s))
    time.sleep(0.2)  # until it has connected
    leap(lapse, clock)
    start, marked, largest = time.monotonic(), None, 0
    lapse.call("POST", "/v1/clock/accept")
    while (left := server.control({})) > 0:
        elapsed = time.monotonic() - start
        if elapsed > bench.scale.prune_max_s:
            raise BenchError(f"{left} accounts are left after {elapsed:.0f} s")
        largest = max(largest, lapse.rss_bytes("RssAnon"))
        if marked is None and lapse.metric("lapse_live_rows", 'table="mailboxes"') == 0:
            marked = elapsed
        time.sleep(0.5)
    elapsed = time.monotonic() - start
    return bench.load.finish(lapse, run)["latency_us"], marked or elapsed, elapsed, largest


def check(directory, count):
    with sqlite3.connect(os.path.join(directory, "lapse.db")) as db:
        clean, = db.execute("SELECT count(*) FROM mailboxes WHERE status = 'expired' AND "
                            "stalwart_cleanup_failed = 0 AND cleanup_attempts = 0").fetchone()
        pending, = db.execute("SELECT count(*) FROM cleanups").fetchone()
    if (clean, pending) != (count, 0):
        raise BenchError(f"{clean} of {count} mailboxes ended clean, {pending} deletions are left")


def mailbox_expiry(bench):
    count, directory = bench.scale.mailboxes, bench.directory("mailboxes")
    with MailServer(bench.directory("mail-server")) as server:
        made = make(bench, server, directory, count)
        bench.say(f"{count:,} mailboxes made, {made:,.0f}/s")
        server.control({"fault": {"where": "DELETE /api/principal", "kind": "delay", "times": None,
                                  "ms": DELAY_MS}})
        clock = MovedClock(bench.file("clock"))
        with Lapse(bench.lapsed, stores.copy(bench, directory, "expiring"), settings=settings_of(bench, server),
                   env=clock.environment()) as lapse:
            rate = round(0.3 * saturation(bench, lapse))
            os.sync()
            quiet = bench.load(lapse, open_loop(rate, bench.scale.quiet_s))["latency_us"]
            before = lapse.rss_bytes("RssAnon")
            busy, marked, elapsed, largest = expire_all(bench, lapse, server, rate, clock)
            time.sleep(1)  # the last outcomes are written
        check(os.path.join(bench.data, "expiring"), count)
    ours = Figure("p99 while they expire", "ms", [busy["p99"] / 1e3])
    theirs = Figure("p99 before", "ms", [quiet["p99"] / 1e3])
    ratio = ours.median / theirs.median
    row = Row("mailbox-expiry", f"p99 of an open loop at 30 % of saturation while {count:,} mailboxes expire at one "
              f"moment and the mail server takes {DELAY_MS} ms for each account, against before",
              ours, theirs, ratio, "≤ 2 or +5 ms", ratio <= 2 or ours.median - theirs.median <= 5)
    row.figures = [Figure(f"{key} ms", "", [busy[key] / 1e3]) for key in QUANTILES]
    row.their_figures = [Figure(f"{key} ms", "", [quiet[key] / 1e3]) for key in QUANTILES]
    row.figures += [Figure("offered/s", "", [rate]), Figure("all marked expired s", "", [marked]),
                    Figure("all accounts gone s", "", [elapsed]), Figure("accounts gone/s", "", [count / elapsed]),
                    Figure("RssAnon MiB before", "", [before / 2**20]),
                    Figure("RssAnon MiB at most", "", [largest / 2**20]), Figure("made/s", "", [made])]
    return row


#: name → function, in the order they run
ROWS = {"mailbox-expiry": mailbox_expiry}
