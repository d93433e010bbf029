# SPDX-License-Identifier: Apache-2.0
"""TLS to the mail server: what is trusted, what is not, and that whoever is not trusted is told nothing."""
import base64
import shutil
import subprocess
import time

import pytest
import tls
from driver import Driver
from stalwart import ADMIN, Stalwart

A, B, SECRET = "a@example.test", "b@example.test", "0123456789abcdef0123456789abcdef"
GENERATIONS = ("rest", "registry")
TIMEOUT_MS = 400
SETTING = "stalwart_ca_file"


@pytest.fixture(scope="session")
def ids(tmp_path_factory):
    return tls.Identities(tmp_path_factory.mktemp("tls"))


def drive(server, authority, **settings):
    return Driver(server.url, ADMIN, LAPSE_STALWART_CA_FILE=str(authority), **settings)


def everything(d, server):
    """An account's whole life, over at least one connection of its own."""
    server.add(B, SECRET)
    made = d.ok("create", A, secret=SECRET)
    d.ok("send", A, secret=SECRET, to=[B], subject="over TLS", text="text")
    (mail,) = d.ok("list", B, secret=SECRET)["mails"]
    (whole,) = d.ok("get", B, secret=SECRET, id=mail["id"])["mails"]
    assert (mail["subject"], whole["text"]) == ("over TLS", "text")
    d.ok("delete", A, account=made["account"])
    assert list(server.accounts) == [B]
    del server.accounts[B]


# Trusted ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_server_of_the_authority(ids, generation):
    with Stalwart(generation, tls=ids.good) as server, drive(server, ids.ours.pem) as d:
        everything(d, server)
    assert len({r.connection for r in server.log}) == 1, "connections are kept"


def test_a_server_by_its_name(ids):
    with Stalwart(tls=ids.good) as server, \
            Driver(f"https://localhost:{server.port}", ADMIN, LAPSE_STALWART_CA_FILE=str(ids.ours.pem)) as d:
        everything(d, server)


def test_a_certificate_that_signs_itself(ids):
    with Stalwart(tls=ids.alone) as server, drive(server, ids.alone_pem) as d:
        everything(d, server)


def test_several_authorities_with_words_between_them(ids, tmp_path):
    """The old and the new one, while the server changes from one to the other."""
    both = tmp_path / "both.pem"
    both.write_text(f"the old one\n{ids.theirs.pem.read_text()}\nthe new one\n{ids.ours.pem.read_text()}\n")
    for identity in (ids.good, ids.unknown):
        with Stalwart(tls=identity) as server, drive(server, both) as d:
            everything(d, server)


def test_the_file_is_read_at_the_start_only(ids, tmp_path):
    """What was checked is what is used: neither a new file nor none changes a daemon that runs."""
    file = tmp_path / "ca.pem"
    file.write_bytes(ids.ours.pem.read_bytes())
    with Stalwart(tls=ids.good) as server, drive(server, file) as d:
        everything(d, server)
        for change in (lambda: file.write_bytes(ids.theirs.pem.read_bytes()), lambda: file.write_text("x"), file.unlink):
            change()
            server.restart(ids.good)
            everything(d, server)
        server.restart(ids.unknown)
        refused(d("create", A, secret=SECRET), server)


@pytest.mark.parametrize("op", ("create", "list", "send"))
@pytest.mark.parametrize("secure", (True, False), ids=("TLS", "plain"))
def test_a_kept_connection_that_the_server_closed(ids, op, secure):
    """Nothing is said into it, so nobody has to guess whether it was heard: a new one is used."""
    with Stalwart("registry", tls=ids.good if secure else None) as server, drive(server, ids.ours.pem) as d:
        server.add(B, SECRET)
        d.ok("create", A, secret=SECRET)
        for i in range(3):
            server.restart(server.tls)
            d.ok(op, f"c{i}@example.test" if op == "create" else A, secret=SECRET, to=[B], text="x")
            assert len({r.connection for r in server.log}) == 1


# Not trusted --------------------------------------------------------------------------------------------

def refused(answer, server, says=SETTING):
    assert (answer["err"], answer["unknown"]) == ("EUPSTREAM", False), answer
    assert says in answer["message"] and SECRET not in answer["message"] and "correct-horse" not in answer["message"]
    assert server.log == [], "it was told something"


UNTRUSTED = {  # who the server is: what the message says about it
    "unknown": "unable to get local issuer certificate",
    "elsewhere": "another host",
    "expired": "certificate has expired",
    "alone": "self-signed certificate",
}


@pytest.mark.parametrize("identity", UNTRUSTED)
@pytest.mark.parametrize("op", ("create", "delete", "list", "get", "send"))
def test_a_server_that_is_not_trusted(ids, identity, op):
    with Stalwart(tls=getattr(ids, identity)) as server, drive(server, ids.ours.pem) as d:
        server.add(B, SECRET)
        answer = d(op, B, secret=SECRET, to=[A], id="M1", text="x")
        refused(answer, server)
        assert "not trusted" in answer["message"] and UNTRUSTED[identity] in answer["message"]
        assert list(server.accounts) == [B]


