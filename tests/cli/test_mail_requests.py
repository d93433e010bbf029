# SPDX-License-Identifier: Apache-2.0
"""Mailboxes and dead letters: what is asked, what is shown, what is refused. Needs no lapsed."""
import json
import time

import pytest

from runner import Lapse
from stub import BREAK, Stream

NOWHERE = Lapse("http://127.0.0.1:1")
ID = "mbx_0634a1b2c3d4e5f6"


def at(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.500Z", time.gmtime(time.time() + seconds))


def mailbox(**fields):
    return {"id": ID, "address": "trial@lapse.local", "username": "trial", "domain": "lapse.local",
            "status": "active", "created_at": at(-60), "expires_at": at(7230),
            "cleanup": {"state": "clean", "attempts": 0}, **fields}


MAIL = {"id": "m1", "from": "ann@example.org", "to": ["trial@lapse.local", "b@c.d"], "cc": [], "subject": "Hello",
        "received_at": "2026-01-01T00:00:00.000Z", "read": False, "preview": "Dear"}
LETTER = {"id": "0123456789abcdef", "kind": "principal", "target": "trial@lapse.local", "owner": "local",
          "attempts": 3, "error": "502 Bad Gateway", "created_at": at(-7230)}


def page(*rows, cursor=None):
    return 200, {"data": list(rows), "pagination": {"next_cursor": cursor, "has_more": cursor is not None}}


def error(status, message):
    return status, {"error": {"code": "x", "message": message}}


def body(stub, n=-1):
    return json.loads(stub.requests[n][3])


def asked(stub, n=-1):
    return stub.requests[n][:2]


@pytest.fixture
def lapse(stub):
    return Lapse(stub.url)


# create ------------------------------------------------------------------------------------------

def test_create(stub, lapse):
    stub.script = [(201, mailbox())]
    assert lapse("mailbox", "create").out == f"{ID}  trial@lapse.local  expires in 2h\n"
    assert asked(stub) == ("POST", "/v1/mailboxes") and body(stub) == {}
    assert len(stub.requests[0][2]["Idempotency-Key"]) == 32
    assert lapse.json("mailbox", "create") == json.loads(json.dumps(stub.script[0][1]))


def test_create_with_everything(stub, lapse):
    stub.script = [(201, mailbox())]
    lapse("mailbox", "create", "--username", "trial é", "--domain", "x.y", "--ttl", "30m", "--idempotency-key", "run 7")
    assert body(stub) == {"username": "trial é", "domain": "x.y", "ttl_ms": 1800000}
    assert stub.requests[0][2]["Idempotency-Key"] == "run 7"


def test_create_is_repeated_with_its_key(stub, lapse):
    stub.script = [BREAK, (201, mailbox())]
    lapse("mailbox", "create", "--idempotency-key", "k")
    assert [headers["Idempotency-Key"] for _, _, headers, _ in stub.requests] == ["k", "k"]


@pytest.mark.parametrize("status, code", [(400, 1), (409, 1), (422, 1), (429, 1), (502, 4), (503, 4), (401, 6)])
def test_create_refused(stub, lapse, status, code):
    stub.script = [error(status, "ttl_ms must be between 300000 and 604800000")]
    ran = lapse("mailbox", "create", "--ttl", "1ms", code=code)
    assert "--ttl must be between 5m and 7d" in ran.err and ran.out == ""


# ls, show, renew, rm -----------------------------------------------------------------------------

def test_ls(stub, lapse):
    stub.script = [page(mailbox(), mailbox(id="mbx_2", status="expired", expires_at=at(-190),
                                           cleanup={"state": "dead_letter", "attempts": 3}))]
    head, first, second = lapse("mailbox", "ls").lines
    assert head.split() == ["ID", "ADDRESS", "STATUS", "CREATED", "EXPIRES", "CLEANUP"]
    assert first.split() == [ID, "trial@lapse.local", "active", "1m", "ago", "in", "2h", "clean"] \
        or first.split()[3] == "59s"
    assert second.endswith("3m ago   dead_letter")
    assert asked(stub) == ("GET", "/v1/mailboxes?limit=100")
    _, shown = lapse.on_terminal("mailbox", "ls", columns=120)
    assert "\x1b[33mexpired\x1b[0m" in shown and "\x1b[33mdead_letter\x1b[0m" in shown and "mactive" not in shown


def test_ls_options(stub, lapse):
    stub.script = [page(mailbox(), cursor="c"), page(mailbox(), cursor="d")]
    assert len(lapse.json("mailbox", "ls", "--include-expired", "--limit", "2")["data"]) == 2
    assert [path for _, path, _, _ in stub.requests] == ["/v1/mailboxes?include_expired=true&limit=2",
                                                         "/v1/mailboxes?include_expired=true&limit=1&after=c"]


def test_empty_ls(stub, lapse):
    stub.script = [page()]
    assert lapse("mailbox", "ls").out == "no mailboxes\n"


def test_hostile_mailbox(stub, lapse):
    stub.script = [page(mailbox(address="\x1b[2Ja", cleanup="not an object"))]
    ran = lapse("mailbox", "ls")
    assert "\\x1b[2Ja" in ran.out and "\x1b" not in ran.out and ran.out.endswith("-\n")


def test_show(stub, lapse):
    stub.script = [(200, mailbox(cleanup={"state": "pending", "attempts": 2}))]
    fields = dict(line.split(None, 1) for line in lapse("mailbox", "show", ID).lines)
    assert fields["id"] == ID and fields["status"] == "active" and fields["expires"].endswith("Z (in 2h)")
    assert fields["cleanup"] == "pending" and fields["attempts"] == "2"
    assert asked(stub) == ("GET", f"/v1/mailboxes/{ID}")
    lapse("mailbox", "show", "a/b")
    assert asked(stub) == ("GET", "/v1/mailboxes/a%2Fb")


def test_renew(stub, lapse):
    stub.script = [BREAK, (200, mailbox())]
    assert lapse("mailbox", "renew", ID).out == f"{ID}  trial@lapse.local  expires in 2h\n"
    assert asked(stub) == ("POST", f"/v1/mailboxes/{ID}/renew") and body(stub) == {} and len(stub.requests) == 2
    lapse("mailbox", "renew", ID, "--ttl", "7d")
    assert body(stub) == {"ttl_ms": 604800000}


@pytest.mark.parametrize("status, code", [(410, 1), (404, 5), (400, 1)])
def test_renew_refused(stub, lapse, status, code):
    stub.script = [error(status, "Mailbox has expired")]
    assert lapse("mailbox", "renew", ID, code=code).err == "lapse: Mailbox has expired\n"


def test_rm(stub, lapse):
    stub.script = [(200, {"id": ID, "deleted": True})]
    assert lapse("mailbox", "rm", ID).out == f"{ID} is removed\n"
    assert asked(stub) == ("DELETE", f"/v1/mailboxes/{ID}")
    assert lapse.json("mailbox", "rm", ID) == {"id": ID, "deleted": True}
    stub.script = [BREAK]
    lapse("mailbox", "rm", ID, code=3)
    assert len(stub.requests) == 3


# messages ----------------------------------------------------------------------------------------

def test_messages(stub, lapse):
    stub.script = [page(MAIL, {**MAIL, "id": "m2", "read": True, "subject": "\x1b[2J", "to": ["x@y.z"]})]
    head, first, second = lapse("mailbox", "messages", ID).lines
    assert head.split() == ["ID", "RECEIVED", "READ", "FROM", "TO", "SUBJECT"]
    assert first.split()[0] == "m1" and first.endswith("no    ann@example.org  trial@lapse.local, b@c.d  Hello")
    assert second.split()[3:] == ["yes", "ann@example.org", "x@y.z", "\\x1b[2J"]
    assert asked(stub) == ("GET", f"/v1/mailboxes/{ID}/messages?limit=100")


@pytest.mark.parametrize("folder", ["inbox", "sent", "drafts", "junk", "all"])
def test_folders(stub, lapse, folder):
    stub.script = [page()]
    assert lapse("mailbox", "messages", ID, "--folder", folder, "--limit", "5").out == "no messages\n"
    assert asked(stub)[1] == f"/v1/mailboxes/{ID}/messages?folder={folder}&limit=5"


def test_one_message(stub, lapse):
    stub.script = [(200, {**MAIL, "body": "Dear all,\r\n\n\x1b[2Jhello\u202e\n", "html": "<p>"})]
    head, text = lapse("mailbox", "messages", ID, "m/1").out.split("\n\n", 1)
    fields = dict(line.split(None, 1) for line in head.splitlines() if len(line.split(None, 1)) == 2)
    assert fields["from"] == "ann@example.org" and fields["to"] == "trial@lapse.local, b@c.d"
    assert fields["subject"] == "Hello" and fields["received"].startswith("2026-01-01T00:00:00.000Z (")
    assert text == "Dear all,\n\n\\x1b[2Jhello\\u202e\n"
    assert asked(stub) == ("POST", f"/v1/mailboxes/{ID}/messages/m%2F1/read")


@pytest.mark.parametrize("fields, ending", [
    ({"body": "no newline"}, "\n\nno newline\n"),
    ({"body": None, "html": "<p>x"}, "\n\n(this mail has only HTML; --json prints it)\n"),
    ({"body": "a\n", "truncated": True}, "\n\na\n(the mail goes on; this is what the daemon gives of it)\n"),
    ({"body": ""}, "no\n"), ({"body": None, "html": None}, "no\n"), ({"body": "\n"}, "\n\n\n"),
    ({"body": "\r"}, "no\n"), ({"body": "a\rb"}, "\n\na\\rb\n")])
def test_bodies(stub, lapse, fields, ending):
    stub.script = [(200, {**MAIL, **fields})]
    assert lapse("mailbox", "messages", ID, "m1").out.endswith(ending)


def test_messages_of_an_expired_mailbox(stub, lapse):
    stub.script = [error(410, "Mailbox has expired")]
    for words in ([], ["m1"]):
        assert lapse("mailbox", "messages", ID, *words, code=1).err == "lapse: Mailbox has expired\n"


# send --------------------------------------------------------------------------------------------

def send(lapse, *words, **options):
    return lapse("mailbox", "send", ID, *words, **options)


def test_send(stub, lapse):
    stub.script = [(200, {"message_id": "m9", "status": "sent"})]
    assert send(lapse, "--to", "a@b.c", "--subject", "Hi é", "--body", "text").out == "m9\n"
    assert asked(stub) == ("POST", f"/v1/mailboxes/{ID}/send")
    assert body(stub) == {"to": "a@b.c", "subject": "Hi é", "body": "text"}


def test_send_with_everything(stub, lapse, tmp_path):
    stub.script = [(200, {"message_id": "m9", "status": "sent"})]
    (tmp_path / "t.txt").write_text("text é\n")
    (tmp_path / "h.html").write_text("<p>html")
    send(lapse, "--to", "a@b.c", "--to", "d@e.f", "--cc", "g@h.i", "--bcc", "j@k.l", "--bcc", "m@n.o", "--subject", "",
         "--body-file", "t.txt", "--html-file", "h.html", cwd=tmp_path)
    assert body(stub) == {"to": ["a@b.c", "d@e.f"], "cc": "g@h.i", "bcc": ["j@k.l", "m@n.o"], "subject": "",
                          "body": "text é\n", "html": "<p>html"}


@pytest.mark.parametrize("words", [[], ["--body-file", "-"], ["--body-file=-", "--html-file", "h"]])
def test_text_from_standard_input(stub, lapse, tmp_path, words):
    stub.script = [(200, {"message_id": "m9", "status": "sent"})]
    (tmp_path / "h").write_text("<p>")
    send(lapse, "--to", "a@b.c", "--subject", "s", *words, stdin=b"piped\n", cwd=tmp_path)
    assert body(stub)["body"] == "piped\n" and ("html" in body(stub)) == (len(words) > 2)


def test_only_html(stub, lapse):
    stub.script = [(200, {"message_id": "m9", "status": "sent"})]
    send(lapse, "--to", "a@b.c", "--subject", "s", "--html-file", "-", stdin=b"<p>")
    assert body(stub) == {"to": "a@b.c", "subject": "s", "html": "<p>"}


def test_a_mail_is_not_sent_twice(stub, lapse):
    stub.script = [BREAK, (200, {"message_id": "m9", "status": "sent"})]
    send(lapse, "--to", "a@b.c", "--subject", "s", "--body", "x")
    send(lapse, "--to", "a@b.c", "--subject", "s", "--body", "x", "--idempotency-key", "run 7")
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in stub.requests]
    assert keys[0] == keys[1] and len(keys[0]) == 32 and keys[2] == "run 7"


