# SPDX-License-Identifier: Apache-2.0
"""A scripted HTTP server: each request takes the next step of the script."""
import http.server
import json

BREAK = object()  # close the connection without an answer


class Stub(http.server.ThreadingHTTPServer):
    """script: answers in order, each BREAK or (status, body); the last one repeats.

    requests: (method, path, headers, body) of every request that came.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.script, self.requests = [], []

    def next_step(self):
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, self.headers, body))
        step = self.server.next_step()
        if step is BREAK:
            self.close_connection = True
            return
        status, content = step
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass
