# SPDX-License-Identifier: Apache-2.0
"""The command line itself, help, the manual page, and the commands that ask no daemon."""
import json
import os
import re
import shutil
import subprocess

import pytest

from runner import LAPSE, ROOT, Lapse, clean_environment

run = Lapse("http://127.0.0.1:1")  # nothing listens there: none of these may ask


def commands():
    """The names in the help's list of commands."""
    text = subprocess.run([LAPSE, "help"], capture_output=True, check=True, text=True).stdout
    part = text.split("Commands:\n")[1].split("\nOptions of every command")[0]
    names = [re.split(r", |  ", line[2:])[0] for line in part.splitlines() if line and not line.startswith("   ")]
    return [name.strip() for name in names]


@pytest.mark.parametrize("words, says", [
    ([], "a command is missing"),
    (["nonsense"], "unknown command 'nonsense'"),
    (["hold", "nonsense"], "unknown command 'hold nonsense'"),
    (["matrix", "x"], "unexpected argument 'x'"),
    (["matrix", "--nonsense"], "unknown option '--nonsense'"),
    (["matrix", "--unread"], "unknown option '--unread'"),
    (["matrix", "-x"], "unknown option '-x'"),
    (["--unread", "inbox", "a"], "unknown option '--unread'"),
    (["matrix", "--json=yes"], "--json takes no value"),
    (["matrix", "--url"], "--url needs a value: URL"),
    (["matrix", "--url", "a", "--url", "b"], "--url is given twice"),
    (["matrix", "--token", "secret"], "unknown option '--token'"),
    (["send"], "AGENT is missing"),
    (["send", "a", "hi"], "--from NAME is missing"),
    (["send", "a", "hi", "more", "--from", "b"], "unexpected argument 'more'"),
    (["send", "a", "--from", "b"], "standard input is empty"),
    (["send", "a", "hi", "--from", "b", "--metadata", "[1]"], "--metadata must be a JSON object"),
    (["send", "a", "hi", "--from", "b", "--metadata", "{"], "--metadata must be a JSON object"),
    (["inbox", "a", "--limit", "0"], "--limit must be a whole number from 1, not '0'"),
    (["inbox", "a", "--limit", "-1"], "whole number"),
    (["inbox", "a", "--limit", "1e3"], "whole number"),
    (["inbox", "a", "--limit", "99999999999999999999"], "whole number"),
    (["inbox", "a", "--wait", "30"], "a duration like"),
    (["inbox", "a", "--wait", "-1s"], "a duration like"),
    (["inbox", "a", "--wait", "1y"], "a duration like"),
    (["inbox", "a", "--wait", "1.h"], "a duration like"),
    (["inbox", "a", "--wait", "1.0001s"], "a duration like"),
    (["inbox", "a", "--wait", "1h30"], "a duration like"),
    (["inbox", "a", "--wait", "999999999999999999d"], "a duration like"),
    (["inbox", "a", "--wait", ""], "a duration like"),
    (["read", "a"], "give ids, or --before, or --all"),
    (["read", "a", "0123456789abcdef", "--all"], "give ids, or --before, or --all"),
    (["read", "a", "--before", "1h", "--all"], "give ids, or --before, or --all"),
    (["read", "a", "--before", "yesterday"], "--before must be a time like"),
    (["sweep"], "SCHEDULER is missing"),
    (["hold", "place", "messages", "k"], "--reason TEXT is missing"),
    (["hold", "place", "messages"], "KEY is missing"),
    (["hold", "place", "m", "k", "--reason", "r", "--until", "soon"], "--until must be a time like"),
    (["token", "create"], "--owner NAME is missing"),
    (["token", "create", "--owner", "x", "--ttl", "forever"], "--ttl must be a duration"),
    (["restore", "file"], "--data-dir DIR is missing"),
    (["restore", "--data-dir", "d"], "FILE is missing"),
    (["agents", "nonsense"], "unknown command 'agent nonsense'"),
    (["agents", "show"], "AGENT is missing"),
    (["agents", "--cluster", "x", "show", "a"], "unknown option '--cluster'"),
    (["agents", "show", "a", "--cluster", "x"], "unknown option '--cluster'"),
    (["agents", "show", "show", "show"], "unexpected argument 'show'"),
    (["heartbeat", "a"], "--cluster NAME is missing"),
    (["heartbeat", "--cluster", "x"], "AGENT is missing"),
    (["heartbeat", "a", "--cluster", b"\xff"], "--cluster is not UTF-8"),
    (["heartbeat", "a", "--cluster", "x", "--capability", b"\xff"], "--capability is not UTF-8"),
    (["agents", "--cluster", "a", "--cluster", "b"], "--cluster is given twice"),
    (["clock", "nonsense"], "unknown command 'clock nonsense'"),
    (["events", "x"], "unexpected argument 'x'"),
    (["help", "agents", "nonsense"], "unknown command 'agent nonsense'"),
    (["help", "nonsense"], "unknown command 'nonsense'"),
    (["help", "hold", "nonsense"], "unknown command 'hold nonsense'"),
    (["matrix", "--owner", "a/b"], "--owner"),
    (["send", "a", "hi", "--from", b"\xff"], "--from is not UTF-8"),
    (["send", "a", b"\xff", "--from", "b"], "not UTF-8"),
    (["send", "a", "hi", "--from", "b", "--to", b"\xff"], "not UTF-8"),
])
def test_usage_error(words, says):
    ran = run(*words, code=2)
    assert says in ran.err and ran.out == "", repr(ran)


