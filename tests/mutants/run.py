#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds deliberate faults into copies of the sources and runs the tests that must notice them.

Each row of table.py is one mutant: a file, an exact change, the sentence it breaks, the tests that must fail. A
mutant that a test does not notice (a survivor) is a failure of this script; so is a snippet that is not found exactly
once, a mutant that does not compile, and a named test that fails without any mutant.

    run.py                  the whole table
    run.py --sample 20      20 rows; which ones rotates by the day, or by --turn
    run.py --only A,B       rows whose name contains one of these
    run.py --check          only whether every snippet still matches
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import time

import lines
import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIES = ROOT / "build-mutants"
BUILD = "build-mutant"
TEST_LIMIT_S = 180


def run(args, cwd, limit_s=None, env=None):
    """(exit code, output); a run that takes too long counts as failed."""
    try:
        done = subprocess.run(args, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace")


def check(mutants):
    """Every snippet must be in its file exactly once, names must be unique, and every line of lines.py has its mutants."""
    wrong, names = [], set()
    for m in mutants:
        path = ROOT / m.file
        found = path.read_text().count(m.old) if path.is_file() else None
        if found is None:
            wrong.append(f"{m.name}: there is no {m.file}")
        elif found != 1:
            wrong.append(f"{m.name}: its snippet is {found} times in {m.file}: {m.old!r}")
        if m.old == m.new or not m.tests or not m.breaks:
            wrong.append(f"{m.name}: a mutant changes something, breaks a sentence and names its tests")
        if m.name in names:
            wrong.append(f"{m.name}: this name is used twice")
        names.add(m.name)
    for line, broken_by in lines.LINES.items():
        wrong += [f"{line}: there is no mutant {name}" for name in broken_by if name not in names]
        if not broken_by:
            wrong.append(f"{line}: no mutant breaks it")
    return wrong


class Copy:
    """A copy of the tracked files with a build directory of its own, in which only what a mutant changes is rebuilt."""

    def __init__(self, number):
        self.tree = COPIES / f"copy-{number}"
        self.tree.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        names = set(filter(None, files.decode().split("\0")))
        for old in self.tree.rglob("*"):
            place = old.relative_to(self.tree)
            if old.is_file() and place.parts[0] != BUILD and str(place) not in names:
                old.unlink()  # gone or renamed since the last run
        for name in names:
            source, target = ROOT / name, self.tree / name
            if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
                os.utime(target)
        self.must(["cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=", "-DCMAKE_C_FLAGS=-O0 -g0 -w",
                   "-DCMAKE_C_COMPILER_LAUNCHER=" + ("ccache" if shutil.which("ccache") else "")])

    def must(self, args):
        code, output = run(args, self.tree)
        if code:
            raise SystemExit(f"mutants: {' '.join(args)} failed:\n{output[-4000:]}")

    def build(self, tests):
        targets = set()
        for test in tests:
            targets |= {"lapsed", "lapse", "provider_drive"} if test.startswith("tests/") else {test}
            targets |= {"lapsed-fault"} if test.startswith("tests/durability") else set()
        return run(["cmake", "--build", BUILD, "--target", *sorted(targets)], self.tree)

    def passes(self, test):
        """Runs a unit test program, or a test of pytest by its id."""
        if not test.startswith("tests/"):
            return run([next(self.tree.glob(f"{BUILD}/tests/*/{test}"))], self.tree, TEST_LIMIT_S)
        built = self.tree / BUILD
        env = {**os.environ, "LAPSED": str(built / "lapsed"), "LAPSE": str(built / "lapse"),
               "LAPSED_FAULT": str(built / "tests/durability/lapsed-fault"), "LAPSE_KILL_ROUNDS": "10",
               "PROVIDER_DRIVE": str(built / "tests/provider/provider_drive")}
        return run(["/usr/bin/python3", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test], self.tree,
                   TEST_LIMIT_S, env)

    def try_one(self, m):
        """None, or what is wrong: the mutant lives, or cannot be built."""
        path = self.tree / m.file
        original = path.read_text()
        path.write_text(original.replace(m.old, m.new))
        try:
            code, output = self.build(m.tests)
            if code:
                return f"does not compile:\n{output[-1500:]}"
            alive = [test for test in m.tests if self.passes(test)[0] == 0]
            return f"survives {', '.join(alive)}" if alive else None
        finally:
            path.write_text(original)


def baseline(copy, mutants):
    """Without a mutant every named test must pass."""
    tests = sorted({test for m in mutants for test in m.tests})
    code, output = copy.build(tests)
    if code:
        raise SystemExit(f"mutants: the sources do not build:\n{output[-4000:]}")
    sick = [test for test in tests if copy.passes(test)[0] != 0 and copy.passes(test)[0] != 0]
    if sick:
        raise SystemExit(f"mutants: without any mutant these fail: {', '.join(sick)}")


def choose(args):
    mutants = [m for m in table.MUTANTS if any(name in m.name for name in args.only.split(","))]
    if args.sample:
        start = args.turn * args.sample
        mutants = [mutants[(start + i) % len(mutants)] for i in range(min(args.sample, len(mutants)))]
    return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--turn", type=int, default=int(time.time() // 86400))
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--jobs", type=int, default=max(1, min(2, os.cpu_count() or 1)))
    args = parser.parse_args()
    wrong = check(table.MUTANTS)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong or args.check:
        print(f"{len(table.MUTANTS)} mutants, {len(wrong)} do not fit the sources")
        return 1 if wrong else 0
    mutants = choose(args)
    copies = queue.Queue()
    for number in range(args.jobs):
        copies.put(Copy(number))
    first = copies.get()
    baseline(first, mutants)
    copies.put(first)
    failed = 0

    def one(m):
        copy = copies.get()
        began = time.monotonic()
        try:
            return copy.try_one(m), time.monotonic() - began
        finally:
            copies.put(copy)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for m, (problem, seconds) in zip(mutants, pool.map(one, mutants)):
            failed += problem is not None
            print(f"{'ALIVE ' if problem else 'killed'} {m.name} ({seconds:.0f} s): {problem or m.breaks}", flush=True)
    print(f"{len(mutants)} mutants, {failed} not killed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
