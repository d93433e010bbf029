# SPDX-License-Identifier: Apache-2.0
"""The mailbox routes with the provider local: the contract, owners, limits, mail, holds, time."""
import itertools
import json

import pytest

from harness import Clock, DAY_MS, HOUR_MS, NEVER_MS, run_to_end, wait_until
from mailrig import DOMAIN, Rig, TTL_MS, iso

_names = itertools.count()


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def rig(start, clock):
    return Rig(start, clock)


@pytest.fixture
def name():
    return f"box{next(_names)}"


def send(rig, box, **fields):
    return rig.api.post(f"/v1/mailboxes/{box['id']}/send", {"subject": "hi", "body": "hello", **fields})


def mails(rig, box, **query):
    return rig.api.get(f"/v1/mailboxes/{box['id']}/messages", **query)


def mail(rig, box, message_id):
    return rig.api.get(f"/v1/mailboxes/{box['id']}/messages/{message_id}")


def read_mail(rig, box, message_id):
    return rig.api.post(f"/v1/mailboxes/{box['id']}/messages/{message_id}/read")


# Creating -----------------------------------------------------------------------------------------

def test_a_mailbox_as_the_contract_shows_it(rig):
    answer = rig.api.post("/v1/mailboxes", {"username": "alice"})
    box = answer.ok(201)
    assert list(box) == ["id", "address", "username", "domain", "status", "created_at", "expires_at",
                         "cleanup"]
    assert box["id"].startswith("mbx_") and len(box["id"]) == 20
    assert (box["address"], box["username"], box["domain"]) == (f"alice@{DOMAIN}", "alice", DOMAIN)
    assert box["status"] == "active" and box["cleanup"] == {"state": "clean", "attempts": 0}
    assert answer.headers["Sunset"] == "Mon, 02 Mar 2026 12:00:00 GMT"
    got = rig.api.get(f"/v1/mailboxes/{box['id']}")
    assert got.ok() == box and got.headers["ETag"] == answer.headers["ETag"]
    assert got.headers["Sunset"] == answer.headers["Sunset"]


def test_a_body_is_optional_and_names_are_made_up(rig):
    boxes = [rig.api.post("/v1/mailboxes").ok(201) for _ in range(20)]
    assert len({box["username"] for box in boxes}) == 20
    for box in boxes:
        assert rig.api.post("/v1/mailboxes", {"username": box["username"]}).status == 409


def test_capital_letters_are_the_same_name(rig):
    assert rig.create("Alice")["address"] == f"alice@{DOMAIN}"
    rig.api.post("/v1/mailboxes", {"username": "ALICE"}).fails(409, "conflict", "username")
    rig.api.post("/v1/mailboxes", {"username": "bob", "domain": DOMAIN.upper()}).ok(201)


@pytest.mark.parametrize("username", ["ab", "a" * 33, ".abc", "abc.", "-abc", "a..b", "a.-b", "a_b", "a b",
                                      "a@b", "äbc", "a\nb", "a\r\nRCPT", "", "../../x", "a" * 300])
def test_bad_usernames(rig, username):
    rig.api.post("/v1/mailboxes", {"username": username}).fails(400, "invalid_request", "username")
    assert rig.api.get("/v1/mailboxes").data == []


@pytest.mark.parametrize("domain", ["", "-x.test", "x..test", "x_y.test", "x.test.", "x test", "other.test",
                                    "x\n.test", "a" * 64 + ".test", "é.test"])
def test_bad_domains(rig, domain):
    rig.api.post("/v1/mailboxes", {"username": "alice", "domain": domain}).fails(
        400, "invalid_request", "domain")


@pytest.mark.parametrize("ttl_ms", [0, -1, 299_999, 604_800_001, 10 ** 18, 10 ** 30, "300000", 1.5, True, None, [], {}])
def test_bad_lifetimes(rig, name, ttl_ms):
    made = rig.api.post("/v1/mailboxes", {"ttl_ms": ttl_ms}).fails(400, "invalid_request")
    box = rig.create(name)
    renewed = rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": ttl_ms}).fails(400, "invalid_request")
    assert rig.get(box) == box
    if type(ttl_ms) is int and ttl_ms < 2 ** 63:  # the range that is said is the one that is meant
        assert made["message"] == renewed["message"] == "ttl_ms must be between 300000 and 604800000"


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"x"', b'{"username":"abc","username":"abd"}',
                                  b'{"password":"x"}', b'{"username":7}', b'{"domain":null}', b"\xff"])
