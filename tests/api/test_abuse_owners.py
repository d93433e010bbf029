# SPDX-License-Identifier: Apache-2.0
"""One owner against the others (lines 10 and 20): what it may fill, and what it may see."""
import os

import pytest

from client import head
from harness import Clock, wait_until
from test_stream import Stream

LIMITS = {"agents_max_per_owner": 3, "mailboxes_max_per_owner": 3, "streams_max_per_owner": 3,
          "attachment_bytes_per_owner": 3, "inboxes_max_per_owner": 3}


class Fleets:
    """A daemon with small limits per owner, an admin, and two owners."""

    def __init__(self, start, **settings):
        self.daemon = start(**{**LIMITS, **settings})
        self.admin_token = self.daemon.client().token("root", admin=True)["token"]
        self.admin = self.client("admin")
        self.tokens = {name: self.admin.token(name)["token"] for name in ("red", "blue")}
        self.red, self.blue = self.client("red"), self.client("blue")

    def client(self, name):
        return self.daemon.client(token=self.admin_token if name == "admin" else self.tokens[name])

    def restart(self):
        self.daemon.restart()
        self.admin, self.red, self.blue = self.client("admin"), self.client("red"), self.client("blue")


@pytest.fixture
def fleets(start):
    return Fleets(start)


def beat(client, name):
    return client.post(f"/v1/agents/{name}/heartbeat", {"cluster_id": "c"})


def mailbox(client, name):
    return client.post("/v1/mailboxes", {"username": name})


def message(client, name):
    return client.post(f"/v1/agents/{name}/messages", {"from": "x", "content": "hello"})


def attachment(client, name):
    return client.upload(name.encode()[-1:], name=name)


FILLS = {"agents": (beat, "agents_max_per_owner"), "mailboxes": (mailbox, "mailboxes_max_per_owner"),
         "attachment_bytes": (attachment, "attachment_bytes_per_owner"),
         "inboxes": (message, "inboxes_max_per_owner")}


@pytest.mark.parametrize("what", FILLS)
def test_one_owner_cannot_take_the_room_of_another(fleets, what):
    fill, setting = FILLS[what]
    for i in range(3):
        assert fill(fleets.red, f"red{i}").status in (200, 201)
    fill(fleets.red, "red3").fails(429, "limit_reached", names=setting)
    for i in range(3, 6):
        assert fill(fleets.blue, f"blue{i}").status in (200, 201)
    fleets.restart()
    fill(fleets.red, "red3").fails(429, "limit_reached", names=setting)
    fill(fleets.blue, "blue6").fails(429, "limit_reached", names=setting)


def test_transfers_of_one_owner_leave_room_for_another(start):
    fleets = Fleets(start, transfers_max=4, attachment_bytes_per_owner=10_000_000)
    bearer = {"Authorization": f"Bearer {fleets.tokens['red']}"}
    red = [fleets.daemon.raw() for _ in range(3)]
    for connection in red:
        connection.send(head("POST", "/v1/attachments", Content_Length=1_000_000, **bearer) + b"x" * 300_000)
    wait_until(lambda: fleets.daemon.metric("lapse_transfers") == 3, what="three places are taken")
    fleets.red.upload(os.urandom(300_000), name="one too many").fails(429, "limit_reached", names="transfers_max")
    assert fleets.blue.upload(os.urandom(300_000), name="blue").status == 201
    for connection in red:
        connection.close()
    wait_until(lambda: fleets.daemon.metric("lapse_transfers") == 0, what="the places are free again")
    assert fleets.red.upload(os.urandom(300_000), name="red").status == 201


def test_streams_of_one_owner_leave_room_for_another(fleets):
    streams = [Stream(fleets.daemon, token=fleets.tokens["red"]) for _ in range(3)]
    assert [stream.status for stream in streams] == [200] * 3
    fleets.red.get("/v1/events").fails(429, "limit_reached", names="streams_max_per_owner")
    with Stream(fleets.daemon, token=fleets.tokens["blue"]) as other:
        assert other.status == 200
    for stream in streams:
        stream.close()