def test_usage_error_shows_the_synopsis():
    assert "usage: lapse message send AGENT [CONTENT|-] --from NAME [--to AGENT]..." in run("send", code=2).err


@pytest.mark.parametrize("name", commands())
def test_help_of_every_command(name):
    words = name.split()
    shown = run(*words, "--help").out
    assert shown.startswith(f"usage: lapse {name}") and "Exit codes:" in shown
    assert run("help", *words).out == shown
    assert run(*words, "-h").out == shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_every_command_of_the_contract_is_there():
    assert commands() == [
        "status", "doctor", "matrix", "why", "top", "events", "agent", "agent show", "agent heartbeat", "agent rm", "capability",
        "message", "message show", "message send", "message claim", "message read", "run", "lock",
        "lease", "lease show", "lease acquire", "lease release", "entry", "entry show", "entry put", "entry rm", "dedupe",
        "queue", "queue show", "queue add", "queue claim", "queue complete", "queue fail", "queue extend", "queue retry", "oauth",
        "oauth put", "oauth consume", "outbox", "outbox add", "outbox consumers", "outbox commit",
        "mailbox", "mailbox show", "mailbox create", "mailbox renew",
        "mailbox messages", "mailbox wait", "mailbox send", "mailbox rm", "attachment", "attachment show", "attachment stage",
        "attachment fetch", "attachment rm", "attachment metrics", "attachment cleanup",
        "webhook", "webhook show", "webhook create", "webhook test", "webhook replay", "webhook pause", "webhook resume",
        "webhook rm", "dead-letter",
        "dead-letter retry", "dead-letter drop", "hold", "hold place", "hold rm",
        "quota", "quota show", "quota set", "quota clear", "contract", "contract init", "contract check",
        "contract plan", "contract apply", "approval", "approval give", "token", "token create",
        "token adopt", "token revoke", "sweep", "replica", "clock", "clock accept", "config", "backup", "restore", "restored",
        "migrate", "mcp", "completion", "complete", "help",
        "version"]


@pytest.mark.parametrize("old, new", [
    ("agents", "agent"), ("agents show", "agent show"), ("agents rm", "agent rm"), ("agent ls", "agent"),
    ("heartbeat", "agent heartbeat"), ("capabilities", "capability"), ("send", "message send"),
    ("inbox", "message"), ("claim", "message claim"), ("read", "message read"), ("mailbox ls", "mailbox"), ("mailboxes", "mailbox"),
    ("dead-letters ls", "dead-letter"), ("dead-letters retry", "dead-letter retry"),
    ("dead-letters drop", "dead-letter drop"), ("stage", "attachment stage"), ("fetch", "attachment fetch"),
    ("attachments", "attachment"), ("attachments ls", "attachment"), ("attachments show", "attachment show"),
    ("attachments rm", "attachment rm"), ("attachments metrics", "attachment metrics"),
    ("cleanup", "attachment cleanup"), ("hold ls", "hold"), ("token ls", "token"), ("event", "events")])
def test_other_words_for_a_command(old, new):
    """Spellings that were documented once, plurals and short forms stay."""
    assert run(*old.split(), "--help").out == run(*new.split(), "--help").out == run("help", *old.split()).out


@pytest.mark.parametrize("words, meant", [
    (["staus"], "'status'"), (["mtarix"], "'matrix'"), (["stat"], "'status'"), (["agnet"], "'agent'"),
    (["agents", "shwo"], "'agent show'"), (["mailbox", "crate"], "'mailbox create'"),
    (["help", "hodl"], "'hold'"), (["help", "hold", "plase"], "'hold place'"),
    (["inbox", "a", "--limt", "3"], "'--limit'"), (["matrix", "--jsno"], "'--json'"),
    (["send", "a", "hi", "--form=x"], "'--from'")])
def test_did_you_mean(words, meant):
    assert f"did you mean {meant}?" in run(*words, code=2).err


@pytest.mark.parametrize("words", [["xyzzy"], ["agents", "xyzzy"], ["matrix", "--xyzzy"], ["x" * 200]])
def test_no_guess_where_nothing_is_near(words):
    assert "did you mean" not in run(*words, code=2).err


def test_help_of_a_group():
    assert run("hold", "--help").out == run("help", "hold").out
    assert "hold place" in run("help", "hold").out and "token ls" not in run("help", "hold").out


def test_help_of_a_command_that_is_a_group_too():
    shown = run("help", "agents").out
    assert shown.startswith("usage: lapse agent [") and "agent show" in shown and "agent rm" in shown
    assert run("agents", "show", "--help").out.startswith("usage: lapse agent show AGENT")


def test_help_and_version_alone():
    assert run("--help").out == run("help").out
    assert run("--version").out == run("version").out == f"lapse {run.json('version')['version']}\n"


def test_exit_codes_are_documented():
    shown = run("help").out
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 130):
        assert f"\n  {code} " in shown


