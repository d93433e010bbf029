# SPDX-License-Identifier: Apache-2.0
"""A small HTTP client: over TCP, TLS and Unix sockets, keep-alive, one connection each.

`Client` has the calls of the contract; each call that states what it expects asserts the status.
`RawConnection` sends bytes as they are and reads answers one by one, for what no client would send.
"""
import http.client
import json
import re
import socket
import ssl
import urllib.parse

TIMEOUT_S = 30


def q(text):
    """Percent-encodes one path segment."""
    return urllib.parse.quote(text, safe="")


def connect(address, timeout_s=TIMEOUT_S):
    """A connected stream socket to `http://host:port`, `https://host:port` or `unix:PATH`."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        sock.connect(address[len("unix:"):])
        return sock
    url = urllib.parse.urlsplit(address)
    sock = socket.create_connection((url.hostname, url.port), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if url.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        sock = context.wrap_socket(sock, server_hostname=url.hostname)
    return sock


class Answer:
    """Status, headers and body of one response."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        kind = self.headers.get("Content-Type", "")
        assert kind.split(";")[0].strip() == "application/json", f"{kind!r}: {self.body[:300]!r}"
        return json.loads(self.body.decode("utf-8"))

    @property
    def data(self):
        return self.json()["data"]

    @property
    def pagination(self):
        return self.json()["pagination"]

    def ok(self, status=200):
        assert self.status == status, repr(self)
        return self.json()

    def fails(self, status, code, names=None, also=()):
        """Asserts an error of the contract's shape, with the members `also`, and that its message names a field."""
        assert self.status == status, repr(self)
        error = self.json()
        assert set(error) == {"error", *also} and {"code", "message"} <= set(error["error"]), error
        assert error["error"]["code"] == code, error
        assert isinstance(error["error"]["message"], str) and error["error"]["message"], error
        if names is not None:
            assert names in json.dumps(error["error"], ensure_ascii=False), f"names no {names}: {error}"
        return error["error"]

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"


class _Connection(http.client.HTTPConnection):
    def __init__(self, address, timeout_s):
        host = "localhost" if address.startswith("unix:") else urllib.parse.urlsplit(address).netloc
        super().__init__(host)
        self._address, self._timeout_s = address, timeout_s

    def connect(self):
        self.sock = connect(self._address, self._timeout_s)