def test_a_batch_counts_each_of_its_agents(fleets):
    def batch(client, *names):
        return client.post("/v1/heartbeats", [{"agent_id": name, "cluster_id": "c"} for name in names])

    batch(fleets.red, "a", "b", "c", "d").fails(429, "limit_reached", names="agents_max_per_owner")
    assert fleets.red.get("/v1/agents").ok()["data"] == []
    batch(fleets.red, "a", "b", "c").ok()
    batch(fleets.red, "a", "b", "c").ok()
    batch(fleets.red, "c", "d").fails(429, "limit_reached", names="agents_max_per_owner")


def test_what_goes_makes_room(fleets):
    made = [mailbox(fleets.red, f"box{i}").ok(201) for i in range(3)]
    for i in range(3):
        beat(fleets.red, f"a{i}").ok()
    fleets.red.delete(f"/v1/mailboxes/{made[0]['id']}").ok()
    fleets.red.delete("/v1/agents/a0").ok()
    mailbox(fleets.red, "again").ok(201)
    beat(fleets.red, "again").ok()
    mailbox(fleets.red, "more").fails(429, "limit_reached")
    beat(fleets.red, "more").fails(429, "limit_reached")


def test_a_mailbox_that_expires_makes_room(start, tmp_path):
    clock = Clock(tmp_path)
    fleets = Fleets(start, clock=clock)
    for i in range(3):
        mailbox(fleets.red, f"box{i}").ok(201)
    mailbox(fleets.red, "more").fails(429, "limit_reached")
    clock.advance(25 * 3600 * 1000)
    fleets.client("admin").sweep("mailboxes")
    mailbox(fleets.client("red"), "more").ok(201)


def test_a_mailbox_that_could_not_be_made_takes_no_room(fleets):
    mailbox(fleets.red, "taken").ok(201)
    for _ in range(5):
        mailbox(fleets.red, "taken").fails(409, "conflict")
    mailbox(fleets.red, "second").ok(201)
    mailbox(fleets.red, "third").ok(201)


# Inboxes and stored bytes -------------------------------------------------------------------------

STORES = {"with a tail": {}, "without a tail": {"message_tail_max": 0}}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_an_inbox_that_is_there_takes_more_messages(start, store):
    fleets = Fleets(start, **store)
    for name in ("a", "b", "c"):
        message(fleets.red, name).ok(201)
    message(fleets.red, "d").fails(429, "limit_reached", names="inboxes_max_per_owner")
    message(fleets.red, "a").ok(201)
    fleets.red.post("/v1/messages", {"to": ["a", "d"], "from": "x", "content": "hello"}).fails(429, "limit_reached")
    assert set(fleets.red.stats()) == {"a", "b", "c"}, "a broadcast that was refused made no inbox"
    assert fleets.red.stats()["a"]["total"] == 2


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_an_inbox_that_is_empty_makes_room(start, tmp_path, store):
    clock = Clock(tmp_path)
    fleets = Fleets(start, clock=clock, message_ttl_ms=1000, message_sweep_ms=86_400_000, **store)
    for name in ("a", "b", "c"):
        fleets.red.mark_read(name, message(fleets.red, name).ok(201)["id"]).ok()
    message(fleets.red, "d").fails(429, "limit_reached")
    clock.advance(5000)
    fleets.client("admin").sweep("messages")
    for name in ("d", "e", "f"):
        message(fleets.client("red"), name).ok(201)
    message(fleets.client("red"), "g").fails(429, "limit_reached")


