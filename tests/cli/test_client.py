# SPDX-License-Identifier: Apache-2.0
"""What the command does when the other side is missing, broken or hostile. Needs no lapsed."""
import signal
import socket
import ssl
import subprocess
import time

import pytest

from runner import LAPSE, Lapse
from stub import BREAK

MESSAGE = {"id": "0123456789abcdef", "to": "a", "from": "b", "content": "hi", "type": "text",
           "metadata": {}, "timestamp": "2026-01-01T00:00:00.000Z", "read": False, "read_at": None}
MATRIX = {"data": [{"table": "messages", "scheduler": "messages", "bounded_by": "timestamp",
                    "due_when": "now - timestamp > window", "window_ms": 86400000,
                    "paths": ["sweep"], "safety_rule": "only when read", "action": "delete",
                    "live_rows": 1234567, "due_rows": 3, "oldest_due_age_ms": 90061000,
                    "last_sweep_at": None, "pruned_total": 0}]}
HOSTILE = "\x1b]0;owned\x07 \x1b[2J\r\n\t\x7f \u0085 \u202e evil \u2066 \U000e0041 ok é 漢 🙂"
ESCAPED = r"\x1b]0;owned\x07 \x1b[2J\r\n\t\x7f \x85 \u202e evil \u2066 \U000e0041 ok é 漢 🙂"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def page(*rows, cursor=None):
    return 200, {"data": list(rows), "pagination": {"next_cursor": cursor, "has_more": cursor is not None}}


def error(status, message="no luck"):
    return status, {"error": {"code": "x", "message": message}}


# No daemon -------------------------------------------------------------------------------------

def test_missing_daemon_says_how_to_start_one():
    url = f"http://127.0.0.1:{free_port()}"
    ran = Lapse(url)("status", code=3)
    assert ran.err == (f"lapse: no daemon at {url} (connection refused). "
                       "Start one with: lapsed --data-dir DIR\n")
    assert ran.out == ""


def test_missing_socket(tmp_path):
    ran = Lapse(f"unix:{tmp_path}/none.sock")("inbox", "a", code=3)
    assert "(no such file or directory)" in ran.err


def test_default_url_is_in_the_help():
    assert "http://127.0.0.1:7878" in Lapse()("help").out


@pytest.mark.parametrize("url", ["ftp://host", "unix:", "http://[broken"])
def test_bad_url(url):
    Lapse()("--url", url, "status", code=2)


def test_unknown_host():
    Lapse()("--url", "http://nowhere.invalid:1", "status", code=3)


def test_proxies_are_not_used(stub):
    stub.script = [(200, MATRIX)]
    Lapse(stub.url, http_proxy=f"http://127.0.0.1:{free_port()}")("matrix")


