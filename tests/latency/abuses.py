# SPDX-License-Identifier: Apache-2.0
"""What a bad client does, again and again, until it is stopped. Each runs in processes of its own."""
import time

from client import Client, RawConnection, head, json_post

MIB = 1 << 20
LONG = "x" * 900_000


def forever(act):
    """An abuse goes on whatever it is answered; its process is ended from outside."""
    while True:
        try:
            act()
        except (OSError, AssertionError, ValueError):
            time.sleep(0.001)


def broadcasts(address, token):
    client = Client(address, token=token)
    to = [f"b{i}" for i in range(1000)]

    def act():
        client.post("/v1/messages", {"to": to, "from": "x", "content": "x" * MIB})
        client.post("/v1/messages", {"to": to, "from": "x", "content": "x" * 7000})

    forever(act)


def deaf_readers(address, token):
    held = []
    requests = head("GET", "/v1/agents/heavy/messages?limit=100", Authorization=f"Bearer {token}") * 20

    def act():
        connection = RawConnection(address)
        connection.send(requests)
        held.append(connection)
        if len(held) > 100:
            held.pop(0).close()

    forever(act)


def long_messages(address, token):
    client = Client(address, token=token)

    def act():
        client.list("heavy", limit=100)
        client.claim("heavy", limit=100, visibility_ms=1)
        client.read_many("heavy", before="2100-01-01T00:00:00.000Z")
        client.post("/v1/agents/heavy/messages", {"from": "x", "content": LONG})

    forever(act)


def large_batches(address, token):
    client = Client(address, token=token)
    turns = [0]

    def act():
        turns[0] += 1
        client.post("/v1/heartbeats", [{"agent_id": f"n{i}", "cluster_id": "c",
                                        "capabilities": [f"k{turns[0]}-{j}" for j in range(64)]} for i in range(600)])

    forever(act)


def small_values(address, token):
    client = Client(address, token=token)
    body = b'{"from":"x","content":"y","metadata":{"k":[' + b"1," * 500_000 + b"1]}}"

    def act():
        client.request("POST", "/v1/agents/a/messages", body=body, headers={"Content-Type": "application/json"})

    forever(act)


def strangers(address, _token):
    body = b"x" * MIB

    def act():
        with RawConnection(address) as connection:
            connection.send(json_post("/v1/agents/a/messages", body))
            connection.answer_or_none("POST")

    forever(act)


def half_requests(address, _token):
    held = []

    def act():
        connection = RawConnection(address)
        connection.send(b"GET /v1/agents HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
        held.append(connection)
        if len(held) > 400:
            held.pop(0).close()

    forever(act)


def unfinished_uploads(address, token):
    held = []

    def act():
        connection = RawConnection(address)
        connection.send(head("POST", "/v1/attachments?name=n", Authorization=f"Bearer {token}",
                             Content_Type="application/octet-stream", Content_Length=64 * MIB) + b"x" * MIB)
        held.append(connection)
        if len(held) > 20:
            held.pop(0).close()

    forever(act)


def full_quotas(address, token):
    client = Client(address, token=token)
    turns = [0]

    def act():
        turns[0] += 1
        client.post(f"/v1/agents/q{turns[0]}/heartbeat", {"cluster_id": "c"})
        client.post("/v1/mailboxes", {})

    forever(act)


def broken_heads(address, _token):
    heads = [b"POST /v1/agents HTTP/1.1\r\nHost: x\r\nContent-Length : 46\r\n\r\n",
             b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
             b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n"]

    def act():
        for data in heads:
            with RawConnection(address) as connection:
                connection.send(data)
                connection.answer_or_none()

    forever(act)


# name: (line of the table in docs/security.md's sense, function, processes)
ABUSES = {
    "1 MB to 1000 agents": (broadcasts, 2),
    "requests whose answers are never read": (deaf_readers, 2),
    "inbox of 900 KB messages: list, claim, read all": (long_messages, 2),
    "batches of 600 agents with 64 capabilities": (large_batches, 2),
    "1 MiB of small JSON values": (small_values, 2),
    "1 MiB bodies without a token": (strangers, 2),
    "half requests": (half_requests, 2),
    "unfinished uploads": (unfinished_uploads, 2),
    "an owner at its limits": (full_quotas, 2),
    "broken heads": (broken_heads, 2),
}
