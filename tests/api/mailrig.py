# SPDX-License-Identifier: Apache-2.0
"""A daemon whose mailboxes live at a mail server: the double of tests/double, or nowhere but the store.

`Rig` has the daemon, its client, its clock and, with a generation, the server; and the few words that
the tests of mailboxes share.
"""
import datetime
import pathlib
import sys

from harness import HOUR_MS, NEVER_MS, ROOT, wait_until

sys.path.insert(0, str(pathlib.Path(ROOT) / "tests" / "double"))
import stalwart  # noqa: E402  (found only now)

DOMAIN = "example.test"
YEAR_MS = 365 * 86_400_000
TTL_MS = 300_000  # the shortest that may be asked for
GENERATIONS = ("rest", "registry")
DELETION = {"rest": "DELETE /api/principal", "registry": "x:Account/set"}
CREATION = {"rest": "POST /api/principal", "registry": "x:Account/set"}


def iso(ms):
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


class Rig:
    """`server` is None for the provider local, `clock` None for the machine's own time."""

    def __init__(self, start, clock=None, server=None, **settings):
        if server:
            settings = {"mailbox_provider": "stalwart", "stalwart_url": server.url, **settings}
            settings.setdefault("env", {"LAPSE_STALWART_CREDENTIALS": stalwart.ADMIN})
        if clock:
            settings.setdefault("request_timeout_ms", HOUR_MS)
            settings.setdefault("mailbox_sweep_ms", NEVER_MS)
        self.daemon = start(clock=clock, mailbox_domain=DOMAIN, **settings)
        self.clock, self.server = clock, server
        self.api = self.daemon.client()

    def create(self, username=None, ttl_ms=TTL_MS, **fields):
        body = {"ttl_ms": ttl_ms, **fields}
        if username:
            body["username"] = username
        return self.api.post("/v1/mailboxes", body).ok(201)

    def get(self, mailbox):
        return self.api.get(f"/v1/mailboxes/{mailbox['id']}").ok()

    def row(self, mailbox):
        """The row itself, without the look that would let it expire."""
        rows = self.daemon.rows("SELECT * FROM mailboxes WHERE id = ?", int(mailbox["id"][4:], 16))
        return rows[0] if rows else None

    def deletions(self):
        """How often the server was asked to delete an account."""
        if self.server.generation == "rest":
            return self.server.seen("DELETE /api/principal")
        return sum(b'"destroy"' in r.body for r in self.server.log if "x:Account/set" in r.calls)

    def pass_deadline(self, ttl_ms=TTL_MS):
        self.clock.advance(ttl_ms + 1)

    def pass_deadline_unseen(self, boxes, ttl_ms=TTL_MS):
        """Afterwards the boxes are due, and only a look or a sweep will find them: when their deadline passed, the
        store said that they had a year more. Another mailbox shows that the deadline's run has come and gone."""
        other = self.create(ttl_ms=ttl_ms)
        self.move_expiry(boxes, YEAR_MS)
        self.pass_deadline(ttl_ms)
        wait_until(lambda: self.api.get("/healthz").ok() and self.row(other)["status"] == "expired",
                   what="the deadline")
        self.settled(other, 0)
        self.move_expiry(boxes, -YEAR_MS)
        for box in boxes:
            assert self.row(box)["status"] == "active"

    def move_expiry(self, boxes, ms):
        """Behind the daemon's back."""
        for box in boxes:
            self.daemon.execute("UPDATE mailboxes SET expires_at = expires_at + ? WHERE id = ?", ms, int(box["id"][4:], 16))

    def settled(self, mailbox, flag, attempts=0):
        """Waits until the deletion of the account has this outcome."""
        def state():
            row = self.row(mailbox)
            return row and (row["stalwart_cleanup_failed"], row["cleanup_attempts"]) == (flag, attempts)
        wait_until(state, what=f"cleanup {flag} after {attempts} attempts: {self.row(mailbox)}")
        return self.row(mailbox)

    def sweep(self, **query):
        return self.api.sweep("mailboxes", **query)

    def events(self, kind):
        return self.daemon.events(f"mailbox.{kind}")
