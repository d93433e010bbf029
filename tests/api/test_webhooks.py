# SPDX-License-Identifier: Apache-2.0
"""Webhooks: signed, in order, at least once, retried, given up, disabled, replayed; and where they may not go."""
import base64
import hashlib
import hmac
import http.server
import json
import threading
import time

import pytest

from harness import wait_until

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Receiver:
    """An HTTP server that keeps what it got and answers as `answers` says, then 204."""

    def __init__(self):
        self.got, self.answers, self.lock = [], [], threading.Lock()
        self.delay_s = 0.0
        self.at_once = self.most_at_once = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.lock:
                    receiver.at_once += 1
                    receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
                    receiver.got.append((self.path, dict(self.headers), body))
                    answer = receiver.answers.pop(0) if receiver.answers else 204
                time.sleep(receiver.delay_s)
                with receiver.lock:
                    receiver.at_once -= 1
                self.send_response(answer)
                if answer in (301, 302, 307):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *ignored):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def events(self):
        with self.lock:
            return [json.loads(body) for _, _, body in self.got]

    def types(self):
        return [e["type"] for e in self.events()]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    r = Receiver()
    yield r
    r.close()


@pytest.fixture
def daemon(start):
    return start(webhook_allow_private="true", webhook_retry_ms=10)


@pytest.fixture
def api(daemon):
    return daemon.client()


def hook(api, url, **body):
    return api.post("/v1/webhooks", {"url": url, **body}).ok(201)


def get(api, made):
    return api.get(f"/v1/webhooks/{made['id']}").ok()


def verify(headers, body, secret=SECRET):
    headers = {k.lower(): v for k, v in headers.items()}
    said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret[len("whsec_"):])
    wanted = "v1," + base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == wanted
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    assert headers["content-type"] == "application/cloudevents+json"


def test_an_event_arrives_signed(api, receiver):
    made = hook(api, receiver.url, types=["message.*"], secret=SECRET)
    assert made["state"] == "active" and made["secret"] == SECRET
    sent = api.send("bob", content="hello")
    api.read("bob", sent["id"])
    wait_until(lambda: len(receiver.got) == 2)
    first, second = receiver.events()
    assert (first["type"], second["type"]) == ("message.sent", "message.read")
    assert first["specversion"] == "1.0" and first["source"] == "urn:lapse:local"
    assert first["data"]["messages"][0]["id"] == sent["id"] and first["datacontenttype"] == "application/json"
    for _, headers, body in receiver.got:
        verify(headers, body)
        assert headers["webhook-id"] == json.loads(body)["id"]
    wait_until(lambda: get(api, made)["cursor"] >= second["id"])
    shown = get(api, made)
    assert shown["last_status"] == 204 and shown["attempts"] == 0 and "secret" not in shown
    assert api.get("/v1/webhooks").data == [shown]


def test_what_it_does_not_want_is_skipped(api, receiver):
    hook(api, receiver.url, types="agent.seen")
    api.send("bob")
    api.post("/v1/agents/worker/heartbeat", {"cluster_id": "c"}).ok()
    wait_until(lambda: receiver.got)
    assert receiver.types() == ["agent.seen"]


def test_a_made_secret_is_shown_once(api, receiver):
    made = hook(api, receiver.url)
    assert made["secret"].startswith("whsec_") and made["types"] == ["*"]
    api.send("bob")
    wait_until(lambda: receiver.got)
    verify(receiver.got[0][1], receiver.got[0][2], made["secret"])
    key = {"Idempotency-Key": "once"}
    first = api.post("/v1/webhooks", {"url": receiver.url}, headers=key).ok(201)
    again = api.post("/v1/webhooks", {"url": receiver.url}, headers=key).ok(201)
    assert again["id"] == first["id"] and "secret" not in again


def test_in_order_one_at_a_time_and_retried(api, receiver):
    receiver.answers = [500, 503, 204, 429]
    receiver.delay_s = 0.005
    hook(api, receiver.url, types=["message.sent"])
    sent = [api.send("bob", content=str(i))["id"] for i in range(10)]
    wait_until(lambda: len(receiver.got) == 13)
    ids = [e["data"]["messages"][0]["id"] for e in receiver.events()]
    assert ids == [sent[0]] * 3 + [sent[1]] * 2 + sent[2:]
    assert receiver.most_at_once == 1
    headers = [h["webhook-id"] for _, h, _ in receiver.got]
    assert headers[0] == headers[1] == headers[2] != headers[3]


