# SPDX-License-Identifier: Apache-2.0
"""Adopting: what was made without a token becomes an owner's, in slices between which others are answered."""
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import NEVER_MS, wait_until

# Tables with an owner whose rows stay with the owner they happened to.
KEPT = {"events", "tokens"}
QUIET = {name: NEVER_MS for name in ("message_sweep_ms", "agent_sweep_ms", "mailbox_sweep_ms", "attachment_sweep_ms",
                                     "housekeeping_sweep_ms", "table_sweep_ms", "outbox_sweep_ms")}


def owned_rows(daemon, owner):
    """Table → rows of this owner, for every table that has an owner."""
    return {table: daemon.rows(f"SELECT count(*) AS n FROM {table} WHERE owner = ?", owner)[0]["n"]
            for table in daemon.store.tables_with("owner")
            if table != "messages_unread"}  # the index of unread messages, which is written later


def read_outbox(api, name):
    """A consumer that has read everything there is."""
    api.put(f"/v1/outbox/consumers/{name}", {"cursor": api.get("/v1/outbox").ok()["next_cursor"]}).ok()


def fill(api, mark=""):
    """At least one row in every table with an owner that a client can fill; returns what tells them apart."""
    made = {}
    made["message"] = api.post(f"/v1/agents/bob{mark}/messages", {"from": "alice", "content": "x"},
                               headers={"Idempotency-Key": f"k{mark}"}).ok(201)
    api.post(f"/v1/agents/bob{mark}/heartbeat", {"cluster_id": "eu", "capabilities": ["sum"]}).ok()
    made["mailbox"] = api.post("/v1/mailboxes", {"username": f"box{mark}"}).ok(201)
    api.post(f"/v1/mailboxes/{made['mailbox']['id']}/send",
             {"to": [made["mailbox"]["address"]], "subject": "s", "body": "b"}).ok()
    answer = api.request("POST", f"/v1/attachments?name=f{mark}", body=f"bytes{mark}".encode(),
                         headers={"Content-Type": "application/octet-stream"})
    made["attachment"] = answer.ok(201)
    api.put(f"/v1/holds/mailboxes/{made['mailbox']['id']}", {"reason": "r"}).ok()
    made["lease"] = api.put(f"/v1/leases/workspace_leases/w{mark}", {"holder": "h", "ttl_ms": 60000}).ok()
    api.put(f"/v1/tables/connections/c{mark}", {"data": {"n": 1}, "ttl_ms": 60000}).ok(201)
    api.post("/v1/dedupe", {"channel": "c", "account_id": "a", "container_id": "r", "message_id": f"m{mark}",
                            "window_ms": 60000}).ok()
    api.put(f"/v1/oauth/s{mark}", {"data": {"v": 1}, "ttl_ms": 60000}).ok(201)
    made["item"] = api.post("/v1/queues/channel_inbox", {"payload": {"n": 1}, "dedupe_key": f"d{mark}"}).ok(201)
    api.post("/v1/outbox", {"topic": "t", "payload": {"n": 1}}).ok(201)
    read_outbox(api, f"reader{mark}")
    made["webhook"] = api.post("/v1/webhooks", {"url": f"https://hooks.example/{mark}"}).ok(201)
    return made


def adopt(api, **body):
    return api.post("/v1/adopt", body)


@pytest.fixture(params=[0, 131072])
def daemon(start, request):
    return start(**QUIET, message_tail_max=request.param)


