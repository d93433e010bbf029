#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark of lapse in one command; `make bench` runs it.

    bench/run.py --build build [--quick] [--only NAME …]

Prints progress and a table, and writes both results/latest.md and results/latest.json beside itself.
README.md says what the rows mean. `--only profile` shows where the time of a durable POST goes.
"""
import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import agent_rows  # noqa: E402
import door_rows  # noqa: E402
import file_rows  # noqa: E402
import fleets  # noqa: E402
import log_rows  # noqa: E402
import mailbox_rows  # noqa: E402
import page_rows  # noqa: E402
import postgres_rows  # noqa: E402
import profile_post  # noqa: E402
import rows as message_rows  # noqa: E402
import stores  # noqa: E402
import table_rows  # noqa: E402
from rows import number  # noqa: E402
from servers import BenchError, Load  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DISK_FREE_MIN = 4 << 30
#: name → function, in the order they run
ROWS = {**message_rows.ROWS, **log_rows.ROWS, **agent_rows.ROWS, **mailbox_rows.ROWS, **door_rows.ROWS, **file_rows.ROWS,
        **page_rows.ROWS, **table_rows.ROWS, **postgres_rows.ROWS}


@dataclasses.dataclass
class Scale:
    """How long and how much. The targets are meant for the full scale."""

    rounds: int = 3
    warm_s: float = 1
    seconds: float = 10
    quiet_s: float = 10
    counted: int = 5000  # requests under callgrind
    due_few: int = 1000
    live_few: int = 10_000
    live_many: int = 1_000_000
    due_many: int = 1_000_000
    prune_max_s: int = 600
    agents: int = 1_000_000
    silence_s: int = 12  # what evicts an agent, where a row waits for it
    mailboxes: int = 100_000
    redis_lag_s: int = 60  # how long Redis is given to notice, all rounds together
    large_bytes: int = 1 << 30  # of the file that is staged
    small_files: int = 10_000
    attachments: int = 100_000
    prune_rows: int = 10_000_000  # of a user's table, half of them due
    plan_rows: int = 10_000_000
    long_s: float = 300  # of durable-post-long
    messages: int = 10_000_000  # of message-start
    cluster_s: float = 600  # of cluster-heartbeat


QUICK = Scale(rounds=1, warm_s=0.3, seconds=1.5, quiet_s=2, counted=1000, live_many=100_000,
              due_many=100_000, prune_max_s=120, agents=100_000, silence_s=8, mailboxes=5000,
              redis_lag_s=20, large_bytes=1 << 28, small_files=2000, attachments=10_000, prune_rows=200_000,
              plan_rows=500_000, long_s=5, messages=200_000, cluster_s=90)


class Bench:
    """What a row works with."""

    def __init__(self, build, scale, sweep_function, earlier=None):
        self.lapsed = os.path.join(build, "lapsed")
        self.earlier = earlier  # lapsed of another version, for rows that compare with one
        self.lapse = os.path.join(build, "lapse")
        self.load = Load(find(build, "bench/bench_load", "bench_load"))
        self.steps = find(build, "bench/bench_steps", "bench_steps")
        self.pooled = find(build, "bench/bench_pooled", "bench_pooled")
        self.scale = scale
        self.sweep_function = sweep_function
        self.data = os.path.join(build, "bench-data")
        self.row = ""
        self.stores = {}
        self.known_fleet = None
        self.large = None  # samples of a large file, for the rows that share them
        if not os.access(self.lapsed, os.X_OK):
            raise BenchError(f"{self.lapsed} is missing: run make first")
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.data)
        self.check_disk()

    def check_disk(self):
        """A benchmark of durable writes needs a disk, and room on it."""
        kind = filesystem(self.data)
        if kind in ("tmpfs", "ramfs"):
            raise BenchError(f"the build directory lies on {kind}: syncs would cost nothing there")
        if shutil.disk_usage(self.data).free < DISK_FREE_MIN:
            raise BenchError(f"less than {DISK_FREE_MIN >> 30} GiB free for the benchmark's data")

    def say(self, text):
        print(f"  {self.row:<18} {text}", flush=True)

    def file(self, name):
        return os.path.join(self.data, name)

    def directory(self, name):
        """A fresh, empty directory of that name; what was there is gone, and on no one's mind."""
        path = self.file(name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path, mode=0o700)
        os.sync()
        return path

    def store(self, due, live):
        """A stopped store, made once a run; rows work on copies of it."""
        if (due, live) not in self.stores:
            self.stores[due, live] = stores.build(self, f"store-{due}-{live}", due, live)
        return self.stores[due, live]


    def fleet(self):
        """A stopped store that knows `scale.agents` agents, made once a run; rows work on copies."""
        if not self.known_fleet:
            self.known_fleet = fleets.build(self, "fleet", self.scale.agents)
        return self.known_fleet