def test_send_asks_for_the_text_on_a_terminal(stub, lapse):
    code, shown = lapse.on_terminal("mailbox", "send", ID, "--to", "a@b.c", "--subject", "s")
    assert code == 2 and "the text is missing: give --body, --body-file or --html-file" in shown and not stub.requests


@pytest.mark.parametrize("words, says", [
    (["--subject", "s", "--body", "x"], "--to ADDRESS is missing"),
    (["--to", "a@b.c", "--body", "x"], "--subject TEXT is missing"),
    (["--to", "a@b.c", "--subject", "s"], "the text is missing, and standard input is empty"),
    (["--to", "a@b.c", "--subject", "s", "--body", "x", "--body-file", "f"], "give --body or --body-file, not both"),
    (["--to", "a@b.c", "--subject", "s", "--body-file", "-", "--html-file", "-"],
     "only one of --body-file and --html-file can be -"),
    (["--to", "a@b.c", "--subject", "s", "--body-file", "none"],
     "cannot read the file of --body-file: No such file or directory"),
    (["--to", "a@b.c", "--subject", "s", "--html-file", "none"], "cannot read the file of --html-file"),
    (["--to", "a@b.c", "--subject", "s", "--body-file", "."], "cannot read the file of --body-file: Is a directory"),
    (["--to", b"\xff", "--subject", "s", "--body", "x"], "--to is not UTF-8 text"),
    (["--to", "a", "--cc", b"\xff", "--subject", "s", "--body", "x"], "--cc is not UTF-8 text"),
    (["--to", "a", "--bcc", b"\xff", "--subject", "s", "--body", "x"], "--bcc is not UTF-8 text"),
    (["--to", "a", "--subject", b"\xff", "--body", "x"], "--subject is not UTF-8 text"),
    (["--to", "a", "--subject", "s", "--body", b"\xff"], "--body is not UTF-8 text"),
    (["--to", "a", "--subject", "s", "--body-file", "latin1"], "the file of --body-file is not UTF-8 text"),
    (["--to", "a", "--subject", "s", "--subject", "t", "--body", "x"], "--subject is given twice"),
    (["--to", "a", "--subject", "s", "--body", "x", "--idempotency-key", ""], "--idempotency-key must be 1 to 128"),
    (["more", "--to", "a", "--subject", "s", "--body", "x"], "unexpected argument 'more'"),
])
def test_send_mistakes(tmp_path, words, says):
    (tmp_path / "latin1").write_bytes(b"\xe9")
    ran = send(NOWHERE, *words, code=2, cwd=tmp_path)
    assert says in ran.err and ran.out == ""


