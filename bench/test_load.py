#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench_load against small servers that answer exactly what a test wants.

    test_load.py PATH-TO-bench_load
"""
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

LOAD = "build/bench/bench_load"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers each request with what `answer(request)` yields, one send a piece, and keeps requests."""

    def __init__(self, answer):
        self.answer, self.requests = answer, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        pending = b""
        try:
            while True:
                request, pending = self.take(pending)
                if request is None:
                    data = client.recv(65536)
                    if not data:
                        return
                    pending += data
                    continue
                self.requests.append(request)
                for piece in self.answer(request):
                    client.sendall(piece)
        except (OSError, StopIteration):
            pass
        finally:
            client.close()

    @staticmethod
    def take(data):
        """One whole request from the front of data, or None."""
        if data.startswith(b"*"):  # RESP: *N, then N times $len and the bytes
            lines = data.split(b"\r\n")
            size = 2 * int(lines[0][1:] or 0) + 1
            if len(lines) <= size:
                return None, data
            return lines[2:size:2], b"\r\n".join(lines[size:])
        head, mark, rest = data.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        length = int(length[1]) if length else 0
        if not mark or len(rest) < length:
            return None, data
        return (head, rest[:length]), rest[length:]


def load(*args):
    """Runs bench_load: exit status, its JSON or None, stderr."""
    done = subprocess.run([LOAD, *args], capture_output=True, text=True, timeout=30)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class Templates(unittest.TestCase):
    def test_numbers_fill_path_and_body(self):
        with Server(lambda _: [OK]) as s:
            status, result, _ = load("--http", s.address, "--path", "/a/%05u?n=%n&p=100%%",
                                     "--body", '{"to":"%05u"}', "--spread", "7", "--requests", "50",
                                     "--connections", "1", "--header", "X-One: 1")
        self.assertEqual((status, result["answered"]), (0, 50))
        for place, (head, body) in enumerate(s.requests):
            path = re.match(rb"POST /a/(\d{5})\?n=(\d+)&p=100% HTTP/1.1\r\n", head)
            self.assertEqual(body, b'{"to":"%s"}' % path[1])
            self.assertLess(int(path[1]), 7)
            self.assertEqual(int(path[2]), place % 7)
            self.assertIn(b"\r\nX-One: 1", head)
        self.assertGreater(len({head for head, _ in s.requests}), 10)

    def test_a_list_has_distinct_numbers(self):
        with Server(lambda _: [OK]) as s:
            load("--http", s.address, "--path", "/", "--body", "[%L]", "--list", "100", "--item",
                 '"agent-%05u"', "--spread", "1000", "--requests", "5", "--connections", "2")
        for _, body in s.requests:
            agents = json.loads(body)
            self.assertEqual(len(set(agents)), 100)
            self.assertLess(max(agents), "agent-01000")

    def test_lines_of_a_list_follow_each_other(self):
        with Server(lambda _: [OK]) as s:
            status, _, stderr = load("--http", s.address, "--path", "/", "--type", "text/csv", "--body",
                                     "%L\n", "--list", "4", "--item", "agent-%03n,c", "--join", "\n",
                                     "--spread", "10", "--requests", "5", "--connections", "1")
        self.assertEqual(status, 0, stderr)
        for head, _ in s.requests:
            self.assertIn(b"\r\nContent-Type: text/csv\r\n", head)
        self.assertEqual(b"".join(body for _, body in s.requests).decode(),
                         "".join(f"agent-{place % 10:03d},c\n" for place in range(20)))

    def test_a_body_is_json_unless_told(self):
        with Server(lambda _: [OK]) as s:
            load("--http", s.address, "--path", "/", "--body", "{}", "--requests", "1",
                 "--connections", "1")
        self.assertIn(b"\r\nContent-Type: application/json\r\n", s.requests[0][0])

    def test_the_same_seed_sends_the_same(self):
        sent = []
        for seed in "4", "4", "5":
            with Server(lambda _: [OK]) as s:
                load("--http", s.address, "--path", "/%u", "--spread", "1000", "--requests", "20",
                     "--connections", "1", "--seed", seed)
            sent.append([re.search(rb"/\d+", head)[0] for head, _ in s.requests])
        self.assertEqual(sent[0], sent[1])
        self.assertNotEqual(sent[0], sent[2])

    def test_bad_templates_are_refused(self):
        for bad in "/%d", "/%", "/%99u":
            self.assertEqual(load("--http", "127.0.0.1:1", "--path", bad)[0], 2)
        self.assertEqual(load("--http", "127.0.0.1:1", "--path", "/", "--list", "2")[0], 2)