def test_everything_of_local_becomes_the_owners(daemon):
    local = daemon.client()
    made = fill(local)
    before = owned_rows(daemon, "local")
    # A new table with an owner belongs into the list of src/rooms.c, and into fill() above.
    assert {t for t, rows in before.items() if rows == 0} <= {"tokens", "suspects", "cleanups", "outbox_pruned",
                                                               "outbox_moving", "quotas", "webhook_dead_letters"}, before
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    assert ops.list("bob").data == [] and ops.get("/v1/agents").data == []

    answer = adopt(ops, **{"from": "local"}).ok()
    assert answer["from"] == "local" and answer["owner"] == "ops"
    assert answer["rows"] == sum(answer["tables"].values())
    after = owned_rows(daemon, "local")
    assert {t for t, rows in after.items() if rows and t not in KEPT} == set(), after
    moved = owned_rows(daemon, "ops")
    assert all(moved[t] == rows for t, rows in before.items() if t not in KEPT), (before, moved)

    # It is all there, and works: presence too, whose memory is apart from its rows.
    assert [m["id"] for m in ops.list("bob").data] == [made["message"]["id"]]
    assert ops.get("/v1/agents/bob").ok()["capabilities"] == ["sum"]
    ops.post("/v1/agents/bob/heartbeat", {"cluster_id": "eu"}).ok()
    assert [a["agent_id"] for a in ops.get("/v1/capabilities/sum").data] == ["bob"]
    ops.get(f"/v1/mailboxes/{made['mailbox']['id']}").ok()
    assert len(ops.get(f"/v1/mailboxes/{made['mailbox']['id']}/messages").data) == 1
    got = ops.request("GET", f"/v1/attachments/{made['attachment']['checksum']}/content")
    assert got.status == 200 and got.body == b"bytes"
    assert ops.get("/v1/attachments/metrics").ok()["total_count"] == 1
    assert [h["key"] for h in ops.get("/v1/holds").data] == [made["mailbox"]["id"]]
    again = ops.put("/v1/leases/workspace_leases/w", {"holder": "h", "ttl_ms": 60000}).ok()
    assert again["fencing_token"] == made["lease"]["fencing_token"]
    ops.post(f"/v1/queues/channel_inbox/claim", {"worker": "w", "limit": 5}).ok()
    ops.delete("/v1/agents/bob").ok()
    assert ops.get("/v1/capabilities").data == []


def test_what_was_sent_again_is_not_done_again(daemon):
    local = daemon.client()
    made = fill(local)["message"]
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    adopt(ops).ok()
    again = ops.post("/v1/agents/bob/messages", {"from": "alice", "content": "x"}, headers={"Idempotency-Key": "k"}).ok(201)
    assert again["id"] == made["id"] and len(ops.list("bob").data) == 1


def test_it_survives_a_restart(daemon):
    local = daemon.client()
    fill(local)
    token = local.token("ops", admin=True)["token"]
    adopt(daemon.client(token=token)).ok()
    daemon.kill()
    daemon.start()
    ops = daemon.client(token=token)
    assert len(ops.list("bob").data) == 1 and ops.get("/v1/agents/bob").ok()


def test_a_consumer_that_has_read_further_misses_nothing(daemon):
    """Rows of local are older than those of ops: its consumer would never get them."""
    local = daemon.client()
    local.post("/v1/outbox", {"topic": "t", "payload": {"n": 1}}).ok(201)
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    ops.post("/v1/outbox", {"topic": "t", "payload": {"n": 2}}).ok(201)
    read_outbox(ops, "reader")
    adopt(ops).fails(409, "conflict", names="'reader'")


@pytest.mark.parametrize("method, path, body, key", [
    ("POST", "/v1/agents/bob/heartbeat", {"cluster_id": "eu"}, "bob"),
    ("PUT", "/v1/leases/workspace_leases/w", {"holder": "h", "ttl_ms": 60000}, "w"),
    ("PUT", "/v1/tables/connections/c", {"data": {}, "ttl_ms": 60000}, "c"),
    ("PUT", "/v1/oauth/s", {"data": {}, "ttl_ms": 60000}, "s"),
    ("POST", "/v1/queues/channel_inbox", {"payload": {}, "dedupe_key": "d"}, "d"),
    ("POST", "/v1/dedupe", {"channel": "c", "account_id": "a", "container_id": "r", "message_id": "m",
                            "window_ms": 60000}, "m")])
def test_the_same_key_on_both_sides_moves_nothing(daemon, method, path, body, key):
    local = daemon.client()
    fill(local)
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    assert ops.request(method, path, body).status in (200, 201)
    before = owned_rows(daemon, "local"), owned_rows(daemon, "ops")
    adopt(ops).fails(409, "conflict", names=f"'{key}'")
    assert (owned_rows(daemon, "local"), owned_rows(daemon, "ops")) == before