def test_redirects_are_not_followed(api, receiver):
    receiver.answers = [302]
    hook(api, receiver.url, types=["message.sent"])
    api.send("bob")
    wait_until(lambda: len(receiver.got) == 2)
    assert [path for path, _, _ in receiver.got] == ["/hook", "/hook"]


def test_given_up_and_the_next_one_comes(start, receiver):
    api = start(webhook_allow_private="true", webhook_retry_ms=10, webhook_give_up_ms=200).client()
    receiver.answers = [500] * 1000
    made = hook(api, receiver.url, types=["message.sent"])
    api.send("bob", content="lost")
    wait_until(lambda: get(api, made)["dead_letters"] == 1, timeout_s=20)
    receiver.answers = []
    kept = api.send("bob", content="kept")
    wait_until(lambda: receiver.events()[-1]["data"]["messages"][0]["id"] == kept["id"], timeout_s=20)
    wait_until(lambda: get(api, made)["failing_since"] is None)
    rows = {b["table"]: b for b in api.get("/v1/matrix").data}
    assert rows["webhook_dead_letters"]["live_rows"] == 1 and rows["webhooks"]["live_rows"] == 1


@pytest.mark.parametrize("why", ["410", "long"])
def test_disabled_with_an_event(start, receiver, why):
    daemon = start(webhook_allow_private="true", webhook_retry_ms=10, webhook_give_up_ms=60_000,
                   webhook_disable_after_ms=200)
    api = daemon.client()
    receiver.answers = [410 if why == "410" else 500] * 1000
    made = hook(api, receiver.url, types=["message.sent"])
    api.send("bob")
    wait_until(lambda: get(api, made)["state"] == "disabled", timeout_s=20)
    (event,) = daemon.events("webhook.disabled")
    assert event["id"] == made["id"] and ("410" if why == "410" else "webhook_disable_after_ms") in event["reason"]
    count = len(receiver.got)
    api.send("bob")
    daemon.restart()
    api = daemon.client()
    assert get(api, made)["state"] == "disabled" and len(receiver.got) == count
    receiver.answers = []
    api.request("PATCH", f"/v1/webhooks/{made['id']}", {"enabled": True}).ok()
    wait_until(lambda: len(receiver.got) == count + 2, what="both events, in order")


def test_delivery_survives_restarts_and_kills(daemon, receiver):
    api = daemon.client()
    made = hook(api, receiver.url, types=["message.sent"])
    sent = []
    for end in ("stop", "kill", "stop"):
        receiver.answers = [500] * 3
        sent += [api.send("bob")["id"] for _ in range(3)]
        getattr(daemon, end)()
        daemon.restart()
        api = daemon.client()
    wait_until(lambda: {e["data"]["messages"][0]["id"] for e in receiver.events()} == set(sent), timeout_s=20)
    seen = []
    for e in receiver.events():
        if e["data"]["messages"][0]["id"] not in seen:
            seen.append(e["data"]["messages"][0]["id"])
    assert seen == sent
    assert get(api, made)["state"] == "active"


def test_replay_from_a_cursor(api, receiver):
    made = hook(api, receiver.url, types=["message.sent"])
    for _ in range(3):
        api.send("bob")
    wait_until(lambda: len(receiver.got) == 3)
    first = receiver.events()[0]["id"]
    api.post(f"/v1/webhooks/{made['id']}/replay", {"after": first}).ok()
    wait_until(lambda: len(receiver.got) == 5)
    assert [e["id"] for e in receiver.events()[3:]] == [e["id"] for e in receiver.events()[1:3]]
    api.post(f"/v1/webhooks/{made['id']}/replay", {}).ok()
    wait_until(lambda: len(receiver.got) == 8)
    api.post(f"/v1/webhooks/{made['id']}/replay", {"after": "f" * 16}).fails(400, "invalid_request", "after")


def test_a_test_delivery(api, receiver):
    made = hook(api, receiver.url, secret=SECRET, types=["agent.evicted"])
    receiver.answers = [204, 500]
    path = f"/v1/webhooks/{made['id']}/test"
    assert api.post(path).ok() == {"delivered": True, "status": 204, "error": ""}
    assert receiver.types() == ["webhook.test"]
    verify(receiver.got[0][1], receiver.got[0][2])
    assert api.post(path).ok() == {"delivered": False, "status": 500, "error": ""}
    api.request("PATCH", f"/v1/webhooks/{made['id']}", {"url": "http://127.0.0.1:1/"}).ok()
    failed = api.post(path).ok()
    assert not failed["delivered"] and failed["error"]


