# SPDX-License-Identifier: Apache-2.0
"""Every command against a real daemon."""
import json
import datetime
import signal
import time

import pytest
import requests

from runner import Lapse, catches_interrupt


def iso(offset_s=0):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset_s)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def send(lapse, agent, content="hi", *words):
    return lapse("send", agent, content, "--from", "tester", *words).out.strip()


# status and matrix -------------------------------------------------------------------------------

def test_status(lapse, shared):
    ran = lapse("status")
    assert ran.lines[0] == f"lapsed at {shared.url} is ready"
    facts, table = ran.out.split("\n\n")
    for fact in ("version: ", "up: ", "clock: trusted", "breakers open: 0", "dead letters: 0", "database: ", "disk free: "):
        assert fact in facts
    assert table.startswith("TABLE") and "\nmessages " in table and "SCHEDULER" in table


def test_status_json(lapse, shared):
    answer = lapse.json("status")
    assert answer["url"] == shared.url and answer["ready"]["status"] == "ready"
    assert "messages" in [row["table"] for row in answer["matrix"]]
    assert answer["version"] and answer["uptime_ms"] >= 0 and answer["disk_free_bytes"] > 0
    assert answer["problems"] == [] and answer["clock"]["state"] == "trusted"


def test_matrix(lapse):
    rows = {row["table"]: row for row in lapse.json("matrix")["data"]}
    assert rows["messages"]["window_ms"] == 86400000
    shown = lapse("matrix")
    assert len(shown.lines) == len(rows) + 1
    line = next(line for line in shown.lines if line.startswith("messages "))
    assert " 1d " in line and rows["messages"]["safety_rule"] in line


# send --------------------------------------------------------------------------------------------

def test_send_prints_the_id(lapse, agent):
    message_id = send(lapse, agent)
    assert len(message_id) == 16
    assert [m["id"] for m in lapse.json("inbox", agent)["data"]] == [message_id]


def test_send_everything(lapse, agent):
    sent = lapse.json("send", agent, "hi", "--from", "me", "--type", "log", "--metadata", '{"n":1}')
    assert (sent["to"], sent["from"], sent["content"], sent["type"], sent["metadata"], sent["read"]) == \
        (agent, "me", "hi", "log", {"n": 1}, False)


@pytest.mark.parametrize("words", [["-"], []])
def test_send_standard_input_byte_for_byte(lapse, agent, words):
    content = "line 1\n\tline 2 é 漢\n\n"
    sent = lapse.json("send", agent, *words, "--from", "me", stdin=content.encode())
    assert sent["content"] == content


def test_send_empty_content_on_purpose(lapse, agent):
    assert lapse.json("send", agent, "", "--from", "me")["content"] == ""
    assert lapse.json("send", agent, "-", "--from", "me")["content"] == ""


def test_send_large_content(lapse, agent):
    content = "x" * 1_000_000
    assert lapse.json("send", agent, "-", "--from", "me", stdin=content.encode())["content"] == content
    lapse("send", agent, "-", "--from", "me", stdin=b"x" * 1_100_000, code=1)


def test_send_content_with_a_dash(lapse, agent):
    sent = lapse("send", "--from", "me", "--json", agent, "--", "--help").json()
    assert sent["content"] == "--help"


def test_send_to_several(lapse, agent):
    ran = lapse("send", agent, "all", "--from", "me", "--to", agent + "-2", "--to=" + agent + "-3")
    assert len(set(ran.lines)) == 3
    for name, message_id in zip([agent, agent + "-2", agent + "-3"], ran.lines):
        assert [m["id"] for m in lapse.json("inbox", name)["data"]] == [message_id]


def test_send_all_or_none(lapse, agent):
    lapse("send", agent, "all", "--from", "me", "--to", "bad/name", code=1)
    assert lapse.json("inbox", agent)["data"] == []


def test_send_refused(lapse):
    assert "agent" in lapse("send", "bad/name", "hi", "--from", "me", code=1).err


def test_send_over_the_limit(start):
    lapse = Lapse(start(unread_max_per_agent=1).url)
    send(lapse, "a")
    lapse("send", "a", "hi", "--from", "me", code=1)


# inbox -------------------------------------------------------------------------------------------

def test_inbox_table(lapse, agent):
    assert lapse("inbox", agent).out == "no messages\n"
    message_id = send(lapse, agent, "hello there")
    head, row = lapse("inbox", agent).lines
    assert head.split() == ["ID", "SENT", "READ", "FROM", "TYPE", "CONTENT"]
    assert row.startswith(message_id) and row.endswith("hello there") and "  -  " in row


