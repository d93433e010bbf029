# SPDX-License-Identifier: Apache-2.0
"""The provider and the daemon's fetcher against the double, over real sockets: every way a mail server can fail,
at both generations. Two things must never happen: an account that lives and counts as gone, and one that may
exist and counts as never made."""
import base64
import json
import time

import pytest
from driver import Driver
from stalwart import ADMIN, API_KEY, Stalwart

A, B, SECRET = "a@example.test", "b@example.test", "0123456789abcdef0123456789abcdef"
MARK = "lapse 0000000000000001"  # what lapse writes into the accounts of drive.c's mailbox
GENERATIONS = ("rest", "registry")
CREATE = {"rest": "POST /api/principal", "registry": "x:Account/set"}
DELETE = {"rest": "DELETE /api/principal", "registry": "x:Account/set"}
SOON_S = 3  # "in time", with room for a busy machine; what must not happen takes far longer


@pytest.fixture(params=GENERATIONS)
def server(request):
    with Stalwart(request.param) as s:
        yield s


@pytest.fixture
def rest():
    with Stalwart("rest") as s:
        yield s


@pytest.fixture
def registry():
    with Stalwart("registry") as s:
        yield s


def drive(server, **settings):
    return Driver(server.url, ADMIN, **settings)


def as_a(**fields):
    return {"address": A, "secret": SECRET, **fields}


# The way it should be ----------------------------------------------------------------------------------

def test_create_and_delete(server):
    with drive(server) as d:
        made = d.ok("create", A, secret=SECRET)
        assert made["account"] == {"rest": "rest:50", "registry": "jmap:u50"}[server.generation]
        assert server.accounts[A].secret == SECRET and server.accounts[A].name == A
        d.ok("delete", A, account=made["account"])
        assert A not in server.accounts


def test_an_api_key_and_our_name(server):
    with Driver(server.url, API_KEY) as d:
        d.ok("create", A, secret=SECRET)
    assert {r.headers["authorization"] for r in server.log} == {"Bearer " + API_KEY}
    assert {r.headers["user-agent"].split("/")[0] for r in server.log} == {"lapse"}


def test_an_address_that_is_taken(server):
    server.add(A)
    with drive(server) as d:
        answer = d("create", A, secret=SECRET)
    assert (answer["err"], answer["unknown"]) == ("ECONFLICT", False)


def test_a_domain_nobody_serves(server):
    with drive(server) as d:
        answer = d("create", "a@elsewhere.test", secret=SECRET)
    assert (answer["err"], answer["field"], answer["unknown"]) == ("EINVAL", "domain", False)
    assert "elsewhere.test" in answer["message"]


def test_the_domain_must_match_exactly(registry):
    """The server's filter is a search: 'example.test' also finds 'my-example.test'."""
    registry.domains.insert(0, "my-example.test")
    with drive(registry) as d:
        d.ok("create", A, secret=SECRET)
    assert list(registry.accounts) == [A]


def test_deleting_what_is_gone_is_fine(server):
    with drive(server) as d:
        for account in ("", "rest:50", "jmap:u50", "jmap:../x", "nonsense"):
            d.ok("delete", A, account=account)


def test_names_are_escaped(rest):
    odd = "a b/c?d%e#f+g'é@example.test"
    with drive(rest) as d:
        rest.add(odd, description=MARK)
        rest.add(A)
        d.ok("delete", odd)
    assert list(rest.accounts) == [A]


# Every failure, both generations, creating and deleting -------------------------------------------------

