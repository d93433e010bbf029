#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench_load against small servers that answer exactly what a test wants, and against RabbitMQ where it is
installed.

    test_load.py PATH-TO-bench_load
"""
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import broker

LOAD = "build/bench/bench_load"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers each request with what `answer(request)` yields, one send a piece, and keeps requests."""

    def __init__(self, answer):
        self.answer, self.requests = answer, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.acceptor = threading.Thread(target=self.accept, daemon=True)
        self.acceptor.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Not just close(): the thread might be about to accept, and would do so on the next server's descriptor.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()
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


def frame(kind, channel, payload):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(class_id, number, arguments=b"", channel=1):
    return frame(1, channel, struct.pack(">HH", class_id, number) + arguments)


def confirm(number, tag, flags=0):
    """basic.ack (80) or basic.nack (120)"""
    return method(60, number, struct.pack(">QB", tag, flags))


class AmqpServer(Server):
    """Greets like a broker. `answer(tag)` gives the pieces that answer a connection's message of that number."""

    GREETING = {b"AMQP": method(10, 10, b"\0\x09" + b"\0" * 12, 0), (10, 11): method(10, 30, struct.pack(">HIH", 2047, 131072, 60), 0),
                (10, 31): b"", (10, 40): method(10, 41, b"\0", 0), (20, 10): method(20, 11, b"\0" * 4),
                (85, 10): method(85, 11)}

    def __init__(self, answer, greeting=None):
        self.greeting, self.greeted = {**self.GREETING, **(greeting or {})}, []
        super().__init__(answer)

    def serve(self, client):
        with client, client.makefile("rb") as stream:
            try:
                self.greet(client, stream)
                for tag in range(1, 1000):
                    self.requests.append(self.message(stream))
                    for piece in self.answer(tag):
                        client.sendall(piece)
            except (OSError, struct.error):
                pass

    def greet(self, client, stream):
        self.greeted.append(stream.read(8))
        client.sendall(self.greeting[b"AMQP"])
        key = None
        while key != (85, 10):
            _, _, payload = self.frame(stream)
            key = struct.unpack(">HH", payload[:4])
            self.greeted.append(payload)
            client.sendall(self.greeting[key])

    @staticmethod
    def frame(stream):
        kind, channel, size = struct.unpack(">BHI", stream.read(7))
        payload, end = stream.read(size), stream.read(1)
        assert end == b"\xce", end
        return kind, channel, payload

    def message(self, stream):
        """(the arguments of basic.publish, the properties, the sizes of the body's frames, the body)"""
        (kind, channel, publish), (header_kind, _, header) = self.frame(stream), self.frame(stream)
        assert (kind, channel, header_kind, publish[:4]) == (1, 1, 2, b"\0\x3c\0\x28")
        wanted, pieces = struct.unpack(">Q", header[4:12])[0], []
        while sum(map(len, pieces)) < wanted:
            kind, _, piece = self.frame(stream)
            assert kind == 3
            pieces.append(piece)
        return publish[4:], header[12:], list(map(len, pieces)), b"".join(pieces)