def test_inbox_pages_and_limit(lapse, shared, agent):
    with requests.Session() as session:
        for n in range(230):
            session.post(f"{shared.url}/v1/agents/{agent}/messages",
                         json={"from": "x", "content": str(n)}).raise_for_status()
    assert [m["content"] for m in lapse.json("inbox", agent)["data"]] == [str(n) for n in range(229, -1, -1)]
    answer = lapse.json("inbox", agent, "--limit", "101")
    assert len(answer["data"]) == 101 and answer["pagination"]["has_more"] is True
    assert len(lapse("inbox", agent, "--limit=3").lines) == 4
    assert lapse("read", agent, "--all").out == "230 messages marked read\n"


def test_inbox_unread(lapse, agent):
    first, second = send(lapse, agent), send(lapse, agent)
    lapse("read", agent, first)
    assert [m["id"] for m in lapse.json("inbox", agent, "--unread")["data"]] == [second]
    assert len(lapse.json("inbox", agent)["data"]) == 2


def test_inbox_waits_for_a_message(lapse, agent):
    process = lapse.start("inbox", agent, "--unread", "--wait", "15s")
    time.sleep(0.3)
    assert process.poll() is None
    message_id = send(lapse, agent)
    out, err = process.communicate(timeout=5)
    assert process.returncode == 0 and message_id in out.decode() and err == b""


def test_inbox_wait_ends(lapse, agent):
    before = time.monotonic()
    assert lapse("inbox", agent, "--wait", "300ms", code=7, silent=True).out == "no messages\n"
    assert 0.3 <= time.monotonic() - before < 5


def test_interrupt_while_waiting(lapse, agent):
    process = lapse.start("inbox", agent, "--wait", "30s")
    catches_interrupt(process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=5)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_hostile_content(lapse, agent):
    content = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\nfake\ttab"
    send(lapse, agent, content)
    ran = lapse("inbox", agent)
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202eevil\\r\\nfake\\ttab" in ran.out
    assert "\x1b" not in ran.out and len(ran.lines) == 2
    code, shown = lapse.on_terminal("inbox", agent, env={"NO_COLOR": "1"})
    assert code == 0 and "\x1b" not in shown
    assert lapse.json("inbox", agent)["data"][0]["content"] == content


# read --------------------------------------------------------------------------------------------

def test_read_one(lapse, agent):
    message_id = send(lapse, agent)
    assert lapse("read", agent, message_id).out == "1 message marked read\n"
    assert lapse.json("read", agent, message_id)["read"] is True


def test_read_several(lapse, agent):
    ids = [send(lapse, agent) for _ in range(3)]
    assert lapse.json("read", agent, *ids) == {"count": 3}
    assert lapse.json("inbox", agent, "--unread")["data"] == []


def test_read_before(lapse, agent):
    send(lapse, agent)
    assert lapse.json("read", agent, "--before", "1h") == {"count": 0}
    assert lapse.json("read", agent, "--before", iso(-3600)) == {"count": 0}
    assert lapse.json("read", agent, "--before", iso(60)) == {"count": 1}


def test_read_all(lapse, agent):
    for _ in range(2):
        send(lapse, agent)
    assert lapse("read", agent, "--all").out == "2 messages marked read\n"


def test_read_unknown(lapse, agent):
    lapse("read", agent, "0000000000000001", code=5)
    lapse("read", agent, "nonsense", code=5)


def test_read_of_bad_ids(lapse, agent):
    lapse("read", agent, "nonsense", "more", code=1)


# sweep and holds ---------------------------------------------------------------------------------

def test_sweep_dry_and_real(start):
    lapse = Lapse(start(message_ttl_ms=1, message_sweep_ms=3600000).url)
    lapse("read", "a", send(lapse, "a"))
    time.sleep(0.01)
    dry = lapse.json("sweep", "messages", "--dry-run")
    assert (dry["dry_run"], dry["pruned"], dry["tables"]["messages"]) == (True, 1, 1)
    assert "messages: would remove 1 row in " in lapse("sweep", "messages", "--dry-run").out
    ran = lapse("sweep", "messages")
    assert ran.lines[0].startswith("messages: removed 1 row in ") and ran.lines[1] == "  messages 1"
    assert lapse.json("sweep", "messages")["pruned"] == 0
    assert lapse.json("inbox", "a")["data"] == []