HTML = "<!doctype html><title>it works</title>"
FAILURES = {
    # name: (kind, options, whether a create that got this may have happened)
    "400": ("status", {"status": 400}, False),
    "401": ("status", {"status": 401, "body": "{}"}, False),
    "403": ("status", {"status": 403}, False),
    "429": ("status", {"status": 429}, False),
    "500": ("status", {"status": 500}, True),
    "502": ("status", {"status": 502, "body": HTML, "content_type": "text/html"}, True),
    "503": ("status", {"status": 503}, True),
    "204": ("status", {"status": 204}, True),
    "html": ("status", {"body": HTML, "content_type": "text/html"}, True),
    "no json": ("status", {"body": '{"data":'}, True),
    "empty": ("status", {"body": ""}, True),
    "array": ("status", {"body": "[]"}, True),
    "null": ("status", {"body": "null"}, True),
    "empty object": ("status", {"body": "{}"}, True),
    "twice": ("status", {"body": '{"data":1,"data":2}'}, True),
    "deep": ("status", {"body": "[" * 5000}, True),
    "wrong types": ("status", {"body": '{"methodResponses":[7,[],["x:Account/set"],["x:Account/set",7,"s"]],"error":7}'},
                    True),
    "another answer": ("status", {"body": '{"methodResponses":[["x:Account/set",{"created":{"z":{"id":"u1"}},'
                                          '"destroyed":["u1"]},"other"]],"sessionState":"0"}'}, True),
    "reset": ("reset", {}, True),
    "act, then reset": ("act_then_reset", {}, True),
    "close": ("close", {}, True),
    "act, then close": ("act_then_close", {}, True),
    "hang": ("hang", {}, True),
    "act, then hang": ("act_then_hang", {}, True),
    "trickle": ("trickle", {"every_ms": 50}, True),
    "giant": ("giant", {}, True),
    "giant headers": ("giant", {"headers": True}, True),
    "redirect": ("redirect", {"to": "/elsewhere"}, True),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_create_fails(server, failure):
    kind, options, maybe = FAILURES[failure]
    server.fault(CREATE[server.generation], kind, **options)
    with drive(server, timeout_ms=400) as d:
        began = time.monotonic()
        answer = d("create", A, secret=SECRET)
        assert time.monotonic() - began < SOON_S
        assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", maybe), answer
        assert answer["account"] is None and answer["message"]
        assert SECRET not in answer["message"] and "correct-horse" not in answer["message"]
        if A in server.accounts:
            assert answer["unknown"], "it exists and nobody would delete it"
        d.ok("delete", A)           # what the room does about an unknown outcome
        assert A not in server.accounts
        d.ok("create", A, secret=SECRET)


@pytest.mark.parametrize("failure", FAILURES)
def test_delete_fails(server, failure):
    kind, options, _ = FAILURES[failure]
    account = server.add(A)
    known = f"rest:{account.number}" if server.generation == "rest" else f"jmap:{account.id}"
    server.fault(DELETE[server.generation], kind, **options)
    with drive(server, timeout_ms=400) as d:
        answer = d("delete", A, account=known)
        if server.generation == "rest" and kind.endswith(("reset", "close")) and answer["err"] == "OK":
            # a DELETE on a kept connection that broke may be sent again, which is harmless
            assert A not in server.accounts and server.seen(DELETE["rest"]) == 2
            return
        assert answer["err"] == "EUPSTREAM" and answer["message"], answer
        assert not answer["unknown"]
        d.ok("delete", A, account=known)
        assert A not in server.accounts


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("where", ("x:Domain/query", "x:Account/get", "x:Account/query"))
def test_delete_fails_while_looking(registry, failure, where):
    """Whatever the look-up answers, an account that lives is never taken for gone."""
    kind, options, _ = FAILURES[failure]
    account = registry.add(A, description=MARK)
    known = f"jmap:{account.id}" if where == "x:Account/get" else ""
    registry.fault(where, kind, **options)
    with drive(registry, timeout_ms=400) as d:
        d("delete", A, account=known)
        assert A in registry.accounts
        assert d.wait(1)["err"] == "EUPSTREAM"


@pytest.mark.parametrize("op", ("create", "delete", "list", "get", "send"))
def test_answers_with_one_thing_wrong(server, op):
    """Whatever single value of an answer is missing or of another type: nothing crashes, no account that lives
    counts as gone, none that was made counts as not made."""
    with drive(server) as d:
        for seed in range(200):
            server.accounts.clear()
            server.clear()
            server.add(B, SECRET)
            if op != "create":
                server.add(A, SECRET, description=MARK).deliver(
                    subject="x", textBody=[part("1", "text/plain")], bodyValues={"1": {"value": "text"}})
            server.fault("/", "mutate", skip=seed % 5, seed=seed)
            known = f"jmap:{server.accounts[A].id}" if op == "delete" and seed % 2 else ""
            answer = d(op, **as_a(account=known, to=[B], text="x", id="M1"))
            if op == "delete" and answer["err"] == "OK":
                assert A not in server.accounts, f"seed {seed}: it lives"
            if op == "create" and A in server.accounts:
                assert answer["err"] == "OK" or answer["unknown"], f"seed {seed}: {answer}"
            if op == "create" and answer["err"] == "OK":
                assert A in server.accounts


@pytest.mark.parametrize("error", ("unsupported", "assertFailed", "other", "fieldMissing", "missingParameter"))
def test_errors_that_come_as_200(rest, error):
    body = json.dumps({"error": error, "details": "no", "reason": None})
    with drive(rest) as d:
        rest.fault(CREATE["rest"], "status", body=body)
        made = d("create", A, secret=SECRET)
        assert (made["err"], made["unknown"]) == ("EUPSTREAM", False) and error in made["message"]
        rest.add(A, description=MARK)
        rest.fault(DELETE["rest"], "status", body=body)
        assert d("delete", A)["err"] == "EUPSTREAM"


@pytest.mark.parametrize("error, maybe", [("forbidden", False), ("serverFail", True), ("unknownMethod", False),
                                          ("serverPartialFail", True), ("requestTooLarge", False)])
def test_method_errors(registry, error, maybe):
    body = json.dumps({"methodResponses": [["error", {"type": error}, "s"]], "sessionState": "0"})
    account = registry.add(B)
    with drive(registry) as d:
        registry.fault("x:Account/set", "status", body=body, times=2)
        made = d("create", A, secret=SECRET)
        assert (made["err"], made["unknown"]) == ("EUPSTREAM", maybe) and error in made["message"]
        assert d("delete", B, account=f"jmap:{account.id}")["err"] == "EUPSTREAM"


def test_a_weak_password_is_not_repeated(registry):
    """The server's description quotes it; only the error's type goes further."""
    with drive(registry) as d:
        answer = d("create", A, secret="weak")
    assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", False)
    assert "invalidProperties" in answer["message"] and "weak" not in answer["message"]


def test_nobody_there():
    with Stalwart() as gone:
        pass
    with Driver(gone.url, ADMIN) as d:
        for op in ("create", "delete", "list"):
            answer = d(op, A, secret=SECRET)
            assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", False)
            assert "could not be asked" in answer["message"]


def test_wrong_credentials(server):
    with Driver(server.url, "admin:wrong") as d:
        for op in ("create", "delete"):
            answer = d(op, A, secret=SECRET)
            assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", False)
            assert "stalwart_credentials" in answer["message"] and "wrong" not in answer["message"]


# Which generation, and what 404 means --------------------------------------------------------------------

def test_a_404_of_a_server_with_principals_is_gone(rest):
    with drive(rest) as d:
        for body, content_type in ((b"", "text/plain"), (b'{"status":404}', "application/problem+json")):
            rest.fault(DELETE["rest"], "status", status=404, body=body, content_type=content_type)
            d.ok("delete", A, account="rest:50")
    assert rest.seen("GET /api/principal?") == 2, "once at the first use, once to be sure about the second 404"


def test_a_404_of_anything_else_is_not(rest):
    """Wrong port, wrong path, a proxy that lost its server: everything is 404, and nothing is gone."""
    rest.add(A, description=MARK)
    rest.fault("/", "status", status=404, times=None)
    with drive(rest) as d:
        for _ in range(3):
            answer = d("delete", A)
            assert answer["err"] == "EUPSTREAM" and "404" in answer["message"]
        rest.clear()
        d.ok("delete", A)
    assert A not in rest.accounts


def test_a_server_that_turned_into_404s(rest):
    """The generation was known; it is asked for again before a 404 counts."""
    with drive(rest) as d:
        d.ok("create", A, secret=SECRET)
        rest.fault("/", "status", status=404, times=None)
        assert d("delete", A)["err"] == "EUPSTREAM"
        rest.clear()
        d.ok("delete", A)
    assert A not in rest.accounts


def test_an_upgrade_between_create_and_delete(rest):
    """The number of the old generation is another account's id in the new one."""
    with drive(rest) as d:
        made = d.ok("create", A, secret=SECRET)
        other = rest.add(B)
        other.id, rest.generation = made["account"].removeprefix("rest:"), "registry"
        d.ok("delete", A, account=made["account"])
    assert list(rest.accounts) == [B]


def test_an_upgrade_before_a_create(rest):
    with drive(rest) as d:
        d.ok("create", A, secret=SECRET)
        rest.generation = "registry"
        assert d.ok("create", B, secret=SECRET)["account"].startswith("jmap:")


def test_a_downgrade_heals_with_the_next_attempt(registry):
    with drive(registry) as d:
        d.ok("create", A, secret=SECRET)
        registry.generation = "rest"
        assert d("delete", A)["err"] == "EUPSTREAM"
        d.ok("delete", A)
    assert A not in registry.accounts


def test_the_generation_is_asked_for_once_and_after_a_failure(server):
    probe = "GET /api/principal?"
    with drive(server) as d:
        d.ok("create", A, secret=SECRET)
        d.ok("create", B, secret=SECRET)
        assert server.seen(probe) == 1
        server.fault(DELETE[server.generation], "status", status=502)
        d("delete", A)
        d.ok("delete", A)
        assert server.seen(probe) == 2
        d.ok("delete", B)
        assert server.seen(probe) == 2


def test_a_server_set_up_anew(registry):
    """Our id is somebody else's account now: theirs stays."""
    theirs = registry.add(B)
    with drive(registry) as d:
        d.ok("delete", A, account=f"jmap:{theirs.id}")
    assert list(registry.accounts) == [B] and registry.seen("x:Account/set") == 0


def test_an_address_that_was_made_again_by_somebody_else(registry):
    """Our account is gone, by its id; the one with its address now has another."""
    gone, theirs = registry.add(A, description=MARK), registry.add(A, description="Alice")
    with drive(registry) as d:
        answer = d("delete", A, account=f"jmap:{gone.id}")
        assert answer["err"] == "EUPSTREAM" and "did not make" in answer["message"]
        assert registry.accounts == {A: theirs}
        theirs.description = MARK  # the server was set up anew from its data: ids have changed
        d.ok("delete", A, account=f"jmap:{gone.id}")
    assert registry.accounts == {}


def test_only_the_account_itself_is_deleted(registry):
    registry.domains.append("other.test")
    for address in ("aa@example.test", "a@other.test", "ba@example.test", A):
        registry.add(address, description=MARK)
    with drive(registry) as d:
        d.ok("delete", A)
    assert A not in registry.accounts and len(registry.accounts) == 3


@pytest.mark.parametrize("description", (None, "", "Alice", "lapse 0000000000000002"))
def test_an_account_of_somebody_else(server, description):
    """The making of ours was never answered: what has the address now may have had it before."""
    server.add(A, description=description)
    with drive(server) as d:
        answer = d("delete", A)
        assert answer["err"] == "EUPSTREAM" and "did not make" in answer["message"]
        assert A in server.accounts
        server.accounts[A].description = MARK
        d.ok("delete", A)
    assert A not in server.accounts


def test_a_group_with_the_address_is_no_mailbox(registry):
    registry.add(A, kind="Group")
    with drive(registry) as d:
        d.ok("delete", A)
    assert A in registry.accounts


def test_one_of_many_accounts(registry):
    for i in range(150):
        registry.add(f"x{i}@example.test")
    registry.add(A, description=MARK)
    with drive(registry) as d:
        d.ok("delete", A)
    assert A not in registry.accounts


def test_too_many_accounts_of_that_name_is_not_gone(registry):
    for i in range(150):
        registry.add(f"xa{i}@example.test")
    registry.add(A)
    with drive(registry) as d:
        assert d("delete", A)["err"] == "EUPSTREAM"
        d.ok("delete", A, account=f"jmap:{registry.accounts[A].id}")
    assert A not in registry.accounts


def test_a_domain_that_went_tells_nothing_about_the_account(registry):
    registry.add(A)
    with drive(registry) as d:
        answer = d("delete", "a@elsewhere.test")
    assert answer["err"] == "EUPSTREAM" and "cannot be told" in answer["message"]


# Time, connections, stopping -----------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ("hang", "trickle"))
@pytest.mark.parametrize("op", ("create", "delete", "list", "get", "send"))
def test_every_operation_ends_in_time(server, op, kind):
    server.add(A, SECRET)
    server.fault("/", kind, times=None, every_ms=20)
    with drive(server, timeout_ms=300) as d:
        began = time.monotonic()
        answer = d(op, **as_a(to=[B], id="M1"))
        assert answer["err"] == "EUPSTREAM" and "300 ms" in answer["message"]
        assert 0.25 < time.monotonic() - began < SOON_S


def test_the_time_is_for_all_questions_together(server):
    server.add(A, SECRET)
    server.add(B, SECRET)
    server.fault("/", "delay", times=None, ms=250)
    with drive(server, timeout_ms=600) as d:
        began = time.monotonic()
        assert d("send", **as_a(to=[B], text="x"))["err"] == "EUPSTREAM"
        assert time.monotonic() - began < SOON_S


def test_connections_are_few_and_kept(server):
    for i in range(40):
        server.add(f"m{i}@example.test", description=MARK)
    server.delay_ms = 5
    with drive(server, LAPSE_STALWART_CONNECTIONS_MAX="3") as d:
        started = [d.start("delete", f"m{i}@example.test") for i in range(40)]
        assert all(d.wait(n)["err"] == "OK" for n in started)
    assert not server.accounts
    assert len({r.connection for r in server.log}) <= 3


def test_who_waits_for_a_connection_does_not_wait_for_ever(server):
    server.add(A)
    server.fault("/", "hang", times=None)
    with drive(server, timeout_ms=400, LAPSE_STALWART_CONNECTIONS_MAX="1") as d:
        began = time.monotonic()
        started = [d.start("delete", A) for _ in range(50)]
        assert all(d.wait(n)["err"] == "EUPSTREAM" for n in started)
        assert time.monotonic() - began < SOON_S
    assert len(server.log) <= 3, "the others never reached the server"


def test_a_stop_waits_for_no_server(server):
    server.fault("/", "hang", times=None)
    with drive(server, timeout_ms=60000, LAPSE_STALWART_CONNECTIONS_MAX="2") as d:
        started = [d.start(op, **as_a(to=[B])) for op in ("create", "delete", "list", "send", "create")]
        while len(server.log) < 2:
            time.sleep(0.01)
        began = time.monotonic()
        d.start("stop")
        assert all(d.wait(n)["err"] == "EUNAVAILABLE" for n in started)
        late = d("create", A, secret=SECRET)
        assert (late["err"], late["unknown"]) == ("EUNAVAILABLE", False)
        d.close()
        assert time.monotonic() - began < SOON_S


def test_a_stop_in_the_middle_of_a_create_leaves_it_unknown(server):
    server.fault(CREATE[server.generation], "act_then_hang")
    with drive(server, timeout_ms=60000) as d:
        n = d.start("create", A, secret=SECRET)
        while A not in server.accounts:
            time.sleep(0.01)
        d.start("stop")
        assert (d.wait(n)["err"], d.wait(n)["unknown"]) == ("EUNAVAILABLE", True)


@pytest.mark.parametrize("kind", ("act_then_reset", "act_then_close"))
def test_a_create_is_never_repeated_on_its_own(server, kind):
    """libcurl would send it again when a kept connection breaks; the second would find the address taken, and
    nobody would know that it is ours."""
    where = CREATE[server.generation]
    with drive(server) as d:
        d.ok("create", B, secret=SECRET)               # opens the connection that is kept
        server.fault(where, kind)
        answer = d("create", A, secret=SECRET)
    assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", True)
    assert server.seen(where) == 2 and A in server.accounts


# Mail ------------------------------------------------------------------------------------------------------

@pytest.fixture
def mailbox(server):
    server.add(A, SECRET)
    server.add(B, SECRET)
    with drive(server) as d:
        yield server, d


def fill(server, count):
    for i in range(count):
        server.accounts[A].deliver(subject=f"no {i}", receivedAt=f"2026-11-15T10:{i // 60:02}:{i % 60:02}Z",
                                   **{"from": [{"name": "B", "email": B}], "to": [{"name": None, "email": A}]})


def test_pages_newest_first(mailbox):
    server, d = mailbox
    fill(server, 25)
    seen, after, pages = [], {}, 0
    while True:
        page = d.ok("list", **as_a(limit=10, **after))
        seen += [m["subject"] for m in page["mails"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        after = {"after": page["next_cursor"]}
        server.accounts[A].deliver(subject="new", receivedAt="2026-11-16T00:00:00Z")   # moves every position
    assert seen == [f"no {i}" for i in reversed(range(25))] and pages == 3


def test_a_full_last_page_has_no_next(mailbox):
    server, d = mailbox
    fill(server, 10)
    assert d.ok("list", **as_a(limit=10))["next_cursor"] is None
    assert d.ok("list", **as_a(limit=9))["next_cursor"] is not None
    assert d.ok("list", **as_a(limit=1, folder="junk"))["mails"] == []


@pytest.mark.parametrize("cursor", ("", "!", "a b", "../..", "\x00x", "é", "x" * 256, '"},{'))
def test_a_cursor_that_is_none(mailbox, cursor):
    server, d = mailbox
    answer = d("list", **as_a(after=cursor)) if "\x00" not in cursor else d("list", **as_a(after="\x01"))
    assert (answer["err"], answer["field"]) == ("EINVAL", "after")
    assert server.seen("Email/query") == 0


def test_a_cursor_whose_mail_went(mailbox):
    server, d = mailbox
    fill(server, 3)
    cursor = d.ok("list", **as_a(limit=1))["next_cursor"]
    server.accounts[A].mails.clear()
    answer = d("list", **as_a(after=cursor))
    assert (answer["err"], answer["field"]) == ("EINVAL", "after")


def test_folders(mailbox):
    server, d = mailbox
    account = server.accounts[A]
    for folder, role in (("a", "inbox"), ("c", "junk"), ("d", "drafts"), ("e", "sent")):
        account.deliver(subject=role, mailboxIds={folder: True})
        assert [m["subject"] for m in d.ok("list", **as_a(folder=role))["mails"]] == [role]
    assert len(d.ok("list", **as_a(folder="all"))["mails"]) == 4


def test_mails_with_nothing_in_them(mailbox):
    server, d = mailbox
    i = server.accounts[A].deliver(receivedAt="yesterday", to=[{"name": "a group", "email": None}], keywords=None)
    mail, = d.ok("list", **as_a())["mails"]
    assert (mail["from"], mail["subject"], mail["to"], mail["cc"], mail["read"]) == ("", "", [], [], False)
    assert mail["received_at"] == "1970-01-01T00:00:00.000Z"
    read, = d.ok("get", **as_a(id=i))["mails"]
    assert (read["text"], read["html"], read["truncated"]) == (None, None, False)


def part(i, kind):
    return {"partId": i, "type": kind}


@pytest.mark.parametrize("text_body, html_body, values, text, html", [
    ([part("1", "text/plain")], [part("1", "text/plain")], {"1": "plain"}, "plain", None),
    ([part("1", "text/html")], [part("1", "text/html")], {"1": "<b>"}, None, "<b>"),
    ([part("1", "text/plain")], [part("2", "text/html")], {"1": "plain", "2": "<b>"}, "plain", "<b>"),
    ([part("1", "text/plain"), part("2", "image/png"), part("3", "TEXT/PLAIN")], [part("3", "text/plain")],
     {"1": "one", "3": "two\n"}, "one\ntwo\n", None),
    ([part("1", "text/plain"), part("9", "text/plain")], [], {"1": "one"}, "one", None),
    ([part(None, "text/plain"), {}, 7], None, {}, None, None),
])
def test_bodies(mailbox, text_body, html_body, values, text, html):
    server, d = mailbox
    i = server.accounts[A].deliver(textBody=text_body, htmlBody=html_body,
                                   bodyValues={k: {"value": v} for k, v in values.items()})
    mail, = d.ok("get", **as_a(id=i))["mails"]
    assert (mail["text"], mail["html"]) == (text, html)


def test_a_long_body_is_cut_and_says_so(mailbox):
    server, d = mailbox
    i = server.accounts[A].deliver(textBody=[part("1", "text/plain")], bodyValues={"1": {"value": "x" * 1000000}})
    mail, = d.ok("get", **as_a(id=i))["mails"]
    assert len(mail["text"]) == 262144 and mail["truncated"]


@pytest.mark.parametrize("i", ("M99", "", "no such id", "x" * 300, '"]'))
def test_no_such_mail(mailbox, i):
    _, d = mailbox
    assert d("get", **as_a(id=i))["err"] == "ENOTFOUND"


def test_send(mailbox):
    server, d = mailbox
    sent = d.ok("send", **as_a(to=[B], subject="hällo", text="text", html="<p>text"))
    got, = server.accounts[B].mails.values()
    assert got["from"] == [{"email": A}] and got["to"] == [{"email": B}] and got["subject"] == "hällo"
    mail, = d.ok("list", **as_a(folder="sent"))["mails"]
    assert mail["id"] == sent["sent_id"] and mail["read"]
    assert d.ok("list", **as_a(folder="drafts"))["mails"] == []
    read, = d.ok("get", B, secret=SECRET, id=got["id"])["mails"]
    assert (read["text"], read["html"], read["from"]) == ("text", "<p>text", A)


def test_a_blind_copy_is_blind(mailbox):
    server, d = mailbox
    c = server.add("c@example.test", SECRET)
    d.ok("send", **as_a(to=[B], cc=["x@far.test"], bcc=["c@example.test", B.upper()], text="x"))
    assert len(c.mails) == 1 and len(server.accounts[B].mails) == 1, "everybody once"
    request = next(r for r in server.log if "EmailSubmission/set" in r.calls)
    calls = json.loads(request.body)["methodCalls"]
    assert "c@example.test" not in json.dumps(calls[0]) and "bcc" not in json.dumps(calls[0]).lower()
    assert [r["email"] for r in calls[1][1]["create"]["s"]["envelope"]["rcptTo"]] == \
        [B, "x@far.test", "c@example.test"]


def test_a_refused_recipient(mailbox):
    server, d = mailbox
    answer = d("send", **as_a(to=["nobody@example.test"], text="x"))
    assert (answer["err"], answer["field"]) == ("EINVAL", "to")
    assert "nobody@example.test" in answer["message"] and "not sent to anyone" in answer["message"]
    assert server.accounts[A].mails == {}, "the draft is gone"


def test_some_refused_recipients(mailbox):
    server, d = mailbox
    answer = d("send", **as_a(to=[B, "nobody@example.test"], text="x"))
    assert (answer["err"], answer["field"]) == ("EINVAL", "to")
    assert "nobody@example.test" in answer["message"] and "the others get" in answer["message"]
    assert len(server.accounts[B].mails) == 1 and len(server.accounts[A].mails) == 1


@pytest.mark.parametrize("error, err, field", [
    ({"type": "invalidRecipients", "invalidRecipients": ["bad@x.test"]}, "EINVAL", "to"),
    ({"type": "tooManyRecipients", "maxRecipients": 1}, "EINVAL", "to"),
    ({"type": "tooLarge"}, "EINVAL", "body"), ({"type": "forbiddenFrom"}, "EUPSTREAM", ""),
    ({"type": "forbiddenToSend"}, "EUPSTREAM", ""), ({}, "EUPSTREAM", "")])
def test_a_submission_that_fails_leaves_no_draft(mailbox, error, err, field):
    server, d = mailbox
    draft = server.accounts[A].deliver(mailboxIds={"d": True})
    server.fault("EmailSubmission/set", "status", body=json.dumps({"methodResponses": [
        ["Email/set", {"created": {"d": {"id": draft}}, "notCreated": None}, "e"],
        ["EmailSubmission/set", {"created": None, "notCreated": {"s": error}}, "s"],
        ["Email/set", {"notUpdated": {draft: {"type": "notFound"}}}, "s"]]}))
    answer = d("send", **as_a(to=["bad@x.test"], text="x"))
    assert (answer["err"], answer["field"]) == (err, field)
    assert server.accounts[A].mails == {}


@pytest.mark.parametrize("kind, options", [("act_then_reset", {}), ("act_then_hang", {}), ("act_then_close", {}),
                                           ("status", {"status": 502})])
def test_a_send_that_may_have_happened_says_so(mailbox, kind, options):
    server, d = mailbox
    server.fault("EmailSubmission/set", kind, **options)
    with drive(server, timeout_ms=400) as d:
        answer = d("send", **as_a(to=[B], text="x"))
    assert answer["err"] == "EUPSTREAM" and "cannot be told" in answer["message"]
    assert server.seen("EmailSubmission/set") == 1, "never twice"


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("where", ("/.well-known/jmap", "/jmap/session", "Mailbox/get", "Email/query", "Email/get"))
def test_reading_fails(server, failure, where):
    kind, options, _ = FAILURES[failure]
    server.add(A, SECRET).deliver(subject="x")
    server.fault(where, kind, times=None, **options)
    with drive(server, timeout_ms=300) as d:
        answer = d("list", **as_a())
        assert answer["err"] == "EUPSTREAM" and answer["message"], answer
        server.clear()
        assert len(d.ok("list", **as_a())["mails"]) == 1


@pytest.mark.parametrize("failure", FAILURES)
def test_what_became_of_a_mail_is_asked_but_not_needed(mailbox, failure):
    server, _ = mailbox
    kind, options, _ = FAILURES[failure]
    server.fault("EmailSubmission/get", kind, **options)
    with drive(server, timeout_ms=400) as d:
        assert d.ok("send", **as_a(to=[B], text="x"))["sent_id"]


# Credentials stay where they belong -------------------------------------------------------------------------

def test_the_mailbox_logs_in_as_itself(mailbox):
    server, d = mailbox
    d.ok("list", **as_a())
    own = "Basic " + base64.b64encode(f"{A}:{SECRET}".encode()).decode()
    assert {r.headers["authorization"] for r in server.log} == {own}
    assert server.seen("/.well-known/jmap") == 1 and server.seen("/jmap/session") == 1


def test_a_mailbox_with_another_password(server):
    server.add(A, "another")
    with drive(server) as d:
        answer = d("list", **as_a())
    assert answer["err"] == "EUPSTREAM" and "password" in answer["message"] and SECRET not in answer["message"]


def test_a_session_without_an_account(server):
    server.add(A, SECRET)
    server.fault("/jmap/session", "status", body=json.dumps({"apiUrl": "/jmap/", "primaryAccounts": {}}))
    with drive(server) as d:
        assert d("list", **as_a())["err"] == "EUPSTREAM"
    assert server.seen("POST /jmap/") == 0


@pytest.mark.parametrize("status", (301, 302, 307, 308))
@pytest.mark.parametrize("to", ("{other}/jmap/session", "//127.0.0.1:{port}/jmap/session", "{own}.evil.test/jmap",
                                "{own}@127.0.0.1:{port}/jmap", "http://localhost:{ownport}/jmap/session",
                                "ftp://127.0.0.1/", "file:///etc/passwd", "http://[::1]:{port}/", "{own}:{port}/x"))
def test_a_redirect_to_another_host_is_not_followed(server, to, status):
    server.add(A, SECRET)
    with Stalwart() as other:
        other.add(A, SECRET)
        target = to.format(other=other.url, port=other.port, own=server.url, ownport=server.port)
        server.fault("/.well-known/jmap", "redirect", to=target, status=status)
        with drive(server) as d:
            answer = d("list", **as_a())
            assert answer["err"] == "EUPSTREAM" and "redirect" in answer["message"]
        assert other.log == [] and len(server.log) == 1


@pytest.mark.parametrize("to", ("/jmap/session", "{own}/jmap/session", "../jmap/session?x=1"))
def test_one_redirect_within_the_host_is_followed(server, to):
    server.add(A, SECRET)
    server.fault("/.well-known/jmap", "redirect", to=to.format(own=server.url), status=301)
    with drive(server) as d:
        d.ok("list", **as_a())
        server.fault("/jmap/session", "redirect", to="/jmap/session")
        assert d("list", **as_a())["err"] == "EUPSTREAM"


def test_the_api_is_on_our_host_whatever_the_session_says(server):
    server.add(A, SECRET)
    with Stalwart() as other:
        for public in (other.url, f"//127.0.0.1:{other.port}", ""):
            server.public = public
            with drive(server) as d:
                d.ok("list", **as_a())
        assert other.log == []


@pytest.mark.parametrize("op", ("create", "delete"))
def test_management_follows_no_redirect(server, op):
    with Stalwart() as other:
        server.fault("/", "redirect", to=other.url + "/api/principal", times=None)
        with drive(server) as d:
            assert d(op, A, secret=SECRET)["err"] == "EUPSTREAM"
        assert other.log == []


def test_a_host_nobody_knows():
    with Driver("https://no-such-host.invalid", ADMIN) as d:
        answer = d("create", A, secret=SECRET)
    assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", False)


def test_no_proxy_of_the_environment(server, monkeypatch):
    with Stalwart() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with drive(server) as d:
            d.ok("create", A, secret=SECRET)
        assert proxy.log == []


def test_nothing_secret_is_said_or_logged(server):
    """Everything fails once, in every way; neither answers nor standard error hold a credential."""
    admin, own = (base64.b64encode(pair.encode()).decode() for pair in (ADMIN, f"{A}:{SECRET}"))
    said = ""
    with drive(server, timeout_ms=300) as d:
        for failure, (kind, options, _) in FAILURES.items():
            server.fault("/", kind, **options)
            for op in ("create", "delete", "list"):
                said += json.dumps(d(op, **as_a()))
        said += d.close()
    assert said and not any(secret in said for secret in (SECRET, "correct-horse", admin, own))
