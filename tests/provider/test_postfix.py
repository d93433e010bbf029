# SPDX-License-Identifier: Apache-2.0
"""Mail through a real Postfix (Debian's) into local mailboxes: SMTP in, LMTP out, and swaks at both doors."""
import contextlib
import os
import pathlib
import pwd
import shutil
import smtplib
import socket
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
from harness import Daemon, wait_until  # noqa: E402  (found only now)

DOMAIN = "example.test"
POSTFIX = "/usr/sbin/postfix"

MASTER = """\
{port}    inet  n - n - -    smtpd
cleanup   unix  n - n - 0    cleanup
qmgr      unix  n - n 1 1    qmgr
rewrite   unix  - - n - -    trivial-rewrite
bounce    unix  - - n - 0    bounce
defer     unix  - - n - 0    bounce
trace     unix  - - n - 0    bounce
proxymap  unix  - - n - -    proxymap
retry     unix  - - n - -    error
error     unix  - - n - -    error
lmtp      unix  - - n - -    lmtp
anvil     unix  - - n - 1    anvil
postlog   unix-dgram n - n - 1 postlogd
"""

MAIN = """\
compatibility_level = 3.6
queue_directory = {base}/spool
data_directory = {base}/data
maillog_file = {base}/maillog
maillog_file_prefixes = {base}
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = loopback-only
inet_protocols = ipv4
myhostname = mail.{domain}
mydestination =
local_transport = error:there is no local delivery
virtual_mailbox_domains = {domain}
virtual_transport = lmtp:unix:{base}/lmtp
smtputf8_enable = yes
notify_classes =
minimal_backoff_time = 1s
queue_run_delay = 1s
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Postfix:
    """An instance of its own: directories below `base`, one port on loopback."""

    def __init__(self, base):
        self.base, self.port = base, free_port()
        self.etc = base / "etc"
        for name in ("etc", "spool", "data"):
            (base / name).mkdir()
        os.chown(base / "data", pwd.getpwnam("postfix").pw_uid, -1)
        (self.etc / "main.cf").write_text(MAIN.format(base=base, domain=DOMAIN))
        (self.etc / "master.cf").write_text(MASTER.format(port=f"127.0.0.1:{self.port}"))

    def run(self, command):
        done = subprocess.run([POSTFIX, "-c", str(self.etc), command], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def log(self):
        path = self.base / "maillog"
        return path.read_text() if path.exists() else ""

    def __enter__(self):
        code, said = self.run("start")
        assert code == 0, said + self.log()
        return self

    def __exit__(self, *ignored):
        self.run("stop")


@pytest.fixture
def base():
    if os.geteuid() != 0 or not os.path.exists(POSTFIX):
        pytest.skip("needs root and Debian's postfix: make deps-jmap")
    path = pathlib.Path(tempfile.mkdtemp(prefix="lapse-postfix-"))
    path.chmod(0o755)  # Postfix's own user goes through it
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def mail(base):
    """(api, Postfix, path of the LMTP socket)"""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(base / "store", lmtp_listen=f"unix:{base}/lmtp", mailbox_domain=DOMAIN,
                                            mailbox_unread_max=3))
        postfix = stack.enter_context(Postfix(base))
        yield daemon.client(), postfix, base / "lmtp"


def mails(api, box):
    return api.get(f"/v1/mailboxes/{box['id']}/messages").data


def swaks(*words):
    done = subprocess.run(["swaks", "--suppress-data", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_from_smtp_to_a_mailbox(mail):
    api, postfix, _ = mail
    box = api.post("/v1/mailboxes", {"username": "box"}).ok(201)
    with smtplib.SMTP("127.0.0.1", postfix.port) as smtp:
        assert smtp.sendmail("a@example.org", [box["address"]], "Subject: Grüße\r\n\r\nYour code is 482913.\r\n.\r\n..x"
                             .encode()) == {}
    wait_until(lambda: mails(api, box), timeout_s=30, what=f"the mail: {postfix.log()}")
    got = api.get(f"/v1/mailboxes/{box['id']}/messages/{mails(api, box)[0]['id']}").ok()
    assert got["subject"] == "Grüße" and got["body"] == "Your code is 482913.\n.\n..x\n", got


def test_unknown_is_bounced_and_full_is_queued(mail):
    api, postfix, _ = mail
    box = api.post("/v1/mailboxes", {"username": "full"}).ok(201)
    with smtplib.SMTP("127.0.0.1", postfix.port) as smtp:
        for i in range(4):
            smtp.sendmail("", [box["address"]], f"Subject: mail {i}\r\n\r\nx\r\n")
        smtp.sendmail("", [f"nobody@{DOMAIN}"], "Subject: lost\r\n\r\nx\r\n")
    wait_until(lambda: len(mails(api, box)) == 3, timeout_s=30, what=f"three of four: {postfix.log()}")
    wait_until(lambda: "452 4.2.2" in postfix.log() and "550 5.1.1" in postfix.log(), timeout_s=30,
               what=f"both refusals: {postfix.log()}")
    for one in mails(api, box):
        api.post(f"/v1/mailboxes/{box['id']}/messages/{one['id']}/read").ok()
    wait_until(lambda: len(mails(api, box)) == 4, timeout_s=60, what=f"the queued one: {postfix.log()}")


def test_many_recipients_of_one_mail(mail):
    api, postfix, _ = mail
    boxes = [api.post("/v1/mailboxes", {"username": f"many{i}"}).ok(201) for i in range(60)]
    with smtplib.SMTP("127.0.0.1", postfix.port) as smtp:
        assert smtp.sendmail("a@example.org", [b["address"] for b in boxes], "Subject: all\r\n\r\nx\r\n") == {}
    wait_until(lambda: all(len(mails(api, b)) == 1 for b in boxes), timeout_s=60, what=f"all: {postfix.log()}")


def test_swaks_speaks_lmtp(mail, base):
    api, _, path = mail
    box = api.post("/v1/mailboxes", {"username": "swaks"}).ok(201)
    (base / "note.bin").write_bytes(bytes(range(256)))
    code, said = swaks("--socket", str(path), "--protocol", "LMTP", "--from", "a@example.org", "--to", box["address"],
                       "--header", "Subject: by swaks", "--attach", f"@{base}/note.bin")
    assert code == 0, said
    got = api.get(f"/v1/mailboxes/{box['id']}/messages/{mails(api, box)[0]['id']}").ok()
    assert got["subject"] == "by swaks" and got["attachments"][0]["size"] == 256
    code, said = swaks("--socket", str(path), "--protocol", "LMTP", "--to", f"nobody@{DOMAIN}")
    assert code != 0 and "550 5.1.1" in said