def test_sweep_unknown_scheduler(lapse):
    lapse("sweep", "nonsense", code=5)


def test_hold(start):
    lapse = Lapse(start(message_ttl_ms=1, message_sweep_ms=3600000).url)
    message_id = send(lapse, "a")
    assert lapse("hold", "ls").out == "no holds\n"
    assert lapse("hold", "place", "messages", message_id, "--reason", "evidence", "--until", "2h").out == \
        f"messages/{message_id} is held\n"
    lapse("read", "a", message_id)
    time.sleep(0.01)
    assert lapse.json("sweep", "messages")["pruned"] == 0
    row = lapse("hold", "ls").lines[1]
    assert row.startswith("messages") and row.endswith("evidence") and "in 2h" in row
    assert lapse.json("hold", "ls")["data"][0]["key"] == message_id
    assert lapse("hold", "rm", "messages", message_id).out == f"messages/{message_id} is released\n"
    lapse("hold", "rm", "messages", message_id, code=5)
    assert lapse.json("sweep", "messages")["pruned"] == 1


def test_hold_without_end(lapse, agent):
    message_id = send(lapse, agent)
    assert lapse.json("hold", "place", "messages", message_id, "--reason", "r")["until"] is None
    assert lapse.json("hold", "rm", "messages", message_id)["released"] is True


def test_hold_refused(lapse, agent):
    lapse("hold", "place", "messages", "0000000000000001", "--reason", "r", code=5)
    lapse("hold", "place", "nonsense", "0000000000000001", "--reason", "r", code=5)
    lapse("hold", "place", "messages", send(lapse, agent), "--reason", "r", "--until", iso(-60), code=1)


# tokens ------------------------------------------------------------------------------------------

def test_tokens(start, tmp_path):
    lapse = Lapse(start().url)
    assert lapse("token", "ls").out == "no tokens\n"
    made = lapse("token", "create", "--owner", "ops", "--admin", "--ttl", "30d")
    admin = made.out.strip()
    assert len(made.lines) == 1 and " " not in admin
    assert "owner ops, admin, expires in 30d" in made.err and "only this once" in made.err

    assert "LAPSE_TOKEN" in lapse("inbox", "a", code=6).err
    lapse("inbox", "a", env={"LAPSE_TOKEN": "wrong"}, code=6)
    (tmp_path / "token").write_text(admin + "\n")
    ops = lambda *words, **options: lapse("--token-file", str(tmp_path / "token"), *words, **options)
    ops("inbox", "a")

    other = ops("token", "create", "--owner", "fleet", "--json").json()
    assert other["admin"] is False and other["expires_at"] is None
    fleet = {"LAPSE_TOKEN": other["token"]}
    lapse("token", "ls", env=fleet, code=6)
    lapse("send", "a", "hi", "--from", "me", env=fleet)
    lapse("inbox", "a", "--owner", "ops", env=fleet, code=6)
    assert ops("inbox", "a").out == "no messages\n"
    assert "hi" in ops("inbox", "a", "--owner", "fleet").out

    rows = ops("token", "ls").lines
    assert rows[0].split() == ["PREFIX", "OWNER", "NAME", "SCOPES", "ADMIN", "CREATED", "EXPIRES", "USED"] and len(rows) == 3
    assert admin not in ops("token", "ls", "--json").out
    assert ops("token", "revoke", other["prefix"]).out == f"{other['prefix']} is revoked\n"
    lapse("inbox", "a", env=fleet, code=6)
    ops("token", "revoke", "nonsense", code=5)


def test_a_token_with_a_name_and_scopes(start):
    lapse = Lapse(start().url)
    admin = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "ops", "--admin").out.strip()}
    made = lapse("token", "create", "--owner", "fleet", "--name", "build workers", "--scope", "agents:write",
                 "--scope", "messages:read", env=admin).out.strip()
    worker = {"LAPSE_TOKEN": made}
    lapse("heartbeat", "a", "--cluster", "c", env=worker)
    assert "agents:read" in lapse("agent", env=worker, code=6).err
    assert lapse("inbox", "a", env=worker).out == "no messages\n"
    row = next(line for line in lapse("token", env=admin).lines if "build workers" in line)
    assert "messages:read, agents:write" in row
    assert "rooms:read" in lapse("token", "create", "--owner", "x", "--scope", "rooms:read", env=admin, code=1).err