def test_bodies_that_are_no_wish(rig, body):
    answer = rig.api.request("POST", "/v1/mailboxes", body=body, headers={"Content-Type": "application/json"})
    answer.fails(400, "invalid_request")
    assert rig.api.get("/v1/mailboxes").data == []


def test_the_number_of_mailboxes_is_bounded(start, clock):
    rig = Rig(start, clock, mailboxes_max=3)
    boxes = [rig.create() for _ in range(3)]
    rig.api.post("/v1/mailboxes").fails(429, "limit_reached", "mailboxes_max")
    rig.api.delete(f"/v1/mailboxes/{boxes[0]['id']}").ok()
    rig.create()
    rig.pass_deadline()
    rig.api.get("/v1/mailboxes")
    rig.create()  # expired ones do not count


def test_an_idempotency_key_makes_a_retry_safe(rig):
    key = {"Idempotency-Key": "k1"}
    first = rig.api.post("/v1/mailboxes", {"ttl_ms": TTL_MS}, headers=key)
    again = rig.api.post("/v1/mailboxes", {"ttl_ms": TTL_MS}, headers=key)
    assert again.ok(201) == first.ok(201) and again.headers["Idempotency-Replayed"] == "true"
    rig.api.post("/v1/mailboxes", {"ttl_ms": TTL_MS + 1}, headers=key).fails(422, "unprocessable")
    assert len(rig.api.get("/v1/mailboxes").data) == 1
    taken = {"username": first.ok(201)["username"]}
    rig.api.post("/v1/mailboxes", taken, headers={"Idempotency-Key": "k2"}).fails(409, "conflict", "username")
    rig.pass_deadline()
    assert rig.api.post("/v1/mailboxes", taken, headers={"Idempotency-Key": "k2"}).ok(201)  # it really ran


# Owners and lists ---------------------------------------------------------------------------------

def test_what_is_not_yours_is_not_there(rig):
    box = rig.create("alice")
    other = rig.daemon.client(owner="somebody-else")
    path = f"/v1/mailboxes/{box['id']}"
    for answer in (other.get(path), other.delete(path), other.post(path + "/renew", {}),
                   other.get(path + "/messages"), other.get(path + "/messages/0000000000000001"),
                   other.post(path + "/send", {"to": box["address"], "subject": "x"})):
        answer.fails(404, "not_found")
    assert other.get("/v1/mailboxes", include_expired="true").data == []
    other.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict", "username")  # one address, one mailbox
    assert rig.get(box) == box


@pytest.mark.parametrize("id", ["x", "mbx_", "mbx_0", "mbx_000000000000000g", "mbx_0000000000000001", "0000000000000001",
                                "mbx_00000000000000010", "MBX_0000000000000001", "%00", "mbx_ffffffffffffffff"])
def test_ids_that_are_none(rig, id):
    assert rig.api.get(f"/v1/mailboxes/{id}").status in (400, 404)
    rig.api.get(f"/v1/mailboxes/mbx_{'1' * 16}").fails(404, "not_found")


def test_lists_are_paged_newest_first(rig):
    boxes = [rig.create()["id"] for _ in range(7)]
    rig.pass_deadline()
    boxes += [rig.create()["id"] for _ in range(6)]
    page = rig.api.get("/v1/mailboxes", limit=4).ok()
    assert [b["id"] for b in page["data"]] == boxes[:8:-1] and page["pagination"]["has_more"]
    assert [b["id"] for b in rig.api.pages("/v1/mailboxes", limit=2)] == boxes[:6:-1]
    everything = list(rig.api.pages("/v1/mailboxes", limit=3, include_expired="true"))
    assert [b["id"] for b in everything] == boxes[::-1]
    assert [b["status"] for b in everything] == ["active"] * 6 + ["expired"] * 7
    rig.api.get("/v1/mailboxes", include_expired="yes").fails(400, "invalid_request", "include_expired")
    rig.api.get("/v1/mailboxes", expired="true").fails(400, "invalid_request", "expired")
    rig.api.get("/v1/mailboxes", after="nonsense").fails(400, "invalid_request", "after")


