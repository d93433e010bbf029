# SPDX-License-Identifier: Apache-2.0
"""Fixtures: daemons, the command, a stub server."""
import shutil
import subprocess
import threading

import pytest

from depot import Depot
from runner import Daemon, Lapse
from stub import Stub


@pytest.fixture
def start(tmp_path):
    """start(**settings) gives a daemon that the test may stop itself."""
    started = []

    def start_one(data_dir=None, **settings):
        daemon = Daemon(data_dir or tmp_path / f"data-{len(started)}", **settings)
        started.append(daemon)
        return daemon

    yield start_one
    for daemon in started:
        if daemon.process.poll() is None:
            assert daemon.stop() == 0


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("shared") / "data")
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def lapse(shared):
    return Lapse(shared.url)


@pytest.fixture
def agent(request):
    """An agent no other test uses."""
    return "agent-" + "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture
def stub():
    """A server that answers what the test puts into stub.script."""
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.is_over = True
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def depot():
    """A server of attachments with faults to choose."""
    server = Depot()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key
