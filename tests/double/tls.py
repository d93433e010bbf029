# SPDX-License-Identifier: Apache-2.0
"""What TLS needs in a test: authorities, certificates as they should and should not be, peers that do not speak it.

Made with the command `openssl` when it is asked for; nothing secret, nothing that lasts.
"""
import functools
import pathlib
import socket
import ssl
import subprocess
import threading

HERE = "IP:127.0.0.1,DNS:localhost"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Authority:
    """A certificate authority of its own; `pem` is the path of its certificate."""

    def __init__(self, directory, name):
        self.directory, self.name = pathlib.Path(directory), name
        self.pem, self.key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        openssl("req", "-x509", *KEY, "-days", 2, "-subj", f"/CN=authority {name}", "-keyout", self.key, "-out", self.pem)

    def leaf(self, name, hosts=HERE, days=2):
        """An ssl.SSLContext for a server that is known by `hosts`; negative `days` are over already."""
        base = self.directory / f"{self.name}-{name}"
        key, request, cert = (base.with_suffix(end) for end in (".key", ".csr", ".crt"))
        openssl("req", "-new", *KEY, "-subj", "/CN=mail", "-addext", f"subjectAltName={hosts}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.key, "-days", days,
                "-copy_extensions", "copy", "-out", cert)
        return context(cert, key)


def context(cert, key):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(cert, key)
    return made


class Identities:
    """Who a mail server may claim to be. `ours` is the authority lapse is told about."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.ours, self.theirs = Authority(directory, "ours"), Authority(directory, "theirs")

    @functools.cached_property
    def good(self):
        return self.ours.leaf("good")

    @functools.cached_property
    def unknown(self):
        return self.theirs.leaf("unknown")

    @functools.cached_property
    def elsewhere(self):
        return self.ours.leaf("elsewhere", "DNS:mail.elsewhere.test")

    @functools.cached_property
    def expired(self):
        return self.ours.leaf("expired", days=-1)

    @functools.cached_property
    def alone(self):
        """A certificate that signs itself; its path is `alone_pem`."""
        self.alone_pem, key = self.directory / "alone.pem", self.directory / "alone.key"
        openssl("req", "-x509", *KEY, "-days", 2, "-subj", "/CN=alone", "-addext", f"subjectAltName={HERE}",
                "-keyout", key, "-out", self.alone_pem)
        return context(self.alone_pem, key)


class Mute:
    """Accepts connections where TLS is expected and does not speak it: it answers what it gets with `answer`, or
    never. What it heard is in `heard`."""

    PLAIN = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def __init__(self, answer=b"", port=0):
        self.answer, self.heard, self.taken = answer, b"", []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self.log = []  # of requests, as the double's: there can be none

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for taken in self.taken:
            taken.close()

    def _accept(self):
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            self.taken.append(taken)
            threading.Thread(target=self._talk, args=(taken,), daemon=True).start()

    def _talk(self, taken):
        try:
            while data := taken.recv(65536):
                self.heard += data
                if self.answer:
                    taken.sendall(self.answer)
                    taken.shutdown(socket.SHUT_WR)
        except OSError:
            pass
