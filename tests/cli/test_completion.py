# SPDX-License-Identifier: Apache-2.0
"""Completions: what `lapse complete` offers, and that shells can use it."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from runner import LAPSE, Lapse


def offered(lapse, *words):
    return [line.split("\t")[0] for line in lapse("complete", "--", *words).lines]


NOWHERE = Lapse("http://127.0.0.1:1")


@pytest.mark.parametrize("words, wanted", [
    (["sta"], ["status", "stage"]), (["mailb"], ["mailbox"]), (["agent", "sh"], ["show"]),
    (["agents", "h"], ["heartbeat"]), (["hold", ""], ["place", "rm"]),
    (["inbox", "a", "--un"], ["--unread"]), (["--to"], ["--token-file"]),
    (["send", "a", "--fr"], ["--from"]), (["help", "mailbox", "cr"], ["create"]), (["help", "mat"], ["matrix"]),
    (["config", "message_tt"], ["message_ttl_ms"]), (["completion", ""], ["bash", "zsh", "fish"]),
    (["lease", "show", "w"], ["workspace_leases"]), (["entry", "put", ""], ["presence_entries", "connections"]),
    (["queue", "claim", "channel_o"], ["channel_outbox"]), (["queue", "channel_inbox", "--status", "f"], ["failed"]),
    (["lock", "oauth"], ["oauth_refresh_leases"]), (["oauth", ""], ["put", "consume"]),
    (["quota", ""], ["show", "set", "clear"]), (["quota", "set", "red", "st"], ["streams=", "stored_bytes="]),
    (["stage", ""], [":files"]), (["--token-file", ""], [":files"]), (["matrix", ""], []), (["nonsense", ""], None)])
def test_from_the_tables(words, wanted):
    found = offered(NOWHERE, *words)
    assert found == wanted if wanted is not None else True


def test_everything_at_the_beginning():
    lines = NOWHERE("complete", "--", "").lines
    words = [line.split("\t")[0] for line in lines]
    assert {"status", "agent", "send", "inbox", "events"} <= set(words) and len(set(words)) == len(words)
    assert all(line.split("\t")[1] for line in lines)


def test_live_names(start):
    lapse = Lapse(start().url)
    for name in ("planner", "builder-1", "builder-2", "odd\x7fname"[:3]):
        lapse("heartbeat", name, "--cluster", "west", "--capability", "gpu")
    mailbox = lapse.json("mailbox", "create", "--ttl", "1h")
    message = lapse("send", "planner", "hello", "--from", "me").out.strip()
    assert offered(lapse, "inbox", "bu") == ["builder-1", "builder-2"]
    assert offered(lapse, "agent", "show", "pl") == ["planner"]
    assert offered(lapse, "run", "--heartbeat", "pl") == ["planner"]
    assert offered(lapse, "mailbox", "show", "mbx") == [mailbox["id"]]
    assert mailbox["address"] in lapse("complete", "--", "mailbox", "rm", "").out
    assert offered(lapse, "message", "show", "planner", "") == [message]
    assert "messages" in offered(lapse, "sweep", "") and len(offered(lapse, "sweep", "mess")) == 1
    assert "mailboxes" in offered(lapse, "hold", "place", "")
    assert offered(lapse, "capability", "g") == ["gpu"]
    assert offered(Lapse(), "--url", lapse.env["LAPSE_URL"], "inbox", "pl") == ["planner"]
    lapse("lease", "acquire", "workspace_leases", "repo-7", "--holder", "me")
    lapse("entry", "put", "connections", "edge-1", "--ttl", "1h")
    item = lapse("queue", "add", "channel_inbox", "{}").out.strip()
    row = lapse.json("outbox", "add", "builds", "{}") and lapse.json("outbox")["data"][0]
    lapse("outbox", "commit", "mirror", row["cursor"])
    assert offered(lapse, "lease", "release", "workspace_leases", "") == ["repo-7"]
    assert offered(lapse, "entry", "rm", "connections", "e") == ["edge-1"]
    assert offered(lapse, "queue", "show", "channel_inbox", "") == [item]
    assert offered(lapse, "outbox", "commit", "") == ["mirror"]
    assert offered(lapse, "outbox", "--consumer", "m") == ["mirror"]


def test_no_daemon_is_no_error():
    assert offered(NOWHERE, "inbox", "") == []


def test_unknown_shell():
    assert "SHELL must be bash, zsh or fish" in NOWHERE("completion", "tcsh", code=2).err


def test_bash(start, tmp_path):
    lapse = Lapse(start().url)
    lapse("heartbeat", "two words", "--cluster", "c")
    script = """
        eval "$(lapse completion bash)"
        try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lapse; printf '%s|' "${COMPREPLY[@]}"; echo; }
        try lapse mail
        try lapse agent sh
        try lapse agent show two
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=20,
                          env={**lapse.env, "PATH": f"{os.path.dirname(LAPSE)}:{os.environ['PATH']}"})
    assert done.stdout.splitlines() == ["mailbox|", "show|", "two\\ words|"] and done.stderr == ""


