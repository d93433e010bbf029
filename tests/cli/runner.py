# SPDX-License-Identifier: Apache-2.0
"""Runs `lapse` against a real `lapsed`, and against a stub for what no healthy daemon does.

The binaries are $LAPSE and $LAPSED, or those of build-dev/.
"""
import fcntl
import glob
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
LAPSE = os.environ.get("LAPSE", str(ROOT / "build-dev" / "lapse"))
LIMIT_S = 20


def clean_environment(**extra):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("LAPSE") and k not in ("NO_COLOR", "TERM")}
    return {**env, "TERM": "xterm", **extra}


def catches_interrupt(process):
    """Waits until the process has its handler, which it installs first of all."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        if caught >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("never caught SIGINT")


def wall_clock_from(path):
    """The environment of a daemon whose wall clock, and only that, is moved by the file ("+2d").

    None without libfaketime. A sanitizer's runtime, when the binary has one, must come first."""
    found = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
    linked = subprocess.run(["ldd", LAPSED], capture_output=True, text=True, check=True).stdout
    first = [line.split("=>")[1].split()[0] for line in linked.splitlines() if "libasan" in line]
    return found and {"LD_PRELOAD": ":".join(first + found[:1]), "FAKETIME_TIMESTAMP_FILE": str(path),
                      "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"} or None


class Ran:
    """How a run of `lapse` ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self):
        return self.out.splitlines()

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"<exit {self.code}\n{self.out}\n{self.err}>"


class Lapse:
    """`lapse` for one URL; a call runs it and checks its exit code."""

    def __init__(self, url=None, **env):
        self.env = clean_environment(**env)
        if url is not None:
            self.env["LAPSE_URL"] = url

    def __call__(self, *words, code=0, stdin=None, env=None, silent=False, cwd=None, binary=False):
        """silent: a failure that needs no word on standard error. binary: out is bytes."""
        done = subprocess.run([LAPSE, *words], input=stdin, capture_output=True, timeout=LIMIT_S,
                              env={**self.env, **(env or {})}, check=False, cwd=cwd,
                              **({"stdin": subprocess.DEVNULL} if stdin is None else {}))
        out = done.stdout if binary else done.stdout.decode()
        ran = Ran(done.returncode, out, done.stderr.decode())
        assert code is None or ran.code == code, repr(ran)  # None: any will do
        assert code != 0 or "lapse:" not in ran.err, repr(ran)
        assert not code or silent or ran.err.startswith("lapse: "), repr(ran)
        return ran

    def json(self, *words, **options):
        return self(*words, "--json", **options).json()

    def start(self, *words, **options):
        return subprocess.Popen([LAPSE, *words], **{
            "env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE, **options})

    def on_terminal(self, *words, columns=80, typed=b"", env=None, cwd=None):
        """What it prints on a terminal of that width, and its exit code."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([LAPSE, *words], stdin=theirs, stdout=theirs, stderr=theirs,
                                   env={**self.env, **(env or {})}, cwd=cwd)
        os.close(theirs)
        os.write(ours, typed)
        out = b""
        try:
            while chunk := os.read(ours, 65536):
                out += chunk
        except OSError:  # the other end is closed: all was read
            pass
        os.close(ours)
        return process.wait(LIMIT_S), out.decode().replace("\r\n", "\n")


class Daemon:
    """One lapsed with its own data directory."""

    def __init__(self, data_dir, listen="127.0.0.1:0", env=None, **settings):
        words = [LAPSED, "--data-dir", str(data_dir), "--listen", listen]
        for name, value in settings.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        self.data_dir = pathlib.Path(data_dir)
        self.log = open(f"{data_dir}.log", "ab")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log,
                                        env=clean_environment(**(env or {})))
        assert select.select([self.process.stdout], [], [], LIMIT_S)[0], "not ready in time"
        line = self.process.stdout.readline().decode()
        assert line.startswith("lapsed ready on "), \
            line or pathlib.Path(self.log.name).read_text()
        self.url = line.split()[3]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        self.process.stdout.close()
        self.log.close()
        return code