class Client:
    check = None  # (method, path, answer): set by the harness, asserts that the answer is documented
    clock_moves = 0  # how often a test has moved the clock of its daemons

    def __init__(self, address, token=None, owner=None, timeout_s=TIMEOUT_S):
        self.address = address
        self.headers = {}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        if owner is not None:
            self.headers["X-Lapse-Owner"] = owner
        self._connection = _Connection(address, timeout_s)
        self._clock_moves = Client.clock_moves

    def close(self):
        self._connection.close()

    def request(self, method, path, json_body=None, body=None, headers=None, query=None):
        headers = {**self.headers, **(headers or {})}
        if json_body is not None:
            body = json.dumps(json_body).encode()
            headers.setdefault("Content-Type", "application/json")
        if query:
            path += "?" + urllib.parse.urlencode(query)
        if self._clock_moves != Client.clock_moves:
            # For the daemon this connection may have been idle for days: it may be closing it just now.
            self._connection.close()
            self._clock_moves = Client.clock_moves
        try:
            self._connection.request(method, path, body=body, headers=headers)
            response = self._connection.getresponse()
            answer = Answer(response.status, response.headers, response.read())
        except BaseException:
            self._connection.close()
            raise
        if Client.check:
            Client.check(method, path, answer)
        return answer

    def get(self, path, headers=None, **query):
        return self.request("GET", path, query=query, headers=headers)

    def post(self, path, json_body=None, headers=None, **query):
        return self.request("POST", path, json_body=json_body, query=query, headers=headers)

    def put(self, path, json_body=None, headers=None):
        return self.request("PUT", path, json_body=json_body, headers=headers)

    def delete(self, path, headers=None):
        return self.request("DELETE", path, headers=headers)

    # Calls of the contract ------------------------------------------------------------------------

    def send(self, agent, content="hello", sender="tester", **fields):
        body = {"from": sender, "content": content, **fields}
        return self.post(f"/v1/agents/{q(agent)}/messages", body).ok(201)

    def broadcast(self, to, content="hello", sender="tester", **fields):
        body = {"to": to, "from": sender, "content": content, **fields}
        return self.post("/v1/messages", body)

    def list(self, agent, **query):
        return self.get(f"/v1/agents/{q(agent)}/messages", **query)

    def inbox(self, agent, **query):
        """Every message of an agent, newest first, page by page."""
        return list(self.pages(f"/v1/agents/{q(agent)}/messages", limit=100, **query))

    def pages(self, path, **query):
        while True:
            page = self.get(path, **query).ok()
            yield from page["data"]
            if not page["pagination"]["has_more"]:
                assert page["pagination"]["next_cursor"] is None, page["pagination"]
                return
            query["after"] = page["pagination"]["next_cursor"]

    def message(self, agent, message_id):
        return self.get(f"/v1/agents/{q(agent)}/messages/{message_id}")

    def mark_read(self, agent, message_id, **body):
        return self.post(f"/v1/agents/{q(agent)}/messages/{message_id}/read", body)

    def read(self, agent, message_id):
        return self.mark_read(agent, message_id).ok()

    def read_many(self, agent, **body):
        return self.post(f"/v1/agents/{q(agent)}/messages/read", body)

    def claim(self, agent, **body):
        return self.post(f"/v1/agents/{q(agent)}/messages/claim", body)

    def upload(self, content, headers=None, **query):
        """The answer to staging these bytes; `query` is name, persist and ttl_ms."""
        return self.request("POST", "/v1/attachments", body=content, query=query, headers=headers)

    def stage(self, content, **query):
        return self.upload(content, **query).ok(201)

    def attachment(self, checksum):
        return self.get(f"/v1/attachments/{checksum}")

    def content(self, checksum, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.get(f"/v1/attachments/{checksum}/content", headers=named)

    def attachments(self):
        return list(self.pages("/v1/attachments", limit=100))

    def stats(self):
        """agent → its line of the statistics."""
        return {row["agent_id"]: row for row in self.pages("/v1/messages/stats", limit=100)}

    def sweep(self, scheduler="messages", **query):
        return self.post(f"/v1/sweep/{scheduler}", **query).ok()

    def matrix(self, table=None):
        rows = {row["table"]: row for row in self.get("/v1/matrix").ok()["data"]}
        return rows[table] if table else rows

    def token(self, owner, **fields):
        return self.post("/v1/tokens", {"owner": owner, **fields}).ok(201)

    def metrics(self):
        """(name, sorted labels) → value, of the whole of /metrics."""
        answer = self.get("/metrics")
        assert answer.status == 200, repr(answer)
        samples = {}
        for line in answer.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, labels, value = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line).groups()
                pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
                samples[name, tuple(sorted(pairs))] = float(value)
        return samples

    def metric(self, name, **labels):
        return self.metrics().get((name, tuple(sorted(labels.items()))))


class _SharedFile:
    """A file object that a response may close without losing what follows on the connection."""

    def __init__(self, stream):
        self._stream = stream

    def makefile(self, *_args):
        return self

    def close(self):
        pass

    def flush(self):
        pass

    def __getattr__(self, name):
        return getattr(self._stream, name)


class RawConnection:
    """Bytes out, answers in."""

    def __init__(self, address, timeout_s=TIMEOUT_S):
        self.sock = connect(address, timeout_s)
        self._stream = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self._stream.close()
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def answer(self, method="GET"):
        response = http.client.HTTPResponse(_SharedFile(self._stream), method=method)
        response.begin()
        return Answer(response.status, response.headers, response.read())

    def answer_or_none(self, method="GET"):
        """None when the other side closed without an answer."""
        try:
            return self.answer(method)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
            return None

    def closed(self):
        """True when the other side has closed; waits for it. A byte instead is False."""
        try:
            return self._stream.read(1) == b""
        except ConnectionError:
            return True


def head(method, path, host="127.0.0.1", **headers):
    """The head of a request, as bytes; header names with underscores for dashes."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def json_post(path, body, **headers):
    """A whole POST of the bytes `body` as JSON."""
    return head("POST", path, Content_Type="application/json", Content_Length=len(body), **headers) + body