def long_message(client, n=4000):
    return client.post("/v1/agents/a/messages", {"from": "x", "content": "x" * n})


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_the_bytes_of_messages_are_bounded_and_come_back(start, tmp_path, store):
    clock = Clock(tmp_path)
    fleets = Fleets(start, clock=clock, message_ttl_ms=1000, message_sweep_ms=86_400_000,
                    stored_bytes_per_owner=10_000, **store)
    ids = [long_message(fleets.red).ok(201)["id"] for _ in range(2)]
    refused = long_message(fleets.red)
    refused.fails(429, "limit_reached", names="stored_bytes_per_owner")
    assert int(refused.headers["Retry-After"]) > 0
    long_message(fleets.red, 10).ok(201)
    long_message(fleets.blue).ok(201)
    fleets.restart()
    long_message(fleets.red).fails(429, "limit_reached")
    fleets.red.mark_read("a", ids[0]).ok()
    clock.advance(5000)
    fleets.client("admin").sweep("messages")
    long_message(fleets.client("red")).ok(201)
    long_message(fleets.client("red")).fails(429, "limit_reached")


def test_what_was_refused_takes_no_bytes(start):
    fleets = Fleets(start, stored_bytes_per_owner=10_000, unread_max_per_agent=1)
    message(fleets.red, "full").ok(201)
    for _ in range(5):
        fleets.red.post("/v1/messages", {"to": ["b", "full"], "from": "x", "content": "x" * 4000}).fails(429, "limit_reached")
        fleets.red.post("/v1/agents/full/messages", {"from": "x", "content": "x" * 4000}).fails(429, "limit_reached",
                                                                                                names="unread_max")
    long_message(fleets.red).ok(201)


TTL_MS = 600_000
LONG_DATA = {"text": "x" * 4000}


def put_entry(client, name):
    return client.put(f"/v1/tables/connections/{name}", {"ttl_ms": TTL_MS, "data": LONG_DATA})


def put_sign_in(client, name):
    return client.put(f"/v1/oauth/{name}", {"ttl_ms": TTL_MS, "data": LONG_DATA})


def add_item(client, name):
    return client.post("/v1/queues/channel_outbox", {"payload": LONG_DATA, "dedupe_key": name})


def append_row(client, _name):
    return client.post("/v1/outbox", {"topic": "t", "payload": LONG_DATA})


def finish_item(client, how, **more):
    item = client.post("/v1/queues/channel_outbox/claim", {"worker": "w"}).data[0]
    client.post(f"/v1/queues/channel_outbox/{item['id']}/{how}", {"worker": "w", "attempt": 1, **more}).ok()


def fail_items(client):
    for _ in range(2):
        finish_item(client, "fail", error="no", retry=False)


# What fills a table; what makes its rows due; who sweeps it; and what removes one row by hand.
TABLES = {"entries": (put_entry, None, "statestore", lambda c: c.delete("/v1/tables/connections/0").ok()),
          "sign-ins": (put_sign_in, None, "statestore", lambda c: c.post("/v1/oauth/0/consume").ok()),
          "queues": (add_item, fail_items, "statestore", lambda c: finish_item(c, "complete")),
          "outbox": (append_row, None, "outbox", None)}


def full_tables(start, fill, **settings):
    fleets = Fleets(start, stored_bytes_per_owner=10_000, **settings)
    fill(fleets.red, "0").ok(201)
    fill(fleets.red, "1").ok(201)
    fill(fleets.red, "2").fails(429, "limit_reached", names="stored_bytes_per_owner")
    long_message(fleets.red).fails(429, "limit_reached", names="stored_bytes_per_owner")
    fill(fleets.blue, "0").ok(201)
    return fleets


@pytest.mark.parametrize("table", TABLES)
def test_the_bytes_of_operational_tables_come_back_with_a_sweep(start, tmp_path, table):
    fill, age, scheduler, _ = TABLES[table]
    clock = Clock(tmp_path)
    fleets = full_tables(start, fill, clock=clock, outbox_keep_ms=1000, channel_keep_ms=1000)
    fleets.restart()
    fill(fleets.red, "2").fails(429, "limit_reached")
    if age:
        age(fleets.red)
    clock.advance(TTL_MS + 1000)
    fleets.client("admin").sweep(scheduler)
    fill(fleets.client("red"), "3").ok(201)
    fill(fleets.client("red"), "4").ok(201)
    fill(fleets.client("red"), "5").fails(429, "limit_reached")


