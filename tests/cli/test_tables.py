# SPDX-License-Identifier: Apache-2.0
"""The operational tables by the command: lease, entry, dedupe, queue, oauth, outbox."""
import concurrent.futures
import json
import time

import pytest
import requests

from runner import LIMIT_S, Lapse

LEASES, ENTRIES = "workspace_leases", "connections"


@pytest.fixture
def own(start):
    """A daemon of the test's own: lists are empty at first."""
    return Lapse(start().url)


def test_a_lease(lapse, agent):
    token = int(lapse("lease", "acquire", LEASES, agent, "--holder", "me", "--ttl", "5m").out)
    assert int(lapse("lease", "acquire", LEASES, agent, "--holder", "me").out) == token  # renewed
    assert "me holds it" in lapse("lease", "acquire", LEASES, agent, "--holder", "you", code=1).err
    shown = dict(line.split(None, 1) for line in lapse("lease", "show", LEASES, agent).lines)
    assert shown["holder"] == "me" and shown["key"] == agent
    rows = [row for row in lapse.json("lease", LEASES)["data"] if row["key"] == agent]
    assert [row["fencing_token"] for row in rows] == [token]
    lapse("lease", "release", LEASES, agent, "--holder", "you", code=1)
    lapse("lease", "release", LEASES, agent, "--holder", "me", "--fencing-token", str(token - 1), code=1)
    assert lapse("lease", "release", LEASES, agent, "--holder", "me", "--fencing-token", str(token)).out \
        == f"{agent} is released\n"
    lapse("lease", "show", LEASES, agent, code=5)
    assert int(lapse("lease", "acquire", LEASES, agent, "--holder", "you").out) > token


def test_an_expired_lease_is_not_listed(own):
    own("lease", "acquire", LEASES, "k", "--holder", "me", "--ttl", "1ms")
    assert own("lease", LEASES).out == "no leases\n"


def test_an_entry(own):
    assert own("entry", ENTRIES).out == "no entries\n"
    assert own("entry", "put", ENTRIES, "edge-1", "--ttl", "1h", '{"n": 1}').out.startswith("edge-1 expires 2")
    own("entry", "put", ENTRIES, "edge-1", "--ttl", "2h")  # keeps what it has
    assert own.json("entry", "show", ENTRIES, "edge-1")["data"] == {"n": 1}
    own("entry", "put", ENTRIES, "edge-1", "-", "--ttl", "2h", stdin=b'{"n": 2}')
    head, row = own("entry", ENTRIES).lines
    assert head.split()[:3] == ["KEY", "LAST", "SEEN"] and row.split()[0] == "edge-1" and row.endswith('{"n":2}')
    assert own("entry", "rm", ENTRIES, "edge-1").out == "edge-1 is removed\n"
    own("entry", "rm", ENTRIES, "edge-1", code=5)
    assert "DATA must be a JSON object" in own("entry", "put", ENTRIES, "e", "[1]", "--ttl", "1h", code=2).err
    assert "--ttl DURATION is missing" in own("entry", "put", ENTRIES, "e", code=2).err


def test_dedupe(lapse, agent):
    words = ["dedupe", "telegram", "bot-1", "room-9", agent]
    assert lapse(*words, "--window", "1h").out.startswith("fresh; a repetition is recognized until ")
    assert "was claimed before" in lapse(*words, code=1).err
    assert lapse.json(*words, code=1, silent=True)["fresh"] is False


def test_dedupe_has_one_winner(lapse, agent):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: lapse("dedupe", "c", "a", "r", agent, code=None).code, range(16)))
    assert sorted(codes) == [0] + [1] * 15


