# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ as a peer: a private broker with quorum queues, apart from the system's own.

Everything it reads and writes lies in its directory, and it listens on the loopback address only. Debian's command in
/usr/sbin wants to be root; the script that it calls does not. The broker names itself to a daemon of Erlang's, epmd,
which would outlive it: so it gets one of its own, which ends with it.
"""
import glob
import json
import os
import subprocess
import time

from servers import HZ, BenchError, Server, await_port, free_port

SCRIPTS = "/usr/lib/rabbitmq/bin"
CONTROL_MAX_S = 60
SETTLE_MAX_S = 30


def is_installed():
    return os.access(os.path.join(SCRIPTS, "rabbitmq-server"), os.X_OK)


class RabbitMQ(Server):
    """RabbitMQ with `queues` quorum queues, inbox-00 and so on. They are on disk before a publish is confirmed: that is
    what they are for. No plugins, and otherwise as it comes."""

    name = "rabbitmq"
    peer = "--amqp"

    def __init__(self, directory, queues=1):
        super().__init__(os.path.abspath(directory))
        if not is_installed():
            raise BenchError("RabbitMQ is missing (Debian package rabbitmq-server)")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.env = self.environment(port)
        with open(self.env["RABBITMQ_ENABLED_PLUGINS_FILE"], "w", encoding="ascii") as none:
            none.write("[].\n")
        with open(self.log_path, "ab") as log:
            self.names = subprocess.Popen(["epmd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          env={**os.environ, **self.env})
            try:
                await_port(self, int(self.env["ERL_EPMD_PORT"]), self.names)
                self.start([os.path.join(SCRIPTS, "rabbitmq-server")], self.env, stdout=log)
                await_port(self, port, self.process)
                self.declare(queues)
            except BaseException:
                self.stop()
                raise

    def environment(self, port):
        inside = {"HOME": "", "RABBITMQ_MNESIA_BASE": "data", "RABBITMQ_LOG_BASE": "log",
                  "RABBITMQ_CONFIG_FILE": "rabbitmq.conf", "RABBITMQ_ADVANCED_CONFIG_FILE": "advanced.config",
                  "RABBITMQ_ENABLED_PLUGINS_FILE": "plugins"}
        return {**{name: os.path.join(self.directory, path) for name, path in inside.items()},
                "RABBITMQ_CONF_ENV_FILE": os.devnull, "RABBITMQ_NODENAME": "bench@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(free_port()),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
                # The script becomes the broker instead of its parent, so that signals and CPU times are the broker's.
                "RUNNING_UNDER_SYSTEMD": "true"}

    def control(self, *arguments):
        done = subprocess.run([os.path.join(SCRIPTS, "rabbitmqctl"), "--quiet", *arguments], capture_output=True,
                              text=True, timeout=CONTROL_MAX_S, check=False, env={**os.environ, **self.env})
        if done.returncode != 0:
            raise BenchError(f"rabbitmqctl {arguments[0]} failed: {done.stdout}{done.stderr}\n{self.log_tail()}")
        return done.stdout

    def declare(self, queues):
        wanted = [{"name": f"inbox-{number:02d}", "vhost": "/", "durable": True, "auto_delete": False,
                   "arguments": {"x-queue-type": "quorum"}} for number in range(queues)]
        path = os.path.join(self.directory, "queues.json")
        with open(path, "w", encoding="ascii") as out:
            json.dump({"queues": wanted}, out)
        self.control("import_definitions", path)
        types = [queue["type"] for queue in self.queues()]
        if types != ["quorum"] * queues:
            raise BenchError(f"RabbitMQ has queues {types} instead of {queues} quorum queues")

    def queues(self):
        return json.loads(self.control("list_queues", "name", "type", "messages", "--formatter", "json"))

    def stored(self, wanted):
        """How many messages the queues hold. A quorum queue tells its length every five seconds only: waits a while for
        the wanted number."""
        deadline, count = time.monotonic() + SETTLE_MAX_S, None
        while count != wanted and time.monotonic() < deadline:
            count = sum(queue["messages"] for queue in self.queues())
        return count

    def cpu_s(self):
        """The broker and its helpers."""
        times = [(0, 0)]
        for pid in descendants(self.process.pid):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            times.append((int(fields[11]) / HZ, int(fields[12]) / HZ))
        return tuple(map(sum, zip(*times)))

    def stop(self):
        try:
            if self.process:
                super().stop()
        finally:
            self.names.terminate()
            self.names.wait()


def descendants(pid):
    """The process and everyone below it."""
    found = [str(pid)]
    for parent in found:
        for path in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                with open(path, encoding="ascii") as children:
                    found += children.read().split()
            except FileNotFoundError:
                pass
    return found
