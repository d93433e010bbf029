# SPDX-License-Identifier: Apache-2.0
"""The driving end of drive.c: operations in, answers out."""
import itertools
import json
import os
import pathlib
import queue
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).parent.parent.parent
DRIVE = os.environ.get("PROVIDER_DRIVE", str(ROOT / "build-dev/tests/provider/provider_drive"))
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev/lapsed"))


def environment(**settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LAPSE_") and k != "CREDENTIALS_DIRECTORY"}
    return {**env, "LAPSE_MAILBOX_PROVIDER": "stalwart", **settings}


class Driver:
    def __init__(self, url, credentials, timeout_ms=3000, wrap=(), **settings):
        self.numbers, self.answers = itertools.count(1), {}
        self.process = subprocess.Popen(
            [*wrap, DRIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
            env=environment(LAPSE_STALWART_URL=url, LAPSE_STALWART_CREDENTIALS=credentials,
                            LAPSE_STALWART_TIMEOUT_MS=str(timeout_ms), **settings))
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def start(self, op, address="", **fields):
        n = next(self.numbers)
        self.process.stdin.write(json.dumps({"n": n, "op": op, "address": address, **fields}) + "\n")
        self.process.stdin.flush()
        return n

    def wait(self, n, seconds=20):
        end = time.monotonic() + seconds
        while n not in self.answers:
            line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            assert line, self.process.stderr.read()
            answer = json.loads(line)
            assert answer["n"] not in self.answers, "answered twice"
            self.answers[answer["n"]] = answer
        return self.answers[n]

    def __call__(self, op, address="", **fields):
        return self.wait(self.start(op, address, **fields))

    def ok(self, op, address="", **fields):
        answer = self(op, address, **fields)
        assert answer["err"] == "OK", answer
        return answer

    def close(self):
        """Ends it, and gives what it wrote to standard error."""
        self.process.stdin.close()
        code = self.process.wait(timeout=20)
        errors = self.process.stderr.read()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        assert code == 0, errors
        return errors

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind:
            self.process.kill()
            self.process.wait()
        elif self.process.poll() is None and not self.process.stdin.closed:
            self.close()