@pytest.mark.parametrize("table", [table for table, how in TABLES.items() if how[3]])
def test_the_bytes_of_operational_tables_come_back_by_hand(start, table):
    fill, _, _, remove = TABLES[table]
    fleets = full_tables(start, fill)
    remove(fleets.red)
    fill(fleets.red, "3").ok(201)
    fill(fleets.red, "4").fails(429, "limit_reached")


@pytest.mark.parametrize("put", [put_entry, put_sign_in], ids=["entries", "sign-ins"])
def test_a_row_that_is_written_again_counts_once(start, put):
    fleets = Fleets(start, stored_bytes_per_owner=10_000)
    put(fleets.red, "0").ok(201)
    for _ in range(4):
        put(fleets.red, "0").ok(200)
    put(fleets.red, "1").ok(201)
    put(fleets.red, "2").fails(429, "limit_reached")


def test_what_a_put_removes_gives_its_bytes_back(start, tmp_path):
    clock = Clock(tmp_path)
    fleets = full_tables(start, put_entry, clock=clock)
    clock.advance(TTL_MS + 1000)
    fleets.client("red").put("/v1/tables/connections/small", {"ttl_ms": 60_000}).ok(201)
    put_entry(fleets.client("red"), "3").ok(201)
    put_entry(fleets.client("red"), "4").ok(201)


def test_the_bytes_of_mails_are_bounded_and_come_back(start):
    fleets = Fleets(start, stored_bytes_per_owner=10_000)
    box = mailbox(fleets.red, "box").ok(201)
    other = mailbox(fleets.blue, "other").ok(201)

    def send(body):
        return fleets.blue.post(f"/v1/mailboxes/{other['id']}/send",
                                {"to": box["address"], "subject": "s", "body": body})

    long_message(fleets.red).ok(201)
    refused = send("x" * 8000).fails(429, "limit_reached", names="stored_bytes_per_owner")
    assert "red" not in refused["message"].split(), "who sends a mail is not told whose mailbox it is"
    send("x" * 3000).ok()
    send("x" * 3000).fails(429, "limit_reached")
    fleets.red.delete(f"/v1/mailboxes/{box['id']}").ok()
    long_message(fleets.red).ok(201)


def test_a_quota_of_stored_bytes(start):
    fleets = Fleets(start, stored_bytes_per_owner=10_000)
    fleets.admin.put("/v1/quotas/red", {"stored_bytes": 5000}).ok()
    long_message(fleets.red).ok(201)
    long_message(fleets.red).fails(429, "limit_reached", names="its quota")
    fleets.admin.delete("/v1/quotas/red").ok()
    long_message(fleets.red).ok(201)


def test_adopted_inboxes_count_for_their_new_owner(start):
    daemon = start(**LIMITS)
    local = daemon.client()
    for name in ("a", "b"):
        message(local, name).ok(201)
    token = local.token("red", admin=True)["token"]
    red = daemon.client(token=token)
    message(red, "a").ok(201)
    red.post("/v1/adopt", {"from": "local"}).ok()
    message(red, "c").ok(201)
    message(red, "d").fails(429, "limit_reached", names="inboxes_max_per_owner")


