# SPDX-License-Identifier: Apache-2.0
"""The clients: a handful of threads that send, broadcast, read and claim until the daemon is gone."""
import itertools
import random
import threading

from ledger import VISIBILITY_MS, Notes, Send, ids_of
from wire import Unanswered, Wire

CLIENTS = 6
AGENTS = [f"agent-{n}" for n in range(8)]
PAD_BYTES = (0, 0, 40, 200, 200, 900, 6000)  # the last one fills more than a page


class Client:
    """One keep-alive connection. Claims only from an inbox of its own, so that no two clients meet there."""

    def __init__(self, port, name, seed):
        self.port, self.name = port, name
        self.rng = random.Random(seed)
        self.numbers = itertools.count()
        self.notes = Notes()
        self.unread = {}  # agent -> ids this client sent and has not read
        self.wire = None

    def run(self):
        moves = [self.send] * 9 + [self.broadcast] * 2 + [self.read] * 3 + [self.read_many] + [self.claim] * 2
        try:
            with Wire(self.port) as self.wire:
                while True:
                    self.rng.choice(moves)()
        except Unanswered:
            pass

    def _expect(self, answer, status):
        if answer.status != status:
            self.notes.surprises.append(answer)
        return answer.status == status

    def _post(self, send):
        self.notes.sends.append(send)
        answer = self.wire.post(send.path, send.body, send.key)
        if not self._expect(answer, 201):
            send.fate = "refused"
            return
        send.fate, send.ids = "answered", ids_of(answer)
        for agent, id_ in zip(send.agents, send.ids):
            self.unread.setdefault(agent, []).append(id_)

    def _message(self):
        content = f"{self.name}-{next(self.numbers)} " + "x" * self.rng.choice(PAD_BYTES)
        key = f"key-{content.split()[0]}" if self.rng.random() < 0.5 else None
        return content, key

    def send(self):
        content, key = self._message()
        agent = self.rng.choice(AGENTS + [self._own_inbox()])
        body = {"from": self.name, "content": content, "metadata": {"n": self.rng.randrange(1000)}}
        self._post(Send(f"/v1/agents/{agent}/messages", body, [agent], content, key))

    def broadcast(self):
        content, key = self._message()
        agents = self.rng.sample(AGENTS, self.rng.randrange(2, len(AGENTS)))
        body = {"to": agents, "from": self.name, "content": content}
        self._post(Send("/v1/messages", body, agents, content, key))

    def read(self):
        agent, ids = self._take_unread(1)
        if ids:
            self._mark(ids, f"/v1/agents/{agent}/messages/{ids[0]}/read", {})

    def read_many(self):
        agent, ids = self._take_unread(5)
        if ids:
            self._mark(ids, f"/v1/agents/{agent}/messages/read", {"ids": ids})

    def _take_unread(self, count):
        agents = [agent for agent in AGENTS if self.unread.get(agent)]
        if not agents:
            return None, []
        agent = self.rng.choice(agents)
        ids = self.unread[agent]
        return agent, [ids.pop() for _ in range(min(count, len(ids)))]

    def _mark(self, ids, path, body):
        self.notes.maybe_read.append(ids)
        if self._expect(self.wire.post(path, body), 200):
            self.notes.maybe_read.pop()
            self.notes.read += ids

    def _own_inbox(self):
        return f"inbox-of-{self.name}"

    def claim(self):
        agent = self._own_inbox()
        answer = self.wire.post(f"/v1/agents/{agent}/messages/claim",
                                {"limit": 3, "visibility_ms": VISIBILITY_MS})
        if not self._expect(answer, 200):
            return
        claim_id, ids = answer.json()["claim_id"], [message["id"] for message in answer.json()["data"]]
        if not ids:
            return
        self.notes.claims.append((agent, claim_id, ids))
        if self.rng.random() < 0.5:
            self._mark(ids[:1], f"/v1/agents/{agent}/messages/{ids[0]}/read", {"claim_id": claim_id})


class Load:
    """Runs the clients until the daemon ends, then gives their notes."""

    def __init__(self, port, name, rng, clients=CLIENTS):
        self.clients = [Client(port, f"{name}-{n}", rng.random()) for n in range(clients)]
        self.threads = [threading.Thread(target=client.run, daemon=True) for client in self.clients]

    def start(self):
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(timeout=30)
            assert not thread.is_alive(), "a client hangs although the daemon is gone"
        return [client.notes for client in self.clients]
