# SPDX-License-Identifier: Apache-2.0
"""Starts and stops `lapsed` for the black-box tests.

A `Daemon` owns one process, its data directory and its log. `Clock` is a wall clock that stands still
until a test moves it. `wait_until` polls with a deadline; no test sleeps for a fixed time and hopes.

The binary is $LAPSED, or build-dev/lapsed, or build/lapsed of this repository.
"""
import datetime
import functools
import glob
import itertools
import json
import os
import pathlib
import select
import signal
import subprocess
import time

import pytest

import described
import stores
from client import Client, RawConnection

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_DEADLINE_S = 20
STOP_DEADLINE_S = 15
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NEVER_MS = DAY_MS  # an interval no test lives long enough to see

MONOTONIC_AS_IT_IS = {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}

STARTED = []  # every Daemon of the running test, for the report of a failure


def binary():
    if os.environ.get("LAPSED"):
        return os.environ["LAPSED"]
    for build in ("build-dev", "build"):
        if os.access(ROOT / build / "lapsed", os.X_OK):
            return str(ROOT / build / "lapsed")
    raise FileNotFoundError("no lapsed: build it, or name it in $LAPSED")


Client.check = staticmethod(
    lambda method, path, answer: described.description(binary()).check(method, path, answer))


def wait_until(probe, timeout_s=10.0, what=None, every_s=0.01):
    """Polls probe() until it is true and returns what it returned."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or probe}; last seen {value!r}")
        time.sleep(every_s)


@functools.lru_cache(maxsize=None)
def sanitizer():
    """The runtime of the binary's sanitizer, "/…/libasan.so.8" or "/…/libtsan.so.2"; "" without one."""
    linked = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=False).stdout
    return next((line.split("=>")[1].split()[0] for line in linked.splitlines()
                 if "=>" in line and ("libasan" in line or "libtsan" in line)), "")


@functools.lru_cache(maxsize=None)
def faketime_preload():
    """The value of LD_PRELOAD; a sanitizer's runtime, when the binary has one, must come first."""
    found = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise FileNotFoundError("libfaketime is missing (Debian package libfaketime)")
    if "libtsan" in sanitizer():
        pytest.skip("libfaketime under ThreadSanitizer crashes when a thread ends")
    return ":".join([sanitizer(), found[0]] if sanitizer() else found[:1])


_clocks = itertools.count(1)


