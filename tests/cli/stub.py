# SPDX-License-Identifier: Apache-2.0
"""A scripted HTTP server: each request takes the next step of the script."""
import http.server
import json
import sys
import time

BREAK = object()  # close the connection without an answer


class Stream:
    """An answer that comes piece by piece: bytes are sent, numbers are pauses in seconds.

    Then the connection closes; with `hold` it stays open until the client leaves or the test ends.
    """

    def __init__(self, *parts, hold=False, content_type="text/event-stream"):
        self.parts, self.hold, self.content_type = parts, hold, content_type


class Stub(http.server.ThreadingHTTPServer):
    """script: answers in order, each BREAK, a Stream or (status, body); the last one repeats.

    routes: answers by path, before the script.

    requests: (method, path, headers, body) of every request that came.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.script, self.requests, self.routes = [], [], {}
        self.is_over = False

    def next_step(self, path):
        if path in self.routes:
            return self.routes[path]
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, self.headers, body))
        step = self.server.next_step(self.path)
        if step is BREAK:
            self.close_connection = True
            return
        if isinstance(step, Stream):
            self._stream(step)
            return
        status, content = step
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, step):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", step.content_type)
        self.end_headers()
        for part in step.parts:
            if isinstance(part, bytes):
                self.wfile.write(part)
                self.wfile.flush()
            else:
                time.sleep(part)
        self.connection.settimeout(0.05)
        while step.hold and not self.server.is_over:
            try:
                if self.connection.recv(1) == b"":
                    return
            except TimeoutError:
                pass

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass
