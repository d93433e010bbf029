# SPDX-License-Identifier: Apache-2.0
"""Mail that arrives by LMTP: the protocol, MIME, files, and what a stranger can send."""
import base64
import email.message
import hashlib
import smtplib
import socket
import time

import pytest

from harness import NEVER_MS, wait_until
from mailrig import DOMAIN, Rig

LONG_MS = 3_600_000


class Door:
    """A daemon that takes mail at a Unix socket."""

    def __init__(self, start, tmp_path, **settings):
        self.path = str(tmp_path / "lmtp")
        self.rig = Rig(start, lmtp_listen=f"unix:{self.path}", mailbox_min_ttl_ms=1,
                       mailbox_sweep_ms=NEVER_MS, **settings)

    def talk(self):
        return smtplib.LMTP(self.path)

    def send(self, raw, *boxes, sender="someone@example.org"):
        """Delivers; returns what was refused, by address."""
        refused, taken = {}, []
        with self.talk() as lmtp:
            lmtp.ehlo()
            assert lmtp.mail(sender, [f"size={len(raw)}"])[0] == 250
            for box in boxes:
                code, text = lmtp.rcpt(box["address"])
                if code == 250:
                    taken.append(box["address"])
                else:
                    refused[box["address"]] = code
            if not taken:
                return refused
            assert lmtp.docmd("DATA")[0] == 354
            lmtp.send(smtplib._quote_periods(raw) + (b"" if raw.endswith(b"\r\n") else b"\r\n") + b".\r\n")
            for address in taken:
                code, text = lmtp.getreply()
                if code != 250:
                    refused[address] = code
        return refused

    def mails(self, box, **query):
        return self.rig.api.get(f"/v1/mailboxes/{box['id']}/messages", **query).data

    def only(self, box):
        """The one mail of the mailbox, whole."""
        mails = self.mails(box)
        assert len(mails) == 1, mails
        return self.rig.api.get(f"/v1/mailboxes/{box['id']}/messages/{mails[0]['id']}").ok()

    def arrived(self, result):
        return self.rig.daemon.metric("lapse_mail_arrived_total", result=result)


@pytest.fixture
def door(start, tmp_path):
    return Door(start, tmp_path)


@pytest.fixture
def box(door):
    return door.rig.create("box", ttl_ms=LONG_MS)


def plain(subject="hello", body="A body.\r\n", sender="Someone <someone@example.org>"):
    return f"From: {sender}\r\nTo: box@{DOMAIN}\r\nSubject: {subject}\r\n\r\n{body}".encode()


# The protocol -------------------------------------------------------------------------------------

def test_a_mail_arrives(door, box):
    assert door.send(plain(), box) == {}
    mail = door.only(box)
    assert (mail["from"], mail["subject"], mail["body"]) == ("someone@example.org", "hello", "A body.\n")
    assert mail["to"] == [f"box@{DOMAIN}"] and mail["attachments"] == [] and not mail["read"]
    assert door.arrived("delivered") == 1
    event = door.rig.events("received")[0]
    assert (event["id"], event["message_id"], event["from"]) == (box["id"], mail["id"], "someone@example.org")


def test_a_wait_ends_with_it(door, box, tmp_path):
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(door.rig.daemon.client().get, f"/v1/mailboxes/{box['id']}/messages", wait_ms=30_000)
        time.sleep(0.05)
        door.send(plain("the code"), box)
        assert [m["subject"] for m in future.result(20).data] == ["the code"]


def test_unknown_expired_and_deleted_are_550(door, box):
    gone = door.rig.create("gone", ttl_ms=LONG_MS)
    late = door.rig.create("late", ttl_ms=LONG_MS)
    door.rig.api.delete(f"/v1/mailboxes/{gone['id']}").ok()
    door.rig.api.post(f"/v1/mailboxes/{late['id']}/renew", {"ttl_ms": 1}).ok()
    wait_until(lambda: door.rig.get(late)["status"] == "expired")
    nobody = {"address": f"nobody@{DOMAIN}"}
    refused = door.send(plain(), box, gone, late, nobody)
    assert refused == {
        gone["address"]: 550, late["address"]: 550, nobody["address"]: 550}
    assert len(door.mails(box)) == 1
    assert door.arrived("refused") == 3


def test_it_expires_while_it_is_sent(door, box):
    other = door.rig.create("other", ttl_ms=LONG_MS)
    with door.talk() as lmtp:
        lmtp.ehlo()
        lmtp.mail("a@example.org")
        assert lmtp.rcpt(box["address"])[0] == 250 and lmtp.rcpt(other["address"].upper())[0] == 250
        door.rig.api.delete(f"/v1/mailboxes/{box['id']}").ok()
        lmtp.putcmd("data")
        assert lmtp.getreply()[0] == 354
        lmtp.send(plain() + b"\r\n.\r\n")
        assert [lmtp.getreply()[0], lmtp.getreply()[0]] == [550, 250]
    assert len(door.mails(other)) == 1


def test_a_full_mailbox_is_452_and_stops_no_other(start, tmp_path):
    door = Door(start, tmp_path, mailbox_unread_max=2)
    full, other = door.rig.create("full", ttl_ms=LONG_MS), door.rig.create("other", ttl_ms=LONG_MS)
    for _ in range(2):
        assert door.send(plain(), full) == {}
    refused = door.send(plain(), full, other)
    assert refused == {full["address"]: 452}
    assert len(door.mails(full)) == 2 and len(door.mails(other)) == 1
    assert door.arrived("delayed") == 1


def test_order_and_words(door, box):
    with door.talk() as lmtp:
        for command, code in (("MAIL FROM:<a@b.c>", 503), ("EHLO x", 500), ("LHLO", 501), ("LHLO x", 250),
                              ("DATA", 503), ("RCPT TO:<a@b.c>", 503), ("MAIL FROM:a@b.c", 501),
                              ("MAIL FROM:<a@b.c> X=1", 555), ("MAIL FROM:<a@b.c> SIZE=99999999", 552),
                              ("MAIL FROM:<> SIZE=100 BODY=8BITMIME SMTPUTF8", 250), ("MAIL FROM:<a@b.c>", 503),
                              ("RCPT TO:<>", 501), (f"rcpt to:<@relay.example:{box['address']}>", 250), ("NOOP", 250),
                              ("VRFY a", 252), ("RSET", 250), ("DATA", 503), ("NONSENSE", 500), ("QUIT", 221)):
            assert lmtp.docmd(command)[0] == code, command


def test_too_many_errors_end_it(door):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(door.path)
        sock.sendall(b"X\r\n" * 30)
        said = b""
        while chunk := sock.recv(4096):
            said += chunk
    assert said.count(b"\r\n500 ") == 19 and b"421 4.7.0" in said


def test_pipelined_mails_and_a_split_at_every_byte(door, box):
    text = (f"LHLO me\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<{box['address']}>\r\nDATA\r\n"
            "Subject: one\r\n\r\n..dots\r\n.\r\n"
            f"MAIL FROM:<a@b.c>\r\nRCPT TO:<{box['address']}>\r\nDATA\r\n"
            "Subject: two\r\n\r\nbare\n.\nlines\r\n.\r\nQUIT\r\n").encode()
    for step in (len(text), 1):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(door.path)
            for i in range(0, len(text), step):
                sock.sendall(text[i:i + step])
            said = b""
            while chunk := sock.recv(4096):
                said += chunk
        assert said.count(b"250 2.1.5 delivered") == 2, said
    two, one = [door.rig.api.get(f"/v1/mailboxes/{box['id']}/messages/{m['id']}").ok() for m in door.mails(box)[:2]]
    assert (one["body"], two["body"]) == (".dots\n", "bare\n.\nlines\n")


