# SPDX-License-Identifier: Apache-2.0
"""The rows about attachments: staging a large file of this host, many small ones over HTTP, and a start with
very many.

The large file lies in the page cache for everybody: what is compared is hashing, copying and syncing,
not the disk's speed at reading. Every side makes a synced copy of its own, except the one that only
hashes.
"""
import json
import os
import subprocess
import time

import depots
from rows import CONNECTIONS, Figure, Row, alternate, column
from servers import DAY_MS, BenchError, Lapse, Nginx, machine_cpu_s

LARGE_MAX_BYTES = ("--attachment-max-bytes", str(8 << 30), "--attachment-total-bytes", str(64 << 30))
SMALL_BYTES = 4096
BLOCK = 1 << 20
CHECK_MAX_S = 300
#: Reads at a steady pace: whatever holds the loop shows in their latency, and no disk does.
READS = ["--method", "GET", "--path", "/v1/attachments/metrics", "--rate", "1000", "--connections", "8",
         "--seconds", str(CHECK_MAX_S)]


def figures(samples, unit_of):
    return [Figure(key, unit_of(key), column(samples, key)) for key in samples[0]]


# -- one large file --------------------------------------------------------------------------------


def make_large(bench):
    """A file of random bytes, read once so that it is in the page cache."""
    path = os.path.join(os.path.abspath(bench.directory("source")), "large")
    with open(path, "wb") as out:
        for _ in range(bench.scale.large_bytes // BLOCK):
            out.write(os.urandom(BLOCK))
        out.flush()
        os.fsync(out.fileno())
    return path


def timed(call):
    """Seconds of the call; nobody pays for dirty pages of somebody else."""
    os.sync()
    start = time.monotonic()
    call()
    return {"seconds": time.monotonic() - start}


def shell(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)}: {done.stderr}")


def stage_large(bench, source):
    directory = bench.directory("lapse")
    with Lapse(bench.lapsed, directory, settings=(
            "--attachment-stage-roots", os.path.dirname(source), *LARGE_MAX_BYTES)) as lapse:
        rss = lapse.rss_bytes("RssAnon")
        sample = timed(lambda: lapse.call("POST", "/v1/attachments/stage", {"path": source}))
        return {**sample, "RSS growth MiB": (lapse.rss_bytes("RssAnon") - rss) / BLOCK}


def hash_large(source):
    return timed(lambda: shell("openssl", "dgst", "-sha256", source))


def write_large(bench, source):
    copy = os.path.join(bench.directory("copy"), "large")
    return timed(lambda: shell("dd", f"if={source}", f"of={copy}", "bs=1M", "conv=fsync",
                               "status=none"))


def copy_large(bench, source):
    copy = os.path.join(bench.directory("copy"), "large")

    def copy_hash_sync():
        shell("cp", source, copy)
        shell("sha256sum", copy)
        shell("sync")

    return timed(copy_hash_sync)


def large_samples(bench):
    """All four sides in turn, once a run: two rows read them."""
    if not bench.large:
        source = make_large(bench)
        bench.large = alternate(bench, {"lapse": lambda: stage_large(bench, source),
                                        "sha256": lambda: hash_large(source),
                                        "dd": lambda: write_large(bench, source),
                                        "cp": lambda: copy_large(bench, source)})
        bench.directory("copy")
        bench.directory("source")
    return bench.large


def side(samples, name):
    return Figure("seconds", "s", column(samples[name], "seconds"))


def large_row(bench, name, title, theirs, least):
    samples = large_samples(bench)
    ours = side(samples, "lapse")
    ratio = theirs.median / ours.median
    row = Row(name, title, ours, theirs, ratio, f"≥ {least}", ratio >= least)
    row.figures = figures(samples["lapse"], lambda key: "s" if key == "seconds" else "MiB")
    return row


def stage_file(bench):
    samples = large_samples(bench)
    slower = max((side(samples, name) for name in ("sha256", "dd")), key=lambda f: f.median)
    row = large_row(bench, "stage-file", f"Staging a file of {bench.scale.large_bytes >> 20} MiB of this "
                    "host, against the slower of SHA-256 by OpenSSL alone and dd with a sync", slower, 0.9)
    row.notes.append(f"OpenSSL alone {side(samples, 'sha256')}, dd {side(samples, 'dd')}.")
    return row


def stage_copy(bench):
    return large_row(bench, "stage-copy", "The same, against cp, then sha256sum, then sync",
                     side(large_samples(bench), "cp"), 1.5)


# -- many small ones over HTTP ---------------------------------------------------------------------


def small_load(bench, server, method, path):
    """So many files at once; then everything that is not on the disk yet is counted, too."""
    files = bench.scale.small_files
    body = "%08n" + "x" * (SMALL_BYTES - 8)
    os.sync()
    machine, before = machine_cpu_s(), sum(server.cpu_s())
    start = time.monotonic()
    result = bench.load(server, ["--connections", str(CONNECTIONS), "--requests", str(files), "--method",
                                 method, "--path", path, "--body", body, "--type",
                                 "application/octet-stream", "--spread", str(files)])
    os.sync()
    synced = time.monotonic() - start
    used = sum(server.cpu_s()) - before
    return {
        "files/s": result["answered"] / result["seconds"],
        "files/s with a sync at the end": result["answered"] / synced,
        "CPU µs": used * 1e6 / result["answered"],
        "p50 µs": result["latency_us"]["p50"],
        "p99 µs": result["latency_us"]["p99"],
        "machine used by all %": (machine_cpu_s() - machine) * 100 / synced / os.cpu_count(),
    }


