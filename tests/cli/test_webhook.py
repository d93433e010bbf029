# SPDX-License-Identifier: Apache-2.0
"""`lapse webhook`: the life of a webhook from the command line."""
import http.server
import threading
import time

import pytest

from runner import LIMIT_S, Lapse


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(self.headers["webhook-id"])
        self.send_response(self.server.answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *ignored):
        pass


@pytest.fixture
def receiver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.answer = [], 204
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def own(start):
    return Lapse(start(env={"LAPSE_WEBHOOK_ALLOW_PRIVATE": "true"}).url)


def test_a_life(own, receiver):
    assert own("webhook").out == "no webhooks\n"
    url = f"http://127.0.0.1:{receiver.server_port}/x"
    made, secret = own("webhook", "create", url, "--type", "message.sent", "--type", "agent.*").out.split()
    assert made.startswith("whk_") and secret.startswith("whsec_")
    assert url in own("webhook", "--wide").out
    assert own("webhook", "test", made).out == "delivered: the receiver answered 204\n"
    receiver.answer = 500
    assert "answered 500" in own("webhook", "test", made[:12], code=1).err
    receiver.answer = 204
    own("send", "bob", "hi", "--from", "ann")
    deadline = time.monotonic() + LIMIT_S
    while len(receiver.got) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    own("webhook", "replay", made)
    while len(receiver.got) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert receiver.got[2] == receiver.got[3]
    fields = dict(row.split(None, 1) for row in own("webhook", "pause", made).lines if row.split()[1:])
    assert fields["state"] == "disabled"
    assert "active" in own("webhook", "resume", made).out
    assert own("webhook", "rm", made).out == f"{made} is removed\n"
    own("webhook", "show", made, code=5)


def test_what_is_refused(own):
    assert "url" in own("webhook", "create", "ftp://a.example", code=1).err
    assert "types" in own("webhook", "create", "https://a.example", "--type", "A B", code=1).err
    own("webhook", "replay", "whk_0000000000000000", code=5)