# Renewing and deleting ----------------------------------------------------------------------------

def test_a_renewal_counts_from_now_and_may_shorten(rig):
    box = rig.create(ttl_ms=DAY_MS)
    rig.clock.advance(1000)
    renewed = rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": TTL_MS})
    assert renewed.ok()["expires_at"] == "2026-03-01T12:05:01.000Z"
    assert renewed.headers["Sunset"] == "Sun, 01 Mar 2026 12:05:01 GMT"
    rig.pass_deadline()
    assert rig.get(box)["status"] == "expired"
    assert [e["expires_at"] for e in rig.events("renewed")] == ["2026-03-01T12:05:01.000Z"]


def test_renew_honours_if_match(rig):
    box = rig.create()
    path = f"/v1/mailboxes/{box['id']}"
    etag = rig.api.get(path).headers["ETag"]
    rig.clock.advance(1)
    renewed = rig.api.post(path + "/renew", {"ttl_ms": TTL_MS}, headers={"If-Match": etag})
    assert renewed.ok() and renewed.headers["ETag"] != etag
    rig.api.post(path + "/renew", {}, headers={"If-Match": etag}).fails(412, "precondition_failed")
    rig.api.post(path + "/renew", {}, headers={"If-Match": "*"}).ok()


def test_at_the_very_millisecond_it_lives_and_can_be_renewed(rig):
    box, late = rig.create(), rig.create()
    rig.clock.advance(TTL_MS)
    assert rig.get(box)["status"] == "active"
    rig.api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": TTL_MS}).ok()
    rig.clock.advance(1)
    assert rig.get(box)["status"] == "active"
    rig.api.post(f"/v1/mailboxes/{late['id']}/renew", {}).fails(410, "expired")
    assert rig.get(late)["status"] == "expired"


def test_a_deleted_mailbox_is_gone_with_its_mail(rig):
    box = rig.create("alice")
    send(rig, box, to=box["address"]).ok()
    assert rig.api.delete(f"/v1/mailboxes/{box['id']}").ok() == {"id": box["id"], "deleted": True}
    for answer in (rig.api.get(f"/v1/mailboxes/{box['id']}"), mails(rig, box),
                   rig.api.delete(f"/v1/mailboxes/{box['id']}"), send(rig, box, to=box["address"])):
        answer.fails(404, "not_found")
    assert rig.row(box) is None and rig.daemon.rows("SELECT * FROM mailbox_messages") == []
    assert rig.create("alice")["id"] != box["id"]
    assert [e["id"] for e in rig.events("deleted")] == [box["id"]]


def test_an_expired_one_can_be_deleted_and_its_address_used_again(rig):
    box = rig.create("alice")
    rig.pass_deadline()
    again = rig.create("alice") if rig.get(box)["status"] == "expired" else None
    assert again["address"] == box["address"] and rig.get(box)["status"] == "expired"
    rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
    rig.api.get(f"/v1/mailboxes/{box['id']}").fails(404, "not_found")
    assert rig.get(again)["status"] == "active"


def test_expired_rows_are_kept_thirty_days_and_then_go(start, clock):
    rig = Rig(start, clock, event_keep_ms=365 * DAY_MS)
    box = rig.create()
    rig.pass_deadline()
    rig.get(box)
    clock.advance(30 * DAY_MS - 1)
    assert rig.sweep()["tables"]["mailboxes_expired"] == 0
    assert rig.get(box)["status"] == "expired"
    clock.advance(1)
    assert rig.sweep()["tables"]["mailboxes_expired"] == 1
    rig.api.get(f"/v1/mailboxes/{box['id']}").fails(404, "not_found")
    (event,) = rig.events("deleted")
    assert event["table"] == "mailboxes_expired" and event["count"] == 1


# Mail ---------------------------------------------------------------------------------------------