def test_limits(start, tmp_path):
    door = Door(start, tmp_path, lmtp_mail_max_bytes=100_000, lmtp_connections_max=2)
    box = door.rig.create("box", ttl_ms=LONG_MS)
    with door.talk() as lmtp:
        lmtp.ehlo()
        assert lmtp.esmtp_features["size"] == "100000"
        lmtp.docmd("MAIL FROM:<a@b.c>")
        codes = [lmtp.docmd(f"RCPT TO:<{box['address']}>")[0] for _ in range(60)]
        assert codes[:50] == [250] * 50 and set(codes[50:]) == {452}
        lmtp.docmd("RSET")
        lmtp.docmd("MAIL FROM:<a@b.c>")
        lmtp.docmd(f"RCPT TO:<{box['address']}>")
        lmtp.docmd("DATA")
        lmtp.send(b"x" * 70_000 + b"\r\n.\r\n")
        assert lmtp.getreply()[0] == 552, "a line that is too long"
        lmtp.docmd("MAIL FROM:<a@b.c>")
        lmtp.docmd(f"RCPT TO:<{box['address']}>")
        lmtp.docmd("DATA")
        lmtp.send(b"some text\r\n" * 20_000 + b".\r\n")
        assert lmtp.getreply()[0] == 552, "a mail that is too large"
        assert lmtp.docmd("A" * 3000)[0] == 500
        assert lmtp.docmd("NOOP")[0] == 250
        with door.talk() as second:
            assert second.ehlo()[0] == 250
            with pytest.raises(smtplib.SMTPConnectError, match="421"):
                door.talk()
    assert door.mails(box) == []


def begin(door, box):
    """A connection in the middle of a mail whose size nobody announced."""
    lmtp = door.talk()
    lmtp.ehlo()
    lmtp.docmd("MAIL FROM:<a@b.c>")
    lmtp.docmd(f"RCPT TO:<{box['address']}>")
    assert lmtp.docmd("DATA")[0] == 354
    return lmtp


def test_mails_under_way_share_memory(start, tmp_path):
    door = Door(start, tmp_path, lmtp_mail_max_bytes=64 << 20)
    box = door.rig.create("box", ttl_ms=LONG_MS)
    talks = [begin(door, box) for _ in range(8)]
    half = (b"x" * 998 + b"\r\n") * 30_000
    codes = []
    for lmtp in talks[:3]:
        lmtp.send(half)
    for lmtp in talks:
        lmtp.send(b"\r\n.\r\n")
        codes.append(lmtp.getreply()[0])
        lmtp.close()
    assert sorted(codes[:3]) == [250, 452, 452] and codes[3:] == [250] * 5
    assert door.send(plain(), box) == {}


def test_only_this_machine(start, tmp_path):
    from harness import run_to_end
    for value, says in (("0.0.0.0:0", "loopback"), ("nonsense", "lmtp_listen"), (f"unix:{'x' * 200}", "lmtp_listen")):
        code, said = run_to_end(tmp_path / "d", "--lmtp-listen", value)
        assert code != 0 and says in said, said


def test_tcp_on_loopback(start):
    rig = Rig(start, lmtp_listen="127.0.0.1:0")
    box = rig.create("box")
    line = next(x for x in rig.daemon.log_lines() if x["event"] == "lmtp.ready")
    host, port = line["message"].rsplit(":", 1)
    with smtplib.LMTP(host, int(port)) as lmtp:
        assert lmtp.sendmail("a@b.c", [box["address"]], plain()) == {}


# A stop and a crash -------------------------------------------------------------------------------

def test_what_was_answered_250_survives_a_kill(door, box):
    for i in range(5):
        assert door.send(plain(f"mail {i}"), box) == {}
        if i % 2:
            door.rig.daemon.kill()
            door.rig.daemon.restart()
            door.rig.api = door.rig.daemon.client()
    assert sorted(m["subject"] for m in door.mails(box)) == [f"mail {i}" for i in range(5)]