def test_the_first_token_says_whose_data_it_does_not_see(start):
    lapse = Lapse(start().url)
    send(lapse, "a", "made without a token")
    made = lapse("token", "create", "--owner", "ops", "--admin")
    admin = {"LAPSE_TOKEN": made.out.strip()}
    assert "belongs to the owner local, which this token does not see." in made.err
    assert "lapse token adopt ops" in made.err
    assert lapse("inbox", "a", env=admin).out == "no messages\n"
    assert "made without a token" in lapse("inbox", "a", "--owner", "local", env=admin).out
    assert "local" not in lapse("token", "create", "--owner", "fleet", env=admin).err


def test_the_first_token_adopts_what_is_there(start):
    lapse = Lapse(start().url)
    send(lapse, "a", "made without a token")
    lapse("heartbeat", "a", "--cluster", "c")
    made = lapse("token", "create", "--owner", "ops", "--admin", "--adopt-local")
    admin = {"LAPSE_TOKEN": made.out.strip()}
    assert "moved 3 rows of local to ops: messages 1, agents 1, idempotency_keys 1" in made.err and "does not see" not in made.err
    assert "made without a token" in lapse("inbox", "a", env=admin).out
    assert lapse("inbox", "a", "--owner", "local", env=admin).out == "no messages\n"
    # Later, for another owner, with a token that exists.
    lapse("send", "b", "late", "--from", "x", "--owner", "local", env=admin)
    made = json.loads(lapse("token", "create", "--owner", "fleet", "--adopt-local", "--json", env=admin).out)
    assert made["owner"] == "fleet" and made["adopted"]["tables"] == {"messages": 1, "idempotency_keys": 1}
    assert "late" in lapse("inbox", "b", env={"LAPSE_TOKEN": made["token"]}).out


def test_adopting_later(start):
    lapse = Lapse(start().url)
    send(lapse, "a", "made without a token")
    assert "make one first" in lapse("token", "adopt", "ops", code=1).err
    admin = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "ops", "--admin").out.strip()}
    assert lapse("token", "adopt", "ops", env=admin).out == "moved 2 rows of local to ops: messages 1, idempotency_keys 1\n"
    assert lapse("token", "adopt", "ops", env=admin).out == "moved 0 rows of local to ops\n"
    assert json.loads(lapse("token", "adopt", "red", "--from", "ops2", "--json", env=admin).out)["rows"] == 0
    assert "'ops' still has tokens: revoke them first" in lapse("token", "adopt", "red", "--from", "ops", env=admin, code=1).err
    assert "OWNER" in lapse("token", "adopt", "no/owner", env=admin, code=2).err
    # A token that exists already is printed even when its owner cannot adopt.
    lapse("heartbeat", "a", "--cluster", "c", env=admin)
    lapse("heartbeat", "a", "--cluster", "c", "--owner", "local", env=admin)
    made = lapse("token", "create", "--owner", "ops", "--adopt-local", env=admin, code=1, silent=True)
    assert made.out.startswith("lapse_") and "have 'a' in agents" in made.err


def test_a_token_for_the_data_that_is_there(start):
    lapse = Lapse(start().url)
    send(lapse, "a", "made without a token")
    made = lapse("token", "create", "--owner", "local", "--admin")
    assert "belongs to the owner local" not in made.err
    assert "made without a token" in lapse("inbox", "a", env={"LAPSE_TOKEN": made.out.strip()}).out


def test_a_token_is_nowhere_in_the_data_directory(start):
    daemon = start()
    secret = Lapse(daemon.url)("token", "create", "--owner", "ops", "--admin").out.strip().encode()
    files = [file for file in daemon.data_dir.rglob("*") if file.is_file()]
    assert files and not [file for file in files if secret in file.read_bytes()]


def test_status_without_a_token(start):
    lapse = Lapse(start().url)
    lapse("token", "create", "--owner", "ops", "--admin")
    assert "is ready" in lapse("status", code=6).out


# backup and restore ------------------------------------------------------------------------------

def test_backup_and_restore(start, tmp_path):
    daemon = start(tmp_path / "data")
    lapse = Lapse(daemon.url)
    message_id = send(lapse, "a", "precious")
    shown = lapse("backup").out
    file = tmp_path / "data" / shown.split(" (")[0]
    assert file.stat().st_size > 0 and shown.endswith("iB)\n")
    later = send(lapse, "a", "later")

    restore = ["restore", str(file), "--data-dir", str(tmp_path / "data")]
    assert "in use" in lapse(*restore, code=1).err
    assert [m["id"] for m in lapse.json("inbox", "a")["data"]] == [later, message_id]
    assert daemon.stop() == 0

    ran = lapse(*restore)
    kept = [line for line in ran.lines if line.startswith("the old one is kept as ")]
    assert len(kept) == 1 and "grace period" in ran.out
    lapse = Lapse(start(tmp_path / "data").url)
    assert [m["id"] for m in lapse.json("inbox", "a")["data"]] == [message_id]