def test_the_systems_authorities_do_not_vouch_for_a_private_one(ids):
    with Stalwart(tls=ids.good) as server, Driver(server.url, ADMIN) as d:
        for op in ("create", "delete", "list"):
            refused(d(op, A, secret=SECRET), server)


def test_it_heals_when_the_certificate_does(ids):
    with Stalwart(tls=ids.expired) as server, drive(server, ids.ours.pem) as d:
        refused(d("create", A, secret=SECRET), server)
        server.restart(ids.good)
        everything(d, server)


@pytest.mark.parametrize("op", ("create", "delete", "list", "send"))
@pytest.mark.parametrize("answer, says", [(tls.Mute.PLAIN, "no TLS with it"), (b"\0" * 100, "no TLS with it"),
                                          (b"", "(TCP, then TLS) in time")])
def test_a_server_that_speaks_no_tls(ids, op, answer, says):
    secrets = [base64.b64encode(pair.encode()) for pair in (ADMIN, f"{A}:{SECRET}")]
    with tls.Mute(answer) as server, drive(server, ids.ours.pem, timeout_ms=TIMEOUT_MS) as d:
        began = time.monotonic()
        refused(d(op, A, secret=SECRET, to=[B], text="x"), server, says)
        assert time.monotonic() - began < 2
    assert server.heard.startswith(b"\x16\x03"), "a hello of TLS, and nothing but"
    assert not any(word in server.heard for word in (b"Authorization", b"HTTP/1.1", *secrets))


def test_hung_handshakes_keep_nobody_from_stopping(ids):
    with tls.Mute() as server, drive(server, ids.ours.pem, timeout_ms=60000) as d:
        started = [d.start(op, A, secret=SECRET) for op in ("create", "delete", "list")]
        while not server.heard:
            time.sleep(0.01)
        began = time.monotonic()
        d.start("stop")
        answers = [d.wait(n) for n in started]
        d.close()
        assert time.monotonic() - began < 1
    assert {(a["err"], a["unknown"]) for a in answers} == {("EUNAVAILABLE", False)}


# Redirects ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("status", (301, 307))
@pytest.mark.parametrize("to", ("http://127.0.0.1:{own}/jmap/session", "http://127.0.0.1:{other}/jmap/session"))
def test_no_redirect_leaves_tls(ids, generation, status, to):
    """Not even to the same host: what follows would travel in the clear."""
    with Stalwart(generation, tls=ids.good) as server, Stalwart(generation) as plain:
        for s in (server, plain):
            s.add(A, SECRET)
        server.fault("/", "redirect", to=to.format(own=server.port, other=plain.port), status=status, times=None)
        with drive(server, ids.ours.pem) as d:
            for n, op in enumerate(("create", "delete", "list", "send"), 1):
                answer = d(op, A, secret=SECRET, to=[B], text="x")
                assert answer["err"] == "EUPSTREAM" and "redirect" in answer["message"], answer
                assert len(server.log) == n
        assert plain.log == [] and A in server.accounts


def test_the_api_stays_on_tls_whatever_the_session_says(ids):
    with Stalwart(tls=ids.good) as server, Stalwart() as plain:
        server.public = plain.url
        with drive(server, ids.ours.pem) as d:
            everything(d, server)
        assert plain.log == []


# The system's own authorities -------------------------------------------------------------------------------

@pytest.fixture
def system(ids, tmp_path):
    """A directory, and the command that lets a program take it for the system's authorities: ours."""
    store = tmp_path / "certs"
    store.mkdir()
    wrap = ("unshare", "-rm", "sh", "-c", f'mount --bind "{store}" /etc/ssl/certs && exec "$0" "$@"')
    if not shutil.which("unshare") or subprocess.run([*wrap, "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace")
    shutil.copy(ids.ours.pem, store / "ca-certificates.crt")
    shutil.copy(ids.ours.pem, store / "ours.pem")
    tls.openssl("rehash", store)
    return store, wrap


def test_without_the_setting_the_system_vouches(ids, system):
    with Stalwart(tls=ids.good) as server, Driver(server.url, ADMIN, wrap=system[1]) as d:
        everything(d, server)
    with Stalwart(tls=ids.unknown) as server, Driver(server.url, ADMIN, wrap=system[1]) as d:
        refused(d("create", A, secret=SECRET), server)


def test_with_the_setting_the_system_does_not(ids, system):
    with Stalwart(tls=ids.good) as server, drive(server, ids.theirs.pem, wrap=system[1]) as d:
        refused(d("create", A, secret=SECRET), server)


def test_the_system_is_not_read_for_every_connection(ids, system):
    """It takes tens of milliseconds, and everybody waits for the loop."""
    with Stalwart(tls=ids.good) as server, Driver(server.url, ADMIN, wrap=system[1]) as d:
        everything(d, server)
        (system[0] / "ca-certificates.crt").unlink()
        server.restart(ids.good)
        everything(d, server)


def test_a_system_without_authorities(ids, system):
    for file in system[0].iterdir():
        file.unlink()
    with Stalwart(tls=ids.good) as server, Driver(server.url, ADMIN, wrap=system[1]) as d:
        refused(d("create", A, secret=SECRET), server)
