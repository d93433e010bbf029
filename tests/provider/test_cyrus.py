# SPDX-License-Identifier: Apache-2.0
"""The JMAP client against a real server, Cyrus: what the double cannot prove is proven here."""
import email.message
import email.policy
import time

import pytest
from cyrus import USERS, Cyrus
from driver import Driver

ALICE, BOB, CAROL = USERS


@pytest.fixture(scope="module")
def cyrus():
    with Cyrus() as c:
        yield c


@pytest.fixture
def drive(cyrus):
    with Driver(cyrus.url, "admin:unused", timeout_ms=10000) as d:
        yield d


def of(user, **fields):
    return {"address": user, "secret": USERS[user], **fields}


def listed(drive, user, **fields):
    return drive.ok("list", **of(user, **fields))["mails"]


def find(drive, user, subject, **fields):
    """The one mail with this subject; delivery takes a moment."""
    for _ in range(100):
        found = [m for m in listed(drive, user, limit=100, **fields) if m["subject"] == subject]
        if found:
            assert len(found) == 1
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no mail '{subject}' for {user}")


def read(drive, user, i):
    mail, = drive.ok("get", **of(user, id=i))["mails"]
    return mail


def message(subject, **headers):
    m = email.message.EmailMessage(policy=email.policy.SMTP)
    m["From"], m["To"], m["Subject"] = "Post <post@far.test>", "alice@example.test", subject
    for name, value in headers.items():
        m[name] = value
    return m


def test_a_mail_as_it_came(cyrus, drive):
    m = message("Grüße aus dem Netz", Cc="Carol <carol@example.test>, dave@far.test")
    m.set_content("Ein Text mit Umlauten: äöü\n")
    cyrus.deliver(ALICE, m.as_bytes())
    mail = find(drive, ALICE, "Grüße aus dem Netz")
    assert mail["from"] == "post@far.test" and mail["to"] == [ALICE] and not mail["read"]
    assert mail["cc"] == [CAROL, "dave@far.test"] and mail["preview"].startswith("Ein Text")
    got = read(drive, ALICE, mail["id"])
    assert got["text"].strip() == "Ein Text mit Umlauten: äöü" and got["html"] is None and not got["truncated"]
    assert mail["received_at"].startswith("20") and got["received_at"] == mail["received_at"]


def test_only_html(cyrus, drive):
    m = message("only html")
    m.set_content("<p>Hello <b>there</b></p>", subtype="html")
    cyrus.deliver(ALICE, m.as_bytes())
    got = read(drive, ALICE, find(drive, ALICE, "only html")["id"])
    assert got["text"] is None and "<b>there</b>" in got["html"]


def test_text_and_html(cyrus, drive):
    m = message("both")
    m.set_content("plain\n")
    m.add_alternative("<p>html</p>", subtype="html")
    cyrus.deliver(ALICE, m.as_bytes())
    got = read(drive, ALICE, find(drive, ALICE, "both")["id"])
    assert got["text"].strip() == "plain" and "<p>html</p>" in got["html"]


def test_several_parts_and_an_attachment(cyrus, drive):
    m = message("parts")
    m.set_content("first\n")
    m.make_mixed()
    for part in ("second\n", "third\n"):
        inner = email.message.EmailMessage(policy=email.policy.SMTP)
        inner.set_content(part)
        m.attach(inner)
    m.add_attachment(b"\x89PNG" + bytes(100), maintype="image", subtype="png", filename="x.png")
    cyrus.deliver(ALICE, m.as_bytes())
    got = read(drive, ALICE, find(drive, ALICE, "parts")["id"])
    assert [line.strip() for line in got["text"].split()] == ["first", "second", "third"]


def test_a_long_body_is_cut(cyrus, drive):
    m = message("long")
    m.set_content("x" * 70 + "\n", cte="7bit")
    m.set_payload(("x" * 70 + "\r\n") * 10000)
    cyrus.deliver(ALICE, m.as_bytes())
    got = read(drive, ALICE, find(drive, ALICE, "long")["id"])
    assert got["truncated"] and 200000 < len(got["text"]) <= 262144


def test_hardly_a_mail(cyrus, drive):
    cyrus.deliver(CAROL, "X-Odd: yes\r\n\r\n")
    mail = find(drive, CAROL, "")
    assert (mail["from"], mail["to"]) == ("", [])
    read(drive, CAROL, mail["id"])


