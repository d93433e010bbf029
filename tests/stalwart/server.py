# SPDX-License-Identifier: Apache-2.0
"""A real Stalwart, configured and started on loopback below a directory of its own.

0.10 to 0.15 read a TOML file. From 0.16 on the settings live in the database: a first start in recovery mode, which
listens on all addresses and therefore gets a network of its own (unshare), puts the listeners and domains there.
"""
import base64
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ADMIN, PASSWORD = "admin", "an-Administrator-0f-tests"
DOMAIN = "example.org"       # known to the public suffix list, so its mailboxes may send
PRIVATE = "agents.internal"  # not known there
START_S = 60

TOML = """
[server]
hostname = "localhost"
[server.listener.http]
protocol = "http"
bind = "127.0.0.1:{http}"
[server.listener.lmtp]
protocol = "lmtp"
bind = "127.0.0.1:{lmtp}"
[storage]
data = "db"
fts = "db"
blob = "db"
lookup = "db"
directory = "internal"
[store.db]
type = "sqlite"
path = "{base}/db.sqlite"
[directory.internal]
type = "internal"
store = "db"
[tracer.log]
type = "stdout"
level = "info"
ansi = false
enable = true
[authentication.fallback-admin]
user = "{admin}"
secret = "{password}"
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def version_of(binary):
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said.stdout + said.stderr)
    assert found, f"{binary} does not tell its version: {said}"
    return tuple(map(int, found.groups()))


class Stalwart:
    def __init__(self, binary, base):
        self.binary, self.base = str(pathlib.Path(binary).resolve()), pathlib.Path(base)
        self.version = version_of(self.binary)
        self.generation = "rest" if self.version < (0, 16, 0) else "registry"
        self.http, self.lmtp = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        self.process = None

    @property
    def credentials(self):
        return f"{ADMIN}:{PASSWORD}"

    # Life -----------------------------------------------------------------------------------------

    def __enter__(self):
        self.base.mkdir(parents=True, exist_ok=True)
        if self.generation == "rest":
            self.config = self.base / "config.toml"
            self.config.write_text(TOML.format(http=self.http, lmtp=self.lmtp, base=self.base, admin=ADMIN,
                                               password=PASSWORD))
        else:
            self.config = self.base / "config.json"
            self.config.write_text(json.dumps({"@type": "Sqlite", "path": str(self.base / "db.sqlite")}))
            self._set_up_registry()
        self.start()
        if self.generation == "rest":
            for name in (DOMAIN, PRIVATE):
                assert "data" in self.ask("POST", "/api/principal", {"type": "domain", "name": name})
        return self

    def __exit__(self, *_exc):
        if self.process:
            self.stop(signal.SIGKILL)

    def _environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LAPSE_", "STALWART_"))}
        return {**env, "STALWART_HOSTNAME": "localhost", "STALWART_RECOVERY_ADMIN": self.credentials, **more}

    def _spawn(self, **more):
        log = open(self.base / "log", "ab")  # pylint: disable=consider-using-with
        return subprocess.Popen([self.binary, "--config", str(self.config)], cwd=self.base, stdout=log, stderr=log,
                                env=self._environment(**more), start_new_session=True)

    def start(self):
        self.process = self._spawn()
        self._wait(self.url)
        return self

    def stop(self, signum=signal.SIGTERM):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signum)
        self.process.wait(START_S)
        self.process = None

    def _wait(self, url):
        end = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                assert self.process is None or self.process.poll() is None, self.log()
                assert time.monotonic() < end, self.log()
                time.sleep(0.1)

    def log(self):
        return (self.base / "log").read_text(errors="replace")[-4000:]

    # Setting up -----------------------------------------------------------------------------------

    def _set_up_registry(self):
        """In a network of its own: recovery mode listens on every address."""
        here = pathlib.Path(__file__)
        subprocess.run(["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "/usr/bin/python3",
                        str(here), self.binary, str(self.base), str(self.http), str(self.lmtp)],
                       check=True, timeout=2 * START_S)

    def set_up_alone(self, http, lmtp):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.config = self.base / "config.json"
        self.process = self._spawn(STALWART_RECOVERY_MODE="1", STALWART_RECOVERY_MODE_PORT=str(self.http))
        self._wait(self.url)
        listeners = {name: {"name": name, "protocol": protocol, "bind": {f"127.0.0.1:{port}": True}, "useTls": False,
                            "tlsImplicit": False}
                     for name, protocol, port in (("h", "http", http), ("l", "lmtp", lmtp))}
        made = self.registry("x:NetworkListener/set", {"create": listeners})
        assert set(made["created"]) == set(listeners), made
        domains = {str(i): {"name": name} for i, name in enumerate((DOMAIN, PRIVATE))}
        made = self.registry("x:Domain/set", {"create": domains})
        assert set(made["created"]) == set(domains), made
        self.stop()

    # What the server knows ------------------------------------------------------------------------

    def ask(self, method, path, body=None):
        login = base64.b64encode(self.credentials.encode()).decode()
        request = urllib.request.Request(self.url + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Authorization": "Basic " + login,
                                                  "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def registry(self, method, arguments):
        answer = self.ask("POST", "/jmap", {"using": ["urn:ietf:params:jmap:core", "urn:stalwart:jmap"],
                                            "methodCalls": [[method, arguments, "0"]]})
        name, result, _ = answer["methodResponses"][0]
        assert name == method, answer
        return result

    def accounts(self):
        """The addresses that have an account, each with what deletes it."""
        if self.generation == "rest":
            items = self.ask("GET", "/api/principal?types=individual&limit=1000")["data"]["items"]
            return {item["name"]: item["name"] for item in items}
        found = self.registry("x:Account/query", {"limit": 1000})["ids"]
        if not found:
            return {}
        rows = self.registry("x:Account/get", {"ids": found})["list"]
        domains = {d["id"]: d["name"] for d in self.registry("x:Domain/get", {"ids": None})["list"]}
        return {f"{row['name']}@{domains[row['domainId']]}": row["id"] for row in rows if row["@type"] == "User"}

    def delete_behind_our_back(self, address):
        key = self.accounts()[address]
        if self.generation == "rest":
            self.ask("DELETE", "/api/principal/" + urllib.request.quote(key))
        else:
            assert key in self.registry("x:Account/set", {"destroy": [key]})["destroyed"]


if __name__ == "__main__":
    import sys
    Stalwart(sys.argv[1], sys.argv[2]).set_up_alone(int(sys.argv[3]), int(sys.argv[4]))