def test_a_text_that_is_too_large(tmp_path):
    with open(tmp_path / "huge", "wb") as f:
        f.truncate(70 << 20)
    assert "the file of --body-file is larger than any daemon takes" in \
        send(NOWHERE, "--to", "a", "--subject", "s", "--body-file", str(tmp_path / "huge"), code=2).err


@pytest.mark.parametrize("words, says", [
    (["mailbox", "x"], "unknown command 'mailbox x'"),
    (["mailbox", "create", "x"], "unexpected argument 'x'"),
    (["mailbox", "create", "--ttl", "2"], "--ttl must be a duration like"),
    (["mailbox", "create", "--ttl", "infinity"], "--ttl must be a duration like"),
    (["mailbox", "create", "--username", b"\xff"], "--username is not UTF-8 text"),
    (["mailbox", "create", "--domain", b"\xff"], "--domain is not UTF-8 text"),
    (["mailbox", "create", "--idempotency-key", ""], "--idempotency-key must be 1 to 128 bytes"),
    (["mailbox", "create", "--idempotency-key", " "], "--idempotency-key must be"),
    (["mailbox", "create", "--idempotency-key", "k "], "without a blank at either end"),
    (["mailbox", "create", "--idempotency-key", "a\r\nX-Evil: 1"], "--idempotency-key must be"),
    (["mailbox", "create", "--idempotency-key", "k" * 129], "--idempotency-key must be"),
    (["mailbox", "create", "--idempotency-key", b"\xff"], "--idempotency-key must be"),
    (["mailbox", "show"], "ID is missing"), (["mailbox", "show", ""], "a name must not be empty"),
    (["mailbox", "renew"], "ID is missing"), (["mailbox", "rm"], "ID is missing"),
    (["mailbox", "renew", "a", "--ttl", "soon"], "--ttl must be a duration like"),
    (["mailbox", "ls", "--limit", "0"], "--limit must be a whole number"),
    (["mailbox", "messages"], "ID is missing"),
    (["mailbox", "messages", "a", "--folder", "spam"],
     "--folder must be inbox, sent, drafts, junk or all, not 'spam'"),
    (["mailbox", "messages", "a", "m", "--folder", "sent"], "--folder and --limit are for lists: leave MESSAGE out"),
    (["mailbox", "messages", "a", "m", "--limit", "1"], "--folder and --limit are for lists: leave MESSAGE out"),
    (["mailbox", "messages", "a", "m", "n"], "unexpected argument 'n'"),
    (["dead-letters", "x"], "unknown command 'dead-letter x'"), (["dead-letters", "retry"], "give an ID, or --all, --kind or --older-than"),
    (["dead-letters", "drop"], "ID is missing"), (["dead-letters", "drop", "a", "b"], "unexpected argument 'b'"),
])
def test_mistakes(words, says):
    ran = NOWHERE(*words, code=2)
    assert says in ran.err and ran.out == "", repr(ran)


