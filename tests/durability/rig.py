# SPDX-License-Identifier: Apache-2.0
"""One data directory and the daemon on it, for tests that pull the plug.

`Rig(directory)` runs lapsed, `Rig(directory, fault="power-loss")` runs lapsed-fault and steers its disk (the
words are listed in fault_plan.h). `kill` is SIGKILL: with power-loss or torn it is a power cut. `disk` opens
a copy of what is left on the disk, so that looking at it does not do the recovery for the daemon.

The binaries are $LAPSED and $LAPSED_FAULT, or those of build-dev or build of this repository.
"""
import contextlib
import os
import pathlib
import re
import select
import shutil
import sqlite3
import subprocess
import time

from wire import Wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_DEADLINE_S = 20
STOP_DEADLINE_S = 20


def binary(variable, below_build):
    if os.environ.get(variable):
        return os.environ[variable]
    for build in ("build-dev", "build"):
        path = ROOT / build / below_build
        if os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(f"no {below_build}: build it, or name it in ${variable}")


def wait_until(probe, timeout_s, what, every_s=0.01):
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}; last seen {value!r}"
        time.sleep(every_s)


class Rig:
    def __init__(self, directory, fault=None, **settings):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = self.directory / "data"
        self.control = self.directory / "control"
        self.log_path = self.directory / "log"
        self.fault = fault
        self.settings = settings
        self.process = None
        self.port = None
        if fault is not None:
            self.steer(fault)

    # The disk -------------------------------------------------------------------------------------

    def steer(self, words):
        """Tells the disk of the running daemon what to do from its next operation on."""
        draft = self.control.with_suffix(".next")
        draft.write_text(words + "\n")
        draft.rename(self.control)

    @contextlib.contextmanager
    def disk(self):
        """A connection to a copy of the database as it lies there now. The daemon must not run."""
        assert self.process is None
        copy = self.directory / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name in ("lapse.db", "lapse.db-wal", "lapse.db-journal"):
            if (self.data_dir / name).exists():
                shutil.copyfile(self.data_dir / name, copy / name)
        with contextlib.closing(sqlite3.connect(copy / "lapse.db")) as db:
            yield db
        shutil.rmtree(copy)  # after a failed check it stays, to be looked at

    # The process ----------------------------------------------------------------------------------

    def command(self):
        if self.fault is None:
            words = [binary("LAPSED", "lapsed")]
        else:
            words = [binary("LAPSED_FAULT", "tests/durability/lapsed-fault")]
        flags = {"data_dir": self.data_dir, "listen": "127.0.0.1:0", **self.settings}
        for name, value in flags.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        return words

    def environment(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LAPSE")}
        if self.fault is not None:
            env["FAULT_VFS_CONTROL"] = str(self.control)
        return env

    def spawn(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), env=self.environment(), stderr=log,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def start(self):
        self.spawn()
        line = self._first_line()
        prefix = "lapsed ready on http://127.0.0.1:"
        assert line.startswith(prefix), f"{line!r}\n{self.log_tail()}"
        self.port = int(line[len(prefix):])
        return self

    def _first_line(self):
        deadline = time.monotonic() + START_DEADLINE_S
        fd, line = self.process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"lapsed said nothing for {START_DEADLINE_S} s\n{self.log_tail()}"
            piece = os.read(fd, 4096)
            assert piece, f"lapsed did not start\n{self.log_tail()}"
            line += piece
        return line.decode()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal_kill(self):
        """The blow alone; `kill` also waits for the end."""
        self.process.kill()

    def kill(self):
        self.process.kill()
        return self._end()

    def stop(self):
        self.process.terminate()
        code = self._end()
        assert code == 0, f"lapsed ended with {code}\n{self.log_tail()}"

    def _end(self):
        code = self.process.wait(STOP_DEADLINE_S)
        self.process.stdout.close()
        self.process = None
        return code

    def revive(self):
        """For a daemon that ended by itself, on a disk that works again."""
        self._end()
        self.steer(self.fault)
        self.start()

    def done(self):
        """For fixtures: whatever state it is in, nothing is left running."""
        if self.process is not None:
            self.kill()

    # What it shows --------------------------------------------------------------------------------

    def wire(self):
        return Wire(self.port)

    def metric(self, name, **labels):
        """The value of one sample of /metrics, 0 when it is not there."""
        with self.wire() as wire:
            text = wire.get("/metrics").body.decode()
        for line in text.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")) == labels:
                return float(found[3])
        return 0.0

    def log_tail(self, lines=30):
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