def test_tls_trusts_only_known_certificates(stub, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    stub.socket = context.wrap_socket(stub.socket, server_side=True)
    stub.handle_error = lambda *_: None  # the handshake that is refused
    stub.script = [(200, MATRIX)]
    lapse = Lapse(stub.url.replace("http:", "https:"))
    assert "certificate" in lapse("matrix", code=3).err
    assert stub.requests == []
    lapse("matrix", "--ca-file", str(certificate[0]))


# Exit codes ------------------------------------------------------------------------------------

@pytest.mark.parametrize("status, code", [
    (400, 1), (401, 6), (403, 6), (404, 5), (405, 1), (408, 1), (409, 1), (410, 1), (413, 1),
    (422, 1), (429, 1), (500, 4), (502, 4), (503, 4)])
def test_exit_code_of_a_status(stub, status, code):
    stub.script = [error(status, "mailbox is full")]
    ran = Lapse(stub.url)("matrix", code=code)
    assert "mailbox is full" in ran.err and ran.out == ""


@pytest.mark.parametrize("status, body, code", [
    (200, b"<html>", 3), (200, b"[]", 3), (200, b"", 3), (404, b"nothing here", 5), (502, b"Bad Gateway", 4)])
def test_not_lapsed(stub, status, body, code):
    stub.script = [(status, body)]
    assert "does not answer like lapsed" in Lapse(stub.url)("matrix", code=code).err


def test_redirects_are_not_followed(stub):
    stub.script = [(302, {})]
    Lapse(stub.url)("matrix", code=3)


def test_status_not_ready(stub):
    stub.script = [(200, {"status": "ok"}),
                   (503, {"status": "unavailable", "reasons": ["the clock jumped\x1b[2J"]}), (200, MATRIX)]
    ran = Lapse(stub.url)("status", code=4, silent=True)
    assert "is not ready\n  the clock jumped\\x1b[2J: lapse clock\n" in ran.out and "1,234,567" in ran.out
    assert "\n  messages is behind: its oldest row has been due for 1d 1h: lapse sweep messages\n" in ran.out


def test_interrupt_ends_quietly():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = Lapse(f"http://127.0.0.1:{silent.getsockname()[1]}").start("matrix")
        connection, _ = silent.accept()
        connection.recv(1)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=5)
        connection.close()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_output_that_cannot_be_written_is_no_success():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([LAPSE, "help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"cannot write" in done.stderr


# Broken connections ------------------------------------------------------------------------------

def test_send_is_repeated_once_with_the_same_key(stub):
    stub.script = [BREAK, (201, MESSAGE)]
    assert Lapse(stub.url)("send", "a", "hi", "--from", "b").out == "0123456789abcdef\n"
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in stub.requests]
    assert len(keys) == 2 and keys[0] == keys[1] and len(keys[0]) >= 32


def test_keys_differ_between_runs(stub):
    stub.script = [(201, MESSAGE)]
    for _ in range(2):
        Lapse(stub.url)("send", "a", "hi", "--from", "b")
    assert stub.requests[0][2]["Idempotency-Key"] != stub.requests[1][2]["Idempotency-Key"]


def test_twice_broken_is_unreachable(stub):
    stub.script = [BREAK]
    Lapse(stub.url)("send", "a", "hi", "--from", "b", code=3)
    assert len(stub.requests) == 2


def test_a_token_is_not_repeated(stub):
    stub.script = [BREAK]
    Lapse(stub.url)("token", "create", "--owner", "ops", code=3)
    assert [headers["Idempotency-Key"] for _, _, headers, _ in stub.requests] == [None]


def test_sweep_is_not_repeated(stub):
    stub.script = [BREAK]
    Lapse(stub.url)("sweep", "messages", code=3)
    assert len(stub.requests) == 1


# Requests --------------------------------------------------------------------------------------

def test_names_are_encoded(stub):
    stub.script = [page()]
    Lapse(stub.url)("inbox", "a b?c%é#../x")
    assert stub.requests[0][1] == "/v1/agents/a%20b%3Fc%25%C3%A9%23..%2Fx/messages?limit=100"
    Lapse(stub.url)("inbox", "..")
    assert stub.requests[1][1] == "/v1/agents/../messages?limit=100"


def test_empty_name(stub):
    stub.script = [page()]
    Lapse(stub.url)("inbox", "", code=2)
    assert stub.requests == []


def test_token_and_owner_are_headers(stub, tmp_path):
    stub.script = [page()]
    (tmp_path / "token").write_text("from-file\n")
    lapse = Lapse(stub.url, LAPSE_TOKEN="from-env")
    lapse("hold", "ls")
    lapse("hold", "ls", "--token-file", str(tmp_path / "token"), "--owner", "team")
    seen = [(h["Authorization"], h["X-Lapse-Owner"]) for _, _, h, _ in stub.requests]
    assert seen == [("Bearer from-env", None), ("Bearer from-file", "team")]


@pytest.mark.parametrize("text", ["", "two words", "line\nX-Evil: 1", "é", "x" * 5000])
def test_bad_token(stub, tmp_path, text):
    (tmp_path / "token").write_text(text)
    Lapse(stub.url)("hold", "ls", "--token-file", str(tmp_path / "token"), code=2)
    assert stub.requests == []


def test_token_file_missing(stub, tmp_path):
    Lapse(stub.url)("hold", "ls", "--token-file", str(tmp_path / "none"), code=2)


def test_no_token_hint(stub):
    stub.script = [error(401)]
    assert "LAPSE_TOKEN" in Lapse(stub.url)("hold", "ls", code=6).err
    assert "LAPSE_TOKEN" not in Lapse(stub.url, LAPSE_TOKEN="x")("hold", "ls", code=6).err


# Lists -----------------------------------------------------------------------------------------

def test_pages_become_one_list(stub):
    row = lambda n: {**MESSAGE, "id": f"{n:016x}"}
    stub.script = [page(row(1), row(2), cursor="c&1"), page(row(3), cursor="c2"), page(row(4))]
    answer = Lapse(stub.url).json("inbox", "a")
    assert [m["id"][-1] for m in answer["data"]] == ["1", "2", "3", "4"]
    assert answer["pagination"] == {"next_cursor": None, "has_more": False}
    assert [path.split("?")[1] for _, path, _, _ in stub.requests] == [
        "limit=100", "limit=100&after=c%261", "limit=100&after=c2"]


def test_limit_stops_early(stub):
    stub.script = [page(MESSAGE, MESSAGE, cursor="c1"), page(MESSAGE, cursor="c2"), page(MESSAGE)]
    answer = Lapse(stub.url).json("inbox", "a", "--limit", "3")
    assert len(answer["data"]) == 3 and answer["pagination"]["has_more"] is True
    assert [path.split("?")[1] for _, path, _, _ in stub.requests] == ["limit=3", "limit=1&after=c1"]


def test_a_cursor_without_rows_ends(stub):
    stub.script = [page(MESSAGE, cursor="c1"), page(cursor="c1")]
    assert len(Lapse(stub.url).json("inbox", "a")["data"]) == 1


def test_one_page_is_printed_as_it_came(stub):
    raw = b'{"data" : [ ], "pagination":{"next_cursor":null,"has_more":false}, "\\u00e9":1.50}'
    stub.script = [(200, raw)]
    assert Lapse(stub.url)("inbox", "a", "--json").out.encode() == raw + b"\n"


# Tables ----------------------------------------------------------------------------------------

def test_hostile_content_is_escaped(stub):
    stub.script = [page({**MESSAGE, "content": HOSTILE, "from": "\x1b[31mroot\nfake row"})]
    ran = Lapse(stub.url)("inbox", "a")
    assert ESCAPED in ran.out and "\\x1b[31mroot\\nfake row" in ran.out
    assert "\x1b" not in ran.out and len(ran.lines) == 2
    assert Lapse(stub.url).json("inbox", "a")["data"][0]["content"] == HOSTILE


def test_hostile_error_is_escaped(stub):
    stub.script = [error(400, "bad \x1b[2J\u202e")]
    assert Lapse(stub.url)("matrix", code=1).err == "lapse: bad \\x1b[2J\\u202e\n"


def test_nul_in_content(stub):
    stub.script = [page({**MESSAGE, "content": "a\x00b"})]
    assert "a\\x00b" in Lapse(stub.url)("inbox", "a").out


def test_matrix_is_readable(stub):
    stub.script = [(200, MATRIX)]
    lines = Lapse(stub.url)("matrix").lines
    assert lines[0].split()[:2] == ["TABLE", "DUE"]
    assert lines[1].split()[:2] == ["messages", "3"] and "  1,234,567  " in lines[1]
    assert "1d 1h" in lines[1] and "only when read" in lines[1]


def test_columns_are_aligned_with_wide_characters(stub):
    stub.script = [page({**MESSAGE, "from": "漢字", "content": "X"}, {**MESSAGE, "from": "abcd", "content": "X"})]
    first, second = Lapse(stub.url)("inbox", "a").lines[1:]
    assert second.index("X") - first.index("X") == 2  # two characters that take two columns each


@pytest.mark.parametrize("ago_s, text", [(0, "now"), (30, "30s ago"), (200, "3m ago"), (7300, "2h ago"),
                                         (90000, "25h ago"), (400000, "4d ago"), (-7300, "in 2h"),
                                         (-7197, "in 2h"), (-3597, "in 1h"), (-172700, "in 2d"), (-604797, "in 7d"),
                                         (-5500, "in 2h"), (-5200, "in 1h"), (-1800, "in 30m")])
def test_ages(stub, ago_s, text):
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - ago_s))
    stub.script = [page({"table": "messages", "key": "k", "reason": "r", "created_at": at, "until": None})]
    line = Lapse(stub.url)("hold", "ls").lines[1]
    near = {"now": ("now", "1s ago"), "30s ago": ("30s ago", "31s ago")}.get(text, (text, ))
    assert any(f"  {one}  " in line for one in near), line


