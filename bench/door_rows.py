# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark about doors: a tool's call against the same call over plain HTTP, and mail by LMTP."""
import json
import os
import socket
import statistics
import threading
import time

from rows import NO_UNREAD_LIMIT, Figure, Row, alternate, column, measure
from servers import BenchError, Lapse
from stores import CONTENT

LMTP_CONNECTIONS = 16
AGENT = "agent-00001"
PLAIN = ["--path", f"/v1/agents/{AGENT}/messages", "--body",
         json.dumps({"from": "bench-sender", "content": CONTENT}, separators=(",", ":"))]
TOOL = ["--path", "/mcp", "--body", json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_message", "arguments": {
        "from_session_id": "bench-sender", "to_session_id": AGENT, "content": CONTENT}}}, separators=(",", ":"))]
MAIL = ("From: Shop <noreply@shop.example>\r\nTo: box@lapse.local\r\nSubject: Your code\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n\r\nYour code is 482913.\r\n" + CONTENT + "\r\n").encode()


# -- a tool's call ---------------------------------------------------------------------------------


def send(bench, arguments):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=NO_UNREAD_LIMIT) as lapse:
        return measure(bench, lapse, arguments)


def mcp_call(bench):
    samples = alternate(bench, {"tool": lambda: send(bench, TOOL), "plain": lambda: send(bench, PLAIN)})
    cpu = {side: Figure(f"CPU a call, {side}", "µs", column(samples[side], "CPU µs")) for side in samples}
    ratio = cpu["tool"].median / cpu["plain"].median
    row = Row("mcp-call", "CPU time of `tools/call send_message` at /mcp, against the same message over plain HTTP",
              cpu["tool"], cpu["plain"], ratio, "≤ 1.5×", ratio <= 1.5)
    row.figures.append(Figure("messages/s", "/s", column(samples["tool"], "messages/s")))
    row.their_figures.append(Figure("messages/s", "/s", column(samples["plain"], "messages/s")))
    return row


# -- mail ------------------------------------------------------------------------------------------


class Sender(threading.Thread):
    """One LMTP connection that delivers mail after mail until it is told to stop."""

    def __init__(self, path, address):
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.reader = self.sock.makefile("rb")
        self.head = f"MAIL FROM:<a@shop.example>\r\nRCPT TO:<{address}>\r\nDATA\r\n".encode()
        self.delivered, self.stop, self.error = 0, False, None
        self.expect(220)
        self.sock.sendall(b"LHLO bench\r\n")
        self.expect(250)

    def expect(self, code):
        line = self.reader.readline()
        while line[3:4] == b"-":
            line = self.reader.readline()
        if not line.startswith(str(code).encode()):
            raise BenchError(f"LMTP said {line!r}, not {code}")

    def run(self):
        try:
            while not self.stop:
                self.sock.sendall(self.head)
                for code in (250, 250, 354):
                    self.expect(code)
                self.sock.sendall(MAIL + b".\r\n")
                self.expect(250)
                self.delivered += 1
        except (BenchError, OSError) as error:
            self.error = error


def deliver(bench):
    path = bench.file("lmtp")
    settings = ("--lmtp-listen", f"unix:{path}", "--mailbox-unread-max", "1000000000")
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=settings) as lapse:
        senders = [Sender(path, lapse.call("POST", "/v1/mailboxes", {})["address"]) for _ in range(LMTP_CONNECTIONS)]
        for sender in senders:
            sender.start()
        time.sleep(bench.scale.warm_s)
        start, begun, cpu = time.monotonic(), sum(s.delivered for s in senders), sum(lapse.cpu_s())
        time.sleep(bench.scale.seconds)
        elapsed, ended = time.monotonic() - start, sum(s.delivered for s in senders)
        cpu = sum(lapse.cpu_s()) - cpu
        for sender in senders:
            sender.stop = True
        for sender in senders:
            sender.join(30)
        errors = [s.error for s in senders if s.error]
        if errors or ended == begun:
            raise BenchError(f"mail was not delivered: {errors[:1]}")
    return {"mails/s": (ended - begun) / elapsed, "CPU µs": cpu * 1e6 / (ended - begun)}


def lmtp(bench):
    samples = alternate(bench, {"lapse": lambda: deliver(bench)})["lapse"]
    row = Row("lmtp", f"mails of {len(MAIL)} bytes by LMTP, {LMTP_CONNECTIONS} connections, one recipient, each answered when "
              "it is durable", Figure("mails/s", "/s", column(samples, "mails/s")))
    row.figures.append(Figure("CPU a mail", "µs", column(samples, "CPU µs")))
    row.notes.append(f"The client is Python: {os.cpu_count()} cores are shared with it, "
                     f"and {statistics.median(column(samples, 'CPU µs')):,.0f} µs of each mail are the daemon's.")
    return row


ROWS = {"mcp-call": mcp_call, "lmtp": lmtp}