# Dead letters ------------------------------------------------------------------------------------

def test_dead_letters(stub, lapse):
    stub.script = [page(LETTER, {**LETTER, "error": "\x1b[2J\n"})]
    head, first, second = lapse("dead-letters", "ls").lines
    assert head.split() == ["ID", "KIND", "TARGET", "OWNER", "SINCE", "ATTEMPTS", "ERROR"]
    assert first.split() == ["0123456789abcdef", "principal", "trial@lapse.local", "local", "2h", "ago", "3", "502",
                             "Bad", "Gateway"]
    assert second.endswith("  \\x1b[2J\\n") and asked(stub) == ("GET", "/v1/dead-letters?limit=100")
    stub.script = [page()]
    assert lapse("dead-letters", "ls").out == "no dead letters\n"


def test_retry(stub, lapse):
    stub.script = [(200, {**LETTER, "state": "pending"})]
    assert lapse("dead-letters", "retry", LETTER["id"]).out == "0123456789abcdef is tried again\n"
    assert asked(stub) == ("POST", "/v1/dead-letters/0123456789abcdef/retry")
    assert lapse.json("dead-letters", "retry", LETTER["id"])["state"] == "pending"
    stub.script = [error(404, "no such dead letter")]
    lapse("dead-letters", "retry", "0000000000000000", code=5)