def test_colour_only_on_a_terminal(stub):
    stub.script = [(200, MATRIX)]
    lapse = Lapse(stub.url)
    assert "\x1b[" not in lapse("matrix").out
    assert "\x1b[1mTABLE" in lapse.on_terminal("matrix", columns=300)[1]
    assert "\x1b[1mmessages" in lapse.on_terminal("matrix", "--columns", "table,safety-rule,due-when,action,paths", columns=20)[1]
    assert "\x1b[" not in lapse.on_terminal("matrix", env={"NO_COLOR": "1"})[1]
    assert "\x1b[" not in lapse.on_terminal("matrix", env={"TERM": "dumb"})[1]


def test_long_content_is_cut_only_on_a_terminal(stub):
    stub.script = [page({**MESSAGE, "content": "漢" * 500})]
    lapse = Lapse(stub.url)
    assert "漢" * 500 in lapse("inbox", "a").out
    _, shown = lapse.on_terminal("inbox", "a", columns=100, env={"NO_COLOR": "1"})
    line = shown.splitlines()[1]
    assert line.endswith("...") and 98 <= len(line) + line.count("漢") <= 100


def test_url_without_a_scheme(shared):
    address = shared.url.removeprefix("http://")
    assert f"lapsed at {shared.url} is ready" in Lapse()("--url", address, "status").out
    assert f"lapsed at {shared.url} is ready" in Lapse(address)("status").out


@pytest.mark.parametrize("url", ["nonsense", "host:", ":7878", "host:port", "host:1/path", "user@host:1", "::1:7878",
                                 "ftp://host:1"])
def test_what_is_no_url(url):
    assert "is no URL" in Lapse()("--url", url, "status", code=2).err