def test_inboxes_and_capabilities_are_merged(daemon):
    local = daemon.client()
    local.post("/v1/agents/bob/messages", {"from": "a", "content": "1"}).ok(201)
    local.post("/v1/agents/bob/heartbeat", {"cluster_id": "eu", "capabilities": ["sum"]}).ok()
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    ops.post("/v1/agents/bob/messages", {"from": "a", "content": "2"}).ok(201)
    ops.post("/v1/agents/eve/heartbeat", {"cluster_id": "eu", "capabilities": ["sum"]}).ok()
    assert adopt(ops).ok()["tables"] == {"messages": 1, "agents": 1, "capabilities": 1}
    assert ops.stats()["bob"]["total"] == 2 and ops.stats()["bob"]["unread"] == 2
    assert [(c["capability"], c["count"]) for c in ops.get("/v1/capabilities").data] == [("sum", 2)]
    for agent in ("bob", "eve"):
        ops.delete(f"/v1/agents/{agent}").ok()
    assert ops.get("/v1/capabilities").data == []


def test_a_second_time_moves_what_came_since(daemon):
    local = daemon.client()
    fill(local)
    token = local.token("ops", admin=True)["token"]
    ops, as_local = daemon.client(token=token), daemon.client(token=token, owner="local")
    assert adopt(ops).ok()["rows"] > 0
    assert adopt(ops).ok() == {"from": "local", "owner": "ops", "rows": 0, "tables": {}}
    as_local.post("/v1/agents/zoe/messages", {"from": "a", "content": "late"}).ok(201)
    assert adopt(ops).ok()["tables"] == {"messages": 1}


def test_it_is_told(daemon):
    local = daemon.client()
    fill(local)
    token = local.token("ops", admin=True)["token"]
    answer = adopt(daemon.client(token=token)).ok()
    (event,) = daemon.rows("SELECT owner, data FROM events WHERE kind = 'owner.adopted'")
    assert event["owner"] == "ops" and f'"rows":{answer["rows"]}' in event["data"]


def test_who_may(daemon):
    local = daemon.client()
    fill(local)
    adopt(local).fails(400, "invalid_request", names="from")  # nobody adopts itself
    adopt(daemon.client(owner="ops")).fails(409, "conflict", names="token")  # callers without a token still write
    admin = local.token("ops", admin=True)["token"]
    ops = daemon.client(token=admin)
    red = daemon.client(token=ops.token("red")["token"])
    adopt(red).fails(403, "forbidden")
    adopt(daemon.client(token=admin, owner="blue"), **{"from": "red"}).fails(409, "conflict", names="tokens")
    assert adopt(daemon.client(token=admin, owner="red")).ok()["owner"] == "red"
    assert len(red.list("bob").data) == 1
    adopt(ops, **{"from": "no/owner"}).fails(400, "invalid_request", names="from")


MANY = 40_000  # messages: at 10 ms for a turn, dozens of turns