def test_restore_into_an_empty_directory(start, tmp_path):
    daemon = start(tmp_path / "data")
    lapse = Lapse(daemon.url)
    send(lapse, "a", "precious")
    answer = lapse.json("backup")
    file = tmp_path / "data" / answer["file"]
    assert answer["bytes"] == file.stat().st_size
    code, shown = lapse.on_terminal("restore", str(file), "--data-dir", str(tmp_path / "new"), typed=b"y\n")
    assert code == 0 and "is now the database" in shown and "old one is kept as" not in shown
    assert "precious" in Lapse(start(tmp_path / "new").url)("inbox", "a").out


def test_restore_without_asking(start, tmp_path):
    lapse = Lapse(start(tmp_path / "data").url)
    file = tmp_path / "data" / lapse.json("backup")["file"]
    code, shown = lapse.on_terminal("restore", str(file), "--data-dir", str(tmp_path / "new"), "--yes", "--json")
    assert code == 0 and '"kept":null' in shown and "[y/N]" not in shown


# transports --------------------------------------------------------------------------------------

def test_unix_socket(start, tmp_path):
    start(listen=f"unix:{tmp_path}/l.sock")
    lapse = Lapse(f"unix:{tmp_path}/l.sock")
    assert f"lapsed at unix:{tmp_path}/l.sock is ready" in lapse("status").out
    message_id = send(lapse, "a")
    assert message_id in Lapse()("--url", f"unix:{tmp_path}/l.sock", "inbox", "a").out


def test_tls(start, certificate):
    cert, key = map(str, certificate)
    daemon = start(tls_cert=cert, tls_key=key)
    assert daemon.url.startswith("https://")
    assert "certificate" in Lapse(daemon.url)("status", code=3).err
    assert "is ready" in Lapse(daemon.url)("--ca-file", cert, "status").out


def test_trailing_slash_of_the_url(shared):
    Lapse()("--url", shared.url + "/", "matrix")


def test_daemon_that_ended(start):
    daemon = start()
    lapse = Lapse(daemon.url)
    lapse("status")
    assert daemon.stop() == 0
    assert f"no daemon at {daemon.url} (connection refused)" in lapse("status", code=3).err


# quotas -------------------------------------------------------------------------------------------

def test_quota(start):
    lapse = Lapse(start().url)
    assert lapse("quota").out == "no quotas\n"
    out = lapse("quota", "set", "fleet-7", "agents=5000", "stored_bytes=2GiB").out
    assert "5,000" in out and "2.0 GiB" in out
    assert lapse.json("quota", "show", "fleet-7") == {
        "owner": "fleet-7", "agents": 5000, "mailboxes": None, "attachment_bytes": None, "streams": None,
        "inboxes": None, "stored_bytes": 2 << 30}
    lapse("quota", "set", "fleet-7", "inboxes=7")
    row = lapse("quotas").lines[1].split()
    assert row == ["fleet-7", "5,000", "-", "7", "-", "2.0", "GiB", "-"], "what was not named has stayed"
    lapse("quota", "set", "fleet-7", "agents=default", "inboxes=default")
    assert lapse.json("quota", "show", "fleet-7")["agents"] is None
    assert lapse("quota", "set", "fleet-7", "stored_bytes=default").out == "no limit is left: the settings hold\n"
    lapse("quota", "show", "fleet-7", code=5)


def test_quota_clear(start):
    lapse = Lapse(start().url)
    lapse("quota", "set", "fleet-7", "streams=2")
    assert lapse.json("quota", "ls")["data"][0]["streams"] == 2
    assert lapse("quota", "clear", "fleet-7").out == "fleet-7 has no quota any more: the settings hold\n"
    lapse("quota", "clear", "fleet-7", code=5)


@pytest.mark.parametrize("limit", ["agents", "agents=", "agents=0", "agents=-1", "agents=10K", "agents=many",
                                   "stored_bytes=much", "=5"])
def test_quota_that_is_no_limit(lapse, limit):
    lapse("quota", "set", "nobody", limit, code=2)


def test_quota_of_something_unknown(lapse):
    assert "hats" in lapse("quota", "set", "nobody", "hats=5", code=1).err