def test_a_stop_says_so(door, box):
    with door.talk() as lmtp:
        lmtp.ehlo()
        door.rig.daemon.stop()
        assert lmtp.getreply()[0] == 421


# MIME ---------------------------------------------------------------------------------------------

def message(**files):
    m = email.message.EmailMessage()
    m["From"], m["To"], m["Subject"] = "Grün <a@example.org>", f"box@{DOMAIN}, Other <b@c.d>", "Ünïcödé ✓"
    m["Cc"] = "Group: x@y.z, q@y.z;"
    m.set_content("Text ✓\n")
    m.add_alternative("<p>HTML ✓</p>\n", subtype="html")
    for name, content in files.items():
        m.add_attachment(content, maintype="image", subtype="png", filename=name)
    return m


def test_text_html_and_files(door, box):
    picture = bytes(range(256)) * 10
    assert door.send(message(**{"bild ü.png": picture, "../../etc/passwd": b"x"}).as_bytes(), box) == {}
    mail = door.only(box)
    assert (mail["from"], mail["subject"]) == ("a@example.org", "Ünïcödé ✓")
    assert mail["to"] == [f"box@{DOMAIN}", "b@c.d"] and mail["cc"] == ["x@y.z", "q@y.z"]
    assert mail["body"] == "Text ✓\n" and mail["html"] == "<p>HTML ✓</p>\n"
    first, second = mail["attachments"]
    checksum = hashlib.sha256(picture).hexdigest()
    assert first == {"checksum": checksum, "name": "bild ü.png", "size": 2560, "type": "image/png"}
    assert "/" not in second["name"] and second["size"] == 1
    kept = door.rig.api.get(f"/v1/attachments/{checksum}").ok()
    assert kept["name"] == "bild ü.png" and kept["expires_at"][:13] == box["expires_at"][:13]
    content = door.rig.api.get(f"/v1/attachments/{checksum}/content")
    assert content.body == picture


def test_files_belong_to_each_owner(start, tmp_path):
    door = Door(start, tmp_path)
    boxes, clients = [], []
    for owner in ("one", "two"):
        client = door.rig.daemon.client(owner=owner)
        clients.append(client)
        boxes += [client.post("/v1/mailboxes", {"username": f"{owner}{i}"}).ok(201) for i in range(2)]
    assert door.send(message(**{"a.png": b"same bytes"}).as_bytes(), *boxes) == {}
    checksum = hashlib.sha256(b"same bytes").hexdigest()
    for client, box in zip(clients, boxes[::2]):
        assert client.get(f"/v1/attachments/{checksum}/content").body == b"same bytes"
        client.delete(f"/v1/attachments/{checksum}").ok()
        assert len(client.get(f"/v1/mailboxes/{box['id']}/messages").data) == 1


def test_files_that_do_not_fit_are_452(start, tmp_path):
    door = Door(start, tmp_path, attachment_bytes_per_owner=1000)
    box = door.rig.create("box", ttl_ms=LONG_MS)
    refused = door.send(message(**{"a.png": b"x" * 2000}).as_bytes(), box)
    assert refused == {box["address"]: 452} and door.mails(box) == []
    assert door.send(message(**{"a.png": b"x" * 20}).as_bytes(), box) == {}
    files = [p for p in (door.rig.daemon.data_dir / "files").rglob("*") if p.is_file()]
    wait_until(lambda: len([p for p in (door.rig.daemon.data_dir / "files").rglob("*") if p.is_file()]) == 1,
               what=f"no file is left behind: {files}")


