# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document as its users meet it: two linters, and a TypeScript client that is generated from it,
compiled strictly, and run against a daemon.

`scripts/node` installs the packages of the lockfile and finds a Node that is new enough."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
NODE = str(ROOT / "scripts" / "node")

# Findings that stay: (rule, where) → why.
UNUSED_405 = ("405 is an answer of a path without that method, so no operation refers to it; it is described for readers "
              "and for the list of codes")
ALLOWED = {
    ("oas3-unused-component", "components.responses.MethodNotAllowed"): UNUSED_405,
    ("no-unused-components", "#/components/responses/MethodNotAllowed"): UNUSED_405,
}


def run(*words, **options):
    done = subprocess.run([NODE, "exec", *words], cwd=HERE, text=True, capture_output=True, timeout=300, **options)
    return done


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_bytes(subprocess.run([LAPSED, "--openapi"], check=True, capture_output=True).stdout)
    return path


def unexplained(findings):
    return [finding for finding in findings if finding[:2] not in ALLOWED]


def test_spectral_has_nothing_to_say(document):
    done = run("spectral", "lint", str(document), "-r", "spectral.yaml", "-f", "json", "--fail-severity=hint")
    assert done.stdout.startswith("["), done.stdout + done.stderr
    findings = [(one["code"], ".".join(map(str, one["path"])), one["message"])
                for one in json.loads(done.stdout[:done.stdout.rindex("]") + 1])]
    assert unexplained(findings) == []


def test_redocly_has_nothing_to_say(document):
    done = run("redocly", "lint", str(document), "--config", "redocly.yaml", "--format", "json")
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    findings = [(one["ruleId"], one["location"][0].get("pointer"), one["message"])
                for one in json.loads(done.stdout)["problems"]]
    assert unexplained(findings) == []


@pytest.fixture()
def url(tmp_path):
    daemon = subprocess.Popen([LAPSED, "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = daemon.stdout.readline()
    assert line.startswith("lapsed ready on ")
    yield line.split()[-1]
    daemon.terminate()
    assert daemon.wait(15) == 0


def test_a_generated_client_compiles_strictly_and_works(document, url):
    generated = HERE / "generated"
    shutil.rmtree(generated, ignore_errors=True)
    generated.mkdir()
    try:
        shutil.copy(HERE / "scenario.ts", generated)
        done = run("openapi-typescript", str(document), "-o", str(generated / "lapse.d.ts"))
        assert done.returncode == 0, done.stdout + done.stderr
        done = run("tsc", "-p", ".")
        assert done.returncode == 0, done.stdout + done.stderr
        done = run("node", str(generated / "out" / "scenario.js"), url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.split("\n")[:6] == [f"{step} ok" for step in (
            "messages", "agents", "mailboxes", "attachments", "errors", "engine")]
    finally:
        shutil.rmtree(generated, ignore_errors=True)
