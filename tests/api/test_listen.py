# SPDX-License-Identifier: Apache-2.0
"""Where lapsed listens and what it refuses: browsers while tokenless, public addresses, open modes."""
import http.client
import os
import signal
import socket
import ssl
import stat
import subprocess

import pytest

from client import Client, head, json_post
from harness import Daemon, run_to_end, wait_until

SEND = "/v1/agents/a/messages"
GOOD = b'{"from":"b","content":"x"}'


def make_certificate(cert, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Paths of a self-signed certificate and its key."""
    directory = tmp_path_factory.mktemp("tls")
    cert, key = directory / "cert.pem", directory / "key.pem"
    make_certificate(cert, key)
    return cert, key


# Browsers -----------------------------------------------------------------------------------------

FOREIGN = [
    ("Host", "evil.example"), ("Host", "evil.example:7878"), ("Host", "127.0.0.1.evil.example"), ("Host", "10.0.0.1"),
    ("Host", "localhost.evil.example"), ("Origin", "http://evil.example"), ("Origin", "https://evil.example:7878"),
    ("Origin", "null"), ("Origin", "http://127.0.0.1.evil.example"), ("Origin", "http://localhost:1"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Forwarded", "for=10.0.0.1"), ("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Host", "x"),
    ("X-Forwarded-Proto", "https"),
]


@pytest.mark.parametrize("name,value", FOREIGN, ids=[f"{name}: {value}" for name, value in FOREIGN])
def test_a_browser_led_here_is_refused_while_tokenless(shared, name, value):
    for method, path, body in (("POST", SEND, {"from": "b", "content": "x"}), ("GET", SEND, None),
                               ("POST", "/v1/tokens", {"owner": "evil", "admin": True})):
        shared.client().request(method, path, json_body=body, headers={name: value}).fails(403, "forbidden")
    assert shared.client().stats() == {} and shared.client().get("/v1/tokens").data == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}",
                                  "[::1]:{port}"])
def test_names_of_this_host_are_fine(shared, host):
    shared.client().get(SEND, headers={"Host": host.format(port=shared.port)}).ok()


def test_an_origin_of_its_own_is_fine(shared):
    origin = f"http://127.0.0.1:{shared.port}"
    shared.client().get(SEND, headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"}).ok()


def test_no_host_at_all_on_http_1_0(shared):
    with shared.raw() as connection:
        connection.send(b"POST " + SEND.encode() + b" HTTP/1.0\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\nOrigin: http://evil.example\r\n\r\n" % len(GOOD) + GOOD)
        connection.answer("POST").fails(403, "forbidden")
    assert shared.client().stats() == {}


def test_with_a_token_a_proxy_may_forward(start):
    daemon = start()
    api = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    api.get(SEND, headers={"X-Forwarded-For": "10.0.0.1", "Host": "lapse.example"}).ok()


# Addresses ----------------------------------------------------------------------------------------

PUBLIC = ["0.0.0.0:0", "[::]:0"]


@pytest.mark.parametrize("listen", PUBLIC + ["0.0.0.0:7878"])
def test_a_public_address_without_tokens_is_refused(tmp_path, listen, certificate):
    for args in ([], ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])],
                 ["--behind-tls-proxy"]):
        code, said = run_to_end(tmp_path / "data", *args, listen=listen)
        assert code in (1, 2), said
        assert "token" in said or "tls" in said.lower(), said


@pytest.fixture
def with_token(start, tmp_path):
    """A data directory whose database has an admin token; the token."""
    daemon = start(data_dir=tmp_path / "data")
    token = daemon.client().token("ops", admin=True)["token"]
    daemon.stop()
    return tmp_path / "data", token


def test_a_public_address_without_tls_is_refused(with_token):
    code, said = run_to_end(with_token[0], listen="0.0.0.0:0")
    assert code in (1, 2) and "tls" in said.lower(), said


def test_a_public_address_with_token_and_proxy(start, with_token):
    data_dir, token = with_token
    daemon = start(data_dir=data_dir, listen="0.0.0.0:0", behind_tls_proxy="true")
    address = f"http://127.0.0.1:{daemon.port}"
    Client(address, token=token).list("a").ok()
    Client(address).list("a").fails(401, "unauthorized")


def own_address():
    """An address of this machine that is not loopback, None when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def test_metrics_want_a_token_elsewhere(start, with_token):
    address = own_address()
    if address is None or address.startswith("127."):
        pytest.skip("this machine has only a loopback address")
    data_dir, token = with_token
    daemon = start(data_dir=data_dir, listen="0.0.0.0:0", behind_tls_proxy="true")
    url = f"http://{address}:{daemon.port}"
    Client(url).get("/metrics").fails(401, "unauthorized")
    assert Client(url, token=token).get("/metrics").status == 200
    assert Client(url).get("/healthz").status == 200


def test_tls(start, with_token, certificate):
    data_dir, token = with_token
    daemon = start(data_dir=data_dir, listen="127.0.0.1:0", tls_cert=certificate[0], tls_key=certificate[1])
    assert daemon.address.startswith("https://127.0.0.1:")
    api = Client(daemon.address, token=token)
    sent = api.send("a", content="x" * 100_000)
    assert api.inbox("a") == [sent]
    with daemon.raw() as connection:
        connection.send(head("GET", "/healthz") * 3)
        assert [connection.answer().status for _ in range(3)] == [200] * 3


def test_tls_speaks_no_plain_http(start, with_token, certificate):
    daemon = start(data_dir=with_token[0], tls_cert=certificate[0], tls_key=certificate[1])
    try:
        status = Client(f"http://127.0.0.1:{daemon.port}", token=with_token[1]).list("a").status
    except (OSError, http.client.HTTPException):
        status = None
    assert status is None or status >= 400
    daemon.client(token=with_token[1]).list("a").ok()


def test_tls_on_a_public_address(start, with_token, certificate):
    daemon = start(data_dir=with_token[0], listen="0.0.0.0:0", tls_cert=certificate[0], tls_key=certificate[1])
    Client(f"https://127.0.0.1:{daemon.port}", token=with_token[1]).list("a").ok()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2,
                                     ssl.TLSVersion.TLSv1_3], ids=str)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_tls_is_refused(start, with_token, certificate, version):
    daemon = start(data_dir=with_token[0], tls_cert=certificate[0], tls_key=certificate[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", daemon.port), 10) as sock:
        if version >= ssl.TLSVersion.TLSv1_2:
            context.wrap_socket(sock).close()
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(sock)


def test_a_key_that_others_can_read_is_refused(tmp_path, certificate):
    key = tmp_path / "key.pem"
    key.write_bytes(certificate[1].read_bytes())
    key.chmod(0o644)
    code, said = run_to_end(tmp_path / "data", "--tls-cert", certificate[0], "--tls-key", key)
    assert code in (1, 2) and "tls_key: " in said and "chmod 600" in said, said


def serial(port):
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return subprocess.run(["openssl", "x509", "-serial", "-noout"], input=pem, text=True, check=True,
                          capture_output=True).stdout


def test_sighup_reads_the_certificate_again(start, with_token, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(cert, key)
    daemon = start(data_dir=with_token[0], tls_cert=cert, tls_key=key)
    first = serial(daemon.port)
    with daemon.raw() as connection:
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()

        make_certificate(cert, key)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: serial(daemon.port) != first, what="the new certificate")
        connection.send(head("GET", "/healthz"))
        connection.answer().ok()

        second = serial(daemon.port)
        key.write_text("no key")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "tls.reload_failed" in daemon.log())
        assert serial(daemon.port) == second


def test_sighup_without_tls_does_no_harm(daemon):
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "tls.reloaded" in daemon.log())
    daemon.client().get("/healthz").ok()


