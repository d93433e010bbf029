# SPDX-License-Identifier: Apache-2.0
"""The servers of a benchmark, the load generator, and what the kernel says a server has used.

They are started the same way: a fresh directory on the same disk, a free port of the loopback
address, the end by SIGTERM. `Lapse` can also be started in another time (libfaketime) or under a tool
(valgrind).
"""
import glob
import http.client
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

START_MAX_S = 30
STOP_MAX_S = 30
LOAD_MAX_S = 900
PIPELINED = 1000
DAY_MS = 24 * 3600 * 1000
HZ = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """The benchmark could not run; the message is for the person who started it."""


class Server:
    """A process with a data directory. Use it in a `with` statement."""

    name = ""
    peer = "--http"  # what bench_load calls it
    answered = 0  # requests of bench_load so far
    ready_max_s = START_MAX_S

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.log_path = directory.rstrip("/") + ".log"
        self.process = None
        self.address = None

    def start(self, command, env=None, **more):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **(env or {})}, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_MAX_S * (10 if self.ready_max_s > START_MAX_S else 1))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise BenchError(f"{self.name} did not end on SIGTERM\n{self.log_tail()}") from None

    def log_tail(self):
        with open(self.log_path, "rb") as log:
            return log.read()[-2000:].decode(errors="replace")

    def cpu_s(self):
        """(user, system) seconds used so far by all threads of the process."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[11]) / HZ, int(fields[12]) / HZ

    def run_us(self):
        """Microseconds that all threads together have run so far, exact where cpu_s() counts ticks of 10 ms.
        A thread that has ended is not in it."""
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            with open(path, encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        return total / 1e3

    def rss_bytes(self, kind="VmRSS"):
        """Resident memory; `kind` = RssAnon is the part without mapped files."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(rf"{kind}:\s+(\d+) kB", status.read())[1]) * 1024