def test_mail_from_one_mailbox_to_others(rig):
    alice, bob, carol, dave = (rig.create(n) for n in ("alice", "bob", "carol", "dave"))
    sent = send(rig, alice, to=bob["address"], cc=[carol["address"]], bcc=dave["address"], subject="Grüße",
                body="first line\nsecond", html="<p>first</p>").ok()
    assert sent["status"] == "sent" and list(sent) == ["message_id", "status"]
    for box in (bob, carol, dave):
        (item,) = mails(rig, box).data
        assert list(item) == ["id", "from", "to", "cc", "subject", "preview", "received_at", "read"]
        assert (item["from"], item["to"], item["cc"]) == (alice["address"], [bob["address"]], [carol["address"]])
        assert (item["subject"], item["preview"], item["read"]) == ("Grüße", "first line second", False)
        whole = read_mail(rig, box, item["id"]).ok()
        assert whole == {**item, "read": True, "body": "first line\nsecond", "html": "<p>first</p>",
                         "truncated": False, "attachments": []}
        assert mails(rig, box).data == [{**item, "read": True}]
    (copy,) = mails(rig, alice, folder="sent").data
    assert copy["id"] == sent["message_id"] and copy["read"]
    assert mails(rig, alice).data == []
    assert [m["id"] for m in mails(rig, alice, folder="all").data] == [copy["id"]]
    assert mails(rig, alice, folder="drafts").data == mails(rig, alice, folder="junk").data == []


def test_mail_to_oneself_and_twice_the_same_address(rig):
    alice = rig.create("alice")
    send(rig, alice, to=[alice["address"], alice["address"].upper()], cc=alice["address"]).ok()
    assert len(mails(rig, alice).data) == 1
    assert len(mails(rig, alice, folder="all").data) == 2


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_an_unknown_address_stops_all_of_it(rig, field):
    alice, bob = rig.create("alice"), rig.create("bob")
    fields = {"to": bob["address"], field: [bob["address"], f"nobody@{DOMAIN}"]}
    assert f"nobody@{DOMAIN}" in send(rig, alice, **fields).fails(400, "invalid_request", field)["message"]
    fields[field] = "somebody@gmail.com"
    assert "somebody@gmail.com" in send(rig, alice, **fields).fails(400, "invalid_request", field)["message"]
    assert mails(rig, bob).data == [] and mails(rig, alice, folder="all").data == []


def test_expired_mailboxes_do_not_receive(rig):
    alice, bob = rig.create("alice", ttl_ms=DAY_MS), rig.create("bob")
    rig.clock.advance(TTL_MS)
    send(rig, alice, to=bob["address"]).ok()
    rig.clock.advance(1)
    send(rig, alice, to=bob["address"]).fails(400, "invalid_request", "to")
    mails(rig, bob).fails(410, "expired")


HOSTILE = ["", "x", "@", "a@", "@b", "a@b\r\nBcc: c@d", "a\n@b", "<a@b>", "A <a@b>", "a@b, c@d", "a b@c", '"a"@b', "ü@b",
           "a@b c", "a" * 65 + "@b", "a@" + "b" * 254]


@pytest.mark.parametrize("address", HOSTILE)
@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_addresses_that_are_none(shared_rig, field, address):
    rig, alice = shared_rig
    fields = {"to": alice["address"], field: [alice["address"], address]}
    send(rig, alice, **fields).fails(400, "invalid_request", field)
    fields[field] = address
    send(rig, alice, **fields).fails(400, "invalid_request", field)


@pytest.mark.parametrize("change", [{"subject": "a\r\nBcc: x@y"}, {"subject": "a\nb"}, {"subject": "a\tb"}, {"subject": 7},
                                    {"subject": "x" * 999}, {"subject": None}, {"to": []}, {"to": {}}, {"to": 7},
                                    {"to": [7]}, {"to": None}, {"body": 7}, {"html": []}, {"from": "me@x"},
                                    {"cc": [["a@b"]]}, {"to": ["a@b"] * 101}, {"attachments": []}])
def test_mails_that_are_none(shared_rig, change):
    rig, alice = shared_rig
    body = {"to": alice["address"], "subject": "hi", "body": "x", **change}
    rig.api.post(f"/v1/mailboxes/{alice['id']}/send", body).fails(
        400, "invalid_request", next(iter(change)))


def test_what_may_be_left_out(shared_rig):
    rig, alice = shared_rig
    path = f"/v1/mailboxes/{alice['id']}/send"
    rig.api.post(path, {"subject": "hi"}).fails(400, "invalid_request", "to")
    rig.api.post(path, {"to": alice["address"]}).fails(400, "invalid_request", "subject")
    sent = rig.api.post(path, {"to": alice["address"], "subject": ""}).ok()
    whole = mail(rig, alice, sent["message_id"]).ok()
    assert (whole["body"], whole["html"], whole["preview"], whole["subject"]) == ("", None, "", "")
    sent = rig.api.post(path, {"to": alice["address"], "subject": "h", "html": "<b>a &amp; b</b>"}).ok()
    whole = mail(rig, alice, sent["message_id"]).ok()
    assert (whole["body"], whole["preview"]) == (None, "a &amp; b")


