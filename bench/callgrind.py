# SPDX-License-Identifier: Apache-2.0
"""Instructions of a server under valgrind's callgrind, in total and by part.

Counts of instructions do not depend on what else the machine does, so one run is enough where times
need rounds. They are of user space only: the kernel's share is in a server's system time.
"""
import collections
import functools
import glob
import os
import re
import subprocess

from servers import BenchError

LIBC = "libc"
OTHER = "other"
#: The parts of lapsed, by library and by source file; the first row that fits names the part.
#: Costs of libc (memory, strings) go to whoever calls it.
PARTS = (
    # part, in this object, from this source file
    (LIBC, r"/(libc|ld-linux|libm|libpthread)[-.]", ""),
    ("HTTP", r"/libmicrohttpd", ""),
    ("HTTP", r"/lapsed$", r"src/http/"),
    ("JSON", r"/libjansson", ""),
    ("JSON", r"/lapsed$", r"src/base/json"),
    ("SQL", r"/libsqlite3", ""),
    ("SQL", r"/lapsed$", r"src/store/"),
    ("message room", r"/lapsed$", r"src/message/"),
    ("engine", r"/lapsed$", r"src/(engine|api)/"),
    ("loop", r"/libuv", ""),
    ("loop", r"/lapsed$", r"src/daemon/"),
    ("base", r"/lapsed$", r"src/base/"),
    ("random and hashes", r"/lib(crypto|xxhash)", ""),
)


#: callgrind counts `rep stosb` as an instruction for each byte: have libc clear and copy with vectors.
NO_REP = ("GLIBC_TUNABLES=glibc.cpu.x86_rep_stosb_threshold=1073741824:"
          "glibc.cpu.x86_rep_movsb_threshold=1073741824")


def tool(out_path, *options):
    """The command prefix that runs a server under callgrind."""
    for stale in glob.glob(glob.escape(out_path) + "*"):
        os.unlink(stale)
    return ("env", NO_REP, "valgrind", "--quiet", "--tool=callgrind",
            f"--callgrind-out-file={out_path}", *options)


def instrument(server, on):
    """Turns counting on or off in a server started with --instr-atstart=no."""
    done = subprocess.run(["callgrind_control", "-i", "on" if on else "off",
                           str(server.process.pid)], capture_output=True, text=True, timeout=120,
                          check=False)
    if done.returncode != 0 or "OK" not in done.stdout:
        raise BenchError(f"callgrind_control failed: {done.stdout}{done.stderr}")


def total(out_path):
    """Instructions counted in all threads of a run that has ended."""
    for line in read(out_path):
        found = re.match(r"(?:totals|summary): (\d+)", line)
        if found and int(found[1]):
            return int(found[1])
    raise BenchError("callgrind counted nothing: the function to collect was never called")


def read(out_path):
    with open(out_path, encoding="utf-8", errors="replace") as out:
        yield from out


@functools.cache
def part_of(obj, file):
    for part, object_pattern, file_pattern in PARTS:
        if re.search(object_pattern, obj) and re.search(file_pattern, file):
            return part
    return OTHER


class Names:
    """The format writes a name once as `(12) name` and later as `(12)`."""

    def __init__(self):
        self.known = {}

    def get(self, text):
        number, _, name = text.partition(" ")
        if name:
            self.known[number] = name
        return self.known.get(number, number)


class Position:
    """Where the reader stands: a function, and the callee of the call that is being described."""

    def __init__(self):
        self.objects, self.files, self.functions = Names(), Names(), Names()
        self.here = ["", ""]  # object, file
        self.callee = ["", ""]
        self.callee_name = ""
        self.in_call = False

    def take(self, key, value):
        """One `key=value` line."""
        if key == "ob":
            self.here[0] = self.objects.get(value)
        elif key in ("fl", "fi", "fe"):
            self.here[1] = self.files.get(value)
        elif key == "cob":
            self.callee[0] = self.objects.get(value)
        elif key in ("cfi", "cfl"):
            self.callee[1] = self.files.get(value)
        elif key == "cfn":
            self.callee_name = self.functions.get(value)
        elif key == "fn":
            self.functions.get(value)
        elif key == "calls":
            self.in_call = True
        if key in ("ob", "fl", "fn"):
            self.callee = list(self.here)

    def end_call(self):
        self.in_call, self.callee = False, list(self.here)


def by_part(out_path):
    """Instructions of each part, libc's shared out to its callers: {part: instructions}."""
    own, through_libc = collections.Counter(), collections.Counter()
    at = Position()
    part = OTHER
    for line in read(out_path):
        key, mark, value = line.rstrip("\n").partition("=")
        if mark and key.isalpha():
            at.take(key, value)
            part = part_of(*at.here) if key == "fn" else part
        elif re.match(r"[+\-*\d]", line):
            instructions = int(line.split()[-1])
            if not at.in_call:
                own[part] += instructions
                continue
            # What libc's entry point calls is the whole program: no cost of its caller.
            if part != LIBC and part_of(*at.callee) == LIBC and "start" not in at.callee_name:
                through_libc[part] += instructions
            at.end_call()
    own[LIBC] = max(0, own[LIBC] - sum(through_libc.values()))
    return own + through_libc  # without the zeros
