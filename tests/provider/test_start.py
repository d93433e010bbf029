# SPDX-License-Identifier: Apache-2.0
"""Where the server is and who we are to it: what the daemon takes, what it refuses, and that it says no secret."""
import os
import signal
import subprocess

import pytest
import tls
from driver import LAPSED, environment
from stalwart import ADMIN, Stalwart

URL = "https://mail.example.test"


def start(tmp_path, code, *flags, provider="stalwart", credentials=None, credentials_dir=None):
    env = environment(LAPSE_MAILBOX_PROVIDER=provider, LAPSE_DATA_DIR=str(tmp_path / "data"),
                      LAPSE_LISTEN="127.0.0.1:0")
    if credentials is not None:
        env["LAPSE_STALWART_CREDENTIALS"] = credentials
    if credentials_dir is not None:
        env["CREDENTIALS_DIRECTORY"] = str(credentials_dir)
    process = subprocess.Popen([LAPSED, *flags], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if code == 0:
        assert "ready" in process.stdout.readline(), process.stderr.read()
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=15)
    assert process.returncode == code, err
    assert (tmp_path / "data").exists() == (code == 0), "nothing is touched before the settings are right"
    return out + err


def private(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_provider_nobody_knows(tmp_path):
    assert "local or stalwart" in start(tmp_path, 2, provider="elsewhere")


def test_local_needs_nothing(tmp_path):
    start(tmp_path, 0, "--stalwart-url=nonsense", provider="local")


@pytest.mark.parametrize("url", (
    "https://mail.example.test", "https://mail.example.test/", "https://mail.example.test:8443",
    "https://192.0.2.7", "https://[2001:db8::1]:443", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:1",
    "http://127.9.9.9"))
def test_urls_that_are_taken(tmp_path, url):
    start(tmp_path, 0, f"--stalwart-url={url}", credentials=ADMIN)


@pytest.mark.parametrize("url, says", [
    ("", "is needed"), ("mail.example.test", "https://"), ("ftp://x", "https://"), ("HTTPS://x", "https://"),
    ("file:///etc/passwd", "https://"), ("https://", "HOST"), ("https:///x", "path"), ("https://:80", "HOST"),
    ("https://a:b@host", "stalwart_credentials"), ("https://host@evil", "stalwart_credentials"),
    ("https://host/path", "path"), ("https://host?x=1", "path"), ("https://host#x", "path"),
    ("https://host:0", "HOST"), ("https://host:65536", "HOST"), ("https://host:x", "HOST"), ("https://host:", "HOST"),
    ("https://ho st", "HOST"), ("https://host\\evil", "HOST"), ("https://[::1", "HOST"), ("https://[nonsense]", "HOST"),
    ("https://[::1]x", "HOST"), ("https://hö.test", "HOST"),
    ("http://mail.example.test", "in the clear"), ("http://10.0.0.1", "in the clear"),
    ("http://127.0.0.1.evil.test", "in the clear"), ("http://localhost.evil.test", "in the clear"),
    ("http://127.1", "in the clear"), ("http://[::2]", "in the clear"), ("http://0x7f.0.0.1", "in the clear")])
def test_urls_that_are_refused(tmp_path, url, says):
    said = start(tmp_path, 2, f"--stalwart-url={url}", credentials=ADMIN)
    assert "stalwart_url" in said and says in said and "correct-horse" not in said


@pytest.mark.parametrize("credentials", ("admin:x", "admin:a:b", "api_xyz", "a@b.test:pass word"))
def test_credentials_that_are_taken(tmp_path, credentials):
    said = start(tmp_path, 0, f"--stalwart-url={URL}", credentials=credentials)
    assert credentials not in said


@pytest.mark.parametrize("credentials", ("", "hunter2", "hunter2:", ":hunter2", "api_hunter2 x", "admin:hunter2\nX: y",
                                         "hunter2" * 1000))
def test_credentials_that_are_refused(tmp_path, credentials):
    said = start(tmp_path, 2, f"--stalwart-url={URL}", credentials=credentials)
    assert "stalwart_credentials" in said and "hunter2" not in said


def test_no_secret_in_an_argument(tmp_path):
    said = start(tmp_path, 2, f"--stalwart-url={URL}", "--stalwart-credentials=admin:hunter2")
    assert "stalwart_credentials" in said and "hunter2" not in said


def test_credentials_in_a_file(tmp_path):
    path = private(tmp_path / "secret", "admin:hunter2\n")
    said = start(tmp_path, 0, f"--stalwart-url={URL}", f"--stalwart-credentials=@{path}")
    assert "hunter2" not in said


def test_credentials_in_a_link_to_a_file(tmp_path):
    private(tmp_path / "secret", "admin:hunter2\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    start(tmp_path, 0, f"--stalwart-url={URL}", credentials=f"@{tmp_path}/link")


@pytest.mark.parametrize("make, says", [
    (lambda p: None, "No such file"), (lambda p: private(p, "admin:hunter2", 0o644), "chmod 600"),
    (lambda p: private(p, "admin:hunter2", 0o640), "chmod 600"), (lambda p: p.mkdir(), "regular file"),
    (lambda p: os.mkfifo(p, 0o600), "regular file"), (lambda p: private(p, ""), "user:password"),
    (lambda p: private(p, "hunter2"), "user:password"), (lambda p: private(p, "a:hunter2\n" * 1000), "longer than"),
    (lambda p: private(p, "a:hunter2\0x"), "NUL"), (lambda p: private(p, "a:hunter2\nb:c\n"), "control")])
def test_files_that_are_refused(tmp_path, make, says):
    make(tmp_path / "secret")
    said = start(tmp_path, 2, f"--stalwart-url={URL}", credentials=f"@{tmp_path}/secret")
    assert "stalwart_credentials" in said and says in said and "hunter2" not in said


def test_credentials_of_the_service_manager(tmp_path):
    (tmp_path / "creds").mkdir()
    said = start(tmp_path, 2, f"--stalwart-url={URL}", credentials_dir=tmp_path / "creds")
    assert "stalwart_credentials" in said
    private(tmp_path / "creds" / "stalwart_credentials", "admin:hunter2\n", 0o400)
    start(tmp_path, 0, f"--stalwart-url={URL}", credentials_dir=tmp_path / "creds")


def test_the_start_asks_the_server_nothing(tmp_path):
    """A mail server that is down must not keep the daemon from starting."""
    with Stalwart() as server:
        start(tmp_path, 0, f"--stalwart-url={server.url}", credentials=ADMIN)
        assert server.log == []


# Authorities ----------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return tls.Authority(tmp_path_factory.mktemp("tls"), "ours")


def trusting(tmp_path, code, path):
    return start(tmp_path, code, f"--stalwart-url={URL}", f"--stalwart-ca-file={path}", credentials=ADMIN)


def test_authorities_that_are_taken(tmp_path, authority):
    trusting(tmp_path, 0, authority.pem)
    (tmp_path / "link").symlink_to(authority.pem)
    (tmp_path / "b").mkdir()
    start(tmp_path / "b", 0, f"--stalwart-url={URL}", f"--stalwart-ca-file={tmp_path}/link", credentials=ADMIN)


def test_no_authorities_are_looked_at_without_a_server(tmp_path):
    start(tmp_path, 0, "--stalwart-ca-file=/nonexistent", provider="local")


def pem(lines=("AAAA",)):
    return "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""))


@pytest.mark.parametrize("make, says", [
    (lambda p, a: None, "No such file"), (lambda p, a: p.mkdir(), "regular file"),
    (lambda p, a: os.mkfifo(p), "regular file"), (lambda p, a: p.symlink_to(p), "symbolic link"),
    (lambda p, a: p.write_text(""), "holds no certificate"), (lambda p, a: p.write_text("x" * 100), "holds no certificate"),
    (lambda p, a: p.write_bytes(a.key.read_bytes()), "holds no certificate"),
    (lambda p, a: tls.openssl("x509", "-in", a.pem, "-outform", "DER", "-out", p), "holds no certificate"),
    (lambda p, a: p.write_text(pem()), "damaged"), (lambda p, a: p.write_text(a.pem.read_text() + pem(("?",))), "damaged"),
    (lambda p, a: p.write_text(a.pem.read_text()[:300]), "damaged"),
    (lambda p, a: p.write_bytes(a.pem.read_bytes() + b"\0"), "damaged"),
    (lambda p, a: p.write_text(a.pem.read_text() * 200), "longer than 65536")])
def test_authorities_that_are_refused(tmp_path, authority, make, says):
    make(tmp_path / "ca.pem", authority)
    said = trusting(tmp_path, 2, tmp_path / "ca.pem")
    assert "stalwart_ca_file" in said and says in said and "correct-horse" not in said


def test_authorities_nobody_may_read(tmp_path, authority):
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.pem.read_bytes())
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("root may read everything")
    assert "Permission denied" in trusting(tmp_path, 2, file)
