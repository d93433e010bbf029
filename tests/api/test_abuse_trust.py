# SPDX-License-Identifier: Apache-2.0
"""Abuse of trust: callers that only look as if they came from this machine, tokens that are gone."""
import concurrent.futures
import time

import pytest

from client import head
from harness import Daemon

OPEN = ["/healthz", "/readyz", "/metrics", "/openapi.json"]
DISGUISES = {
    "forwarded": {"X_Forwarded_For": "203.0.113.9"},
    "forwarded by the standard's header": {"Forwarded": "for=203.0.113.9"},
    "a foreign host": {"host": "evil.example"},
    "a foreign origin": {"Origin": "https://evil.example"},
    "another site": {"Sec_Fetch_Site": "cross-site"},
}


def answer_to(daemon, path, **headers):
    with daemon.raw() as connection:
        connection.send(head("GET", path, **headers))
        return connection.answer()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("proxied") / "data")
    with daemon:
        token = daemon.client().token("fleet", admin=True)["token"]
        daemon.restart(behind_tls_proxy="true")
        yield daemon, token


@pytest.mark.parametrize("path", [*OPEN, "/v1/matrix"])
@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES.keys())
def test_the_checks_against_browsers_are_on_every_route(shared, path, disguise):
    answer_to(shared, path, **disguise).fails(403, "forbidden")
    assert answer_to(shared, path).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/v1/matrix"])
@pytest.mark.parametrize("headers", [{}, {"X_Forwarded_For": "203.0.113.9", "host": "lapse.example"}],
                         ids=["direct", "forwarded"])
def test_behind_a_proxy_nobody_is_trusted_by_address(proxied, path, headers):
    daemon, token = proxied
    answer_to(daemon, path, **headers).fails(401, "unauthorized")
    assert answer_to(daemon, path, Authorization=f"Bearer {token}", **headers).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_through_a_proxy_need_no_token(proxied, path):
    daemon, _ = proxied
    assert answer_to(daemon, path, X_Forwarded_For="203.0.113.9", host="lapse.example").status == 200
    answer_to(daemon, path, Origin="https://evil.example").fails(403, "forbidden")


# Tokens that are gone (line 15) -------------------------------------------------------------------

@pytest.mark.parametrize("wait", ["list", "claim"])
def test_a_long_poll_of_a_revoked_token_gets_nothing(start, wait):
    daemon = start()
    admin = daemon.client(token=daemon.client().token("root", admin=True)["token"])
    made = admin.token("fleet")
    poll = daemon.client(token=made["token"])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        if wait == "list":
            waiting = pool.submit(poll.list, "inbox", wait_ms=20_000)
        else:
            waiting = pool.submit(poll.claim, "inbox", wait_ms=20_000)
        time.sleep(0.3)
        admin.delete(f"/v1/tokens/{made['prefix']}").ok()
        sender = daemon.client(token=admin.token("fleet")["token"])
        sender.send("inbox", content="for the others")
        answer = waiting.result(15)
    answer.fails(401, "unauthorized")
    assert sender.stats()["inbox"]["unread"] == 1
    assert len(sender.claim("inbox").ok()["data"]) == 1, "nothing was leased to the revoked token"


def test_a_tokenless_long_poll_ends_when_the_first_token_is_made(start):
    daemon = start()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(daemon.client().list, "inbox", wait_ms=20_000)
        time.sleep(0.3)
        admin = daemon.client(token=daemon.client().token("local", admin=True)["token"])
        admin.send("inbox")
        waiting.result(15).fails(401, "unauthorized")