def test_a_queue(own):
    table = "channel_inbox"
    assert own("queue", table).out == "no items\n" and own("queue", "claim", table, "--worker", "w", code=7, silent=True)
    first = own("queue", "add", table, '{"n": 1}', "--key", "room-9", "--dedupe-key", "d").out.strip()
    assert own("queue", "add", table, '{"n": 1}', "--dedupe-key", "d").out.strip() == first
    second = own("queue", "add", table, stdin=b'{"n": 2}').out.strip()
    claimed = own.json("queue", "claim", table, "--worker", "w", "--limit", "5", "--lease", "1m")["data"]
    assert [(item["id"], item["attempt"], item["payload"]) for item in claimed] == [(first, 1, {"n": 1}),
                                                                                 (second, 1, {"n": 2})]
    assert own("queue", "extend", table, first, "--worker", "w", "--attempt", "1").out == f"{first} is processing\n"
    assert "attempt" in own("queue", "complete", table, first, "--worker", "w", "--attempt", "2", code=1).err
    assert own("queue", "complete", table, first, "--worker", "w", "--attempt", "1").out == f"{first} is completed\n"
    assert own("queue", "fail", table, second, "--worker", "w", "--attempt", "1", "--error", "no luck", "--retry").out \
        == f"{second} is queued\n"
    own("queue", "claim", table, "--worker", "x")
    assert own("queue", "fail", table, second, "--worker", "x", "--attempt", "2", "--error", "never").out \
        == f"{second} is failed\n"
    assert [row["id"] for row in own.json("queue", table, "--status", "failed")["data"]] == [second]
    shown = dict(line.split(None, 1) for line in own("queue", "show", table, second).lines)
    assert shown["error"] == "never" and shown["payload"] == '{"n":2}' and shown["status"] == "failed"
    assert "--status must be" in own("queue", table, "--status", "nonsense", code=1).err


def test_a_claim_waits(own):
    process = own.start("queue", "claim", "channel_inbox", "--worker", "w", "--wait", "20s", "--json")
    time.sleep(0.2)  # most likely it waits by now; it must find the item either way
    item = own("queue", "add", "channel_inbox", "{}").out.strip()
    assert process.wait(LIMIT_S) == 0
    assert json.loads(process.stdout.read())["data"][0]["id"] == item
    process.stdout.close()
    process.stderr.close()
    own("queue", "claim", "channel_inbox", "--worker", "w", "--wait", "50ms", code=7, silent=True)


def test_an_outbox_item_answers_an_inbox_item(own):
    inbox = own("queue", "add", "channel_inbox", "{}").out.strip()
    item = own("queue", "add", "channel_outbox", "{}", "--inbox-id", inbox).out.strip()
    assert own.json("queue", "show", "channel_outbox", item)["inbox_id"] == inbox
    assert "no such item" in own("queue", "add", "channel_outbox", "{}", "--inbox-id", "0" * 16, code=1).err
    own("queue", "claim", "channel_outbox", "--worker", "w")
    own("queue", "complete", "channel_outbox", item, "--worker", "w", "--attempt", "1")
    own("queue", "show", "channel_outbox", item, code=5)  # it went with its completion


def test_a_sign_in(lapse, agent):
    assert lapse("oauth", "put", agent, "--ttl", "10m", stdin=b'{"verifier": "\xc3\xa4"}').out.startswith(
        f"{agent} expires ")
    assert json.loads(lapse("oauth", "consume", agent).out) == {"verifier": "ä"}
    lapse("oauth", "consume", agent, code=5)
    lapse("oauth", "put", agent, "{}", "--ttl", "1ms")
    time.sleep(0.005)
    assert "took too long" in lapse("oauth", "consume", agent, code=1).err
    assert "a verb is missing" in lapse("oauth", code=2).err


