# SPDX-License-Identifier: Apache-2.0
"""Abuse of time and memory: requests whose work or answer is far larger than they are."""
import concurrent.futures
import json
import os
import threading
import time

import pytest

from harness import Daemon, sanitizer

MIB = 1 << 20
PAGE_MAX_BYTES = 3 * MIB  # a page is full at 1 MiB, plus the message that filled it
LONG = "x" * 900_000
PATIENCE_S = 10  # what a bystander waits for on a busy machine and a slow disk; far below an unbounded stall


class Bystander(threading.Thread):
    """A well-behaved client; `worst` is the longest it waited for an answer, in seconds."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.client, self.worst, self.over = daemon.client(), 0.0, threading.Event()

    def run(self):
        while not self.over.wait(0.002):
            begun = time.monotonic()
            self.client.get("/v1/agents/bystander/messages").ok()
            self.worst = max(self.worst, time.monotonic() - begun)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exc):
        self.over.set()
        self.join()


def resident_mib(daemon):
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


# One message to many (line 1) ---------------------------------------------------------------------

def test_a_broadcast_is_bounded_by_its_copies(start):
    daemon = start(broadcast_max_bytes=4 * MIB)
    api = daemon.client()
    to = [f"a{i}" for i in range(1000)]
    before = resident_mib(daemon)
    api.broadcast(to, content="x" * 1_000_000).fails(413, "too_large", names="broadcast_max_bytes")
    assert api.stats() == {} and resident_mib(daemon) - before < 30
    api.broadcast(to, content="x" * 4000).ok(201)
    api.broadcast(to[:4], content="x" * 1_000_000).ok(201)


def test_a_broadcast_answers_ids_and_recipients(shared_api, agent):
    to = [f"{agent}-{i}" for i in range(3)]
    answer = shared_api.broadcast(to, content="secret " * 100)
    sent = answer.ok(201)
    assert list(sent) == ["data", "timestamp"] and [list(row) for row in sent["data"]] == [["id", "to"]] * 3
    assert [row["to"] for row in sent["data"]] == to and b"secret" not in answer.body
    assert shared_api.message(to[1], sent["data"][1]["id"]).ok()["timestamp"] == sent["timestamp"]


# An inbox of long messages (line 3) ---------------------------------------------------------------

@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    """A daemon with forty messages of 900 kB in the inbox `heavy`, and a few short ones."""
    with Daemon(tmp_path_factory.mktemp("heavy") / "data") as daemon:
        api = daemon.client()
        for i in range(40):
            api.send("heavy", content=LONG, type=f"n{i}")
        yield daemon


def test_a_page_ends_after_a_megabyte(heavy):
    api = heavy.client()
    with Bystander(heavy) as bystander:
        answer = api.list("heavy", limit=100)
        page = answer.ok()
    assert len(answer.body) < PAGE_MAX_BYTES and page["pagination"]["has_more"]
    assert 1 <= len(page["data"]) <= 3
    assert bystander.worst < PATIENCE_S
    seen = [message["type"] for message in api.inbox("heavy")]
    assert seen == [f"n{i}" for i in reversed(range(40))], "the pages together are the whole inbox"
    assert [m["type"] for m in api.inbox("heavy", unread="true")] == seen


def test_a_single_long_message_is_a_page(heavy):
    page = heavy.client().list("heavy", limit=1).ok()
    assert len(page["data"]) == 1 and page["pagination"]["has_more"]


def test_a_claim_ends_after_a_megabyte(start):
    api = start().client()
    for i in range(12):
        api.send("heavy", content=LONG, type=f"n{i}")
    seen = []
    while True:
        claimed = api.claim("heavy", limit=100).ok()["data"]
        if not claimed:
            break
        assert len(claimed) <= 8
        seen += [message["type"] for message in claimed]
    assert seen == [f"n{i}" for i in range(12)]


@pytest.mark.parametrize("by", ["before", "ids"])
def test_marking_long_messages_takes_several_turns(start, by):
    daemon = start()
    api = daemon.client()
    ids = [api.send("heavy", content=LONG)["id"] for _ in range(30)]
    body = {"ids": ids} if by == "ids" else {"before": "2100-01-01T00:00:00Z"}
    with Bystander(daemon) as bystander:
        assert api.read_many("heavy", **body).ok() == {"count": 30}
    assert bystander.worst < PATIENCE_S
    assert api.stats()["heavy"]["unread"] == 0
    assert api.read_many("heavy", **body).ok() == {"count": 0}


def test_short_messages_still_come_a_hundred_at_once(shared_api, agent):
    for i in range(105):
        shared_api.send(agent, content=str(i))
    page = shared_api.list(agent, limit=100).ok()
    assert [m["content"] for m in page["data"]] == [str(i) for i in reversed(range(5, 105))]
    assert len(shared_api.claim(agent, limit=100).ok()["data"]) == 100


# Bodies of small values (line 4) ------------------------------------------------------------------

def test_a_body_has_a_limit_of_values(start):
    daemon = start(body_max_values=1000)
    api = daemon.client()
    good = {"from": "b", "content": "a,b,[c],{d}" * 2000, "metadata": {"list": list(range(900))}}
    api.post("/v1/agents/a/messages", good).ok(201)
    good["metadata"]["list"] = list(range(1100))
    api.post("/v1/agents/a/messages", good).fails(413, "too_large", names="body_max_values")
    assert api.stats()["a"]["total"] == 1


def test_many_bodies_of_small_values_take_no_memory(start):
    daemon = start()
    before = resident_mib(daemon)
    body = json.dumps({"from": "b", "content": "x", "metadata": {"l": [1] * 500_000}}, separators=(",", ":")).encode()

    def post(_):
        return daemon.client().request("POST", "/v1/agents/a/messages", body=body,
                                       headers={"Content-Type": "application/json"}).status
    with Bystander(daemon) as bystander, concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(post, range(64))) == {413}
    assert bystander.worst < PATIENCE_S
    assert sanitizer() or resident_mib(daemon) - before < 150  # a sanitizer keeps what was freed


# Batches of agents with many capabilities (line 4) ------------------------------------------------

def batch(agents, capabilities, turn=0):
    return [{"agent_id": f"a{i}", "cluster_id": "c", "capabilities": [f"k{turn}-{j}" for j in range(capabilities)]}
            for i in range(agents)]


def test_a_batch_changes_a_bounded_number_of_capabilities(start):
    api = start().client()
    api.post("/v1/heartbeats", batch(600, 64)).fails(413, "too_large", names="capabilities")
    assert api.get("/v1/agents").ok()["data"] == [], "all or none"
    api.post("/v1/heartbeats", batch(31, 64)).ok()


def test_a_batch_that_says_nothing_new_may_name_any_number_of_capabilities(start):
    api = start().client()
    for i in range(0, 600, 30):
        api.post("/v1/heartbeats", batch(600, 64)[i:i + 30]).ok()
    assert api.post("/v1/heartbeats", batch(600, 64)).ok()["accepted"] == 600
    api.post("/v1/heartbeats", batch(600, 64, turn=1)).fails(413, "too_large", names="capabilities")


# Long rows of operational tables (line 3) ----------------------------------------------------------

@pytest.mark.parametrize("table", ["connections", "outbox", "queue"])
def test_replies_of_operational_tables_end_after_a_megabyte(start, table):
    api, seen, at, posts = start().client(), 0, None, 0
    for i in range(6):
        if table == "connections":
            api.put(f"/v1/tables/connections/k{i}", {"ttl_ms": 600_000, "data": {"text": LONG}}).ok(201)
        elif table == "outbox":
            api.post("/v1/outbox", {"topic": "t", "payload": {"text": LONG}}).ok(201)
        else:
            api.post("/v1/queues/channel_inbox", {"payload": {"text": LONG}}).ok(201)
    while seen < 6:
        if table == "queue":
            page = api.post("/v1/queues/channel_inbox/claim", {"worker": "w", "limit": 100})
        else:
            path = "/v1/outbox" if table == "outbox" else "/v1/tables/connections"
            page = api.get(path + "?limit=100" + (f"&after={at}" if at else ""))
            at = page.ok().get("next_cursor")
        rows = len(page.ok()["data"])
        assert 0 < rows <= 2 and len(page.body) < PAGE_MAX_BYTES
        seen, posts = seen + rows, posts + 1
    assert seen == 6 and posts == 3


# The loop does not wait -----------------------------------------------------------------------------

def test_the_table_of_descriptors_does_not_grow_while_clients_come(start):
    """Growing it stops every thread of a process for a while, the loop too: it is made large at the start."""
    daemon = start(connections_max=3000)
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
        assert next(int(line.split()[1]) for line in status if line.startswith("FDSize")) >= 3000


def thread_seconds(daemon):
    """CPU time of the loop's thread, and of all others together."""
    pid, times = daemon.process.pid, {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
            times[int(task)] = int(stat.read().split()[0]) / 1e9
    return times.pop(pid), sum(times.values())


def test_long_bodies_are_parsed_beside_the_loop(start):
    daemon = start()
    api = daemon.client()
    body = json.dumps([{"agent_id": f"n{i}", "cluster_id": "c", "capabilities": [f"k{i}-{j}" for j in range(64)]}
                       for i in range(600)]).encode()
    before = thread_seconds(daemon)
    for _ in range(20):
        answer = api.request("POST", "/v1/heartbeats", body=body, headers={"Content-Type": "application/json"})
        answer.fails(413, "too_large", names="capabilities")
    loop, others = (after - was for after, was in zip(thread_seconds(daemon), before))
    assert loop < others, f"{loop:.3f} s on the loop, {others:.3f} s on others"


@pytest.mark.parametrize("path", ["/v1/agents/a/messages", "/mcp"])
def test_long_bodies_are_answered_like_short_ones(start, path):
    api = start().client()
    message = {"from": "x", "content": "é\\\"\n" * 20_000 + "x" * 100_000}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "send_message", "arguments": {"to_session_id": "a", "from_session_id": "x",
                                                             "content": message["content"]}}}
    answer = api.post(path, call if path == "/mcp" else message).ok(200 if path == "/mcp" else 201)
    assert "error" not in answer and not answer.get("result", {}).get("isError"), answer
    assert api.list("a").ok()["data"][0]["content"] == message["content"]
    broken = json.dumps(message).encode()[:-1]
    for _ in range(2):  # the connection lives on
        assert api.request("POST", path, body=broken, headers={"Content-Type": "application/json"}).status == 400
    api.post(path, {"from": "x", "contents": "y" * 100_000})
    assert len(api.list("a").ok()["data"]) == 1


def test_the_daemon_stops_while_long_bodies_are_parsed(start):
    daemon = start()
    body = {"from": "x", "content": "x" * 900_000}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def send(_):
            try:
                daemon.client().post("/v1/agents/a/messages", body)
            except OSError:
                pass
        jobs = [pool.submit(send, i) for i in range(32)]
        concurrent.futures.wait(jobs, return_when=concurrent.futures.FIRST_COMPLETED)
        daemon.stop()
