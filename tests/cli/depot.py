# SPDX-License-Identifier: Apache-2.0
"""A server of attachments that can be slow, die, lie or refuse: what no healthy daemon does."""
import hashlib
import http.server
import json
import re
import sys
import time
import urllib.parse

EXPIRES = "2100-01-01T00:00:00.000Z"
PIECE = 65536


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Zeros:
    """Bytes that need no memory."""

    def __init__(self, size):
        self.size = size
        hasher = hashlib.sha256()
        for part in self.parts(0):
            hasher.update(part)
        self.checksum = hasher.hexdigest()

    def __len__(self):
        return self.size

    def parts(self, start):
        while start < self.size:
            n = min(PIECE, self.size - start)
            yield bytes(n)
            start += n


def parts_of(data, start, piece):
    if isinstance(data, Zeros):
        yield from data.parts(start)
    else:
        for at in range(start, len(data), piece):
            yield data[at:at + piece]


class Depot(http.server.ThreadingHTTPServer):
    """add() puts an attachment there; uploads has (query, headers, bytes received, checksum).

    Faults are attributes: see __init__.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.rows, self.contents, self.uploads, self.requests = {}, {}, [], []
        self.questions = []           # checksums that were asked for before an upload
        self.piece, self.pause_s = PIECE, 0  # how contents are sent, and uploads read
        self.send_only = []         # of each content, one by one: so many bytes, then the end
        self.receive_only = []      # the same for uploads
        self.has_ranges = True
        self.range_from = None      # answers 206 from there, whatever was asked
        self.sends = None           # other bytes than there should be
        self.length = True          # contents say how long they are
        self.refuse = None          # (status, message) to an upload that asks first
        self.answers = []           # (status, body) to uploads that came, before the usual one
        self.page_rows = 100

    def add(self, data, name="a.bin", **fields):
        checksum = data.checksum if isinstance(data, Zeros) else digest(data)
        self.contents[checksum] = data
        self.rows[checksum] = self.row(checksum, len(data), name, **fields)
        return checksum

    @staticmethod
    def row(checksum, size, name, **fields):
        return {"checksum": checksum, "name": name, "size": size, "persist": False,
                "ttl_ms": 86400000, "inserted_at": "2026-01-01T00:00:00.000Z", "expires_at": EXPIRES,
                "cached": False, **fields}

    def asked(self, method, path):
        return [one for one in self.requests if one[:2] == (method, path)]

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_expect_100(self):
        if not self.server.refuse:
            return super().handle_expect_100()
        self.server.requests.append((self.command, self.path, self.headers))
        self._error(*self.server.refuse)
        self.close_connection = True
        return False

    def _json(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status, message):
        self._json(status, {"error": {"code": "x", "message": message}})

    def _body(self):
        """Pieces of the body, chunked or not."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            left = int(self.headers.get("Content-Length", 0))
            while left:
                part = self.rfile.read(min(self.server.piece, left))
                if not part:
                    raise ConnectionAbortedError("the body ends too early")
                left -= len(part)
                yield part
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def do_POST(self):
        depot = self.server
        url = urllib.parse.urlsplit(self.path)
        if url.path.endswith("/stage"):
            self._stage_again(url.path.split("/")[3])
            return
        depot.requests.append((self.command, self.path, self.headers))
        limit = depot.receive_only.pop(0) if depot.receive_only else None
        hasher, size = hashlib.sha256(), 0
        for part in self._body():
            hasher.update(part)
            size += len(part)
            if limit is not None and size >= limit:
                self.close_connection = True
                return
            time.sleep(depot.pause_s)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/v1/attachments/cleanup":
            self._json(200, {"count": 3, "bytes": 1536})
            return
        checksum = hasher.hexdigest()
        depot.uploads.append((query, self.headers, size, checksum))
        if depot.answers:
            self._json(*depot.answers.pop(0))
            return
        cached = checksum in depot.rows
        depot.rows[checksum] = depot.row(checksum, size, query.get("name", "attachment"), cached=cached)
        self._json(201, depot.rows[checksum])

    def _stage_again(self, checksum):
        """The question before an upload: are these bytes here?"""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.questions.append(checksum)
        if checksum in self.server.rows and not self.server.answers:
            self._json(201, {**self.server.rows[checksum], "cached": True})
        else:
            self._error(404, "there is no such attachment")

    def do_GET(self):
        depot = self.server
        depot.requests.append((self.command, self.path, self.headers))
        url = urllib.parse.urlsplit(self.path)
        words = url.path.split("/")[3:]
        if not words:
            self._list(dict(urllib.parse.parse_qsl(url.query)))
        elif words == ["metrics"]:
            self._json(200, {"total_count": 3, "total_bytes": 3584, "persistent_count": 1,
                             "persistent_bytes": 1536, "expirable_count": 2, "expirable_bytes": 2048})
        elif words[0] not in depot.rows:
            self._error(404, "Attachment not found")
        elif words[1:] == ["content"]:
            self._content(words[0])
        else:
            self._json(200, depot.rows[words[0]])

    def do_DELETE(self):
        self.server.requests.append((self.command, self.path, self.headers))
        if self.server.rows.pop(self.path.split("/")[-1], None) is None:
            self._error(404, "Attachment not found")
        else:
            self._json(200, {"checksum": self.path.split("/")[-1], "deleted": True})

    def _list(self, query):
        rows = list(self.server.rows.values())
        start = int(query.get("after", 0))
        end = start + min(self.server.page_rows, int(query["limit"]))
        more = end < len(rows)
        self._json(200, {"data": rows[start:end],
                         "pagination": {"next_cursor": str(end) if more else None, "has_more": more}})

    def _content(self, checksum):
        depot = self.server
        data = depot.contents[checksum] if depot.sends is None else depot.sends
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted and depot.has_ranges else 0
        if wanted and self.headers["If-Range"] not in (None, f'"{checksum}"'):
            start = 0
        if wanted and depot.range_from is not None:
            start = depot.range_from
        self.send_response(206 if wanted and depot.has_ranges else 200)
        if wanted and depot.has_ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Type", "application/octet-stream")
        if depot.length:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self._send(data, start, depot.send_only.pop(0) if depot.send_only else None)

    def _send(self, data, start, limit):
        sent = 0
        for part in parts_of(data, start, self.server.piece):
            part = part if limit is None else part[:limit - sent]
            self.wfile.write(part)
            sent += len(part)
            if sent == limit:
                break
            time.sleep(self.server.pause_s)
        if limit is not None or not self.server.length:
            self.close_connection = True

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass
