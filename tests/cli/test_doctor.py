# SPDX-License-Identifier: Apache-2.0
"""`lapse doctor`: each thing it looks at, well and sick."""
import os

from runner import Lapse


def found(lapse, *words, code=0, **options):
    ran = lapse("doctor", "--json", *words, code=code, silent=True, **options)
    return {row["check"]: (row["state"], row["found"], row["help"]) for row in ran.json()["data"]}


def test_all_is_well(start):
    daemon = start()
    lapse = Lapse(daemon.url)
    rows = found(lapse)
    assert {state for state, _, _ in rows.values()} == {"ok"}, rows
    assert set(rows) == {"daemon", "settings", "clock", "data directory", "lock", "disk", "database"}
    assert rows["settings"][1] == "those of the daemon" and rows["lock"][1] == "held by the daemon"
    assert str(daemon.data_dir) in rows["data directory"][1]
    assert lapse("doctor").lines[0].split() == ["CHECK", "STATE", "FOUND", "HELP"]


def test_no_daemon_and_nothing_there_yet(tmp_path):
    rows = found(Lapse("http://127.0.0.1:1"), "--data-dir", str(tmp_path / "none"), code=1)
    assert rows["daemon"][0] == "problem" and rows["daemon"][2] == "start lapsed, or give --url"
    assert rows["data directory"][0] == "ok" and "lapsed will make it" in rows["data directory"][1]
    assert rows["settings"][1] == "those of a daemon started here" and "clock" not in rows


def test_the_port(start, tmp_path):
    daemon = start()
    for address, state in ((daemon.url.removeprefix("http://"), "problem"), ("127.0.0.1:0", "ok"), ("[::1]:0", "ok"),
                           ("192.0.2.1:7878", "problem"), (f"unix:{tmp_path}/none.sock", "ok")):
        lapse = Lapse("http://127.0.0.1:1", LAPSE_LISTEN=address)
        rows = found(lapse, "--data-dir", str(tmp_path / "none"), code=1)
        assert rows["port"][0] == state and address in rows["port"][1], rows
    assert "port" not in found(Lapse(daemon.url)), "a daemon that runs has it"


def test_a_socket_that_is_in_use(start, tmp_path):
    start(listen=f"unix:{tmp_path}/s.sock")
    rows = found(Lapse("http://127.0.0.1:1", LAPSE_LISTEN=f"unix:{tmp_path}/s.sock"), "--data-dir", str(tmp_path / "none"), code=1)
    assert rows["port"][0] == "problem" and "another process" in rows["port"][1]


def test_a_postgresql_store_is_no_file(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    lapse = Lapse("http://127.0.0.1:1", LAPSE_STORE="postgresql://db.example/lapse")
    rows = found(lapse, "--data-dir", str(tmp_path / "data"), code=1)
    assert rows["database"][0] == "ok" and "PostgreSQL" in rows["database"][1]


def test_a_directory_that_others_can_read(start):
    daemon = start()
    os.chmod(daemon.data_dir, 0o755)
    rows = found(Lapse(daemon.url), code=1)
    assert rows["data directory"][0] == "problem" and rows["data directory"][2] == "chmod 700"


def test_a_database_that_is_none(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "lapse.db").write_text("not a database at all, for sure")
    rows = found(Lapse("http://127.0.0.1:1"), "--data-dir", str(tmp_path / "data"), code=1)
    assert rows["database"][0] == "problem" and "restore" in rows["database"][2]


def test_another_process_has_the_directory(start):
    daemon = start()
    rows = found(Lapse("http://127.0.0.1:1"), "--data-dir", str(daemon.data_dir), code=1)
    assert rows["lock"][0] == "problem" and "another process" in rows["lock"][1]


def test_certificates(start, certificate):
    cert, key = certificate
    os.chmod(key, 0o600)
    daemon = start(tls_cert=cert, tls_key=key)
    rows = found(Lapse(daemon.url), "--ca-file", str(cert), code=1)
    assert rows["certificate"][0] == "problem" and rows["certificate"][2] == "renew it"  # it lasts one day
    assert rows["private key"][0] == "ok"
    os.chmod(key, 0o644)
    assert found(Lapse(daemon.url), "--ca-file", str(cert), code=1)["private key"][2] == "chmod 600"


def test_settings_that_are_wrong(tmp_path):
    lapse = Lapse("http://127.0.0.1:1", LAPSE_MESSAGE_TTL_MS="soon")
    rows = found(lapse, "--data-dir", str(tmp_path), code=1)
    assert rows["settings"][0] == "problem" and "message_ttl_ms" in rows["settings"][1]


def test_without_the_right_token(start):
    daemon = start()
    lapse = Lapse(daemon.url)
    lapse("token", "create", "--owner", "ops", "--admin")
    rows = found(lapse, "--data-dir", str(daemon.data_dir), code=1)
    assert rows["daemon"][0] == "ok" and rows["clock"][2] == "set LAPSE_TOKEN or give --token-file"
