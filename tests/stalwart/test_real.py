# SPDX-License-Identifier: Apache-2.0
"""Mailboxes at a real Stalwart: what the double of tests/double claims, the server itself says here."""
import itertools
import secrets
import signal

import pytest
from driver import Driver
from harness import Clock, Daemon, HOUR_MS, NEVER_MS, wait_until
from server import DOMAIN, PRIVATE

TTL_MS = 300_000  # the shortest that may be asked for
names = (f"agent-{i}" for i in itertools.count(1))


def password():
    return secrets.token_hex(16)  # as lapse makes them: the server refuses weak ones


@pytest.fixture
def drive(server):
    with Driver(server.url, server.credentials, timeout_ms=20_000) as d:
        yield d


@pytest.fixture
def pair(drive):
    """Two accounts: (address, secret) of each."""
    made = [(f"{next(names)}@{DOMAIN}", password()) for _ in range(2)]
    for address, secret in made:
        drive.ok("create", address, secret=secret)
    yield made
    for address, _ in made:
        drive.ok("delete", address)


def mails(drive, who, subject, **fields):
    """Those of the subject; delivery takes a moment."""
    found = []

    def look():
        listed = drive.ok("list", who[0], secret=who[1], limit=50, **fields)["mails"]
        found[:] = [m for m in listed if m["subject"] == subject]
        return found
    wait_until(look, 30, what=f"'{subject}' for {who[0]}")
    return found


# The provider --------------------------------------------------------------------------------------

def test_an_account_from_its_making_to_its_end(server, drive):
    address, secret = f"{next(names)}@{DOMAIN}", password()
    account = drive.ok("create", address, secret=secret)["account"]
    assert account.startswith({"rest": "rest:", "registry": "jmap:"}[server.generation])
    assert address in server.accounts()
    assert drive.ok("list", address, secret=secret)["mails"] == []
    drive.ok("delete", address, account=account)
    assert address not in server.accounts()
    assert drive("list", address, secret=secret)["err"] == "EUPSTREAM"


def test_a_mail_from_one_to_the_other(drive, pair):
    sender, reader = pair
    sent = drive.ok("send", *sender[:1], secret=sender[1], to=[reader[0]], subject="Grüße", text="first line\nsecond")
    assert sent["sent_id"]
    mail, = mails(drive, reader, "Grüße")
    assert (mail["from"], mail["to"], mail["read"]) == (sender[0], [reader[0]], False)
    whole, = drive.ok("get", reader[0], secret=reader[1], id=mail["id"])["mails"]
    assert whole["text"].split() == ["first", "line", "second"] and not whole["truncated"]
    drive.ok("read", reader[0], secret=reader[1], id=mail["id"])
    assert mails(drive, reader, "Grüße")[0]["read"]