class Http(unittest.TestCase):
    def answered(self, pieces, *more):
        with Server(lambda _: pieces) as s:
            return load("--http", s.address, "--path", "/", "--requests", "6", "--connections", "2",
                        *more)

    def good(self, pieces):
        status, result, stderr = self.answered(pieces)
        self.assertEqual((status, result and result["answered"]), (0, 6), stderr)

    def test_a_reply_in_single_bytes(self):
        self.good([bytes([byte]) for byte in OK])

    def test_chunks_with_extension_and_trailer(self):
        reply = (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                 b"5;x=y\r\nab\r\nc\r\n1A\r\n" + b"z" * 26 + b"\r\n0\r\nT: 1\r\n\r\n")
        self.good([reply])
        self.good([bytes([byte]) for byte in reply])

    def test_no_body(self):
        self.good([b"HTTP/1.1 204 No Content\r\n\r\n"])
        self.good([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])

    def test_continue_is_not_the_answer(self):
        self.good([b"HTTP/1.1 100 Continue\r\n\r\n", OK])

    def test_long_header_lines(self):
        self.good([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000 + b"\r\nContent-Length: 2\r\n\r\n{}"])

    def test_errors_fail_the_run_and_are_shown(self):
        reply = [b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy"]
        status, result, stderr = self.answered(reply)
        self.assertEqual((status, result["errors"]), (1, 6))
        self.assertIn("busy", stderr)
        self.assertEqual(self.answered(reply, "--allow-errors")[0], 0)

    def test_a_broken_server_is_named(self):
        for pieces, word in (([b"SSH-2.0\r\n"], "not http"), ([OK + OK], "not http"),
                             ([b"HTTP/1.1 200 OK\r\n\r\n"], "not http"), (iter(()), "hung up")):
            with Server(lambda _: [next(pieces)] if word == "hung up" else pieces) as s:
                status, _, stderr = load("--http", s.address, "--path", "/")
            self.assertEqual(status, 2)
            self.assertIn(word, stderr)

    def test_nobody_listens(self):
        self.assertEqual(load("--http", "127.0.0.1:1", "--path", "/")[0], 2)


class Resp(unittest.TestCase):
    def answered(self, pieces):
        with Server(lambda _: pieces) as s:
            result = load("--resp", s.address, "--requests", "4", "--connections", "2", "--spread",
                          "9", "--", "SET", "key %u", "")
        return *result, s.requests

    def test_every_type_whole_and_in_single_bytes(self):
        for reply in (b"+OK\r\n", b":12\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"$5\r\na\r\nbc\r\n", b"*-1\r\n",
                      b"*0\r\n", b"*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+y\r\n"):
            for pieces in [reply], [bytes([byte]) for byte in reply]:
                status, result, stderr, requests = self.answered(pieces)
                self.assertEqual((status, result and result["answered"]), (0, 4), stderr)
                self.assertRegex(requests[0][1], rb"^key \d$")
                self.assertEqual((requests[0][0], requests[0][2]), (b"SET", b""))

    def test_errors(self):
        for reply in b"-ERR no\r\n", b"*2\r\n:1\r\n-ERR no\r\n":
            status, result, stderr, _ = self.answered([reply])
            self.assertEqual((status, result["errors"]), (1, 4))
            self.assertIn("ERR no", stderr)


class Time(unittest.TestCase):
    """Coordinated omission: a stall of 0.4 s in a run of 1 s is 40 % of an open loop's requests, and
    one request of a closed loop."""

    @staticmethod
    def stalling():
        stalled = []

        def answer(_):
            if not stalled:
                stalled.append(True)
                time.sleep(0.4)
            return [OK]
        return answer

    def test_an_open_loop_counts_from_when_a_request_was_due(self):
        with Server(self.stalling()) as s:
            status, result, _ = load("--http", s.address, "--path", "/", "--connections", "1",
                                     "--rate", "200", "--seconds", "1")
        self.assertEqual((status, result["answered"]), (0, 200))
        self.assertGreater(result["latency_us"]["p90"], 250_000)
        self.assertGreater(result["latency_us"]["max"], 395_000)
        self.assertGreater(result["send_lag_us"], 300_000)

    def test_a_closed_loop_does_not(self):
        with Server(self.stalling()) as s:
            _, result, _ = load("--http", s.address, "--path", "/", "--connections", "1",
                                "--seconds", "1")
        self.assertLess(result["latency_us"]["p90"], 100_000)

    def test_what_never_comes_is_counted(self):
        for rate, due in ("0", 3), ("100", 50):
            with Server(lambda _: []) as s:
                status, result, _ = load("--http", s.address, "--path", "/", "--connections", "3",
                                         "--rate", rate, "--seconds", "0.5", "--drain-seconds", "0.2")
            self.assertEqual((status, result["unfinished"], result["answered"]), (1, due, 0))
            self.assertGreater(result["latency_us"]["max"], 650_000)

    def test_a_signal_ends_it_early(self):
        with Server(lambda _: [OK]) as s:
            run = subprocess.Popen([LOAD, "--http", s.address, "--path", "/", "--rate", "50",
                                    "--seconds", "60"], stdout=subprocess.PIPE)
            time.sleep(0.5)
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=10)
        self.assertEqual(run.returncode, 0)
        self.assertLess(json.loads(out)["answered"], 100)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        LOAD = sys.argv.pop(1)
    unittest.main()