class Lapse(Server):
    """lapsed. Its periodic sweeps are a day apart, so that nothing runs that a row did not ask for."""

    name = "lapse"

    def __init__(self, binary, directory, fake_time=None, tool=(), settings=(), env=None):
        super().__init__(directory)
        if tool:
            self.ready_max_s = 10 * START_MAX_S
        command = [*tool, binary, "--data-dir", directory, "--listen", "127.0.0.1:0",
                   "--message-sweep-ms", str(DAY_MS), "--housekeeping-sweep-ms", str(DAY_MS),
                   "--agent-sweep-ms", str(DAY_MS), *settings]
        start = time.monotonic()
        self.start(command, {**faked(fake_time), **(env or {})}, stdout=subprocess.PIPE)
        self.address = self.await_ready()
        self.ready_s = time.monotonic() - start  # from its start to the line that says so

    def await_ready(self):
        line = read_line(self.process.stdout, self.ready_max_s)
        ready = re.match(rb"lapsed ready on http://([\d.]+:\d+)", line)
        if not ready:
            self.process.kill()
            self.process.wait()
            raise BenchError(f"lapsed did not start: {line!r}\n{self.log_tail()}")
        return ready[1].decode()

    def call(self, method, path, body=None, timeout_s=600):
        """One request: its decoded answer. Anything but 2xx is an error."""
        connection = http.client.HTTPConnection(self.address, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status // 100 != 2:
            raise BenchError(f"{method} {path}: {answer.status} {text}")
        is_json = answer.headers.get_content_type() == "application/json"
        return json.loads(text) if is_json else text

    def metric(self, name, labels=""):
        """The sum of the samples of this name whose labels contain the given text."""
        total = 0.0
        for line in self.call("GET", "/metrics").splitlines():
            sample = re.match(r"([a-zA-Z_:]\w*)(\{.*\})? (\S+)", line)
            if sample and sample[1] == name and labels in (sample[2] or ""):
                total += float(sample[3])
        return total

    def pruned(self):
        return int(self.metric("lifecycle_prune_rows_total", 'table="messages"'))


class Redis(Server):
    """Redis as durable as lapse: every write is synced before it is answered. No snapshots and no
    rewriting of its log: both would only slow it down during a run. Or not durable at all, without
    a log, where lapse works in memory too."""

    name = "redis"
    peer = "--resp"

    def __init__(self, directory, tool=(), durable=True):
        super().__init__(directory)
        if tool:
            self.ready_max_s = 10 * START_MAX_S
        port = free_port()
        with open(self.log_path, "ab") as log:
            self.start([*tool, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir",
                        directory, "--appendonly", "yes" if durable else "no", "--appendfsync",
                        "always", "--save", "", "--auto-aof-rewrite-percentage", "0"], stdout=log)
        self.address = f"127.0.0.1:{port}"
        self.await_ready(port)

    def await_ready(self, port):
        deadline = time.monotonic() + self.ready_max_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=self.ready_max_s) as client:
                    client.sendall(b"PING\r\n")
                    if client.recv(64) == b"+PONG\r\n":
                        return
            except OSError:
                pass
            time.sleep(0.05)
        self.process.kill()
        self.process.wait()
        raise BenchError(f"redis-server did not start\n{self.log_tail()}")

    def connect(self, timeout_s=START_MAX_S):
        """A connection for inline commands, as a file."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=timeout_s) as client:
            return client.makefile("rwb")

    def command(self, text):
        """One inline command with a simple or a bulk answer, as text."""
        with self.connect() as link:
            link.write(text.encode() + b"\r\n")
            link.flush()
            answer = link.readline().decode().strip()
            if answer.startswith("-"):
                raise BenchError(f"redis: {text}: {answer}")
            return link.read(int(answer[1:])).decode() if answer.startswith("$") else answer[1:]

    def command_many(self, commands):
        """Inline commands that answer +OK, many under way at once: how to fill it quickly."""
        with self.connect() as link:
            for some in chunks(commands, PIPELINED):
                link.write("".join(text + "\r\n" for text in some).encode())
                link.flush()
                for text in some:
                    answer = link.readline()
                    if answer != b"+OK\r\n":
                        raise BenchError(f"redis: {text}: {answer!r}")

    def info(self, name):
        return int(re.search(rf"{name}:(\d+)", self.command("INFO"))[1])


class Nginx(Server):
    """nginx with WebDAV's PUT, as Debian builds it, its files on the same disk."""

    name = "nginx"
    CONFIG = """
daemon off;
worker_processes auto;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path {directory}/temp;
    client_body_buffer_size 16k;
    client_max_body_size 1g;
    server {{
        listen 127.0.0.1:{port};
        root {directory}/files;
        dav_methods PUT;
    }}
}}
"""

    def __init__(self, directory):
        super().__init__(directory)
        port = free_port()
        self.root = os.path.join(directory, "files")
        os.makedirs(self.root)
        config = os.path.join(os.path.abspath(directory), "nginx.conf")
        with open(config, "w", encoding="ascii") as out:
            user = "user root;\n" if os.geteuid() == 0 else ""
            out.write(user + self.CONFIG.format(directory=os.path.dirname(config), port=port))
        self.start(["nginx", "-c", config, "-p", directory], stdout=subprocess.DEVNULL)
        self.address = f"127.0.0.1:{port}"
        await_port(self, port, self.process)

    def cpu_s(self):
        """The workers do the work: they are the master's children."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as all_of:
            pids = all_of.read().split()
        times = []
        for pid in pids:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rpartition(")")[2].split()
            times.append((int(fields[11]) / HZ, int(fields[12]) / HZ))
        return tuple(map(sum, zip(*times)))


def chunks(items, size):
    """Lists of at most `size` items, in order."""
    items = iter(items)
    while some := list(itertools.islice(items, size)):
        yield some


def machine_cpu_s():
    """Seconds of CPU time the whole machine has used so far, by anyone."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / HZ


def await_port(server, port, process):
    """Until this process of the server listens."""
    deadline = time.monotonic() + server.ready_max_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except OSError:
            time.sleep(0.05)
    raise BenchError(f"{server.name} did not start\n{server.log_tail()}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def faked(offset):
    """The environment that moves a process's wall clock (not its timers), as in '-25h'."""
    if not offset:
        return {}
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        raise BenchError("libfaketime is missing (Debian package faketime)")
    return {"LD_PRELOAD": found[0], "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1"}


def read_line(pipe, limit_s):
    deadline, line = time.monotonic() + limit_s, b""
    while not line.endswith(b"\n") and time.monotonic() < deadline:
        if select.select([pipe], [], [], 0.2)[0]:
            byte = os.read(pipe.fileno(), 1)
            if not byte:
                break
            line += byte
    return line


class Load:
    """bench_load as a function: `Load(binary)(server, arguments)` gives its JSON as a dict."""

    def __init__(self, binary):
        self.binary = binary

    def command(self, server, arguments):
        return [self.binary, server.peer, server.address, *arguments]

    def __call__(self, server, arguments):
        run = subprocess.run(self.command(server, arguments), capture_output=True, text=True,
                             timeout=LOAD_MAX_S, check=False)
        return self.result(server, run.returncode, run.stdout, run.stderr)

    def start(self, server, arguments):
        """In the background, for `finish` to end."""
        return subprocess.Popen(self.command(server, arguments), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def finish(self, server, run):
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=LOAD_MAX_S)
        return self.result(server, run.returncode, out, err)

    @staticmethod
    def result(server, status, out, err):
        if status != 0:
            raise BenchError(f"the load on {server.name} failed ({status}): {err}{out}\n"
                             f"{server.log_tail()}")
        result = json.loads(out)
        server.answered += result["answered"]
        return result