def small_by_lapse(bench):
    with Lapse(bench.lapsed, bench.directory("lapse")) as lapse:
        sample = small_load(bench, lapse, "POST", "/v1/attachments?name=f%08n")
        stored = lapse.call("GET", "/v1/attachments/metrics")["total_count"]
        if stored != bench.scale.small_files:
            raise BenchError(f"lapse has {stored} files, not {bench.scale.small_files}")
        return sample


def small_by_nginx(bench):
    with Nginx(bench.directory("nginx")) as nginx:
        sample = small_load(bench, nginx, "PUT", "/f%08n")
        stored = len(os.listdir(nginx.root))
        if stored != bench.scale.small_files:
            raise BenchError(f"nginx has {stored} files, not {bench.scale.small_files}")
        return sample


def stage_small(bench):
    samples = alternate(bench, {"lapse": lambda: small_by_lapse(bench),
                                "nginx": lambda: small_by_nginx(bench)})
    ours, theirs = (Figure("files/s", "/s", column(samples[name], "files/s")) for name in samples)
    row = Row("stage-small", f"{bench.scale.small_files:,} files of {SMALL_BYTES} bytes over HTTP, "
              f"{CONNECTIONS} connections, against nginx's WebDAV PUT", ours, theirs,
              ours.median / theirs.median)

    def unit(key):
        return "µs" if "µs" in key else "%" if "%" in key else "/s"

    row.figures, row.their_figures = (figures(samples[name], unit) for name in samples)
    row.notes.append("nginx answers before anything is on the disk; lapse hashes each file, syncs it and "
                     "its directory, and commits its row before it answers.")
    return row


# -- a start with very many ------------------------------------------------------------------------


def await_check(lapse, log_from):
    """The line with which the check after the start says what it has found, once it is over."""
    deadline = time.monotonic() + CHECK_MAX_S
    while time.monotonic() < deadline:
        with open(lapse.log_path, "rb") as log:
            log.seek(log_from)
            for line in log:
                if b'"attachment.reconciled"' in line and line.endswith(b"\n"):
                    return json.loads(line)
        time.sleep(0.02)
    raise BenchError(f"the check of attachments is not over after {CHECK_MAX_S} s")


def judge_report(bench, report):
    found = {key: report[key] for key in ("rows", "files_without_row", "rows_without_file", "unreadable")}
    if found != {"rows": bench.scale.attachments, "files_without_row": 1, "rows_without_file": 0,
                 "unreadable": 0}:
        raise BenchError(f"the check of attachments has found {found}")


def check_round(bench, directory):
    """One start: to ready, then to the end of the check, with reads beside it and reads after it."""
    depots.leave_orphan(directory)
    log_path = directory.rstrip("/") + ".log"
    log_from = os.path.getsize(log_path) if os.path.exists(log_path) else 0
    os.sync()
    with Lapse(bench.lapsed, directory, settings=("--attachment-sweep-ms", str(DAY_MS))) as lapse:
        start = time.monotonic()
        reads = bench.load.start(lapse, READS)
        judge_report(bench, await_check(lapse, log_from))
        seconds = time.monotonic() - start
        during, cpu = bench.load.finish(lapse, reads), sum(lapse.cpu_s())
        peak = lapse.rss_bytes("VmHWM")
        reads = bench.load.start(lapse, READS)
        time.sleep(bench.scale.seconds)
        after = bench.load.finish(lapse, reads)
    return {"ready ms": lapse.ready_s * 1000, "check s": seconds, "CPU s": cpu, "peak RSS MiB": peak / BLOCK,
            "p99 ms": during["latency_us"]["p99"] / 1000, "max ms": during["latency_us"]["max"] / 1000,
            "p99 after ms": after["latency_us"]["p99"] / 1000,
            "max after ms": after["latency_us"]["max"] / 1000}


def attachment_start(bench):
    directory = depots.build(bench, "lapse", bench.scale.attachments)
    samples = alternate(bench, {"lapse": lambda: check_round(bench, directory)})["lapse"]
    ours = Figure("ready", "ms", column(samples, "ready ms"))
    row = Row("attachment-start", f"from the start of lapsed with {bench.scale.attachments:,} attachments to its "
              "line `lapsed ready`, files in the page cache; then the check of all rows and files", ours,
              target="≤ 500 ms", met=ours.median <= 500)
    row.figures = figures(samples, lambda key: "MiB" if "MiB" in key else key.split()[-1])
    row.notes.append("p99 and max are those of 1000 reads a second in an open loop, while the check runs "
                     "and after it; the check's CPU time includes answering them.")
    bench.directory("lapse")
    return row


ROWS = {"stage-file": stage_file, "stage-copy": stage_copy, "stage-small": stage_small,
        "attachment-start": attachment_start}
