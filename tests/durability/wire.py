# SPDX-License-Identifier: Apache-2.0
"""A bare HTTP/1.1 client on one keep-alive socket: fast enough that the load is the daemon's, not ours.

An answer counts only when all of it has arrived. Anything less (a reset, an end in the middle, no word at
all) is `Unanswered`: the client cannot know whether the request took effect.
"""
import json
import socket

TIMEOUT_S = 20


class Unanswered(Exception):
    """The connection ended before the answer was complete."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Wire:
    def __init__(self, port):
        self.port = port
        self.rest = b""
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        except OSError as error:
            raise Unanswered(f"connect: {error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def get(self, path):
        return self.send("GET", path)

    def post(self, path, body, key=None):
        return self.send("POST", path, body, key)

    def send(self, method, path, body=None, key=None):
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        payload = b""
        if body is not None:
            payload = json.dumps(body).encode()
            head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        if key is not None:
            head += f"Idempotency-Key: {key}\r\n"
        try:
            self.socket.sendall(head.encode() + b"\r\n" + payload)
            return self._answer()
        except OSError as error:
            raise Unanswered(str(error)) from None

    def _answer(self):
        head, self.rest = self._until(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        length = int(headers["content-length"])
        while len(self.rest) < length:
            self._more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return Answer(int(status_line.split()[1]), headers, body)

    def _until(self, mark):
        while mark not in self.rest:
            self._more()
        return self.rest.split(mark, 1)

    def _more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise Unanswered("the connection ended")
        self.rest += piece
