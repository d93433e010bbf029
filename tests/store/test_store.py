# SPDX-License-Identifier: Apache-2.0
"""Many clients at once on each double of the store, with an account of every answer.

Whatever the store does to a turn, no client may notice: every answer is one that the request can have,
every message is stored once, every key gives its first answer again, and nothing is left under way.
"""
import collections
import os
import pathlib
import random
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))
import harness  # noqa: E402  pylint: disable=wrong-import-position

CLIENTS = 8
ROUNDS = int(os.environ.get("DOUBLE_ROUNDS", "120"))
AGENTS = [f"agent-{i}-with-a-name-that-is-not-kept-inline" for i in range(6)]
DOUBLES = {"retry": "LAPSED_RETRY", "interleave": "LAPSED_INTERLEAVE"}


@pytest.fixture(params=DOUBLES)
def daemon(request, tmp_path, monkeypatch):
    monkeypatch.setenv("LAPSED", os.environ[DOUBLES[request.param]])
    env = {"DOUBLE_SEED": os.environ.get("DOUBLE_SEED", "1"), "DOUBLE_PERCENT": "40"}
    with harness.Daemon(tmp_path / "data", env=env, agent_evict_after_ms=60_000) as running:
        yield running


class Account:
    """What the clients were told."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sent = collections.Counter()
        self.wrong = []

    def note(self, answer, *allowed):
        with self.lock:
            if answer.status not in allowed:
                self.wrong.append(repr(answer))
        return answer

    def count(self, agent, n=1):
        with self.lock:
            self.sent[agent] += n


def send(api, account, rng, mark):
    agent = rng.choice(AGENTS)
    key = {"Idempotency-Key": mark}
    body = {"from": "x", "content": mark}
    first = account.note(api.post(f"/v1/agents/{agent}/messages", body, headers=key), 201)
    again = account.note(api.post(f"/v1/agents/{agent}/messages", body, headers=key), 201)
    if first.json()["id"] != again.json()["id"]:
        account.wrong.append(f"{mark} was sent twice")
    account.count(agent)


def broadcast(api, account, rng, mark):
    to = rng.sample(AGENTS, 3)
    account.note(api.post("/v1/messages", {"from": "x", "to": to, "content": mark}), 201)
    for agent in to:
        account.count(agent)


def beat(api, account, rng, mark):
    skills = rng.sample(["plan", "code", "test", "ship"], rng.randrange(4))
    account.note(api.post(f"/v1/agents/{rng.choice(AGENTS)}/heartbeat",
                         {"cluster_id": f"c{rng.randrange(3)}", "capabilities": skills,
                          "metadata": {"mark": mark}}), 200, 201)


def leave(api, account, rng, mark):
    account.note(api.delete(f"/v1/agents/{rng.choice(AGENTS)}"), 200, 204, 404)


def look(api, account, rng, mark):
    agent = rng.choice(AGENTS)
    for path in ("/v1/agents", "/v1/capabilities", "/v1/capabilities/code", "/v1/messages/stats",
                 f"/v1/agents/{agent}/messages", "/v1/agents?cluster_id=c1"):
        account.note(api.get(path), 200)
    account.note(api.get(f"/v1/agents/{agent}"), 200, 404)


def read(api, account, rng, mark):
    agent = rng.choice(AGENTS)
    account.note(api.post(f"/v1/agents/{agent}/messages/read", {"before": "2100-01-01T00:00:00Z"}), 200)


def work(address_of, account, number):
    api = address_of.client()
    rng = random.Random(number)
    try:
        for i in range(ROUNDS):
            rng.choice((send, broadcast, beat, beat, leave, look, look, read))(
                api, account, rng, f"{number}-{i}")
    except Exception as error:  # pylint: disable=broad-except
        account.wrong.append(f"client {number}: {error!r}")


@pytest.mark.limit_s(300)
def test_no_client_notices(daemon):
    account = Account()
    clients = [threading.Thread(target=work, args=(daemon, account, i)) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert not account.wrong, account.wrong[:5]
    stored = {row["agent"]: row["n"] for row in
              daemon.rows("SELECT agent, count(*) AS n FROM messages GROUP BY agent")}
    assert stored == dict(account.sent)
    assert daemon.rows("SELECT count(*) AS n FROM idempotency_keys WHERE status = 0")[0]["n"] == 0
    sent = len(daemon.events("message.sent"))
    contents = daemon.rows("SELECT count(DISTINCT content) AS n FROM messages")[0]["n"]
    assert sent == contents
