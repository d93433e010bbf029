# SPDX-License-Identifier: Apache-2.0
"""What lapsed posts, verified by the library of Standard Webhooks itself."""
import base64
import subprocess
from pathlib import Path

import pytest

import harness

HERE = Path(__file__).resolve().parent
NODE = str(HERE.parents[1] / "scripts" / "node")
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


@pytest.fixture
def daemon(tmp_path):
    with harness.Daemon(tmp_path / "data", webhook_allow_private="true") as daemon:
        yield daemon


@pytest.fixture
def receiver():
    """(a process that verifies with SECRET, its port)"""
    process = subprocess.Popen([NODE, "exec", "node", "receiver.mjs", SECRET], cwd=HERE, text=True,
                               stdout=subprocess.PIPE)
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def test_the_library_accepts_what_is_signed_with_the_secret(daemon, receiver):
    process, port = receiver
    api = daemon.client()
    made = api.post("/v1/webhooks", {"url": f"http://127.0.0.1:{port}/", "secret": SECRET,
                                     "types": ["message.sent"]}).ok(201)
    api.send("böb", content="Ünïcödé \u2713 \\ \" \n end")
    assert process.stdout.readline() == "message.sent\n"
    assert api.post(f"/v1/webhooks/{made['id']}/test").ok()["delivered"]
    assert process.stdout.readline() == "webhook.test\n"


def test_it_refuses_another_secret(daemon, receiver):
    process, port = receiver
    api = daemon.client()
    made = api.post("/v1/webhooks", {"url": f"http://127.0.0.1:{port}/", "secret": OTHER}).ok(201)
    assert api.post(f"/v1/webhooks/{made['id']}/test").ok() == {"delivered": False, "status": 401, "error": ""}
    assert process.stdout.readline().startswith("refused")