class Shell:
    """An interactive shell at a terminal, with what it has shown so far."""

    def __init__(self, words, env):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
        os.close(theirs)
        self.shown = ""

    def type(self, text):
        os.write(self.ours, text.encode())

    def wait_for(self, text, times=1):
        """Reads until the text was shown so often; without the control sequences between its letters."""
        deadline = time.monotonic() + 30
        while re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|[\x00-\x08\r]", "", self.shown).count(text) < times:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.shown!r}"
            if select.select([self.ours], [], [], left)[0]:
                self.shown += os.read(self.ours, 65536).decode(errors="replace")

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


def shell_env(lapse, home):
    return {**lapse.env, "PATH": f"{os.path.dirname(LAPSE)}:{os.environ['PATH']}", "HOME": str(home), "TERM": "vt100",
            "PS1": "ready> ", "LC_ALL": "C.UTF-8", "HISTFILE": ""}


@pytest.mark.parametrize("words, setup", [
    (["bash", "--norc", "--noprofile", "-i"], 'eval "$(lapse completion bash)"'),
    (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -D -u; eval "$(lapse completion zsh)"')], ids=["bash", "zsh"])
def test_tab_at_a_terminal(start, tmp_path, words, setup):
    """What a person sees: the rest of a noun, of a verb, and of the name of an agent that is alive."""
    lapse = Lapse(start().url)
    lapse("heartbeat", "planner-of-the-north", "--cluster", "c")
    shell = Shell(words, shell_env(lapse, tmp_path))
    try:
        shell.wait_for("ready> ")
        shell.type(setup + "; PS1='armed> '\n")
        shell.wait_for("armed> ", 2)
        shell.type("lapse mailb\t")
        shell.wait_for("lapse mailbox ")
        shell.type("\x15lapse agent sh\tplan\t")
        shell.wait_for("lapse agent show")
        shell.wait_for("planner-of-the-north")
        (tmp_path / "a-file-to-stage").write_text("x")
        shell.type(f"\x15lapse stage {tmp_path}/a-file-t\t")
        shell.wait_for("a-file-to-stage")
    finally:
        shell.end()


def fish(lapse, home, line):
    """What fish offers for a line, with its descriptions."""
    done = subprocess.run(["fish", "--no-config", "-c", f"lapse completion fish | source; complete -C '{line}'"], text=True,
                          capture_output=True, check=True, timeout=30, env=shell_env(lapse, home))
    assert done.stderr == ""
    return dict((row.split("\t") + [""])[:2] for row in done.stdout.splitlines())


def test_fish(start, tmp_path):
    lapse = Lapse(start().url)
    lapse("heartbeat", "planner", "--cluster", "c")
    (tmp_path / "a-file").write_text("x")
    assert fish(lapse, tmp_path, "lapse mailb") == {"mailbox": "list the mailboxes"}
    assert fish(lapse, tmp_path, "lapse agent sh") == {"show": "show one agent"}
    assert list(fish(lapse, tmp_path, "lapse agent show pl")) == ["planner"]
    assert f"{tmp_path}/a-file" in fish(lapse, tmp_path, f"lapse stage {tmp_path}/a-f")
    assert "--unread" in fish(lapse, tmp_path, "lapse inbox a --un")
