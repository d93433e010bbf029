# SPDX-License-Identifier: Apache-2.0
"""A proxy between one replica and PostgreSQL, whose connections a test can cut."""
import os
import pathlib
import socket
import tempfile
import threading

NAME = ".s.PGSQL.5432"


class Proxy:
    """Listens as a PostgreSQL server does in a directory of its own, and passes everything on."""

    def __init__(self, server_home):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="lapse-proxy-", dir="/tmp"))
        self.target = str(pathlib.Path(server_home) / NAME)
        self.refusing = False
        self.lock = threading.Lock()
        self.open = set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.home / NAME))
        os.chmod(self.home / NAME, 0o777)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            try:
                if self.refusing:
                    raise OSError
                upstream.connect(self.target)
            except OSError:
                client.close()
                upstream.close()
                continue
            with self.lock:
                self.open.update((client, upstream))
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self.lock:
            self.open.discard(source)
        source.close()

    def cut(self, refuse=False):
        """Ends every connection; with `refuse` new ones are refused until allow()."""
        self.refusing = refuse
        with self.lock:
            every = list(self.open)
        for one in every:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def allow(self):
        self.refusing = False

    def close(self):
        self.refusing = True
        self.listener.close()
        self.cut(refuse=True)