@pytest.fixture(scope="module")
def shared_rig(shared):
    class Shared:
        api = shared.client()
    alice = Shared.api.post("/v1/mailboxes", {"username": "alice"}).ok(201)
    return Shared, alice


def test_a_hundred_recipients_and_not_one_more(start, clock):
    rig = Rig(start, clock)
    boxes = [rig.create()["address"] for _ in range(100)]
    alice = rig.create("alice")
    send(rig, alice, to=boxes[:40], cc=boxes[40:80], bcc=boxes[80:]).ok()
    assert len(rig.daemon.rows("SELECT 1 FROM mailbox_messages WHERE folder = 'inbox'")) == 100
    send(rig, alice, to=boxes[:60], cc=boxes[60:], bcc=alice["address"]).fails(400, "invalid_request", "to")


def test_many_copies_of_a_large_mail_are_refused(start, clock):
    rig = Rig(start, clock)
    boxes = [rig.create()["address"] for _ in range(40)]
    alice = rig.create("alice")
    send(rig, alice, to=boxes, body="x" * 500_000).fails(413, "too_large", "to")
    assert rig.daemon.rows("SELECT 1 FROM mailbox_messages") == []
    send(rig, alice, to=boxes[:20], body="x" * 500_000).ok()


def test_a_preview_is_short_and_whole_characters(shared_rig):
    rig, alice = shared_rig
    for text in ("€" * 100, "a" + "€" * 100, "aa" + "€" * 100, "😀" * 60, "x" * 300):
        sent = send(rig, alice, to=alice["address"], body=text).ok()
        (found,) = [m for m in mails(rig, alice, folder="all", limit=100).data if m["id"] == sent["message_id"]]
        assert text.startswith(found["preview"]) and 196 <= len(found["preview"].encode()) <= 200


def test_mail_is_paged(rig):
    alice = rig.create("alice")
    for i in range(7):
        send(rig, alice, to=alice["address"], subject=str(i)).ok()
    path = f"/v1/mailboxes/{alice['id']}/messages"
    assert [m["subject"] for m in rig.api.pages(path, limit=2)] == list("6543210")
    assert len(list(rig.api.pages(path, limit=3, folder="all"))) == 14
    rig.api.get(path, after="nonsense").fails(400, "invalid_request", "after")
    rig.api.get(path, folder="trash").fails(400, "invalid_request", "folder")
    for message_id in ("x", "0000000000000001", "mbx_1", "é", "a" * 300):
        from client import q
        mail(rig, alice, q(message_id)).fails(404, "not_found")


def test_a_mail_belongs_to_its_mailbox(rig):
    alice, bob = rig.create("alice"), rig.create("bob")
    sent = send(rig, alice, to=alice["address"]).ok()
    mail(rig, bob, sent["message_id"]).fails(404, "not_found")