# Quotas -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("what", FILLS)
def test_a_quota_is_one_owners_own(fleets, what):
    fill, setting = FILLS[what]
    given = fleets.admin.put("/v1/quotas/red", {what: 4}).ok()
    assert given == {"owner": "red", "agents": None, "mailboxes": None, "attachment_bytes": None, "streams": None,
                     "inboxes": None, "stored_bytes": None, what: 4}
    for i in range(4):
        assert fill(fleets.red, f"red{i}").status in (200, 201)
    fill(fleets.red, "red5").fails(429, "limit_reached", names="its quota")
    fleets.restart()
    assert fleets.admin.get("/v1/quotas/red").ok() == given
    fill(fleets.red, "red5").fails(429, "limit_reached", names="its quota")
    for i in range(3):
        assert fill(fleets.blue, f"blue{i}").status in (200, 201)
    fill(fleets.blue, "blue4").fails(429, "limit_reached", names=setting)
    fleets.admin.put("/v1/quotas/blue", {what: 1}).ok()
    fill(fleets.blue, "blue4").fails(429, "limit_reached", names="its quota")
    assert [row["owner"] for row in fleets.admin.pages("/v1/quotas", limit=1)] == ["blue", "red"]
    fleets.admin.delete("/v1/quotas/red").ok()
    fleets.admin.get("/v1/quotas/red").fails(404, "not_found")
    fill(fleets.red, "red5").fails(429, "limit_reached", names=setting)


def test_quotas_are_for_admins(fleets):
    fleets.red.put("/v1/quotas/red", {"agents": 100}).fails(403, "forbidden")
    fleets.red.get("/v1/quotas").fails(403, "forbidden")
    fleets.red.delete("/v1/quotas/red").fails(403, "forbidden")


@pytest.mark.parametrize("body", [{}, {"agents": 0}, {"agents": -1}, {"agents": "many"}, {"inboxen": 1}], ids=repr)
def test_a_quota_that_is_none_changes_nothing(fleets, body):
    fleets.admin.put("/v1/quotas/red", {"agents": 4}).ok()
    fleets.admin.put("/v1/quotas/red", body).fails(400, "invalid_request")
    assert fleets.admin.get("/v1/quotas/red").ok()["agents"] == 4


# What an owner sees (line 20) ---------------------------------------------------------------------

def fill_all(client, name, n):
    for i in range(n):
        client.send(f"{name}{i}")
        beat(client, f"{name}{i}").ok()
        mailbox(client, f"{name}-box{i}").ok(201)
        client.stage(f"{name}{i}".encode(), name="n")
        client.put(f"/v1/tables/connections/{name}{i}", {"ttl_ms": 600_000}).ok(201)


def test_the_matrix_tells_an_owner_only_its_own_counts(start):
    fleets = Fleets(start, attachment_bytes_per_owner=1000)
    fill_all(fleets.red, "red", 1)
    fill_all(fleets.blue, "blue", 3)
    tables = ("messages", "agents", "mailboxes", "attachments", "connections")
    for client, live in ((fleets.red, 1), (fleets.blue, 3), (fleets.admin, 4)):
        rows = client.matrix()
        assert {table: rows[table]["live_rows"] for table in tables} == dict.fromkeys(tables, live)
    assert {row["pruned_total"] for row in fleets.red.matrix().values()} == {None}
    assert fleets.red.matrix("events")["live_rows"] is None, "events of others would show in it"
    assert fleets.admin.matrix("events")["live_rows"] > 0


def test_the_matrix_tells_an_owner_only_its_own_due_rows(start, tmp_path):
    clock = Clock(tmp_path)
    fleets = Fleets(start, clock=clock, message_ttl_ms=1000, message_sweep_ms=86_400_000)
    for client, n in ((fleets.red, 1), (fleets.blue, 2)):
        for _ in range(n):
            client.mark_read("a", client.send("a")["id"]).ok()
    clock.advance(5000)
    rows = {name: fleets.client(name).matrix("messages") for name in ("red", "blue", "admin")}
    assert {name: row["due_rows"] for name, row in rows.items()} == {"red": 1, "blue": 2, "admin": 3}
    assert all(row["oldest_due_age_ms"] > 0 for row in rows.values())


def test_an_owner_sees_only_its_own_inboxes(fleets):
    fleets.red.send("a")
    fleets.blue.send("a")
    fleets.blue.send("b")
    assert fleets.red.stats() == {"a": {"agent_id": "a", "total": 1, "unread": 1, "oldest_unread_age_sec": 0}}
    assert set(fleets.blue.stats()) == {"a", "b"}
