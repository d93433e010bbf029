# SPDX-License-Identifier: Apache-2.0
"""Reading, claiming, and the beginnings of ids."""
import time

import pytest

from runner import Lapse


def send(lapse, agent, content="hi", **options):
    return lapse("send", agent, content, "--from", "me", **options).out.strip()


def test_show(lapse, agent):
    message_id = send(lapse, agent, "first line\nsecond \x1b[31mline")
    shown = lapse("message", "show", agent, message_id).out
    head, content = shown.split("\n\n")
    assert f"id        {message_id}" in head and "from      me" in head and "read      -" in head
    assert content == "first line\nsecond \\x1b[31mline\n"
    assert lapse("message", "show", agent, message_id[:12]).out == shown
    assert lapse.json("message", "show", agent, message_id)["content"] == "first line\nsecond \x1b[31mline"
    lapse("message", "show", agent, "0000", code=5)
    assert lapse("message", "show", agent, message_id, "--columns", "from").out == "from  me\n"


def test_inboxes(start):
    lapse = Lapse(start().url)
    assert lapse("inbox").out == "no messages\n"
    lapse("read", "a", send(lapse, "a"))
    send(lapse, "b")
    rows = [line.split() for line in lapse("message").lines]
    assert rows[0][:3] == ["AGENT", "MESSAGES", "UNREAD"]
    assert sorted(row[:3] for row in rows[1:]) == [["a", "1", "0"], ["b", "1", "1"]]
    assert "need an AGENT" in lapse("inbox", "--unread", code=2).err


def test_a_short_form_is_the_whole_command(lapse):
    """`lapse inbox show` is about an agent with that name; `lapse message show` is a command."""
    message_id = send(lapse, "show")
    assert message_id in lapse("inbox", "show").out
    assert "ID is missing" in lapse("message", "show", "a", code=2).err


def test_beginnings_of_message_ids(lapse, agent):
    first = send(lapse, agent)
    time.sleep(0.005)
    second = send(lapse, agent)
    common = len([1 for a, b in zip(first, second) if a == b and first.index(a) is not None])
    assert "more than one message begins with" in lapse("read", agent, first[:6], code=1).err
    assert common >= 6
    assert lapse("read", agent, first).out == "1 message marked read\n"
    assert lapse("read", agent, first[:15], second).out == "1 message marked read\n" or first[:15] == second[:15]


# claim -------------------------------------------------------------------------------------------

def test_claim(lapse, agent):
    first, second = send(lapse, agent, "one"), send(lapse, agent, "two")
    head, title, *rows = lapse("claim", agent, "--limit", "1", "--visibility", "1m").lines
    assert head.startswith("claim ") and title.split()[0] == "ID" and rows[0].startswith(first) and len(rows) == 1
    claim = lapse.json("claim", agent, "--visibility", "1m")
    assert [m["id"] for m in claim["data"]] == [second]
    assert lapse("claim", agent, code=7, silent=True).out == "nothing to claim\n"
    assert "--claim is for one ID" in lapse("read", agent, "--all", "--claim", claim["claim_id"], code=2).err
    assert "passed to another" in lapse("read", agent, first, "--claim", claim["claim_id"], code=1).err
    assert lapse("read", agent, second, "--claim", claim["claim_id"]).out == "1 message marked read\n"


def test_claim_waits(lapse, agent):
    began = time.monotonic()
    lapse("claim", agent, "--wait", "300ms", code=7, silent=True)
    assert 0.3 <= time.monotonic() - began < 5
    process = lapse.start("claim", agent, "--wait", "15s")
    time.sleep(0.2)
    message_id = send(lapse, agent)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 0 and message_id in out.decode()


def test_claim_checks_columns_first(lapse, agent):
    send(lapse, agent)
    lapse("claim", agent, "--columns", "nonsense", code=2)
    assert len(lapse.json("claim", agent)["data"]) == 1


def test_wait_without_a_message_is_told_apart(lapse, agent):
    assert lapse("inbox", agent, "--wait", "50ms", code=7, silent=True).out == "no messages\n"
    assert lapse("inbox", agent).out == "no messages\n"
    send(lapse, agent)
    lapse("inbox", agent, "--wait", "50ms")


# beginnings of other ids ---------------------------------------------------------------------------

def test_beginnings_of_mailbox_ids(start):
    lapse = Lapse(start().url)
    mailbox = lapse.json("mailbox", "create", "--ttl", "1h")["id"]
    digits = mailbox.removeprefix("mbx_")
    for typed in (mailbox, mailbox[:12], digits[:8]):
        assert lapse.json("mailbox", "show", typed)["id"] == mailbox
    lapse("mailbox", "renew", digits[:8], "--ttl", "2h")
    assert lapse("mailbox", "messages", digits[:8]).out == "no messages\n"
    assert lapse("hold", "place", "mailboxes", digits[:8], "--reason", "r").out == f"mailboxes/{mailbox} is held\n"
    assert lapse("hold", "rm", "mailboxes", digits[:10]).out == f"mailboxes/{mailbox} is released\n"
    lapse("mailbox", "show", "mbx_00000000", code=5)
    assert lapse("mailbox", "rm", digits[:8]).out == f"{mailbox} is removed\n"


def test_beginnings_of_held_keys(start):
    lapse = Lapse(start().url)
    message_id = send(lapse, "a")
    lapse("hold", "place", "messages", message_id, "--reason", "r")
    assert "no held key begins with" in lapse("hold", "rm", "agents", message_id[:8], code=5).err
    assert lapse("hold", "rm", "messages", message_id[:8]).out == f"messages/{message_id} is released\n"


def test_beginnings_of_token_prefixes(start):
    lapse = Lapse(start().url)
    admin = {"LAPSE_TOKEN": lapse("token", "create", "--owner", "ops", "--admin").out.strip()}
    other = lapse("token", "create", "--owner", "fleet", "--json", env=admin).json()["prefix"]
    assert lapse("token", "revoke", other[:6], env=admin).out == f"{other} is revoked\n"


# exit codes and pipes -------------------------------------------------------------------------------

@pytest.mark.parametrize("words", [["help"], ["matrix"], ["events"], ["inbox"], ["config", "--json"]])
def test_a_closed_pipe_is_no_error(lapse, words):
    for _ in range(3):
        process = lapse.start(*words)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(10) == 0 and err == b"", (words, err)
        process.stderr.close()


def test_a_full_disk_is_an_error(lapse):
    with open("/dev/full", "wb") as full:
        process = lapse.start("help", stdout=full)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 1 and b"cannot write to standard output" in err