def test_the_log(own):
    assert own("outbox").out == "no rows\n"
    ids = [own("outbox", "add", "builds" if n % 2 else "tests", json.dumps({"n": n})).out.strip() for n in range(6)]
    rows = own.json("outbox")
    assert [row["id"] for row in rows["data"]] == ids and rows["gap"] is False
    assert [row["payload"]["n"] for row in own.json("outbox", "--topic", "builds")["data"]] == [1, 3, 5]
    assert len(own("outbox", "--jsonl").lines) == 6 and len(own("outbox", "--limit", "2", "--jsonl").lines) == 2
    cursor = rows["data"][3]["cursor"]
    assert [row["id"] for row in own.json("outbox", "--after", cursor)["data"]] == ids[4:]
    assert own("outbox", "commit", "mirror", cursor).out == f"mirror stands at {cursor}\n"
    assert [row["id"] for row in own.json("outbox", "--consumer", "mirror")["data"]] == ids[4:]
    assert own("outbox", "consumers").lines[1].split()[:3] == ["mirror", cursor, "2"]
    own("outbox", "commit", "mirror", rows["data"][0]["cursor"], code=1)
    own("outbox", "commit", "mirror", rows["data"][0]["cursor"], "--force")
    assert "not both" in own("outbox", "--after", cursor, "--consumer", "mirror", code=2).err
    own("outbox", "--after", rows["next_cursor"], "--wait", "50ms", code=7, silent=True)


def test_the_log_has_more_than_a_page(own):
    body = json.dumps({"topic": "t", "payload": {}})

    for _ in range(205):
        requests.post(own.env["LAPSE_URL"] + "/v1/outbox", data=body, timeout=10,
                      headers={"Content-Type": "application/json"}).raise_for_status()
    assert len(own("outbox", "--jsonl").lines) == 205
    assert len(own("outbox", "--jsonl", "--limit", "150").lines) == 150


def test_a_gap_is_told(stub):
    stub.script = [(200, {"data": [], "next_cursor": "1." + "0" * 16, "gap": True})]
    ran = Lapse(stub.url)("outbox", "--after", "1." + "0" * 16, code=None)
    assert ran.code == 0 and ran.out == "no rows\n" and "were removed" in ran.err


def test_errors_speak_of_flags(lapse):
    assert "--lease must be" in lapse("queue", "claim", "channel_inbox", "--worker", "w", "--lease", "2d", code=1).err
    assert "--inbox-id must be" in lapse("queue", "add", "channel_outbox", "{}", "--inbox-id", "x", code=1).err
    assert "--ttl must be" in lapse("entry", "put", ENTRIES, "k", "--ttl", "9000d", code=1).err


@pytest.mark.parametrize("words", [["lease", "nonsense"], ["entry", "nonsense"], ["queue", "nonsense"],
                                   ["lease", "show", "connections", "k"]])
def test_no_such_table(lapse, words):
    assert "there is no" in lapse(*words, code=5).err


@pytest.mark.parametrize("words, says", [
    (["lease"], "TABLE is missing"), (["lease", "acquire", LEASES, "k"], "--holder NAME is missing"),
    (["queue", "claim", "channel_inbox"], "--worker NAME is missing"), (["dedupe", "a", "b"], "CONTAINER is missing"),
    (["lease", "aquire", LEASES, "k"], "acquire")])
def test_usage(words, says):
    assert says in Lapse("http://127.0.0.1:1")(*words, code=2).err


def test_hostile_data_stays_on_its_line(lapse, agent):
    """What others stored cannot write to the terminal of the one who looks."""
    lapse("entry", "put", ENTRIES, agent, json.dumps({"x": "\x1b[31m\u202e\x7f"}), "--ttl", "1h")
    for words in (["entry", "show", ENTRIES, agent], ["entry", ENTRIES]):
        out = lapse(*words).out
        assert "\x1b" not in out and "\u202e" not in out and "\x7f" not in out
    lapse("oauth", "put", agent, json.dumps({"x": "\x1b\u202e\x7f"}), "--ttl", "1h")
    out = lapse("oauth", "consume", agent).out
    assert "\u202e" not in out and "\x7f" not in out and json.loads(out) == {"x": "\x1b\u202e\x7f"}


def test_a_failed_item_is_tried_again(own):
    item = own("queue", "add", "channel_inbox", '{"n": 1}').out.strip()
    own("queue", "claim", "channel_inbox", "--worker", "w", "--limit", "1")
    assert "not failed" in own("queue", "retry", "channel_inbox", item, code=1).err
    own("queue", "fail", "channel_inbox", item, "--worker", "w", "--attempt", "1", "--error", "no luck")
    assert own("queue", "retry", "channel_inbox", item).out == f"{item} is queued\n"