def test_drop(stub, lapse):
    stub.script = [(200, {"id": LETTER["id"], "dropped": True})]
    assert lapse("dead-letters", "drop", LETTER["id"]).out == "0123456789abcdef is dropped\n"
    assert asked(stub) == ("DELETE", "/v1/dead-letters/0123456789abcdef")
    assert lapse.json("dead-letters", "drop", LETTER["id"], "--yes") == {"id": LETTER["id"], "dropped": True}


@pytest.mark.parametrize("typed, words, code", [(b"n\n", [], 1), (b"\n", [], 1), (b"y\n", [], 0), (b"", ["--yes"], 0)])
def test_drop_asks_on_a_terminal(stub, lapse, typed, words, code):
    stub.script = [(200, {"id": LETTER["id"], "dropped": True})]
    seen, shown = lapse.on_terminal("dead-letters", "drop", LETTER["id"], *words, typed=typed)
    assert seen == code and ("[y/N]" in shown) == (not words) and len(stub.requests) == (code == 0)
    assert "nothing was changed" in shown if code else "is dropped" in shown


def test_admins_only(stub, lapse):
    stub.script = [error(403, "needs an admin token")]
    for words in (["ls"], ["retry", "a"], ["drop", "a"]):
        assert lapse("dead-letters", *words, code=6).err == "lapse: needs an admin token\n"


# What other commands show of it ------------------------------------------------------------------

def test_sweep_of_mailboxes(stub, lapse):
    stub.script = [(200, {"scheduler": "mailboxes", "dry_run": False, "pruned": 0, "duration_ms": 12,
                          "tables": {"mailboxes": 0}, "expired": 3, "retried": 1, "cleaned": 1200, "failed": 2,
                          "dead_letters": 1})]
    assert lapse("sweep", "mailboxes").lines == [
        "mailboxes: removed 0 rows in 12ms", "  mailboxes 0", "  expired 3", "  retried 1", "  cleaned 1,200", "  failed 2",
        "  dead letters 1"]
    stub.script = [(200, {"scheduler": "messages", "dry_run": False, "pruned": 1, "duration_ms": 12, "tables": {}})]
    assert lapse("sweep", "messages").out == "messages: removed 1 row in 12ms\n"


