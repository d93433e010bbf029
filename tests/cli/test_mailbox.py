# SPDX-License-Identifier: Apache-2.0
"""Mailboxes of a real daemon with its own mail. What is asked and shown is in test_mail_requests.py."""
import time

import pytest
import requests

from runner import LIMIT_S, Lapse


@pytest.fixture
def own(start):
    return Lapse(start().url)


def create(lapse, *words):
    return lapse.json("mailbox", "create", *words)


def wait_until(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_life(own):
    assert own("mailbox", "ls").out == "no mailboxes\n"
    line = own("mailbox", "create", "--username", "trial", "--ttl", "2h").out
    box, address, *expires = line.split()
    assert box.startswith("mbx_") and address == "trial@lapse.local" and expires == ["expires", "in", "2h"]
    assert own("mailbox", "ls").lines[1].split()[:3] == [box, address, "active"]
    fields = dict(row.split(None, 1) for row in own("mailbox", "show", box).lines)
    assert fields["status"] == "active" and fields["cleanup"] == "clean"
    assert own("mailbox", "rm", box).out == f"{box} is removed\n"
    own("mailbox", "show", box, code=5)
    own("mailbox", "rm", box, code=5)
    assert own("mailbox", "ls").out == "no mailboxes\n"


def test_lifetimes(own):
    assert "ttl" in own("mailbox", "create", "--ttl", "1s", code=1).err
    assert "ttl" in own("mailbox", "create", "--ttl", "8d", code=1).err
    box = create(own, "--ttl", "1h")
    renewed = own.json("mailbox", "renew", box["id"], "--ttl", "3h")
    assert renewed["id"] == box["id"] and renewed["expires_at"] > box["expires_at"]
    assert own("mailbox", "renew", box["id"]).out.split()[3:5] == ["in", "24h"]
    own("mailbox", "renew", box["id"], "--ttl", "1s", code=1)
    own("mailbox", "renew", "mbx_0000000000000000", code=5)


def test_names(own):
    create(own, "--username", "taken")
    own("mailbox", "create", "--username", "taken", code=1)
    own("mailbox", "create", "--username", "a b@c", code=1)
    assert create(own)["address"] != create(own)["address"]


def test_idempotency(own):
    first = create(own, "--idempotency-key", "run-7")
    assert create(own, "--idempotency-key", "run-7")["id"] == first["id"]
    own("mailbox", "create", "--username", "other", "--idempotency-key", "run-7", code=1)
    assert len(own.json("mailbox", "ls")["data"]) == 1


def test_mail(own):
    ann, bob = create(own, "--username", "ann"), create(own, "--username", "bob")
    assert own("mailbox", "messages", bob["id"]).out == "no messages\n"
    sent = own("mailbox", "send", ann["id"], "--to", bob["address"], "--subject", "Hello é", stdin="line 1\nline 2 é\n"
               .encode()).out.strip()
    assert sent
    wait_until(lambda: "Hello é" in own("mailbox", "messages", bob["id"]).out)
    mail = own.json("mailbox", "messages", bob["id"])["data"][0]
    assert mail["subject"] == "Hello é" and ann["address"] in mail["from"]
    shown = own("mailbox", "messages", bob["id"], mail["id"]).out
    assert "Hello é" in shown and shown.endswith("\n\nline 1\nline 2 é\n")
    assert "Hello é" in own("mailbox", "messages", ann["id"], "--folder", "sent").out
    assert "Hello é" in own("mailbox", "messages", bob["id"], "--folder", "all").out
    assert own("mailbox", "messages", bob["id"], "--folder", "junk").out == "no messages\n"
    own("mailbox", "messages", bob["id"], "nonsense", code=5)


def test_a_mail_is_sent_once(own):
    ann, bob = create(own, "--username", "ann"), create(own, "--username", "bob")
    for _ in range(2):
        own("mailbox", "send", ann["id"], "--to", bob["address"], "--subject", "once", "--body", "b",
            "--idempotency-key", "k")
    wait_until(lambda: own.json("mailbox", "messages", bob["id"])["data"])
    assert len(own.json("mailbox", "messages", bob["id"])["data"]) == 1


def test_copies(own):
    boxes = [create(own, "--username", name) for name in ("ann", "bob", "cid", "dan")]
    own("mailbox", "send", boxes[0]["id"], "--to", boxes[1]["address"], "--cc", boxes[2]["address"],
        "--bcc", boxes[3]["address"], "--subject", "s", "--body", "b")
    for box in boxes[1:]:
        wait_until(lambda box=box: own.json("mailbox", "messages", box["id"])["data"])
        assert boxes[3]["address"] not in str(own.json("mailbox", "messages", box["id"])["data"][0].get("to"))
    own("mailbox", "send", boxes[0]["id"], "--to", "no address", "--subject", "s", "--body", "b", code=1)
    own("mailbox", "send", "mbx_0000000000000000", "--to", "a@b.c", "--subject", "s", "--body", "b", code=5)


def test_expired(start):
    own = Lapse(start(mailbox_min_ttl_ms=100, mailbox_default_ttl_ms=200).url)
    box = create(own, "--username", "short")["id"]
    wait_until(lambda: own("mailbox", "ls").out == "no mailboxes\n")
    assert own.json("mailbox", "show", box)["status"] == "expired"
    assert [row["id"] for row in own.json("mailbox", "ls", "--include-expired")["data"]] == [box]
    for words in (["renew", box], ["messages", box], ["messages", box, "m1"],
                  ["send", box, "--to", "a@b.c", "--subject", "s", "--body", "b"]):
        assert own("mailbox", *words, code=1).err == "lapse: Mailbox has expired\n"
    seen = own("events").out
    assert "mailbox.created" in seen and "mailbox.expired" in seen


def test_sweep_tells_what_it_did(own):
    lines = own("sweep", "mailboxes").lines
    assert lines[0].startswith("mailboxes: removed 0 rows in ")
    assert [line.split()[0] for line in lines if line.startswith("  ")][-5:] == \
        ["expired", "retried", "cleaned", "failed", "dead"]


def test_pages(own):
    for _ in range(105):
        requests.post(own.env["LAPSE_URL"] + "/v1/mailboxes", json={}, timeout=LIMIT_S).raise_for_status()
    assert len({row["id"] for row in own.json("mailbox", "ls")["data"]}) == 105
    assert len(own("mailbox", "ls", "--limit", "3").lines) == 4


def test_status_has_the_table(own):
    create(own)
    assert any(line.split()[:2] == ["mailboxes", "1"] for line in own("status").lines)


def test_owners_do_not_see_each_other(own):
    box = create(own, "--owner", "team")["id"]
    own("mailbox", "show", box, code=5)
    own("mailbox", "show", box, "--owner", "team")


def test_errors_in_the_words_of_the_flags(start):
    lapse = Lapse(start().url)
    err = lapse("mailbox", "create", "--ttl", "1s", code=1).err
    assert "--ttl" in err and "ttl_ms" not in err and "5m" in err and "7d" in err and "300000" not in err
    assert "--visibility" in lapse("claim", "a", "--visibility", "1000w", code=1).err


# Waiting for mail ---------------------------------------------------------------------------------

def mail(own, sender, to, subject, body):
    own("mailbox", "send", sender["id"], "--to", to["address"], "--subject", subject, "--body", body)


def test_wait_takes_what_fits_oldest_first(own):
    alice, bob = create(own, "--username", "alice"), create(own, "--username", "bob")
    mail(own, alice, bob, "Newsletter", "Nothing for you.")
    mail(own, alice, bob, "Your login", "Your code is 482913.")
    mail(own, alice, bob, "Your login again", "Your code is 111222.")
    assert own("mailbox", "wait", bob["id"], "--subject", "LOGIN", "--from", "alice@", "--code").out == "482913\n"
    assert own("mailbox", "wait", bob["id"], "--subject", "login", "--code").out == "111222\n"
    own("mailbox", "wait", bob["id"], "--subject", "login", "--wait", "100ms", code=7)
    own("mailbox", "wait", bob["id"], "--from", "carol", "--wait", "1ms", code=7)
    shown = own("mailbox", "wait", bob["id"]).out
    assert "Newsletter" in shown and shown.endswith("\nNothing for you.\n")
    own("mailbox", "wait", bob["id"], "--wait", "1ms", code=7)


def test_wait_prints_links(own):
    alice, bob = create(own, "--username", "alice"), create(own, "--username", "bob")
    mail(own, alice, bob, "Confirm", "See https://a.example/home or https://a.example/confirm/1.")
    mail(own, alice, bob, "Confirm", "Code 123456, https://a.example/x")
    mail(own, alice, bob, "Empty", "No such thing.")
    assert own("mailbox", "wait", bob["id"], "--code").out == "https://a.example/confirm/1\n"
    assert own("mailbox", "wait", bob["id"], "--link").out == "https://a.example/x\n"
    assert "neither a code nor a link" in own("mailbox", "wait", bob["id"], "--code", code=1).err
    own("mailbox", "wait", bob["id"], "--code", "--link", code=2)
    own("mailbox", "wait", "mbx_0000000000000000", code=5)


def test_wait_waits_for_the_right_one(own):
    alice, bob = create(own, "--username", "alice"), create(own, "--username", "bob")
    with own.start("mailbox", "wait", bob["id"], "--subject", "code", "--code", "--wait", "30s") as waiting:
        mail(own, alice, bob, "Newsletter", "123456 is not it, though it has a code.")
        mail(own, alice, bob, "Your code", "It is 998877.")
        assert waiting.communicate(timeout=LIMIT_S)[0] == b"998877\n"
    assert waiting.returncode == 0
