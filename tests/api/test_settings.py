# SPDX-License-Identifier: Apache-2.0
"""Starting and ending: settings from file, environment and flags, and what stops a start."""
import re
import signal
import subprocess

import pytest

from harness import binary, run_to_end


def window(daemon):
    return daemon.client().matrix("messages")["window_ms"]


def test_file_environment_flag(start, tmp_path):
    """File < environment < flag."""
    config = tmp_path / "lapse.conf"
    config.write_text("# a comment\n\n  message_ttl_ms = 1111\nunread_max_per_agent=1\n")
    with_file = ["--config", str(config)]
    assert window(start(args=with_file)) == 1111
    assert window(start(args=with_file, env={"LAPSE_MESSAGE_TTL_MS": "2222"})) == 2222
    last = start(args=with_file, env={"LAPSE_MESSAGE_TTL_MS": "2222"}, message_ttl_ms=3333)
    assert window(last) == 3333
    last.client().send("a")
    last.client().post("/v1/agents/a/messages", {"from": "b", "content": "x"}).fails(429, "limit_reached")


def test_a_flag_and_its_value_may_be_two_words(start):
    assert window(start(args=["--message-ttl-ms", "4444"])) == 4444


@pytest.mark.parametrize("args,names", [
    (["--no-such-flag", "1"], "no-such-flag"),
    (["--message-tt", "1"], "message-tt"),
    (["--message-ttl-ms"], "message-ttl-ms"),
    (["--message-ttl-ms=soon"], "message_ttl_ms"),
    (["--message-ttl-ms=1 s"], "message_ttl_ms"),
    (["--message-ttl-ms="], "message_ttl_ms"),
    (["--message-ttl-ms=0"], "message_ttl_ms"),
    (["--message-ttl-ms=-1"], "message_ttl_ms"),
    (["--message-ttl-ms=99999999999999999999"], "message_ttl_ms"),
    (["--message-sweep-ms=1"], "message_sweep_ms"),
    (["--unread-max-per-agent=0"], "unread_max_per_agent"),
    (["--behind-tls-proxy=maybe"], "behind_tls_proxy"),
    (["--log-level=loud"], "log_level"),
    (["--config", "/nonexistent/lapse.conf"], "/nonexistent/lapse.conf"),
    (["stray"], "stray"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_a_bad_flag_stops_the_start(tmp_path, args, names):
    code, said = run_to_end(tmp_path / "data", *args)
    assert code == 2, said
    assert len(said.splitlines()) == 1 and names in said, said


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x", ":1:2",
                                    "unix:"])
def test_a_bad_address_stops_the_start(tmp_path, listen):
    code, said = run_to_end(tmp_path / "data", listen=listen)
    assert code == 2 and len(said.splitlines()) == 1 and "listen" in said, said


@pytest.mark.parametrize("line,names", [("message_ttl_ms = x", "message_ttl_ms"), ("no_such = 1", "no_such"),
                                        ("message_ttl_ms", ":2: "), ("= 5", ":2: ")])
def test_a_bad_line_of_the_file_stops_the_start(tmp_path, line, names):
    config = tmp_path / "lapse.conf"
    config.write_text(f"# first\n{line}\n")
    code, said = run_to_end(tmp_path / "data", "--config", str(config))
    assert code == 2 and len(said.splitlines()) == 1 and names in said, said


@pytest.mark.parametrize("env,names", [({"LAPSE_MESSAGE_TTL_MS": "x"}, "message_ttl_ms"),
                                       ({"LAPSE_MESAGE_TTL_MS": "5"}, "LAPSE_MESAGE_TTL_MS")])
def test_a_bad_variable_stops_the_start(tmp_path, env, names):
    code, said = run_to_end(tmp_path / "data", env=env)
    assert code == 2 and len(said.splitlines()) == 1 and names in said, said


def test_help_and_version():
    for flag, expected in (("--help", r"--message-ttl-ms.*86400000"), ("--version", r"\d+\.\d+\.\d+")):
        done = subprocess.run([binary(), flag], capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0 and done.stderr == "", done
        assert re.search(expected, done.stdout), done.stdout


# Start and end ------------------------------------------------------------------------------------

@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_and_says_one_line(start, signum):
    daemon = start()
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", daemon.address)
    daemon.client().send("a")
    daemon.stop(signum)
    assert daemon.rest_of_stdout == ""


def test_the_log_is_lines_of_json(start):
    daemon = start(log_level="debug")
    daemon.client().send("a")
    daemon.stop()
    lines = daemon.log_lines()
    assert lines
    for line in lines:
        assert {"time", "level", "event"} <= set(line)
        assert line["level"] in ("debug", "info", "warn", "error")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_the_content_of_a_message_is_not_logged(start):
    daemon = start(log_level="debug")
    daemon.client().send("a", content="the-secret-content")
    daemon.client().post("/v1/agents/a/messages", {"from": "b", "content": ["the-secret-content"]})
    daemon.stop()
    assert daemon.log() and "the-secret-content" not in daemon.log()


def test_a_second_daemon_on_the_same_data_is_refused(daemon):
    code, said = run_to_end(daemon.data_dir)
    assert code == 1 and len(said.splitlines()) == 1 and str(daemon.data_dir) in said, said
    assert daemon.client().send("a")["to"] == "a"


def test_the_data_directory_is_free_after_a_kill(daemon):
    sent = daemon.client().send("a")
    daemon.kill()
    daemon.start()
    assert daemon.client().inbox("a") == [sent]


def test_a_newer_schema_is_refused_with_a_clear_message(daemon):
    sent = daemon.client().send("a")
    daemon.stop()
    (row,) = daemon.rows("SELECT value FROM meta WHERE key = 'schema_version'")
    daemon.execute("UPDATE meta SET value = 9999 WHERE key = 'schema_version'")
    code, said = run_to_end(daemon.data_dir)
    assert code == 1 and "9999" in said and "newer" in said, said
    daemon.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", row["value"])
    assert daemon.start().client().inbox("a") == [sent], "the refusal changed nothing"


@pytest.mark.sqlite("a damaged file")
def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "lapse.db").write_bytes(b"this is no database " * 1000)
    code, said = run_to_end(tmp_path / "data")
    assert code == 1 and said, said
    assert (tmp_path / "data" / "lapse.db").read_bytes().startswith(b"this is no database")


def test_a_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    code, said = run_to_end(tmp_path / "file" / "data")
    assert code in (1, 2) and str(tmp_path / "file") in said, said


def test_everything_is_there_after_a_restart(daemon):
    api = daemon.client()
    sent = [api.send("a", content=str(i), metadata={"i": i}) for i in range(30)]
    sent[3] = api.read("a", sent[3]["id"])
    stats = api.stats()
    daemon.restart()
    assert daemon.client().inbox("a") == sent[::-1]
    after = daemon.client().stats()
    assert {k: after["a"][k] for k in ("total", "unread")} == {k: stats["a"][k] for k in ("total", "unread")}


def test_settings_in_force(start, tmp_path):
    """GET /v1/settings: the value, where it came from, and no secret."""
    config = tmp_path / "lapse.conf"
    config.write_text("message_ttl = 48h\nstalwart_credentials = admin:hunter2\n")
    daemon = start(args=["--config", str(config), "--body-max=2MiB"], env={"LAPSE_AGENT_SWEEP_MS": "45s"})
    answer = daemon.client().get("/v1/settings").ok()
    rows = {row["name"]: row for row in answer["data"]}
    assert (rows["message_ttl_ms"]["value"], rows["message_ttl_ms"]["source"]) == (172800000, "file")
    assert (rows["agent_sweep_ms"]["value"], rows["agent_sweep_ms"]["source"]) == (45000, "environment")
    assert (rows["body_max_bytes"]["value"], rows["body_max_bytes"]["source"]) == (2097152, "flag")
    assert rows["event_keep_ms"]["source"] == "default" and rows["event_keep_ms"]["default"] == 86400000
    assert rows["stalwart_credentials"]["value"] == "set" and rows["stalwart_credentials"]["default"] is None
    assert rows["behind_tls_proxy"]["value"] is False


def test_settings_are_for_admins(start):
    client = start().client()
    admin = client.post("/v1/tokens", {"owner": "ops", "admin": True}).ok(201)["token"]
    plain = client.post("/v1/tokens", {"owner": "fleet"}, headers={"Authorization": f"Bearer {admin}"}).ok(201)["token"]
    client.get("/v1/settings").fails(401, "unauthorized")
    client.get("/v1/settings", headers={"Authorization": f"Bearer {plain}"}).fails(403, "forbidden")
    client.get("/v1/settings", headers={"Authorization": f"Bearer {admin}"}).ok()
