# SPDX-License-Identifier: Apache-2.0
"""Where the time of a durable POST goes: HTTP, JSON, SQL, fsync.

Four sources, because none sees everything: the kernel's account of user and system time and lapse's own
lapse_commit_seconds (undisturbed run), callgrind for the parts of the user time, strace for the parts of
the system time and for how long a sync takes. The last two slow the server down, so only their shares
are used.
"""
import collections
import re
import signal
import subprocess
import time

import callgrind
from rows import CONNECTIONS, NO_UNREAD_LIMIT, POST, count_posts, number
from servers import Lapse

SYNCS = "fsync,fdatasync"
#: strace counts the sleep in them too
SLEEPS = ("futex", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "restart_syscall")
#: group of system calls → its members
CALLS = {
    "sync": ("fsync", "fdatasync"),
    "file": ("pwrite64", "pread64", "pwritev", "ftruncate", "fallocate", "fcntl", "fstat", "newfstatat",
             "lseek", "openat", "unlink", "mmap", "munmap"),
    "network": ("accept4", "recvfrom", "sendto", "recvmsg", "sendmsg", "readv", "writev", "shutdown",
                "setsockopt", "epoll_ctl"),
}


def closed_loop(bench, lapse, seconds):
    return bench.load(lapse, ["--connections", str(CONNECTIONS), "--seconds", str(seconds), *POST])


def undisturbed(bench, lapse):
    """Per request, in µs: wall time of the server's turn, CPU time, time inside COMMIT."""
    closed_loop(bench, lapse, bench.scale.warm_s)
    user, system = lapse.cpu_s()
    commit_s = lapse.metric("lapse_commit_seconds_sum")
    commits = lapse.metric("lapse_commit_seconds_count")
    result = closed_loop(bench, lapse, bench.scale.seconds)
    user_end, system_end = lapse.cpu_s()
    requests = result["answered"]
    return {
        "rate": result["rate"],
        "wall": 1e6 / result["rate"],
        "user": (user_end - user) * 1e6 / requests,
        "system": (system_end - system) * 1e6 / requests,
        "commit": (lapse.metric("lapse_commit_seconds_sum") - commit_s) * 1e6 / requests,
        "batch": requests / max(lapse.metric("lapse_commit_seconds_count") - commits, 1),
    }


def traced(bench, lapse, options):
    """{system call: (seconds, calls)} during a load, and the requests of it. Empty without strace."""
    out = bench.file("strace.txt")
    strace = subprocess.Popen(["strace", "-f", "-c", *options, "-o", out, "-p",
                               str(lapse.process.pid)], stderr=subprocess.PIPE)
    time.sleep(0.5)
    if strace.poll() is not None:
        return {}, 1
    requests = closed_loop(bench, lapse, bench.scale.seconds)["answered"]
    strace.send_signal(signal.SIGINT)
    strace.wait(30)
    calls = {}
    with open(out, encoding="utf-8") as lines:
        for line in lines:
            found = re.match(r"\s*[\d.]+\s+([\d.]+)\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
            if found and found[3] != "total":
                calls[found[3]] = (float(found[1]), int(found[2]))
    return calls, requests


def grouped(calls):
    """Seconds of each group of CALLS, without the sleeps."""
    seconds = collections.Counter()
    for name, (spent, _) in calls.items():
        if name in SLEEPS:
            continue
        group = next((group for group, names in CALLS.items() if name in names), "other calls")
        seconds[group] += spent
    return seconds


def shares(costs, total_us):
    """Table lines: each part's share of the costs, as µs of the total."""
    whole = sum(costs.values())
    return [f"| {part} | {number(total_us * cost / whole)} | {100 * cost / whole:.0f} % |"
            for part, cost in costs.most_common() if cost / whole >= 0.005]


def syncs_note(calls, requests):
    seconds, count = map(sum, zip(*calls.values())) if calls else (0, 0)
    if not count:
        return "strace could not attach: how long a sync takes is unknown."
    return (f"A sync takes {number(seconds * 1e6 / count)} µs; at {number(requests / count)} requests "
            f"to one that is {number(seconds * 1e6 / requests)} µs a request.")


def run(bench):
    bench.row = "profile"
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT) as lapse:
        times = undisturbed(bench, lapse)
        bench.say(", ".join(f"{key} {number(value)}" for key, value in times.items()))
        syncs, sync_requests = traced(bench, lapse, ["-w", "-e", f"trace={SYNCS}"])
        calls, requests = traced(bench, lapse, [])
    _, out = count_posts(bench)

    lines = ["## Where the time of a durable POST goes", "",
             f"{number(times['rate'])} requests/s: {number(times['wall'])} µs of wall time a request, "
             f"{number(times['batch'])} requests to a commit. The server's CPU time a request is "
             f"{number(times['user'])} µs in user space and {number(times['system'])} µs in the kernel. "
             f"{number(times['commit'])} µs of the wall time are spent in COMMIT. "
             + syncs_note(syncs, sync_requests), "",
             "| user space (callgrind) | µs | share |", "|---|---|---|",
             *shares(callgrind.by_part(out), times["user"])]
    if calls:
        lines += ["", "| kernel (strace -c) | µs | share |", "|---|---|---|",
                  *shares(grouped(calls), times["system"]), "",
                  "System calls a request: " + ", ".join(
                      f"{name} {count / requests:.2f}" for name, (_, count) in
                      sorted(calls.items(), key=lambda call: -call[1][1]) if count / requests > 0.01)
                  + "."]
    return "\n".join(lines) + "\n"