def test_pages_in_their_order(drive, pair):
    sender, reader = pair
    for i in range(5):
        drive.ok("send", sender[0], secret=sender[1], to=[reader[0]], subject=f"page {i}", text="x")
        mails(drive, reader, f"page {i}")
    seen, cursor = [], None
    while True:
        more = {"after": cursor} if cursor else {}
        page = drive.ok("list", reader[0], secret=reader[1], limit=2, **more)
        seen += [m["subject"] for m in page["mails"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert sorted(seen) == [f"page {i}" for i in range(5)]


def test_an_address_is_taken_once(drive, pair):
    assert drive("create", pair[0][0], secret=password())["err"] == "ECONFLICT"


def test_a_domain_that_is_not_served(drive):
    answer = drive("create", "a@elsewhere.example", secret=password())
    assert (answer["err"], answer["field"]) == ("EINVAL", "domain")


def test_deleting_twice_is_one_deletion(drive):
    address = f"{next(names)}@{DOMAIN}"
    drive.ok("create", address, secret=password())
    drive.ok("delete", address)
    drive.ok("delete", address)


def test_one_that_was_deleted_behind_our_back(server, drive):
    address = f"{next(names)}@{DOMAIN}"
    account = drive.ok("create", address, secret=password())["account"]
    server.delete_behind_our_back(address)
    drive.ok("delete", address, account=account)


def test_a_wrong_password_of_the_mailbox(drive, pair):
    answer = drive("list", pair[0][0], secret=password())
    assert answer["err"] == "EUPSTREAM" and "password" in answer["message"]


def test_wrong_credentials_of_lapse(server):
    with Driver(server.url, "admin:wrong", timeout_ms=20_000) as d:
        answer = d("create", f"{next(names)}@{DOMAIN}", secret=password())
    assert answer["err"] == "EUPSTREAM" and "stalwart_credentials" in answer["message"]


def test_a_private_domain(server, drive, pair):
    """0.15 takes no address of a domain outside the public suffix list for sending, neither from nor to; 0.16 does."""
    own = (f"{next(names)}@{PRIVATE}", password())
    drive.ok("create", own[0], secret=own[1])
    inward = drive("send", pair[0][0], secret=pair[0][1], to=[own[0]], subject="inward", text="x")
    outward = drive("send", own[0], secret=own[1], to=[pair[0][0]], subject="outward", text="x")
    if server.generation == "rest":
        assert "invalidProperties" in inward["message"] and "send as" in outward["message"]
        assert drive.ok("list", own[0], secret=own[1])["mails"] == []
    else:
        assert (inward["err"], outward["err"]) == ("OK", "OK"), (inward, outward)
        mails(drive, own, "inward")
        mails(drive, pair[0], "outward")
    drive.ok("delete", own[0])


def test_a_server_that_stands_still(server):
    with Driver(server.url, server.credentials, timeout_ms=1500) as d:
        server.process.send_signal(signal.SIGSTOP)
        try:
            answer = d("delete", f"{next(names)}@{DOMAIN}")
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert answer["err"] == "EUPSTREAM" and "1500 ms" in answer["message"]


# The daemon ----------------------------------------------------------------------------------------

@pytest.fixture
def world(server, tmp_path):
    """A daemon with mailboxes there, its client and its clock."""
    clock = Clock(tmp_path)
    with Daemon(tmp_path / "data", clock=clock, mailbox_provider="stalwart", stalwart_url=server.url,
                mailbox_domain=DOMAIN, request_timeout_ms=HOUR_MS, mailbox_sweep_ms=NEVER_MS,
                env={"LAPSE_STALWART_CREDENTIALS": server.credentials}) as daemon:
        yield daemon.client(), clock


def create(api):
    return api.post("/v1/mailboxes", {"ttl_ms": TTL_MS, "username": next(names)}).ok(201)


def test_a_mailbox_lives_is_renewed_and_goes_with_its_account(server, world):
    api, clock = world
    box, other = create(api), create(api)
    api.post(f"/v1/mailboxes/{box['id']}/send",
             {"to": [other["address"]], "subject": "over there", "body": "hello"}).ok()
    wait_until(lambda: api.get(f"/v1/mailboxes/{other['id']}/messages").ok()["data"], 30, what="the mail")
    clock.advance(TTL_MS - 1000)
    api.post(f"/v1/mailboxes/{box['id']}/renew", {"ttl_ms": TTL_MS}).ok()
    clock.advance(2000)
    wait_until(lambda: other["address"] not in server.accounts(), 30, what="the account's end")
    assert box["address"] in server.accounts()
    assert api.get(f"/v1/mailboxes/{other['id']}").ok()["status"] == "expired"
    api.delete(f"/v1/mailboxes/{box['id']}").ok()
    wait_until(lambda: box["address"] not in server.accounts(), 30, what="the account's end")


def test_a_server_that_is_down_costs_attempts_and_no_account(server, world):
    api, clock = world
    box = create(api)
    server.stop()
    try:
        clock.advance(TTL_MS + 1)
        wait_until(lambda: api.get(f"/v1/mailboxes/{box['id']}").ok()["cleanup"] == {"state": "pending", "attempts": 1},
                   30, what="an attempt")
        api.post("/v1/mailboxes", {"username": next(names)}).fails(502, "upstream_error")
    finally:
        server.start()
    assert box["address"] in server.accounts()

    api.post("/v1/sweep/mailboxes").ok()
    wait_until(lambda: box["address"] not in server.accounts(), 30, what="the account's end")
    assert api.get(f"/v1/mailboxes/{box['id']}").ok()["cleanup"]["state"] == "clean"