@pytest.mark.parametrize("args", [
    ["--tls-cert", "{cert}"], ["--tls-key", "{key}"], ["--tls-cert", "{key}", "--tls-key", "{key}"],
    ["--tls-cert", "{cert}", "--tls-key", "/nonexistent/key.pem"],
], ids=["no key", "no certificate", "a key for a certificate", "a file that is not there"])
def test_tls_settings_that_do_not_fit(tmp_path, certificate, args):
    words = [word.format(cert=certificate[0], key=certificate[1]) for word in args]
    code, said = run_to_end(tmp_path / "data", *words)
    assert code in (1, 2) and ("tls" in said.lower() or "/nonexistent/key.pem" in said), said


@pytest.mark.parametrize("setting", ["tls_cert", "tls_key"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None], ids=["a pipe", "a directory", "nothing"])
def test_a_tls_file_that_is_none_is_named(tmp_path, certificate, setting, make):
    files = {"tls_cert": certificate[0], "tls_key": certificate[1], setting: tmp_path / "x.pem"}
    make(files[setting])
    code, said = run_to_end(tmp_path / "data", "--tls-cert", files["tls_cert"], "--tls-key", files["tls_key"])
    assert code in (1, 2) and f"{setting}: " in said and "x.pem" in said, said
    assert not (tmp_path / "data").exists()


# Modes --------------------------------------------------------------------------------------------

def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_data_directory_is_private(daemon):
    daemon.client().send("a")
    assert mode(daemon.data_dir) == 0o700
    for path in daemon.data_dir.rglob("*"):
        assert mode(path) & 0o077 == 0, path


def test_a_data_directory_that_was_open_to_others_is_closed_or_refused(tmp_path):
    (tmp_path / "data").mkdir(mode=0o755)
    os.chmod(tmp_path / "data", 0o755)
    daemon = Daemon(tmp_path / "data")
    try:
        daemon.start()
    except AssertionError:
        return  # refused
    try:
        assert mode(tmp_path / "data") == 0o700
    finally:
        daemon.stop()


@pytest.fixture
def by_socket(start, tmp_path_factory):
    directory = tmp_path_factory.mktemp("s")
    return start(listen=f"unix:{directory}/lapse.sock")


def test_a_unix_socket_is_private_and_works(by_socket):
    path = by_socket.address[len("unix:"):]
    assert by_socket.address == by_socket.listen
    assert stat.S_ISSOCK(os.stat(path).st_mode) and mode(path) == 0o600
    sent = by_socket.client().send("a")
    assert by_socket.client().inbox("a") == [sent]
    with by_socket.raw() as connection:
        connection.send(json_post(SEND, GOOD, host="localhost"))
        connection.answer("POST").ok(201)


def test_the_callers_of_a_unix_socket_are_local_and_admin(by_socket):
    by_socket.client().sweep()
    assert by_socket.client().token("ops", admin=True)["owner"] == "ops"
    by_socket.client().list("a").fails(401, "unauthorized")


def test_a_unix_socket_goes_when_the_daemon_ends(by_socket):
    path = by_socket.address[len("unix:"):]
    by_socket.stop()
    assert not os.path.exists(path)


def test_a_unix_socket_left_behind_is_taken_over(by_socket):
    by_socket.kill()
    by_socket.start()
    by_socket.client().get("/healthz").ok()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    code, said = run_to_end(tmp_path / "data", listen=f"unix:{path}")
    assert code in (1, 2) and str(path) in said, said
    assert path.read_text() == "mine"


def test_an_address_that_is_taken(tmp_path, daemon):
    code, said = run_to_end(tmp_path / "other", listen=f"127.0.0.1:{daemon.port}")
    assert code in (1, 2) and str(daemon.port) in said, said
    daemon.client().get("/healthz").ok()