class Amqp(unittest.TestCase):
    def answered(self, answer, *more, greeting=None, body="hello %u"):
        with AmqpServer(answer, greeting) as s:
            result = load("--amqp", s.address, "--queue", "inbox-%02u", "--body", body, "--spread", "9", "--requests", "6",
                          "--connections", "2", *more)
        return *result, s

    def good(self, answer, **more):
        status, result, stderr, server = self.answered(answer, **more)
        self.assertEqual((status, result and result["answered"]), (0, 6), stderr)
        return server

    def test_confirms_whole_and_in_single_bytes(self):
        for flags in 0, 1:  # 1: multiple
            self.good(lambda tag, f=flags: [confirm(80, tag, f)])
            self.good(lambda tag, f=flags: [bytes([byte]) for byte in confirm(80, tag, f)])

    def test_what_is_sent(self):
        server = self.good(lambda tag: [confirm(80, tag)])
        self.assertEqual(server.greeted[0], b"AMQP\0\0\x09\x01")
        self.assertIn(b"\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US", server.greeted[1])
        self.assertEqual(server.greeted[2][-8:], struct.pack(">HIH", 1, 131072, 0))
        for publish, properties, sizes, body in server.requests:
            number = re.fullmatch(rb"\0\0\0\x08inbox-0(\d)\x01", publish)[1]  # no exchange, mandatory
            self.assertEqual((properties, sizes, body), (b"\x10\0\x02", [7], b"hello " + number))

    def test_a_long_body_is_cut_and_an_empty_one_has_no_frame(self):
        for body, sizes in (("", []), ("x" * 131064, [131064]), ("x" * 131065, [131064, 1])):
            server = self.good(lambda tag: [confirm(80, tag)], body=body)
            self.assertEqual((server.requests[0][2], server.requests[0][3]), (sizes, body.encode()))

    def test_refused_and_returned_messages_are_errors(self):
        returned = (method(60, 50, struct.pack(">H", 312) + b"\x08NO_ROUTE\0\x08inbox-00")
                    + frame(2, 1, b"\0\x3c\0\0" + struct.pack(">Q", 5) + b"\0\0") + frame(3, 1, b"hello"))
        for answer in (lambda tag: [confirm(120, tag)], lambda tag: [returned + confirm(80, tag)],
                       lambda tag: [bytes([byte]) for byte in returned + confirm(80, tag)]):
            status, result, stderr, _ = self.answered(answer)
            self.assertEqual((status, result and result["errors"]), (1, 6), stderr)
            self.assertEqual(self.answered(answer, "--allow-errors")[0], 0)
        self.assertIn("NO_ROUTE", self.answered(lambda tag: [returned + confirm(80, tag)])[2])

    def test_a_broken_broker_is_named(self):
        closed = method(20, 40, struct.pack(">H", 404) + b"\x09NOT_FOUND" + b"\0\x3c\0\x28")
        for pieces, word in (([closed], "NOT_FOUND"), ([b"HTTP/1.1 400 No\r\n\r\n"], "not amqp"),
                             ([confirm(80, 1)[:-1] + b"x"], "not amqp")):
            status, _, stderr, _ = self.answered(lambda _, p=pieces: p)
            self.assertEqual(status, 2)
            self.assertIn(word, stderr)

    def test_a_confirm_of_another_message_is_none(self):
        status, _, stderr, _ = self.answered(lambda tag: [confirm(80, max(tag - 1, 1))])
        self.assertEqual(status, 2)
        self.assertIn("not amqp", stderr)

    def test_a_greeting_that_goes_wrong(self):
        small = method(10, 30, struct.pack(">HIH", 2047, 4096, 60), 0)
        for key, answer, word in (((10, 11), small, "4096 bytes"), ((10, 40), method(10, 50, b"\0" * 9, 0), "10.50 instead of 10.41"),
                                  (b"AMQP", b"AMQP\0\0\x09\x01", "not amqp")):
            status, _, stderr, _ = self.answered(lambda tag: [confirm(80, tag)], greeting={key: answer})
            self.assertEqual(status, 2)
            self.assertIn(word, stderr)

    def test_what_it_needs(self):
        for arguments in (["--queue", "q"], ["--body", "b"], ["--queue", "q", "--body", "b", "--", "PING"],
                          ["--queue", "q", "--body", "b", "--http", "127.0.0.1:1", "--path", "/"]):
            self.assertEqual(load("--amqp", "127.0.0.1:1", *arguments)[0], 2)

    @unittest.skipUnless(broker.is_installed(), "needs RabbitMQ (Debian package rabbitmq-server)")
    def test_with_rabbitmq(self):
        with tempfile.TemporaryDirectory() as directory, broker.RabbitMQ(directory + "/broker", queues=3) as rabbit:
            def publish(queue, *more):
                return load("--amqp", rabbit.address, "--queue", queue, "--spread", "3", "--connections", "8", *more)
            status, result, stderr = publish("inbox-%02u", "--body", "hello %u", "--requests", "500")
            self.assertEqual((status, result and result["answered"]), (0, 500), stderr)
            status, result, stderr = publish("inbox-01", "--body", "%L", "--list", "2", "--item", "x" * 100_000, "--requests", "10")
            self.assertEqual((status, result and result["answered"]), (0, 10), stderr)
            status, result, stderr = publish("nowhere", "--body", "hello", "--requests", "10")
            self.assertEqual((status, result and result["errors"]), (1, 10), stderr)
            self.assertIn("NO_ROUTE", stderr)
            self.assertEqual(rabbit.stored(510), 510)
            self.assertGreater(sum(rabbit.cpu_s()), 0)
            pids = broker.descendants(rabbit.process.pid) + [str(rabbit.names.pid)]
        self.assertGreater(len(pids), 1)
        deadline = time.monotonic() + 20  # its helpers end a moment after it
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([pid for pid in pids if is_running(pid)], [])


def is_running(pid):
    """A process that has ended may wait for its new parent a while."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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
