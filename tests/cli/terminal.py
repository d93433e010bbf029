# SPDX-License-Identifier: Apache-2.0
"""A terminal with `lapse` in it: what is on the screen, keys, another size, and how it was left."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from runner import LAPSE, LIMIT_S

SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")


class Screen:
    """Knows the few sequences the command uses; anything else is an error."""

    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.cells = [[" "] * columns for _ in range(lines)]
        self.x = self.y = 0
        self.modes = {"1049": False, "25": True, "7": True}
        self.rest = ""

    def resize(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.cells = [(row + [" "] * columns)[:columns] for row in self.cells]
        self.cells = (self.cells + [[" "] * columns for _ in range(lines)])[:lines]
        self.x, self.y = min(self.x, columns - 1), min(self.y, lines - 1)

    def feed(self, text):
        text = self.rest + text
        self.rest, i = "", 0
        while i < len(text):
            if text[i] == "\x1b":
                found = SEQUENCE.match(text, i)
                if not found:
                    assert len(text) - i < 16, text[i:i + 40]
                    self.rest = text[i:]
                    return
                self._obey(found[1], found[2])
                i = found.end()
            else:
                self._put(text[i])
                i += 1

    def _put(self, char):
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self.y += 1
            assert self.y < self.lines or not self.modes["1049"], "the screen scrolls"
            self.y = min(self.y, self.lines - 1)
        else:
            assert char.isprintable(), repr(char)
            assert self.x < self.columns or not self.modes["1049"], "a line is too long"
            if self.x < self.columns:
                self.cells[self.y][self.x] = char
            self.x += 1

    def _obey(self, numbers, letter):
        if letter == "H":
            self.x = self.y = 0
        elif letter in "KJ":
            self.cells[self.y][self.x:] = [" "] * (self.columns - self.x)
            if letter == "J":
                for row in self.cells[self.y + 1:]:
                    row[:] = [" "] * self.columns
        elif letter in "hl":
            assert numbers[1:] in self.modes, numbers
            self.modes[numbers[1:]] = letter == "h"
        else:
            assert letter == "m", letter

    @property
    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells).rstrip()


def take_terminal(ignored):
    """In the child: a terminal of its own, and signals as a shell leaves them, whoever started the tests."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)


class Terminal:
    """`with Terminal(lapse, "top") as t:`; ends what is still running."""

    def __init__(self, lapse, *words, columns=80, lines=24, env=None, cwd=None, ignored=()):
        self.ours, self.theirs = pty.openpty()
        self._set_size(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        self.screen, self.raw = Screen(columns, lines), ""
        self.process = subprocess.Popen(
            [LAPSE, *words], stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            start_new_session=True, env={**lapse.env, **(env or {})}, cwd=cwd,
            preexec_fn=lambda: take_terminal(ignored))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def _set_size(self, columns, lines):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        """The kernel tells the process with SIGWINCH, as a terminal's window does."""
        self.read(0)
        self.screen.resize(columns, lines)
        self._set_size(columns, lines)

    def type(self, text):
        os.write(self.ours, text.encode())

    def read(self, wait_s):
        """Takes what has come; False when nothing did."""
        if not select.select([self.ours], [], [], wait_s)[0]:
            return False
        text = os.read(self.ours, 65536).decode()
        self.raw += text
        self.screen.feed(text)
        return True

    def until(self, wanted, what="the screen"):
        """Reads until wanted(text) or the text contains `wanted`; looks only at whole frames."""
        is_there = wanted if callable(wanted) else lambda text: wanted in text
        is_whole = lambda: not self.screen.modes["1049"] or self.raw.endswith("\x1b[J")
        deadline = time.monotonic() + LIMIT_S
        while not (is_whole() and is_there(self.screen.text)):
            assert time.monotonic() < deadline, f"{what}: {wanted}\n{self.screen.text}"
            self.read(0.05)
        return self.screen.text

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """Waits for the end; the exit code, negative for a signal."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "does not end"
            self.read(0.02)
        while self.read(0):
            pass
        return self.process.returncode

    def assert_restored(self):
        """As it was: main screen, cursor, wrapping, lines and echo."""
        assert self.screen.modes == {"1049": False, "25": True, "7": True}
        assert termios.tcgetattr(self.theirs) == self.before

    def is_stopped(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"

    def resume(self):
        self.signal(signal.SIGCONT)