def test_change_pause_and_delete(api, receiver):
    made = hook(api, receiver.url, types=["message.sent"])
    path = f"/v1/webhooks/{made['id']}"
    paused = api.request("PATCH", path, {"enabled": False, "types": ["message.*"]}).ok()
    assert paused["state"] == "disabled" and paused["types"] == ["message.*"] and paused["disabled_at"]
    api.send("bob")
    time.sleep(0.1)
    assert receiver.got == []
    api.request("PATCH", path, {"enabled": True}).ok()
    wait_until(lambda: len(receiver.got) == 1)
    assert api.delete(path).ok() == {"id": made["id"], "deleted": True}
    api.get(path).fails(404, "not_found")
    api.send("bob")
    time.sleep(0.1)
    assert len(receiver.got) == 1


def test_owners(daemon, receiver):
    one, two = daemon.client(owner="one"), daemon.client(owner="two")
    made = hook(one, receiver.url, types=["message.sent"])
    two.get(f"/v1/webhooks/{made['id']}").fails(404, "not_found")
    two.delete(f"/v1/webhooks/{made['id']}").fails(404, "not_found")
    two.send("bob")
    mine = one.send("bob")
    wait_until(lambda: receiver.got)
    assert receiver.events()[0]["data"]["messages"][0]["id"] == mine["id"] and len(receiver.got) == 1
    assert two.get("/v1/webhooks").data == []


@pytest.mark.parametrize("body,names", [
    ({}, "url"), ({"url": "ftp://a.example/"}, "url"), ({"url": "https://"}, "url"),
    ({"url": "https://user:pw@a.example/"}, "url"), ({"url": "https://a.example/ x"}, "url"),
    ({"url": "https://a.example/", "types": []}, "types"), ({"url": "https://a.example/", "types": ["A B"]}, "types"),
    ({"url": "https://a.example/", "types": ["message.*.x"]}, "types"),
    ({"url": "https://a.example/", "secret": "abc"}, "secret"),
    ({"url": "https://a.example/", "secret": "whsec_YWJj"}, "secret"),
    ({"url": "https://a.example/", "secret": "whsec_" + "!" * 44}, "secret"),
])
def test_bodies_that_are_none(api, body, names):
    api.post("/v1/webhooks", body).fails(400, "invalid_request", names)


def test_limits(start):
    api = start(webhooks_max_per_owner=2).client()
    for _ in range(2):
        hook(api, "https://a.example/")
    api.post("/v1/webhooks", {"url": "https://a.example/"}).fails(429, "limit_reached")


@pytest.mark.parametrize("url", [
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/", "http://0.0.0.0:{port}/",
    "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://192.168.1.1/", "http://100.64.0.1/",
    "http://[fd00::1]/", "http://[fe80::1]/", "http://[::ffff:127.0.0.1]:{port}/", "http://2130706433:{port}/",
    "http://0x7f.1:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://[2002:7f00:1::]/",
])
def test_private_targets_are_refused_when_they_are_resolved(start, receiver, url):
    api = start().client()
    made = hook(api, url.format(port=receiver.server.server_port))
    tested = api.post(f"/v1/webhooks/{made['id']}/test").ok()
    assert tested["delivered"] is False and "not public" in tested["error"], tested
    assert receiver.got == []


def test_the_secret_is_sealed(daemon, api, receiver):
    hook(api, receiver.url, secret=SECRET)
    (row,) = daemon.rows("SELECT secret FROM webhooks")
    assert SECRET not in row["secret"] and row["secret"]


def test_disabled_ones_go_after_a_while(start):
    daemon = start(webhook_keep_ms=1, housekeeping_sweep_ms=50)
    api = daemon.client()
    made, kept = hook(api, "https://a.example/"), hook(api, "https://a.example/")
    api.request("PATCH", f"/v1/webhooks/{made['id']}", {"enabled": False}).ok()
    wait_until(lambda: api.get(f"/v1/webhooks/{made['id']}").status == 404)
    assert get(api, kept)["state"] == "active"


def test_many_hooks_and_few_connections(api, receiver):
    receiver.delay_s = 0.02
    for _ in range(20):
        hook(api, receiver.url, types=["message.sent"])
    for _ in range(5):
        api.send("bob")
    wait_until(lambda: len(receiver.got) == 100, timeout_s=30)
    assert receiver.most_at_once <= 4