@pytest.mark.parametrize("number, line", [("0", None), ("1", "  1 dead letter waits for a decision: lapse dead-letter"),
                                          ("1234", "  1,234 dead letters wait for a decision: lapse dead-letter"),
                                          (None, None)])
def test_status_tells_of_dead_letters(stub, lapse, number, line):
    text = f"# TYPE lapse_dead_letters gauge\nlapse_dead_letters {number}\n" if number else "x 1\n"
    stub.routes = {"/healthz": (200, {"status": "ok"}), "/readyz": (200, {"status": "ok"}),
                   "/v1/matrix": (200, {"data": []}), "/metrics": (200, text.encode()),
                   "/v1/clock": (200, {"state": "trusted"})}
    facts = "clock: trusted" + (f"   dead letters: {int(number):,}" if number else "")
    assert lapse("status").lines == [f"lapsed at {stub.url} is ready", *([line] if line else []), facts, "", "no tables"]
    assert lapse.json("status")["dead_letters"] == (int(number) if number else None)


def test_status_without_the_right_to_metrics(stub, lapse):
    stub.routes = {"/healthz": (200, {"status": "ok"}), "/readyz": (200, {"status": "ok"}),
                   "/v1/matrix": (200, {"data": []}), "/metrics": error(401, "a token is needed"),
                   "/v1/clock": (200, {"state": "trusted"})}
    assert lapse("status").lines == [f"lapsed at {stub.url} is ready", "clock: trusted", "", "no tables"]


def test_events(stub, lapse):
    checksum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    rows = [("mailbox.created", {"id": ID, "address": "a@b.c", "expires_at": "2026-01-02T00:00:00.000Z"}),
            ("mailbox.cleanup_failed", {"id": ID, "attempts": 1, "error": "502 Bad Gateway"}),
            ("attachment.staged", {"checksum": checksum, "name": "a b", "size_bytes": 1536, "persist": False,
                                   "ttl_ms": 86400000, "cached": False}),
            ("attachment.staged", {"checksum": checksum, "name": "c", "size_bytes": 10, "ttl_ms": "infinity"}),
            ("attachment.cleaned", {"count": 1, "bytes": 2048, "checksum": checksum, "ttl_ms": 93600000}),
            ("x", {"checksum": 7, "size": "big", "bytes": None, "_ms": 5})]
    stream = [json.dumps({"at": "2026-01-01T00:00:00.000Z", "owner": "local", "data": data}) for _, data in rows]
    parts = [f"id: {n:016x}\nevent: {kind}\ndata: {data}\n\n".encode()
             for n, ((kind, _), data) in enumerate(zip(rows, stream), 1)]
    stub.routes = {"/v1/clock": (200, {"trusted": "2030-01-01T00:00:00.000Z"}),
                   "/v1/events": Stream(*parts, b": live\n\n", hold=True)}
    lines = [line[44:] for line in lapse("events").lines]
    assert lines == [
        f"mailbox.created     id={ID} address=a@b.c expires_at=2026-01-02T00:00:00.000Z",
        f'mailbox.cleanup_failed  id={ID} attempts=1 error="502 Bad Gateway"',
        f'attachment.staged   checksum={checksum} name="a b" size_bytes="1.5 KiB" persist=false ttl=1d cached=false',
        f'attachment.staged   checksum={checksum} name=c size_bytes="10 B" ttl_ms=infinity',
        f'attachment.cleaned  count=1 bytes="2.0 KiB" checksum={checksum} ttl="1d 2h"',
        "x                   checksum=7 size=big bytes=- _ms=5"]
    _, shown = lapse.on_terminal("events", env={"NO_COLOR": "1"}, columns=200)
    assert f"checksum={checksum[:16]} name" in shown and checksum not in shown
    _, shown = lapse.on_terminal("events", columns=200)
    for kind, style in (("mailbox.created", 32), ("mailbox.cleanup_failed", 31), ("attachment.cleaned", 33)):
        assert f"\x1b[{style}m{kind}\x1b[0m" in shown