def test_pages(cyrus, drive):
    for i in range(12):
        m = message(f"page {i}")
        m.set_content("x\n")
        cyrus.deliver(CAROL, m.as_bytes())
    whole = [m["id"] for m in listed(drive, CAROL, limit=100)]
    assert len(whole) >= 12
    seen, after = [], {}
    while True:
        page = drive.ok("list", **of(CAROL, limit=5, **after))
        assert 1 <= len(page["mails"]) <= 5
        seen += [m["id"] for m in page["mails"]]
        if page["next_cursor"] is None:
            break
        after = {"after": page["next_cursor"]}
    assert seen == whole
    assert drive.ok("list", **of(CAROL, limit=len(whole)))["next_cursor"] is None


@pytest.mark.parametrize("cursor", ("Mffffffffffffffffffffffff", "nonsense", "-"))
def test_cursors_that_are_none(drive, cursor):
    answer = drive("list", **of(ALICE, after=cursor))
    assert (answer["err"], answer["field"]) == ("EINVAL", "after")


@pytest.mark.parametrize("i", ("Mffffffffffffffffffffffff", "nonsense", "-", "a/b"))
def test_no_such_mail(drive, i):
    assert drive("get", **of(ALICE, id=i))["err"] == "ENOTFOUND"


def test_send_between_two(cyrus, drive):
    sent = drive.ok("send", **of(ALICE, to=[BOB], cc=[CAROL], subject="to bob & carol", text="héllo\n",
                                 html="<p>héllo</p>"))
    for user in (BOB, CAROL):
        got = read(drive, user, find(drive, user, "to bob & carol")["id"])
        assert (got["from"], got["to"], got["cc"]) == (ALICE, [BOB], [CAROL])
        assert got["text"].strip() == "héllo" and "<p>héllo</p>" in got["html"]
    mine = find(drive, ALICE, "to bob & carol", folder="sent")
    assert mine["id"] == sent["sent_id"] and mine["read"]
    assert listed(drive, ALICE, folder="drafts") == []
    assert read(drive, ALICE, sent["sent_id"])["subject"] == "to bob & carol"


def test_send_to_oneself_and_html_only(drive):
    drive.ok("send", **of(BOB, to=[BOB], subject="note to self", html="<i>html</i>"))
    got = read(drive, BOB, find(drive, BOB, "note to self", folder="inbox")["id"])
    assert got["text"] is None and "<i>html</i>" in got["html"]


def test_send_with_nothing_in_it(drive):
    drive.ok("send", **of(BOB, to=[CAROL], subject="empty"))
    assert find(drive, CAROL, "empty")["from"] == BOB


def test_a_blind_copy_is_blind(cyrus, drive):
    drive.ok("send", **of(ALICE, to=[BOB], bcc=[CAROL, "dave@far.test"], subject="psst", text="x"))
    find(drive, CAROL, "psst")
    kept = [o for o in cyrus.outbox() if "Subject: psst" in o["message"]]
    assert [o["to"] for o in kept] == [[BOB, CAROL, "dave@far.test"]]
    assert "carol" not in kept[0]["message"].lower() and "bcc" not in kept[0]["message"].lower()
    assert "dave" not in kept[0]["message"].lower()


def test_a_refused_recipient_refuses_all_and_leaves_no_draft(cyrus, drive):
    before = len(cyrus.outbox())
    answer = drive("send", **of(ALICE, to=[BOB, "nobody@example.test"], subject="lost", text="x"))
    assert (answer["err"], answer["field"]) == ("EINVAL", "to") and "nobody@example.test" in answer["message"]
    assert listed(drive, ALICE, folder="drafts") == []
    assert not [m for m in listed(drive, ALICE, folder="all", limit=100) if m["subject"] == "lost"]
    assert len(cyrus.outbox()) == before


def test_folders(drive):
    drive.ok("send", **of(CAROL, to=[BOB], subject="folders", text="x"))
    in_sent = {m["subject"] for m in listed(drive, CAROL, folder="sent", limit=100)}
    in_inbox = {m["subject"] for m in listed(drive, CAROL, folder="inbox", limit=100)}
    in_all = {m["subject"] for m in listed(drive, CAROL, folder="all", limit=100)}
    assert "folders" in in_sent and "folders" not in in_inbox and in_all >= in_sent | in_inbox
    assert listed(drive, CAROL, folder="junk") == [], "this server has no such folder"


@pytest.mark.parametrize("op", ("list", "get", "send"))
@pytest.mark.parametrize("address, secret", [(ALICE, "wrong"), (ALICE, ""), ("nobody@example.test", "x"),
                                             (ALICE, USERS[BOB])])
def test_wrong_passwords(drive, op, address, secret):
    answer = drive(op, address, secret=secret, to=[BOB], id="M1")
    assert answer["err"] == "EUPSTREAM" and "password" in answer["message"]
    assert not secret or secret == "x" or secret not in answer["message"]