def fill_much(api):
    """Many messages, half of them read, and some rows of every other table that moves in slices."""
    fill(api)
    for i in range(MANY // 1000):
        agents = [f"agent-{i % 4}-{n}" for n in range(1000)]
        sent = api.broadcast(agents, "x" * 200).ok(201)["data"]
        for n in range(0, 1000, 250):
            api.read(agents[n], sent[n]["id"])
    for n in range(3):
        api.put(f"/v1/tables/connections/many-{n}", {"data": {}, "ttl_ms": 600_000}).ok(201)
        api.post("/v1/queues/channel_outbox", {"payload": {"n": n}}).ok(201)
        api.post("/v1/mailboxes", {"username": f"many-{n}"}).ok(201)


def counters(daemon, owner):
    """What the counters say of this owner."""
    return {table: sorted(tuple(row.values()) for row in daemon.rows(f"SELECT {columns} FROM {table} WHERE owner = ?", owner))
            for table, columns in (("table_counts", "tbl, live"),
                                   ("attachment_totals", "total_count, total_bytes, persistent_count, persistent_bytes"))}


def numbers(api):
    """agent → how many messages, and how many of them unread."""
    return {agent: (row["total"], row["unread"]) for agent, row in api.stats().items()}


def test_others_are_answered_meanwhile(start):
    daemon = start(**QUIET)
    local = daemon.client()
    fill_much(local)
    token = local.token("ops", admin=True)["token"]
    other = daemon.client(token=token)
    with ThreadPoolExecutor(1) as pool:
        adoption = pool.submit(adopt, daemon.client(token=token))
        parts = set()
        while not adoption.done():
            parts.add(tuple(bool(other.list(agent).data) for agent in ("agent-0-1", "agent-3-999")))
            other.post("/v1/agents/meanwhile/messages", {"from": "a", "content": "x"}).ok(201)
        assert adoption.result().ok()["tables"]["messages"] == MANY + 1
    assert (True, False) in parts, "the first agent's messages had come when those of the last one had not"
    assert len(other.list("meanwhile").data) > 1


def test_a_kill_in_the_middle_is_made_good_by_the_next_one(start):
    daemon = start(**QUIET)
    local = daemon.client()
    fill_much(local)
    token = local.token("ops", admin=True)["token"]
    before, inboxes = counters(daemon, "local"), numbers(daemon.client(token=token, owner="local"))
    with ThreadPoolExecutor(1) as pool:
        adoption = pool.submit(adopt, daemon.client(token=token))
        wait_until(lambda: daemon.client(token=token).get("/v1/messages/stats").ok()["data"], 60, "a part has moved", 0.001)
        daemon.kill()
        assert adoption.exception(60)
    daemon.start()
    ops = daemon.client(token=token)
    assert 0 < adopt(ops).ok()["rows"]
    after = owned_rows(daemon, "local")
    assert {t for t, rows in after.items() if rows and t not in KEPT} == set(), after
    assert counters(daemon, "ops") == before and numbers(ops) == inboxes
    assert adopt(ops).ok()["rows"] == 0


AGENTS = 10_000
LOGGED = 20_000


def heartbeats(api, names):
    for i in range(0, len(names), 1000):
        api.post("/v1/heartbeats", [{"agent_id": name, "cluster_id": "eu", "capabilities": ["sum", name[-1]]}
                                    for name in names[i:i + 1000]]).ok()


def test_agents_move_in_slices_and_are_never_lost(start):
    """Between two slices each agent is one owner's, with its capabilities and its hold, in the rows and in memory."""
    daemon = start(**QUIET)
    local = daemon.client()
    names = [f"agent-{n:05}" for n in range(AGENTS)]
    heartbeats(local, names)
    local.put(f"/v1/holds/agents/{names[-1]}", {"reason": "r"}).ok()
    token = local.token("ops", admin=True)["token"]
    other, before = daemon.client(token=token), daemon.client(token=token, owner="local")
    with ThreadPoolExecutor(1) as pool:
        adoption = pool.submit(adopt, daemon.client(token=token))
        parts = set()
        while not adoption.done():
            parts.add(tuple(other.get(f"/v1/agents/{name}").status for name in (names[0], names[-1])))
            counts = other.get("/v1/capabilities").data
            assert counts == [] or counts[-1]["capability"] == "sum"
        tables = adoption.result().ok()["tables"]
    assert (200, 404) in parts, "the first agent had come when the last one had not"
    assert tables["agents"] == AGENTS and tables["capabilities"] == 2 * AGENTS and tables["holds"] == 1
    assert before.get("/v1/agents").data == [] and before.get("/v1/capabilities").data == []
    assert {c["capability"]: c["count"] for c in other.get("/v1/capabilities").data} == {
        "sum": AGENTS, **{str(n): AGENTS // 10 for n in range(10)}}
    other.delete(f"/v1/agents/{names[-1]}").fails(409, "conflict")
    heartbeats(other, names)
    assert daemon.rows("SELECT count(*) AS n FROM agents")[0]["n"] == AGENTS


def fill_outbox(daemon, api, n):
    """Rows behind the daemon's back, older than the one it made itself, in the counter of the owner too."""
    made = api.post("/v1/outbox", {"topic": "t", "payload": {"n": 0}}).ok(201)
    (row,) = daemon.rows("SELECT id FROM outbox WHERE owner = 'local'")
    daemon.execute("WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
                   "INSERT INTO outbox (id, owner, topic, payload, created_at) SELECT o.id - n, o.owner, 't', '{}', o.created_at "
                   "FROM numbers, outbox AS o WHERE o.id = ?", n, row["id"])
    daemon.execute("UPDATE table_counts SET live = live + ? WHERE owner = 'local' AND tbl = 'outbox'", n)
    return made


def follow(api, after=None):
    """The ids of the rows after a cursor, and the next cursor."""
    page = api.get("/v1/outbox", limit=100, **({"after": after} if after else {})).ok()
    return [row["id"] for row in page["data"]], page["next_cursor"]


def follow_to_end(api, seen, after):
    while True:
        ids, after = follow(api, after)
        seen += ids
        if not ids:
            return after


def test_a_reader_of_the_outbox_misses_nothing_meanwhile(start):
    """Its new rows are younger than all that come: it is shown them when the last has come."""
    daemon = start(**QUIET)
    local = daemon.client()
    newest = fill_outbox(daemon, local, LOGGED)["id"]
    token = local.token("ops", admin=True)["token"]
    ops, as_local = daemon.client(token=token), daemon.client(token=token, owner="local")
    seen, own, rest = [], [], []
    with ThreadPoolExecutor(1) as pool:
        adoption = pool.submit(adopt, daemon.client(token=token))
        cursor = None
        while not adoption.done():
            own.append(ops.post("/v1/outbox", {"topic": "t", "payload": {}}).ok(201)["id"])
            ids, after = follow(ops, cursor)
            if ids and (seen or ids[0] < newest):  # it has begun
                seen, cursor = seen + ids, after
            rest.append(len(follow(as_local)[0]))
        assert adoption.result().ok()["tables"]["outbox"] == LOGGED + 1
    follow_to_end(ops, seen, cursor)
    assert len(seen) == LOGGED + 1 + len(own) and seen == sorted(seen) and set(own) < set(seen)
    assert 0 in rest, "the old owner was not shown rows out of order"
    assert daemon.rows("SELECT * FROM outbox_moving") == []
    assert ("outbox", LOGGED + 1 + len(own)) in counters(daemon, "ops")["table_counts"]
    assert "outbox" not in dict(counters(daemon, "local")["table_counts"])


def test_a_kill_in_the_middle_of_the_outbox(start):
    """The reader waits at the gap that the kill has left, until the next adoption fills it."""
    daemon = start(**QUIET)
    local = daemon.client()
    fill_outbox(daemon, local, LOGGED)
    token = local.token("ops", admin=True)["token"]
    with ThreadPoolExecutor(1) as pool:
        adoption = pool.submit(adopt, daemon.client(token=token))
        wait_until(lambda: daemon.client(token=token).get("/v1/outbox").ok()["data"], 60, "a part has moved", 0.001)
        daemon.kill()
        adoption.exception(60)
    daemon.start()
    ops, seen = daemon.client(token=token), []
    own = ops.post("/v1/outbox", {"topic": "t", "payload": {}}).ok(201)["id"]
    left = daemon.rows("SELECT count(*) AS n FROM outbox WHERE owner = 'local'")[0]["n"]
    cursor = follow_to_end(ops, seen, None)
    assert len(seen) == LOGGED + 1 - left + (left == 0)
    assert left == 0 or follow(daemon.client(token=token, owner="local"))[0] == []
    assert adopt(ops).ok()["rows"] >= left
    follow_to_end(ops, seen, cursor)
    assert len(seen) == LOGGED + 2 and seen == sorted(seen) and seen[-1] == own


def test_an_open_breaker_is_waited_for(start):
    """Suspects of a fleet that fell silent are counted by its breaker: they do not move under it."""
    daemon = start(agent_evict_after_ms=2000, agent_breaker_min=3, agent_breaker_percent=50, agent_sweep_ms=100)
    local = daemon.client()
    for i in range(6):
        local.post(f"/v1/agents/a{i}/heartbeat", {"cluster_id": "eu"}).ok()
    ops = daemon.client(token=local.token("ops", admin=True)["token"])
    wait_until(lambda: ops.metric("lapse_breakers_open") == 1)
    said = adopt(ops)
    if said.status == 409:
        assert "breaker" in said.fails(409, "conflict")["message"]
    else:
        assert ops.metric("lapse_breakers_open") == 0, "moved under an open breaker"
    wait_until(lambda: adopt(ops).status == 200)
