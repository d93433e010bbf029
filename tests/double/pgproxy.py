# SPDX-License-Identifier: Apache-2.0
"""A proxy before a private PostgreSQL server that does what networks and poolers do.

    with PgProxy(server) as proxy:
        proxy.url                      # like server.url, through the proxy
        proxy.cut_at_commit("after")   # forwards the next COMMIT, then cuts before its answer comes
        proxy.cut_at_commit("before", meanwhile=function)  # calls it instead, then cuts
        proxy.change = lambda data: …  # changes what the server says
        proxy.call_before(b"FROM messages", function)      # calls it before a statement is prepared, once
"""
import re
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

SOCKET = ".s.PGSQL.5432"
PREPARES_COMMIT = re.compile(rb"(s\d+)\x00COMMIT\x00")


class PgProxy:
    """Passes bytes on, both ways, until it is told to do something else."""

    def __init__(self, server):
        self.server = server
        self.home = Path(tempfile.mkdtemp(prefix="lapse-pgproxy-", dir="/tmp"))
        self.url = server.url.replace(quote(str(server.home), safe=""), quote(str(self.home), safe=""))
        self.change = None
        self.cut = None      # None, "before" or "after" the next COMMIT reaches the server
        self.cuts = 0
        self.meanwhile = None
        self.before = None   # (text, function)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.home / SOCKET))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.listener.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def cut_at_commit(self, when, meanwhile=None):
        self.cut, self.meanwhile = when, meanwhile

    def call_before(self, text, function):
        self.before = text, function

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self.server.home / SOCKET))
            except OSError:  # it is down
                client.close()
                continue
            threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, server), daemon=True).start()

    def _to_server(self, client, server):
        name = None
        while data := self._read(client):
            if found := PREPARES_COMMIT.search(data):
                name = found.group(1)
            if self.cut and name and b"\0" + name + b"\0" in data:
                self._cut(client, server, data)
                return
            if self.before and self.before[0] in data:
                (_, function), self.before = self.before, None
                function()
            server.sendall(data)
        self._close(client, server)

    def _cut(self, client, server, data):
        when, self.cut = self.cut, None
        self.cuts += 1
        if self.meanwhile:
            self.meanwhile()
        if when == "after":
            client.shutdown(socket.SHUT_RDWR)  # the answer finds nobody
            server.sendall(data)
            self._read(server)
        self._close(client, server)

    def _to_client(self, client, server):
        try:
            while data := self._read(server):
                client.sendall(self.change(data) if self.change else data)
        except OSError:
            pass
        self._close(client, server)

    @staticmethod
    def _read(one):
        try:
            return one.recv(65536)
        except OSError:
            return b""

    @staticmethod
    def _close(*both):
        for one in both:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
