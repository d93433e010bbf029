# SPDX-License-Identifier: Apache-2.0
"""The message routes: sending, reading, listing, statistics, limits. Waiting and claims have their own
files (test_longpoll.py, test_claim.py)."""
import datetime
import email.utils
import re
import time

import pytest

from client import q
from harness import DAY_MS, NEVER_MS, Clock, wait_until

FIELDS = {"id", "to", "from", "content", "type", "metadata", "timestamp", "read", "read_at"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UNKNOWN = "00000000deadbeef"


def ids(messages):
    return [message["id"] for message in messages]


def seconds(iso):
    return datetime.datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()


# Sending ------------------------------------------------------------------------------------------

def test_send_answers_the_whole_message(shared_api, agent):
    message = shared_api.send(agent, content="hi", sender="bob")
    assert set(message) == FIELDS
    assert re.fullmatch(r"[0-9a-f]{16}", message["id"])
    assert TIME.fullmatch(message["timestamp"])
    assert abs(seconds(message["timestamp"]) - time.time()) < 5
    assert {k: message[k] for k in FIELDS - {"id", "timestamp"}} == {
        "to": agent, "from": "bob", "content": "hi", "type": "text", "metadata": {}, "read": False,
        "read_at": None}


def test_send_keeps_what_was_sent(shared_api, agent):
    fields = {"content": "grüße \U0001f680\t\"quoted\" \\ \n line", "sender": "böb 1", "type": "task.v1",
              "metadata": {"n": 1, "x": [1.5, None, True, {"ü": "é"}], "": "", "big": 9007199254740993}}
    sent = shared_api.send(agent, **fields)
    got = shared_api.message(agent, sent["id"]).ok()
    assert got == sent
    assert got["content"] == fields["content"] and got["from"] == fields["sender"]
    assert got["type"] == fields["type"] and got["metadata"] == fields["metadata"]


@pytest.mark.parametrize("content", ["", " ", "x" * 200_000, "\u2028", "\x01\x1f\x7f", "\ufffd\uffff"])
def test_content_is_any_string(shared_api, agent, content):
    sent = shared_api.send(agent, content=content)
    assert shared_api.message(agent, sent["id"]).ok()["content"] == content


@pytest.mark.parametrize("kind", ["a", "x" * 64, "é" * 32])
def test_type_of_one_to_64_bytes(shared_api, agent, kind):
    assert shared_api.send(agent, type=kind)["type"] == kind


@pytest.mark.parametrize("name", ["a", "x" * 128, "é" * 64, "with space", "a+b", "100%", "q?x=1&y", "#1",
                                  "a;b,c", "..", "%41", "\U0001f916", "CASE", "\"'<>"])
def test_agent_ids_travel_unharmed(shared_api, name):
    sent = shared_api.send(name)
    assert sent["to"] == name
    assert sent["id"] in ids(shared_api.inbox(name))
    assert shared_api.stats()[name]["total"] == 1


def test_agent_ids_are_case_sensitive_and_exact(shared_api, agent):
    shared_api.send(agent)
    for other in (agent.upper(), agent + " ", agent[:-1] + "\u0430"):
        assert shared_api.inbox(other) == []


def test_ids_are_unique(shared_api, agent):
    assert len({shared_api.send(agent)["id"] for _ in range(200)}) == 200


# One message --------------------------------------------------------------------------------------

@pytest.mark.parametrize("call", ["message", "mark_read"])
def test_unknown_message_is_404(shared_api, agent, call):
    shared_api.send(agent)
    getattr(shared_api, call)(agent, UNKNOWN).fails(404, "not_found")


@pytest.mark.parametrize("call", ["message", "mark_read"])
def test_a_message_of_another_agent_is_404(shared_api, agent, call):
    message = shared_api.send(agent)
    getattr(shared_api, call)(agent + "-other", message["id"]).fails(404, "not_found")
    assert shared_api.message(agent, message["id"]).ok()["read"] is False


@pytest.mark.parametrize("bad", ["x", "0", "0" * 15, "0" * 17, "G" * 16, "0000000%2000000"])
def test_an_id_of_the_wrong_form_is_refused(shared_api, agent, bad):
    for answer in (shared_api.message(agent, bad), shared_api.mark_read(agent, bad)):
        assert answer.status in (400, 404), repr(answer)
        assert answer.json()["error"]["code"] in ("invalid_request", "not_found")


def test_getting_a_message_does_not_read_it(shared_api, agent):
    message = shared_api.send(agent)
    for _ in range(2):
        assert shared_api.message(agent, message["id"]).ok() == message
        assert shared_api.inbox(agent) == [message]


# Reading ------------------------------------------------------------------------------------------

def test_read_marks_once_and_keeps_its_time(shared_api, agent):
    message = shared_api.send(agent)
    first = shared_api.read(agent, message["id"])
    assert first == {**message, "read": True, "read_at": first["read_at"]}
    assert TIME.fullmatch(first["read_at"]) and first["read_at"] >= message["timestamp"]
    time.sleep(0.005)
    assert shared_api.read(agent, message["id"]) == first
    assert shared_api.message(agent, message["id"]).ok() == first


def test_read_writes_one_event(start):
    daemon = start()
    message = daemon.client().send("a")
    for _ in range(3):
        daemon.client().read("a", message["id"])
    assert len(daemon.events("message.sent")) == 1
    assert len(daemon.events("message.read")) == 1
    assert message["id"] in str(daemon.events("message.sent")) and message["id"] in str(daemon.events("message.read"))


def test_bulk_read_by_ids_counts_what_is_new(shared_api, agent):
    sent = ids([shared_api.send(agent) for _ in range(5)])
    foreign = shared_api.send(agent + "-b")["id"]
    shared_api.read(agent, sent[0])
    assert shared_api.read_many(agent, ids=sent[:3]).ok() == {"count": 2}
    assert shared_api.read_many(agent, ids=sent[:3]).ok() == {"count": 0}
    assert shared_api.read_many(agent, ids=sent[3:4] + [UNKNOWN, foreign]).ok() == {"count": 1}
    assert ids(shared_api.inbox(agent, unread="true")) == sent[4:]
    assert shared_api.message(agent + "-b", foreign).ok()["read"] is False
    assert shared_api.stats()[agent]["unread"] == 1


def test_bulk_read_before_a_time(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock).client()
    sent = []
    for _ in range(4):
        sent.append(api.send("a"))
        clock.advance(1)
    assert api.read_many("a", before=sent[2]["timestamp"]).ok() == {"count": 2}
    assert ids(api.inbox("a", unread="true")) == ids(sent[:1:-1])
    assert api.read_many("a", before=sent[2]["timestamp"]).ok() == {"count": 0}
    assert api.read_many("a", before="2100-01-01T00:00:00.000Z").ok() == {"count": 2}
    assert api.read_many("a", before="2100-01-01T00:00:00.000Z").ok() == {"count": 0}


def test_bulk_read_of_a_thousand(start):
    api = start().client()
    for _ in range(2):
        api.broadcast([f"a{i}" for i in range(500)]).ok(201)
    sent = [api.send("many")["id"] for _ in range(20)]
    filler = [f"{n:016x}" for n in range(980)]
    assert api.read_many("many", ids=sent + filler).ok() == {"count": 20}
    api.read_many("many", ids=sent + filler + ["7" * 16]).fails(400, "invalid_request", names="ids")


@pytest.mark.parametrize("body,field", [
    ({}, None),
    ({"ids": [UNKNOWN], "before": "2026-01-01T00:00:00.000Z"}, None),
    ({"ids": []}, "ids"),
    ({"ids": UNKNOWN}, "ids"),
    ({"ids": [1]}, "ids"),
    ({"ids": [None]}, "ids"),
    ({"before": 1}, "before"),
    ({"before": None}, "before"),
    ({"before": ""}, "before"),
    ({"before": "yesterday"}, "before"),
    ({"before": "2026-13-01T00:00:00.000Z"}, "before"),
    ({"before": "2026-02-30T00:00:00.000Z"}, "before"),
    ({"before": "2026-01-01T00:00:00.000Z trailing"}, "before"),
    ({"ids": [UNKNOWN], "all": True}, "all"),
])
def test_bulk_read_refuses(shared_api, agent, body, field):
    message = shared_api.send(agent)
    shared_api.read_many(agent, **body).fails(400, "invalid_request", names=field)
    assert shared_api.message(agent, message["id"]).ok()["read"] is False


# Past its lifetime --------------------------------------------------------------------------------

def test_a_read_message_past_its_lifetime_is_not_served(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=10_000, message_sweep_ms=NEVER_MS).client()
    read, unread = api.send("a"), api.send("a")
    done = api.read("a", read["id"])
    clock.advance(10_000)
    assert api.message("a", read["id"]).ok() == done
    clock.advance(1)
    api.message("a", read["id"]).fails(410, "expired")
    assert api.inbox("a") == [unread], "unread messages have no lifetime"
    assert api.message("a", unread["id"]).ok() == unread
    assert api.mark_read("a", read["id"]).ok() == done
    assert api.read_many("a", ids=[read["id"]]).ok() == {"count": 0}
    assert api.sweep()["pruned"] == 1
    api.message("a", read["id"]).fails(404, "not_found")
    api.mark_read("a", read["id"]).fails(404, "not_found")


def test_pages_are_full_and_has_more_exact_where_expired_messages_lie_between(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=10_000, message_sweep_ms=NEVER_MS).client()
    sent = [api.send("a") for _ in range(12)]
    gone = sent[:3] + sent[5:8]
    api.read_many("a", ids=ids(gone)).ok()
    clock.advance(10_001)
    live = [message for message in sent if message not in gone][::-1]
    first = api.list("a", limit=4).ok()
    assert first["data"] == live[:4] and first["pagination"]["has_more"] is True
    rest = api.list("a", limit=2, after=first["pagination"]["next_cursor"]).ok()
    assert rest["data"] == live[4:]
    assert rest["pagination"] == {"next_cursor": None, "has_more": False}


def test_sunset_tells_when_a_read_message_ends(shared_api, agent):
    message = shared_api.send(agent)
    assert shared_api.message(agent, message["id"]).headers.get("Sunset") is None, "unread: no end"
    shared_api.read(agent, message["id"])
    sunset = shared_api.message(agent, message["id"]).headers["Sunset"]
    assert sunset.endswith(" GMT")
    end = email.utils.parsedate_to_datetime(sunset).timestamp()
    assert abs(end - (seconds(message["timestamp"]) + DAY_MS / 1000)) <= 1


def test_the_etag_of_a_message_follows_it(shared_api, agent):
    message = shared_api.send(agent)
    first = [shared_api.message(agent, message["id"]).headers["ETag"] for _ in range(2)]
    assert first[0] == first[1] and first[0].startswith('"')
    shared_api.read(agent, message["id"])
    assert shared_api.message(agent, message["id"]).headers["ETag"] != first[0]


# Listing ------------------------------------------------------------------------------------------

def test_list_of_an_unknown_agent_is_empty(shared_api, agent):
    assert shared_api.list(agent).ok() == {"data": [], "pagination": {"next_cursor": None, "has_more": False}}


def test_list_is_newest_first_even_within_a_millisecond(start, tmp_path):
    api = start(clock=Clock(tmp_path)).client()
    sent = [api.send("a") for _ in range(10)]
    assert len({message["timestamp"] for message in sent}) == 1
    assert api.list("a").data == sent[::-1]
    assert list(api.pages("/v1/agents/a/messages", limit=3)) == sent[::-1]


def test_list_has_twenty_by_default(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(21)]
    page = shared_api.list(agent).ok()
    assert page["data"] == sent[:0:-1]
    assert page["pagination"]["has_more"] is True and isinstance(page["pagination"]["next_cursor"], str)


@pytest.mark.parametrize("count,limit", [(1, 1), (2, 1), (5, 5), (6, 5), (10, 5), (100, 100), (101, 100)])
def test_has_more_is_exact_and_pages_cover_everything_once(shared_api, agent, count, limit):
    shared_api.broadcast([agent]).ok(201)
    sent = [shared_api.send(agent) for _ in range(count - 1)]
    pages, query = [], {"limit": limit}
    while True:
        page = shared_api.list(agent, **query).ok()
        pages.append(page["data"])
        assert page["pagination"]["has_more"] is (sum(map(len, pages)) < count)
        if not page["pagination"]["has_more"]:
            break
        query["after"] = page["pagination"]["next_cursor"]
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1) and pages[-1]
    listed = [message for page in pages for message in page]
    assert listed[:count - 1] == sent[::-1] and len(set(ids(listed))) == count


def test_a_cursor_is_stable_under_inserts(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(9)]
    query, listed = {"limit": 3}, []
    for _ in range(3):
        page = shared_api.list(agent, **query).ok()
        listed += page["data"]
        query["after"] = page["pagination"]["next_cursor"]
        for _ in range(4):
            shared_api.send(agent)
    assert listed == sent[::-1]
    assert page["pagination"] == {"next_cursor": None, "has_more": False}


def test_a_cursor_outlives_the_message_it_points_at(start):
    api = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS).client()
    sent = [api.send("a") for _ in range(6)]
    page = api.list("a", limit=3).ok()
    last = page["data"][-1]
    api.read("a", last["id"])
    time.sleep(0.005)
    assert api.sweep()["pruned"] == 1
    rest = api.list("a", limit=3, after=page["pagination"]["next_cursor"]).ok()
    assert rest["data"] == sent[2::-1]


def test_unread_filter_and_its_pages(shared_api, agent):
    sent = [shared_api.send(agent) for _ in range(8)]
    shared_api.read_many(agent, ids=ids(sent[::2])).ok()
    unread = sent[1::2][::-1]
    first = shared_api.list(agent, unread="true", limit=2).ok()
    assert first["data"] == unread[:2] and first["pagination"]["has_more"] is True
    second = shared_api.list(agent, unread="true", limit=2, after=first["pagination"]["next_cursor"]).ok()
    assert second["data"] == unread[2:] and second["pagination"]["has_more"] is False
    assert len(shared_api.inbox(agent)) == 8


@pytest.mark.parametrize("cursor", ["x", "", "AAAA", "%00", "é", "A" * 3000, "-1", "0", "eyJ4IjoxfQ"])
def test_a_bad_cursor_is_400(shared_api, agent, cursor):
    shared_api.send(agent)
    shared_api.list(agent, after=cursor).fails(400, "invalid_request", names="after")


@pytest.mark.parametrize("cursor", ["x", "", "AAAA", "\x01", "A" * 3000, "-1"])
def test_a_bad_cursor_of_the_statistics_is_400(shared_api, cursor):
    shared_api.get("/v1/messages/stats", after=cursor).fails(400, "invalid_request", names="after")


# Broadcast ----------------------------------------------------------------------------------------

def test_broadcast_writes_one_for_each_in_order(shared_api, agent):
    to = [f"{agent}-{name}" for name in "cab"]
    sent = shared_api.broadcast(to, content="all", type="news", metadata={"k": [1]}).ok(201)
    assert set(sent) == {"data", "timestamp"}
    assert [copy["to"] for copy in sent["data"]] == to
    assert len(set(ids(sent["data"]))) == 3
    for name, copy in zip(to, sent["data"]):
        (message,) = shared_api.inbox(name)
        assert set(copy) == {"id", "to"} and set(message) == FIELDS
        assert {**message, **copy, "timestamp": sent["timestamp"]} == message
        assert message["type"] == "news" and message["metadata"] == {"k": [1]}


def test_broadcast_to_a_thousand(start):
    api = start().client()
    to = [f"a{i}" for i in range(1000)]
    assert [message["to"] for message in api.broadcast(to).ok(201)["data"]] == to
    stats = api.stats()
    assert len(stats) == 1000 and all(row["total"] == 1 for row in stats.values())
    api.broadcast(to + ["one-more"]).fails(400, "invalid_request", names="to")
    assert sum(row["total"] for row in api.stats().values()) == 1000


@pytest.mark.parametrize("to", [[], ["a", "a"], ["a", ""], ["a", "b/c"], ["a", "x" * 129], ["a", "\x01"],
                                ["a", 1], ["a", None], "a", None, {}])
def test_broadcast_writes_all_or_none(shared_api, agent, to):
    if isinstance(to, list):
        to = [agent if name == "a" else name for name in to]
    shared_api.broadcast(to).fails(400, "invalid_request", names="to")
    assert shared_api.inbox(agent) == [] and agent not in shared_api.stats()


# Limit of unread messages -------------------------------------------------------------------------

@pytest.fixture(params=[{}, {"message_tail_max": 0}], ids=["in the tail", "filed"])
def place(request):
    """Unread messages are counted in memory before they are filed, and by a statement afterwards."""
    return request.param


def test_unread_limit_refuses_and_frees(start, place):
    api = start(unread_max_per_agent=3, **place).client()
    sent = [api.send("full") for _ in range(3)]
    refused = api.post("/v1/agents/full/messages", {"from": "b", "content": "x"})
    refused.fails(429, "limit_reached", names="full")
    assert len(api.inbox("full")) == 3 and api.stats()["full"]["total"] == 3
    api.send("other")
    api.read("full", sent[0]["id"])
    assert api.send("full")["to"] == "full", "a read message counts no more"
    api.post("/v1/agents/full/messages", {"from": "b", "content": "x"}).fails(429, "limit_reached")


def test_unread_limit_in_a_broadcast_writes_nothing(start, place):
    daemon = start(unread_max_per_agent=2, **place)
    api = daemon.client()
    for _ in range(2):
        api.send("full")
    api.broadcast(["first", "full", "last"]).fails(429, "limit_reached", names="full")
    assert set(api.stats()) == {"full"}
    assert len(daemon.rows("SELECT * FROM messages")) == 2 and len(daemon.events("message.sent")) == 2
    assert len(api.broadcast(["first", "last"]).ok(201)["data"]) == 2


def test_an_inbox_that_went_comes_back(start):
    daemon = start(message_ttl_ms=1, unread_max_per_agent=2)
    api = daemon.client()
    for _ in range(3):
        for message in [api.send("a"), api.send("a")]:
            api.read("a", message["id"])
        wait_until(lambda: api.sweep()["pruned"] == 0 and "a" not in api.stats(), what="the inbox to go")
    api.send("a")
    assert api.stats()["a"]["total"] == api.stats()["a"]["unread"] == 1
    assert len(daemon.rows("SELECT * FROM inboxes")) == 1


def test_unread_limit_holds_for_requests_that_come_together(start, place):
    daemon = start(unread_max_per_agent=5, **place)
    body = b'{"from":"b","content":"x"}'
    request = (b"POST /v1/agents/full/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n" % len(body)) + body
    connections = [daemon.raw() for _ in range(20)]
    for connection in connections:
        connection.send(request)
    statuses = sorted(connection.answer("POST").status for connection in connections)
    for connection in connections:
        connection.close()
    assert statuses == [201] * 5 + [429] * 15
    assert daemon.client().stats()["full"]["unread"] == 5


# Statistics ---------------------------------------------------------------------------------------

def test_stats_count_what_happened(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=100_000, message_sweep_ms=NEVER_MS,
                request_timeout_ms=3_600_000).client()
    assert api.get("/v1/messages/stats").ok() == {"data": [], "pagination": {"next_cursor": None, "has_more": False}}
    first = api.send("a")
    clock.advance(30_000)
    second = api.send("a")
    clock.advance(12_345)
    assert api.stats() == {"a": {"agent_id": "a", "total": 2, "unread": 2, "oldest_unread_age_sec": 42}}
    api.read("a", first["id"])
    assert api.stats()["a"] == {"agent_id": "a", "total": 2, "unread": 1, "oldest_unread_age_sec": 12}
    api.read("a", second["id"])
    row = api.stats()["a"]
    assert (row["total"], row["unread"]) == (2, 0) and not row["oldest_unread_age_sec"]
    clock.advance(50_000)
    clock.advance(20_000)
    assert api.sweep()["pruned"] == 1
    assert api.stats()["a"]["total"] == 1
    clock.advance(40_000)
    assert api.sweep()["pruned"] == 1
    assert api.stats().get("a", {"total": 0})["total"] == 0


def test_stats_pages_with_long_names(start):
    api = start().client()
    names = [letter + "\u00fc" * 63 for letter in "abc"]
    api.broadcast(names).ok(201)
    assert sorted(row["agent_id"] for row in api.pages("/v1/messages/stats", limit=1)) == names


def test_stats_pages(start):
    api = start().client()
    names = [f"a{i}" for i in range(7)]
    api.broadcast(names).ok(201)
    listed, query = [], {"limit": 3}
    for pages_left in (2, 1, 0):
        page = api.get("/v1/messages/stats", **query).ok()
        listed += [row["agent_id"] for row in page["data"]]
        assert page["pagination"]["has_more"] is (pages_left > 0)
        query["after"] = page["pagination"]["next_cursor"]
    assert sorted(listed) == names and query["after"] is None


#: What the table `inboxes` counts: read messages and filed ones. The tail in memory is not in it.
COUNTED = """SELECT m.agent, count(*) AS total, count(u.id) AS unread FROM messages AS m
    LEFT JOIN messages_unread AS u USING (owner, agent, id)
    WHERE m.read = 1 OR u.id IS NOT NULL GROUP BY m.agent ORDER BY m.agent"""


@pytest.mark.parametrize("tail", [0, 4, 1000])
def test_the_inboxes_table_agrees_with_the_messages(start, tail):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS, message_tail_max=tail)
    api = daemon.client()
    for i in range(30):
        message = api.send(f"a{i % 4}")
        if i % 3 == 0:
            api.read(f"a{i % 4}", message["id"])
    api.read_many("a1", before="2100-01-01T00:00:00.000Z").ok()
    time.sleep(0.005)
    assert api.sweep()["pruned"] > 10
    counted = daemon.rows("SELECT agent, total, unread FROM inboxes WHERE total > 0 ORDER BY agent")
    assert counted == daemon.rows(COUNTED)
    assert sum(row["total"] for row in counted) + api.metric("lapse_message_tail") == len(
        daemon.rows("SELECT * FROM messages"))
    for agent, row in api.stats().items():
        assert row["total"] == row["unread"] == len(api.inbox(agent))
    assert sum(row["total"] for row in api.stats().values()) == len(daemon.rows("SELECT * FROM messages"))


def test_the_message_is_found_by_its_quoted_path(shared_api):
    name = "team a/b".replace("/", "-") + " ü%"
    sent = shared_api.send(name)
    assert shared_api.get(f"/v1/agents/{q(name)}/messages/{sent['id']}").ok() == sent