class Clock:
    """The time of a daemon: stands still, moves only when told (also while the daemon runs).

    All its clocks move together, as they do on a machine whose clock is right. With `wall_only` the
    monotonic clock is left alone: a wall clock that stopped, went back or leapt.
    """

    START = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.timezone.utc)

    def __init__(self, directory, wall_only=False):
        self.wall_only = wall_only
        self.path = pathlib.Path(stores.clock_directory(directory)) / f"clock-{next(_clocks)}"
        self.now_ms = int(self.START.timestamp() * 1000)
        self._write()

    def advance(self, ms):
        self.now_ms += ms
        self._write()
        Client.clock_moves += 1

    def _write(self):
        at = datetime.datetime.fromtimestamp(self.now_ms // 1000, datetime.timezone.utc)
        # Half a millisecond more, so that no rounding of the fraction shows a millisecond less.
        text = f"{at:%Y-%m-%d %H:%M:%S}.{self.now_ms % 1000:03d}5\n"
        draft = self.path.with_suffix(".new")
        draft.write_text(text)
        draft.rename(self.path)

    def environment(self):
        env = {"FAKETIME_TIMESTAMP_FILE": str(self.path), "FAKETIME_NO_CACHE": "1"}
        return {**env, **MONOTONIC_AS_IT_IS} if self.wall_only else env


class Daemon:
    """One lapsed. Settings are keyword arguments (message_ttl_ms=1) and become flags.

    faketime: a FAKETIME specification ("-25h"), which does not touch the monotonic clock. clock: a Clock.
    """

    def __init__(self, data_dir, listen="127.0.0.1:0", faketime=None, clock=None, env=None, args=(),
                 **settings):
        self.data_dir = pathlib.Path(data_dir)
        self.listen = listen
        self.faketime = faketime
        self.clock = clock
        self.env = env or {}
        self.args = list(args)
        self.settings = settings
        self.process = None
        self.address = None
        self.store = stores.store_of(self.data_dir)
        place = next(parent for parent in self.data_dir.parents if parent.is_dir())
        self.log_path = place / f"{self.data_dir.name}.{len(STARTED)}.log"
        STARTED.append(self)

    # Life -----------------------------------------------------------------------------------------

    def command(self):
        flags = {"data_dir": self.data_dir, "listen": self.listen, **self.store.flags(), **self.settings}
        words = [binary()]
        for name, value in flags.items():
            if value is not None:
                words.append(f"--{name.replace('_', '-')}={value}")
        return words + self.args

    def environment(self):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("LAPSE_", "FAKETIME", "RELAY_"))}
        env["TZ"] = "UTC"
        if self.faketime or self.clock:
            env["LD_PRELOAD"] = faketime_preload()
            env.update(self.clock.environment() if self.clock
                       else {"FAKETIME": self.faketime, **MONOTONIC_AS_IT_IS})
        env.update(self.env)
        if "faketime" in env.get("LD_PRELOAD", ""):
            # Else the sanitizer's allocator asks for the time, and libfaketime allocates to tell it.
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":allocator_release_to_os_interval_ms=-1"
        return env

    def spawn(self):
        self.store.prepare(self.clock, self.faketime)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), env=self.environment(), stderr=log,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def start(self):
        self.spawn()
        line = self._first_line()
        prefix = "lapsed ready on "
        assert line.startswith(prefix) and line.endswith("\n"), f"{line!r}\n{self.log()}"
        self.address = line[len(prefix):-1]
        return self

    def _first_line(self):
        deadline = time.monotonic() + START_DEADLINE_S
        fd, line = self.process.stdout.fileno(), b""
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(fd, select.POLLIN)
        while not line.endswith(b"\n"):
            ready = waiting.poll(max(0, deadline - time.monotonic()) * 1000)
            assert ready, f"lapsed said nothing for {START_DEADLINE_S} s\n{self.log()}"
            piece = os.read(fd, 1)
            assert piece, f"lapsed ended with {self.process.wait()}\n{self.log()}"
            line += piece
        return line.decode()

    def end(self, timeout_s=STOP_DEADLINE_S):
        """Waits for the end of the process; gives its exit code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"lapsed did not end within {timeout_s} s\n{self.log()}") from None
        self.rest_of_stdout = self.process.stdout.read().decode()
        self.process.stdout.close()
        self.process = None
        # One that was killed has no exit code that tells of it.
        assert "libtsan" not in sanitizer() or "WARNING: ThreadSanitizer" not in self.log(), self.log()
        return code

    def stop(self, signum=signal.SIGTERM):
        if self.process is None:
            return
        self.process.send_signal(signum)
        code = self.end()
        assert code == 0, f"lapsed ended with {code}\n{self.log()}"

    def kill(self):
        self.process.kill()
        return self.end()

    def restart(self, **changes):
        """Stops and starts again on the same data, with other settings or another time."""
        self.stop()
        for name in ("faketime", "clock", "env", "listen"):
            if name in changes:
                setattr(self, name, changes.pop(name))
        self.settings.update(changes)
        return self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, exc_type, exc, trace):
        if exc_type is None:
            self.stop()
        elif self.process is not None:
            self.kill()

    # What it shows --------------------------------------------------------------------------------

    def client(self, **options):
        return Client(self.address, **options)

    def raw(self, **options):
        return RawConnection(self.address, **options)

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_lines(self):
        return [json.loads(line) for line in self.log().splitlines()]

    def rows(self, sql, *values):
        """Rows of the daemon's own database, as dicts, read only."""
        return self.store.rows(sql, *values)

    def execute(self, sql, *values):
        """Changes its database behind its back."""
        self.store.execute(sql, *values)

    def store_locked(self):
        """Makes every write of the daemon fail for a while: someone else holds the database."""
        return self.store.locked()

    def events(self, kind):
        """The data of the stored events of a kind, oldest first. A message to one agent is its own event."""
        stored = {row["seq"]: json.loads(row["data"])
                  for row in self.rows("SELECT seq, data FROM events WHERE kind = ?", kind)}
        if kind == "message.sent":
            stored |= {row["id"]: {"from": row["sender"], "type": row["type"],
                                   "messages": [{"id": f"{row['id']:016x}", "to": row["agent"]}]}
                       for row in self.rows("SELECT * FROM messages WHERE event = 1")}
        return [data for _, data in sorted(stored.items())]

    def metric(self, name, **labels):
        """The value of one sample of /metrics, None when it is not there."""
        return self.client().metric(name, **labels)


def run_to_end(data_dir, *args, env=None, listen="127.0.0.1:0", timeout_s=10):
    """Runs lapsed where it must refuse to start. Gives its exit code and its standard error."""
    daemon = Daemon(data_dir, listen=listen, env=env, args=args)
    daemon.spawn()
    code = daemon.end(timeout_s)
    assert daemon.rest_of_stdout == "", "said it was ready"
    return code, daemon.log()