def test_manual_page_is_up_to_date():
    page = (ROOT / "docs" / "man" / "lapse.1").read_text()
    assert page == run("help", "--man").out, "make it anew: lapse help --man > docs/man/lapse.1"


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man-db")
def test_manual_page_has_no_warnings():
    done = subprocess.run(["man", "-l", "--warnings", "-E", "UTF-8", str(ROOT / "docs" / "man" / "lapse.1")],
                          capture_output=True, text=True, check=True,
                          env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    assert done.stderr == ""
    for name in commands():
        assert f"lapse {name}" in done.stdout


# config ------------------------------------------------------------------------------------------

def test_config_defaults():
    rows = {row["name"]: row for row in run.json("config", "--offline")["data"]}
    assert rows["message_ttl_ms"] == {
        "name": "message_ttl_ms", "value": 86400000, "default": 86400000, "source": "default", "min": 1,
        "max": rows["message_ttl_ms"]["max"], "unit": "ms", "help": rows["message_ttl_ms"]["help"]}
    assert rows["behind_tls_proxy"]["value"] is False and rows["listen"]["value"] == "127.0.0.1:7878"
    shown = run("config", "--offline").out
    assert all(name in shown and row["help"] in shown for name, row in rows.items())
    assert re.search(r"^message_ttl_ms +1d +default +read messages", shown, re.M)
    assert re.search(r"^body_max_bytes +1.0 MiB +default", shown, re.M)


def test_config_asks_the_daemon():
    assert "lapse config --offline" in run("config", code=3).err


def test_config_of_a_daemon(start, tmp_path):
    (tmp_path / "lapse.conf").write_text("message_ttl = 48h\nmessage_sweep_ms = 20s\nbody_max = 2MiB\n")
    daemon = start(agent_sweep="45s", config=tmp_path / "lapse.conf",
                   env={"LAPSE_MESSAGE_SWEEP": "30s", "LAPSE_STALWART_CREDENTIALS": "admin:hunter2"})
    lapse = Lapse(daemon.url)
    rows = {row["name"]: (row["value"], row["source"]) for row in lapse.json("config")["data"]}
    assert rows["message_ttl_ms"] == (172800000, "file") and rows["message_sweep_ms"] == (30000, "environment")
    assert rows["agent_sweep_ms"] == (45000, "flag") and rows["body_max_bytes"] == (2097152, "file")
    assert rows["event_keep_ms"] == (86400000, "default")
    assert rows["stalwart_credentials"] == ("set", "environment") and rows["tls_key"] == ("", "default")
    assert "hunter2" not in lapse("config").out
    assert lapse("config", "agent_sweep_ms").lines[:4] == [
        "setting  agent_sweep_ms", "value    45s", "from     flag", "default  30s"]
    assert [row["name"] for row in lapse.json("config", "listen", "data_dir")["data"]] == ["listen", "data_dir"]
    assert "did you mean 'agent_sweep_ms'?" in lapse("config", "agent_swep_ms", code=5).err


def test_config_is_for_admins(start):
    lapse = Lapse(start().url)
    admin = lapse("token", "create", "--owner", "ops", "--admin").out.strip()
    fleet = lapse("token", "create", "--owner", "fleet", env={"LAPSE_TOKEN": admin}).out.strip()
    lapse("config", code=6)
    lapse("config", code=6, env={"LAPSE_TOKEN": fleet})
    lapse("config", env={"LAPSE_TOKEN": admin})


def test_config_file_then_environment(tmp_path):
    (tmp_path / "lapse.conf").write_text("message_ttl_ms = 5\nmessage_sweep_ms = 20\n")

    def values(*words, **env):
        return {row["name"]: (row["value"], row["source"]) for row in run.json("config", *words, env=env)["data"]}

    seen = values("--config", str(tmp_path / "lapse.conf"), LAPSE_MESSAGE_SWEEP_MS="30")
    assert (seen["message_ttl_ms"], seen["message_sweep_ms"]) == ((5, "file"), (30, "environment"))
    assert values("--offline", LAPSE_CONFIG=str(tmp_path / "lapse.conf"))["message_ttl_ms"] == (5, "file")


def test_config_never_prints_a_secret(tmp_path):
    """`set` or nothing; and on the command line only the name of a file is taken."""
    (tmp_path / "lapse.conf").write_text("stalwart_credentials = admin:hunter2\n")
    done = run("config", "--config", str(tmp_path / "lapse.conf"))
    assert "hunter2" not in done.out + done.err and re.search("^stalwart_credentials +set +file", done.out, re.M)
    done = run("config", "--offline", "--json", env={"LAPSE_STALWART_CREDENTIALS": "api_hunter2"})
    row = {r["name"]: r for r in json.loads(done.out)["data"]}["stalwart_credentials"]
    assert row["value"] == "set" and row["default"] is None
    assert "hunter2" not in done.out + done.err
    done = run("config", "--offline", code=2, env={"LAPSE_STALWART_CREDENTIALS": "hunter2" * 1000})
    assert "hunter2" not in done.out + done.err


@pytest.mark.parametrize("env, says", [({"LAPSE_MESSAGE_TTL_MS": "0"}, "out of range"),
                                       ({"LAPSE_MESSAGE_TTL_MS": "24 hours"}, "nor a duration like 500ms"),
                                       ({"LAPSE_BODY_MAX_BYTES": "10MiBs"}, "nor a size like 64KiB"),
                                       ({"LAPSE_CONNECTIONS_MAX": "10k"}, "is not a whole number"),
                                       ({"LAPSE_MESAGE_TTL_MS": "1"}, "unknown setting"),
                                       ({"LAPSE_CONFIG": "/nonexistent"}, "cannot read")])
def test_config_mistakes(env, says):
    assert says in run("config", "--offline", code=2, env=env).err


# restore -----------------------------------------------------------------------------------------

def test_restore_of_a_missing_file(tmp_path):
    run("restore", str(tmp_path / "none.db"), "--data-dir", str(tmp_path / "data"), code=5)


def test_restore_of_something_else(tmp_path):
    (tmp_path / "text.db").write_text("not a database " * 1000)
    run("restore", str(tmp_path / "text.db"), "--data-dir", str(tmp_path / "data"), code=1)
    assert not (tmp_path / "data" / "lapse.db").exists()


@pytest.mark.parametrize("typed", [b"n\n", b"\n"])
def test_restore_asks_on_a_terminal(tmp_path, typed):
    code, shown = run.on_terminal("restore", "x.db", "--data-dir", str(tmp_path / "data"), typed=typed)
    assert code == 1 and "[y/N]" in shown and "nothing was changed" in shown
    assert not (tmp_path / "data").exists()


def test_no_arguments_means_no_leak_of_the_environment():
    done = subprocess.run([LAPSE, "config", "--offline"], capture_output=True, text=True, check=True,
                          env=clean_environment(LAPSE_TOKEN="very-secret"))
    assert "very-secret" not in done.stdout + done.stderr