def test_an_idempotency_key_sends_once(rig):
    alice = rig.create("alice")
    answers = [rig.api.post(f"/v1/mailboxes/{alice['id']}/send", {"to": alice["address"], "subject": "x"},
                            headers={"Idempotency-Key": "s1"}).ok() for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert len(mails(rig, alice).data) == 1
    rig.pass_deadline()  # the first answer is still the answer
    assert rig.api.post(f"/v1/mailboxes/{alice['id']}/send", {"to": alice["address"], "subject": "x"},
                        headers={"Idempotency-Key": "s1"}).ok() == answers[0]
    rig.api.post(f"/v1/mailboxes/{alice['id']}/send", {"to": alice["address"], "subject": "x"},
                 headers={"Idempotency-Key": "s2"}).fails(410, "expired")
    assert rig.daemon.rows("SELECT 1 FROM idempotency_keys WHERE key = 's2'") == []


def test_read_mail_goes_after_a_day_unread_mail_stays(start, clock):
    rig = Rig(start, clock, mailbox_max_ttl_ms=30 * DAY_MS, mailbox_sweep_ms=NEVER_MS)
    alice = rig.create("alice", ttl_ms=30 * DAY_MS)
    read, unread = (send(rig, alice, to=alice["address"], subject=s).ok() for s in ("read", "unread"))
    items = {m["subject"]: m["id"] for m in mails(rig, alice).data}
    read_mail(rig, alice, items["read"]).ok()
    clock.advance(DAY_MS)
    assert rig.sweep()["tables"]["mailbox_messages"] == 0
    clock.advance(1)
    assert [m["subject"] for m in mails(rig, alice, folder="all").data] == ["unread"]  # swept or not
    mail(rig, alice, items["read"]).fails(404, "not_found")
    assert rig.sweep()["tables"]["mailbox_messages"] == 3  # with the two copies of the sender
    assert [m["subject"] for m in mails(rig, alice).data] == ["unread"]
    assert rig.daemon.rows("SELECT total, unread FROM mailbox_boxes") == [{"total": 1, "unread": 1}]
    assert sum(e["count"] for e in rig.daemon.events("message.pruned")) == 3
    assert read != unread


def test_unread_mail_is_bounded_by_refusal(start, clock):
    rig = Rig(start, clock, mailbox_unread_max=3)
    alice, bob = rig.create("alice"), rig.create("bob")
    for _ in range(3):
        send(rig, alice, to=bob["address"]).ok()
    send(rig, alice, to=[alice["address"], bob["address"]]).fails(429, "limit_reached", "to")
    assert mails(rig, alice).data == []  # all or none
    read_mail(rig, bob, mails(rig, bob).data[0]["id"]).ok()
    send(rig, alice, to=bob["address"]).ok()


# Time, holds, the rest ----------------------------------------------------------------------------

def test_the_deadline_comes_by_itself(start):
    rig = Rig(start, mailbox_min_ttl_ms=1, mailbox_sweep_ms=NEVER_MS)
    box = rig.create(ttl_ms=50)
    wait_until(lambda: rig.row(box)["status"] == "expired", what="the deadline")
    assert [e["id"] for e in rig.events("expired")] == [box["id"]]
    assert rig.daemon.metric("lapse_live_rows", table="mailboxes") == 0
    assert rig.daemon.metric("lapse_live_rows", table="mailboxes_expired") == 1
    assert rig.daemon.metric("lifecycle_prune_rows_total", scheduler="mailboxes", table="mailboxes") == 1


def test_a_held_mailbox_is_over_but_nothing_of_it_goes(rig):
    alice, bob = rig.create("alice"), rig.create("bob", ttl_ms=DAY_MS)
    send(rig, bob, to=alice["address"]).ok()
    rig.api.put(f"/v1/holds/mailboxes/{alice['id']}", {"reason": "evidence"}).ok()
    rig.api.delete(f"/v1/mailboxes/{alice['id']}").fails(409, "conflict")
    rig.pass_deadline()
    assert rig.get(alice)["status"] == "expired" and rig.get(alice)["cleanup"]["state"] == "pending"
    mails(rig, alice).fails(410, "expired")
    send(rig, bob, to=alice["address"]).fails(400, "invalid_request", "to")
    rig.api.post(f"/v1/mailboxes/{alice['id']}/renew", {}).fails(410, "expired")
    assert [b["id"] for b in rig.api.get("/v1/mailboxes").data] == [bob["id"]]
    assert rig.sweep()["expired"] == 0
    assert rig.row(alice)["status"] == "active"
    assert len(rig.daemon.rows("SELECT 1 FROM mailbox_messages WHERE folder = 'inbox'")) == 1
    rig.api.post("/v1/mailboxes", {"username": "alice"}).fails(409, "conflict")
    rig.api.delete(f"/v1/holds/mailboxes/{alice['id']}").ok()
    wait_until(lambda: rig.row(alice)["status"] == "expired", what="its deadline counts at once")
    assert rig.get(alice)["cleanup"] == {"state": "clean", "attempts": 0}
    assert rig.daemon.rows("SELECT 1 FROM mailbox_messages WHERE folder = 'inbox'") == []


def test_the_end_of_a_hold_is_a_deadline(rig):
    """Nobody releases it: no look and no sweep is needed once its end has passed."""
    box = rig.create("alice")
    end = iso(rig.clock.now_ms + TTL_MS + 60_000)
    rig.api.put(f"/v1/holds/mailboxes/{box['id']}", {"reason": "evidence", "until": end}).ok()
    rig.pass_deadline()
    rig.sweep()
    assert rig.row(box)["status"] == "active"
    rig.clock.advance(60_000)
    wait_until(lambda: rig.api.get("/healthz").ok() and rig.row(box)["status"] == "expired", what="the hold's end")
    rig.create("alice")


def test_holds_name_mailboxes_by_their_id(rig):
    box = rig.create()
    for key in (box["id"][4:], "mbx_0000000000000001", "nonsense"):
        rig.api.put(f"/v1/holds/mailboxes/{key}", {"reason": "x"}).fails(404, "not_found")
    rig.api.put(f"/v1/holds/mailboxes/{box['id']}", {"reason": "x"}).ok()
    rig.api.put("/v1/holds/mailboxes_expired/x", {"reason": "x"}).fails(400, "invalid_request", "table")


def test_a_dry_run_tells_and_changes_nothing(rig):
    boxes = [rig.create() for _ in range(3)]
    rig.pass_deadline_unseen(boxes)
    answer = rig.sweep(dry_run="true")
    assert (answer["dry_run"], answer["expired"]) == (True, 3)
    assert all(rig.row(box)["status"] == "active" for box in boxes)
    assert rig.sweep()["expired"] == 3


def test_a_leap_of_the_clock_expires_nothing(start, tmp_path):
    clock = Clock(tmp_path, wall_only=True)
    rig = Rig(start, clock)
    box = rig.create()
    clock.advance(2 * HOUR_MS)
    assert rig.get(box)["status"] == "active"
    assert rig.sweep()["expired"] == 0
    rig.api.post("/v1/clock/accept").ok()
    assert rig.get(box)["status"] == "expired"


def test_it_survives_a_restart(rig):
    box, over = rig.create("alice", ttl_ms=DAY_MS), rig.create("bob")
    send(rig, box, to=box["address"]).ok()
    rig.daemon.stop()
    rig.pass_deadline()
    rig.daemon.start()
    rig.api = rig.daemon.client()
    wait_until(lambda: rig.api.get("/healthz").ok() and rig.row(over)["status"] == "expired", what="its deadline")
    assert rig.get(box) == box and len(mails(rig, box).data) == 1


def test_no_secret_is_shown(rig):
    box = rig.create("alice")
    assert "secret" not in json.dumps(rig.get(box)) and "password" not in rig.daemon.log()


# Settings -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, names", [
    (["--mailbox-min-ttl-ms=100000000"], "mailbox_default_ttl_ms"),
    (["--mailbox-max-ttl-ms=3600000"], "mailbox_default_ttl_ms"),
    (["--mailbox-default-ttl-ms=1"], "mailbox_min_ttl_ms"),
    (["--mailbox-domain=not a domain"], "mailbox_domain"),
    (["--mailbox-sweep-batch=0"], "mailbox_sweep_batch"),
])
def test_settings_that_do_not_fit_stop_the_start(tmp_path, args, names):
    code, log = run_to_end(tmp_path / "data", *args)
    assert code != 0 and names in log and len(log.strip().splitlines()) == 1


@pytest.mark.parametrize("env, names", [
    ({"RELAY_DEFAULT_TTL_MS": "600000", "LAPSE_MAILBOX_DEFAULT_TTL_MS": "700000"}, "RELAY_DEFAULT_TTL_MS"),
    ({"RELAY_SWEEP_BATCH_SIZE": "many"}, "RELAY_SWEEP_BATCH_SIZE"),
    ({"RELAY_MIN_TTL_MS": "999999999"}, "mailbox_min_ttl_ms"),
])
def test_aliases_that_do_not_fit_stop_the_start(tmp_path, env, names):
    code, log = run_to_end(tmp_path / "data", env=env)
    assert code != 0 and names in log


def test_an_alias_may_say_the_same(start):
    rig = Rig(start, env={"RELAY_MAX_TTL_MS": "90000000", "LAPSE_MAILBOX_MAX_TTL_MS": "90000000"})
    rig.api.post("/v1/mailboxes", {"ttl_ms": 90_000_001}).fails(400, "invalid_request", "90000000")