BROKEN = {
    "empty": b"",
    "no header": b"just text\r\n",
    "only a header": b"Subject: x",
    "8-bit headers": "Subject: Grüße 你好\r\nFrom: Jürgen <j@ü.example>\r\n\r\nx".encode(),
    "latin1 header": "Subject: Grüße\r\n\r\nöäü".encode("latin1"),
    "NUL bytes": b"Subject: a\0b\r\n\r\nc\0d\r\n",
    "bad encoded word": b"Subject: =?utf-8?b?////?= =?x-nonsense?q?=FF?=\r\n\r\nx",
    "unknown charset": b"Content-Type: text/plain; charset=nonsense\r\n\r\n\xff\xfe",
    "bad base64": b"Content-Transfer-Encoding: base64\r\n\r\n!!!not base64!!!",
    "no boundary": b"Content-Type: multipart/mixed\r\n\r\n--x\r\n\r\ntext\r\n--x--",
    "boundary never comes": b"Content-Type: multipart/mixed; boundary=x\r\n\r\nno part here\r\n",
    "unfinished part": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/html\r\n\r\n<b>",
    "header without end": b"Subject: " + b"a" * 60_000 + b"\r\n\r\nx",
    "folded for ever": b"Subject: a\r\n" + b" b\r\n" * 5000 + b"\r\nx",
    "controls": b"Subject: a\x1b[31mb\x07\r\n\r\nc\x1b]0;x\x07\r\n",
    "message in it": b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ninner text\r\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_mail_is_mail(door, box, kind):
    assert door.send(BROKEN[kind], box) == {}
    mail = door.only(box)
    assert isinstance(mail["subject"], str) and "\x1b" not in mail["subject"] + (mail["body"] or "")
    assert "\x00" not in mail["subject"] + (mail["body"] or "")


def test_a_mail_without_a_byte_is_a_mail(door, box):
    with door.talk() as lmtp:
        lmtp.ehlo()
        lmtp.mail("a@b.c")
        lmtp.rcpt(box["address"])
        assert lmtp.docmd("DATA")[0] == 354
        lmtp.send(b".\r\n")
        assert lmtp.getreply()[0] == 250
    assert (door.only(box)["subject"], door.only(box)["body"] or "") == ("", "")


def test_what_broken_mail_says(door, box):
    door.send(BROKEN["8-bit headers"], box)
    assert door.only(box)["subject"] == "Grüße 你好"
    other = door.rig.create("other", ttl_ms=LONG_MS)
    door.send(BROKEN["latin1 header"], other)
    assert (door.only(other)["subject"], door.only(other)["body"].rstrip()) == ("Grüße", "öäü")


def nested(depth):
    head = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (i, i) for i in range(depth))
    return head + b"Content-Type: text/plain\r\n\r\ndeep\r\n"


def nested_messages(depth):
    return b"Content-Type: message/rfc822\r\n\r\n" * depth + b"Subject: x\r\n\r\ninner\r\n"


def parts(n):
    return b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"--x\r\n\r\na\r\n" * n + b"--x--\r\n"


BOMBS = {
    "deep": nested(30), "very deep": nested(2000), "deep messages": nested_messages(20_000),
    "parts": parts(300), "many parts": parts(200_000),
    "files": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
             + b"--x\r\nContent-Type: image/png\r\n\r\na\r\n" * 60 + b"--x--\r\n",
    "headers": b"a:\r\n" * 500_000 + b"\r\nx",
}


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_refused_or_harmless(door, box, kind):
    """Nobody else waits for them, and they cost no memory to speak of."""
    refused = door.send(BOMBS[kind], box)
    if kind == "deep messages":
        assert refused in ({}, {box["address"]: 554})
    else:
        assert refused == {box["address"]: 554}
        assert door.mails(box) == []
    assert door.send(plain("after it"), box) == {}
    peak_kib = next(int(line.split()[1]) for line in open(f"/proc/{door.rig.daemon.process.pid}/status")
                    if line.startswith("VmHWM"))
    assert peak_kib < 400_000, peak_kib


def test_a_long_text_is_cut_and_says_so(door, box):
    line = base64.b64encode(bytes(57))
    raw = plain(body="") + (line + b"\r\n") * 10_000
    assert door.send(raw, box) == {}
    mail = door.only(box)
    assert mail["truncated"] is True and 250_000 < len(mail["body"]) <= 256 * 1024
