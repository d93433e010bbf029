# SPDX-License-Identifier: Apache-2.0
"""A private Cyrus on loopback, for the JMAP client: everything below one directory, no root, gone afterwards.

It never runs as root: when the tests do, it runs as the user `cyrus` of its Debian package. Users are
alice, bob and carol of example.test; what they send goes through a small sendmail that delivers to Cyrus by
LMTP, refuses everybody else of example.test, and keeps each message as it came in `outbox`.
"""
import json
import os
import pathlib
import pwd
import shutil
import signal
import smtplib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

DOMAIN = "example.test"
USERS = {f"{name}@{DOMAIN}": f"{name}-password" for name in ("alice", "bob", "carol")}

IMAPD_CONF = """\
configdirectory: {b}/conf
defaultpartition: default
partition-default: {b}/data
temp_path: {b}/tmp
cyrus_user: {user}
servername: localhost
virtdomains: userid
defaultdomain: internal
allowplaintext: yes
sasl_mech_list: PLAIN
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {b}/sasldb2
httpmodules: jmap
httpallowcompress: no
conversations: yes
search_engine: xapian
defaultsearchtier: t1
t1searchpartition-default: {b}/search
sync_log: yes
sync_log_channels: squatter
smtp_backend: sendmail
sendmail: {b}/sendmail
jmapsubmission_deleteonsend: no
autocreate_quota: 0
autocreate_post: yes
autocreate_inbox_folders: Drafts|Sent|Trash
xlist-drafts: Drafts
xlist-sent: Sent
xlist-trash: Trash
"""

CYRUS_CONF = """\
START {{
  recover cmd="ctl_cyrusdb -C {b}/imapd.conf -r"
}}
SERVICES {{
  http cmd="httpd -C {b}/imapd.conf" listen="127.0.0.1:{port}" prefork=1
  lmtpunix cmd="lmtpd -a -C {b}/imapd.conf" listen="{b}/lmtp" prefork=0
}}
DAEMON {{
  squatter cmd="squatter -C {b}/imapd.conf -R"
}}
EVENTS {{
}}
"""

SENDMAIL = """\
#!{python}
import sys
sys.path.insert(0, {here!r})
import cyrus
cyrus.sendmail({b!r})
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Lmtp(smtplib.LMTP):
    """One recipient a transaction."""

    def __init__(self, path):
        super().__init__(path, local_hostname="localhost")


def deliver_apart(base, sender, recipients, message):
    """In a process of its own: Cyrus holds the sender's mailbox until we end, and a copy to the sender waits for
    just that."""
    if os.fork() != 0:
        return
    os.setsid()
    for fd in range(3):
        os.close(fd)
    for to in recipients:
        if to in USERS:
            Lmtp(str(base / "lmtp")).sendmail(sender, [to], message)
    os._exit(0)


def sendmail(base):
    """The SMTP server on standard input that Cyrus talks to (`sendmail -bs`)."""
    base = pathlib.Path(base)

    def say(line):
        sys.stdout.write(line + "\r\n")
        sys.stdout.flush()

    def address(line):
        return line[line.index("<") + 1:line.index(">")]

    sender, recipients = None, []
    say("220 localhost ESMTP")
    for raw in sys.stdin.buffer:
        line = raw.decode("latin-1").strip()
        verb = line[:4].upper()
        if verb == "EHLO":
            say("250-localhost")
            say("250 ENHANCEDSTATUSCODES")
        elif verb == "MAIL":
            sender = address(line)
            say("250 2.1.0 ok")
        elif verb == "RCPT":
            to = address(line)
            if to.endswith("@" + DOMAIN) and to not in USERS:
                say("550 5.1.1 no such user here")
            else:
                recipients.append(to)
                say("250 2.1.5 ok")
        elif verb == "DATA":
            say("354 go on")
            message = b""
            for part in sys.stdin.buffer:
                if part.rstrip(b"\r\n") == b".":
                    break
                message += part[1:] if part.startswith(b"..") else part
            kept = base / "outbox" / f"{time.time_ns()}.json"
            kept.write_text(json.dumps({"from": sender, "to": recipients, "message": message.decode("latin-1")}))
            deliver_apart(base, sender, recipients, message)
            say("250 2.0.0 ok")
            sender, recipients = None, []
        elif verb == "QUIT":
            say("221 2.0.0 bye")
            return
        else:
            say("250 2.0.0 ok")


class Cyrus:
    def __init__(self):
        self.user = "cyrus" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="lapse-cyrus-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def _as_user(self):
        if os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam(self.user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _write(self, name, text, mode=0o644):
        (self.base / name).write_text(text)
        (self.base / name).chmod(mode)

    def __enter__(self):
        values = {"b": str(self.base), "user": self.user, "port": self.port}
        for name in ("conf", "data", "tmp", "search", "outbox"):
            (self.base / name).mkdir()
        self._write("imapd.conf", IMAPD_CONF.format(**values))
        self._write("cyrus.conf", CYRUS_CONF.format(**values))
        shutil.copy(__file__, self.base / "cyrus.py")     # where the other user can read it
        self._write("sendmail", SENDMAIL.format(python="/usr/bin/python3", here=str(self.base), b=str(self.base)), 0o755)
        records = "".join(f"{user.split('@')[0]}\\00{DOMAIN}\\00userPassword\n{password}\n"
                          for user, password in USERS.items())
        subprocess.run(["db5.3_load", "-T", "-t", "hash", str(self.base / "sasldb2")], input=records, text=True,
                       check=True)
        if os.geteuid() == 0:
            for path in [self.base, *self.base.rglob("*")]:
                shutil.chown(path, self.user, pwd.getpwnam(self.user).pw_gid)
        self.log = open(self.base / "log", "w+")
        # A session of its own: the master signals its whole process group when it ends.
        self.process = subprocess.Popen(
            ["/usr/sbin/cyrmaster", "-C", str(self.base / "imapd.conf"), "-M", str(self.base / "cyrus.conf"),
             "-p", str(self.base / "master.pid")],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True, cwd=self.base,
            **self._as_user())
        try:
            self._wait()
            for user in USERS:                            # makes the account and its folders
                self.deliver(user, "Subject: welcome\r\nFrom: post@far.test\r\n\r\nwelcome\r\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self):
        deadline = time.monotonic() + 20
        while True:
            try:
                urllib.request.urlopen(self.url + "/.well-known/jmap", timeout=2)
            except urllib.error.HTTPError:
                return                                    # 401: it answers
            except OSError:
                assert self.process.poll() is None, "the master ended: " + (self.base / "log").read_text()
                assert time.monotonic() < deadline, "Cyrus did not answer"
                time.sleep(0.05)
            else:
                return

    def deliver(self, to, message, sender="post@far.test"):
        if isinstance(message, str):
            message = message.encode()
        with Lmtp(str(self.base / "lmtp")) as lmtp:
            assert not lmtp.sendmail(sender, [to], message)

    def outbox(self):
        return [json.loads(p.read_text()) for p in sorted((self.base / "outbox").iterdir())]

    def __exit__(self, *exc):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.base, ignore_errors=True)