def find(build, *names):
    for name in names:
        if os.access(os.path.join(build, name), os.X_OK):
            return os.path.join(build, name)
    raise BenchError(f"{names[-1]} is missing in {build}: run make first")


def filesystem(path):
    done = subprocess.run(["df", "--output=fstype", path], capture_output=True, text=True,
                          check=False)
    return done.stdout.split()[-1] if done.stdout else "unknown"


def machine(bench):
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False)
    return {
        "processors": f"{os.cpu_count()} × {models[0] if models else platform.machine()}",
        "kernel": platform.release(),
        "filesystem": filesystem(bench.data),
        "redis": redis.stdout.split("v=")[-1].split()[0] if redis.stdout else "missing",
        "load average at the start": os.getloadavg()[0],
    }


# -- the report --------------------------------------------------------------------------------------


def verdict(row):
    return {None: "–", True: "yes", False: "NO"}[row.met]


def cells(row):
    return (row.name, str(row.ours), str(row.theirs) if row.theirs else "–",
            f"{row.ratio:.2f}" if row.ratio is not None else "–", row.target or "–", verdict(row))


def table(head, rows):
    """A Markdown table that also reads well as plain text."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
           for line in lines]
    out.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(out)


def details(row):
    theirs = {figure.label: str(figure) for figure in row.their_figures}
    lines = [(figure.label, str(figure), theirs.get(figure.label, "–")) for figure in row.figures]
    return "\n".join([f"## {row.name}", f"{row.title}.", *row.notes, "",
                      table(("figure", "lapse", "against"), lines)])


def report(rows, failures, facts, quick):
    head = ["# Benchmark results", "",
            "; ".join(f"{key}: {number(value) if isinstance(value, float) else value}"
                      for key, value in facts.items()) + ".", ""]
    if quick:
        head += ["A quick run: one short round on small stores. Its targets are only a hint.", ""]
    head += [f"**{name} could not be measured**: {why}\n" for name, why in failures.items()]
    if not rows:
        return "\n".join(head)
    head += ["Medians of the rounds, (lowest–highest) behind them.", ""]
    return "\n".join(head) + "\n" + "\n".join(
        [table(("row", "lapse", "against", "ratio", "target", "met"), list(map(cells, rows))),
         *("\n" + details(row) for row in rows)]) + "\n"


def write_results(rows, failures, facts, quick, profile):
    directory = os.path.join(HERE, "results")
    os.makedirs(directory, exist_ok=True)
    text = report(rows, failures, facts, quick) + ("\n" + profile if profile else "")
    with open(os.path.join(directory, "latest.md"), "w", encoding="utf-8") as out:
        out.write(text)
    with open(os.path.join(directory, "latest.json"), "w", encoding="utf-8") as out:
        json.dump({"machine": facts, "quick": quick, "rows": [dataclasses.asdict(row) for row in rows],
                   "failures": failures, "profile": profile}, out, indent=1, ensure_ascii=False)
    return text


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="where lapsed and bench_load were built")
    parser.add_argument("--quick", action="store_true", help="one short round on small stores")
    parser.add_argument("--only", action="append", choices=[*ROWS, "profile"], metavar="NAME",
                        help="only this row (may repeat): %(choices)s")
    parser.add_argument("--sweep-function", default="sweep_slice",
                        help="the C function that callgrind counts in sweep-instructions")
    parser.add_argument("--earlier", metavar="LAPSED",
                        help="the lapsed of an earlier version, which consumer-cpu compares with")
    parser.add_argument("--keep-data", action="store_true", help="leave build/bench-data behind")
    return parser.parse_args()


def summary(row):
    text = str(row.ours)
    if row.theirs:
        text += f" against {row.theirs}, ratio {row.ratio:.2f}"
    return text + (f", target {row.target}: {verdict(row)}" if row.target else "")


def run(bench, names):
    """The rows that could be measured, and {name: why} of those that could not."""
    rows, failures = [], {}
    for name in names:
        bench.row = name
        start = time.monotonic()
        try:
            rows.append(ROWS[name](bench))
            bench.say(f"done in {time.monotonic() - start:.0f} s: {summary(rows[-1])}")
        except (BenchError, subprocess.TimeoutExpired) as error:
            failures[name] = str(error)
            bench.say(f"FAILED: {error}")
    return rows, failures


def main():
    options = arguments()
    names = options.only or list(ROWS)
    try:
        bench = Bench(options.build, QUICK if options.quick else Scale(), options.sweep_function, options.earlier)
        facts = machine(bench)
        rows, failures = run(bench, [name for name in names if name != "profile"])
        profile = profile_post.run(bench) if "profile" in names else ""
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print("\n" + write_results(rows, failures, facts, options.quick, profile))
    if not options.keep_data:
        shutil.rmtree(bench.data, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
