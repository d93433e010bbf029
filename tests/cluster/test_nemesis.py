# SPDX-License-Identifier: Apache-2.0
"""Nemesis: three replicas whose processes are killed and stopped, whose connections are cut and whose database
is restarted, at random, while clients work. What the clients were told is checked against the store.

NEMESIS_SECONDS says how long (60), NEMESIS_SEED repeats a run's choices."""
import collections
import http.client
import json
import os
import random
import signal
import socket
import threading
import time
import urllib.parse

from cluster import Cluster
from harness import wait_until
from proxy import Proxy

SECONDS = float(os.environ.get("NEMESIS_SECONDS", "60"))
SEED = int(os.environ.get("NEMESIS_SEED", random.SystemRandom().randrange(1 << 32)))
LEASE_MS = 1500
EVICT_MS = 4000
VISIBILITY_MS = 1500

TRIGGERS = """
CREATE TABLE joined (number bigint, app text, xid xid8);
CREATE FUNCTION note_joined() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO joined VALUES (NEW.number, current_setting('application_name'), pg_current_xact_id());
RETURN NEW; END $$;
CREATE TRIGGER note_joined BEFORE INSERT ON replicas FOR EACH ROW EXECUTE FUNCTION note_joined();
CREATE TABLE swept (n bigserial, scheduler text, replica bigint, token bigint, xid xid8, app text);
CREATE FUNCTION note_swept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO swept (scheduler, replica, token, xid, app)
  SELECT l.scheduler, l.replica, l.token, pg_current_xact_id(), current_setting('application_name')
  FROM scheduler_leases AS l WHERE l.scheduler = TG_ARGV[0];
  RETURN OLD;
END $$;
CREATE TRIGGER note_swept BEFORE DELETE ON messages FOR EACH ROW EXECUTE FUNCTION note_swept('messages');
"""


class Fleet:
    """The replicas, each behind a proxy and started again whenever it ends, as a service manager would."""

    def __init__(self, server, home):
        self.server = server
        self.cluster = Cluster(server, home, 0, cluster_lease_ms=LEASE_MS, agent_evict_after_ms=EVICT_MS,
                               agent_sweep_ms=200, message_ttl_ms=300, message_sweep_ms=50, agent_breaker_percent=0)
        self.proxies, self.restarts, self.ending = [], collections.Counter(), False
        self.lives = 0
        for i in range(3):
            proxy = Proxy(server.home)
            self.proxies.append(proxy)
            replica = self.cluster.make(url=self._url(proxy))
            replica.start()
            if i == 0:
                self.cluster.rows(TRIGGERS)
                self.cluster.rows("INSERT INTO joined SELECT number, 'life0', pg_current_xact_id() FROM replicas")
        self.addresses = [one.address for one in self.cluster]
        self.keepers = [threading.Thread(target=self._keep, args=(i,), daemon=True) for i in range(3)]
        for one in self.keepers:
            one.start()

    def _url(self, proxy):
        app, self.lives = f"life{self.lives}", self.lives + 1
        host = urllib.parse.quote(str(proxy.home), safe="")
        return f"postgresql://lapse@/{self.cluster.database}?host={host}&application_name={app}"

    def _keep(self, i):
        replica = self.cluster[i]
        while not self.ending:
            if replica.process.poll() is None:
                time.sleep(0.05)
                continue
            code = replica.end()
            self.restarts[code] += 1
            assert code in (3, -9, 1), f"replica {i} ended with {code}\n{replica.log()[-3000:]}"
            while not self.ending:
                replica.store.url = self._url(self.proxies[i])
                try:
                    replica.start()
                    self.addresses[i] = replica.address
                    break
                except AssertionError:  # the database is away: it refuses to start, and is started again
                    replica.process.kill()
                    replica.process.wait()
                    replica.process.stdout.close()
                    time.sleep(0.3)

    def end(self):
        self.ending = True
        for one in self.keepers:
            one.join()


class Caller:
    """A client with a short patience that goes to another replica after a failure."""

    def __init__(self, fleet, rng):
        self.fleet, self.rng = fleet, rng
        self.connection, self.at = None, rng.randrange(3)

    def call(self, method, path, body=None):
        """Status and JSON of the answer; None when there was none."""
        try:
            if self.connection is None:
                address = urllib.parse.urlsplit(self.fleet.addresses[self.at])
                self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=1)
            self.connection.request(method, path, json.dumps(body) if body is not None else None,
                                    {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            data = answer.read()
            if answer.status < 500:
                return answer.status, json.loads(data) if data else None
        except (OSError, http.client.HTTPException, ValueError):
            pass
        if self.connection:
            self.connection.close()
        self.connection, self.at = None, (self.at + self.rng.randrange(1, 3)) % 3
        return None


class Work(threading.Thread):
    """A client's loop; what it learnt is checked at the end."""

    def __init__(self, fleet, seed):
        super().__init__(daemon=True)
        self.fleet, self.rng = fleet, random.Random(seed)
        self.caller = Caller(fleet, self.rng)
        self.ending, self.failure = threading.Event(), None

    def run(self):
        try:
            while not self.ending.is_set():
                self.step()
        except BaseException as error:  # told by finish(): a thread's failure must not pass unseen
            self.failure = error

    def finish(self):
        self.ending.set()
        self.join(30)
        assert not self.is_alive() and self.failure is None, self.failure


class Sender(Work):
    answered = None

    def step(self):
        self.answered = self.answered or []
        answer = self.caller.call("POST", f"/v1/agents/keep-{self.rng.randrange(8)}/messages",
                                  {"from": "nemesis", "content": f"{self.rng.getrandbits(64):x}"})
        if answer and answer[0] == 201:
            self.answered.append(answer[1]["id"])
        time.sleep(0.02)


class Reader(Work):
    """Sends and reads, so that there is always something to sweep."""

    def step(self):
        answer = self.caller.call("POST", "/v1/agents/gone/messages", {"from": "nemesis", "content": "x"})
        if answer and answer[0] == 201:
            self.caller.call("POST", f"/v1/agents/gone/messages/{answer[1]['id']}/read", {})
        time.sleep(0.02)


class Beater(Work):
    """An agent that lives: it beats four times as often as it must."""

    def __init__(self, fleet, seed, name):
        super().__init__(fleet, seed)
        self.name_, self.beats = name, []

    def step(self):
        began = time.time()
        answer = self.caller.call("POST", f"/v1/agents/{self.name_}/heartbeat", {"cluster_id": "c"})
        if answer and answer[0] < 300:
            self.beats.append((began, time.time()))
            time.sleep(EVICT_MS / 1000 / 4)


class Claimer(Work):
    claims = None

    def step(self):
        self.claims = self.claims or []
        began = time.time()
        answer = self.caller.call("POST", "/v1/agents/work/messages/claim",
                                  {"limit": 2, "visibility_ms": VISIBILITY_MS})
        if answer and answer[0] == 200:
            self.claims += [(message["id"], began, time.time()) for message in answer[1]["data"]]
        time.sleep(0.05)


class Follower(Work):
    """A stream that is resumed where it was, on another replica."""

    def __init__(self, fleet, seed):
        super().__init__(fleet, seed)
        self.ids, self.gaps, self.last, self.at = [], [], None, seed % 3
        self.places = []  # (the first of its ids, time, address, cursor) of each connection

    def step(self):
        self.at = (self.at + 1) % 3
        try:
            address = urllib.parse.urlsplit(self.fleet.addresses[self.at])
            with socket.create_connection((address.hostname, address.port), 1) as sock:
                resume = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
                sock.sendall(f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{resume}\r\n".encode())
                response = http.client.HTTPResponse(sock)
                response.begin()
                if response.status == 200:
                    self.places.append((len(self.ids), round(time.time(), 3), self.fleet.addresses[self.at], self.last))
                    self._read(response, time.monotonic() + self.rng.uniform(1, 6), sock)
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.1)

    def _read(self, response, until, sock):
        fields = {}
        sock.settimeout(2)
        while time.monotonic() < until and not self.ending.is_set():
            line = response.readline()
            if not line.endswith(b"\n"):
                return
            line = line.decode()[:-1]
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            if "event" in fields and "data" in fields:
                if fields["event"] == "gap":
                    self.gaps.append(fields["data"])
                else:
                    self.ids.append(fields["id"])
            if "id" in fields:
                self.last = fields["id"]
            fields = {}


def nemesis(fleet, rng, log):
    """One fault at a time, each healed before the next."""
    kind = rng.choice(("kill", "kill", "stop", "stop", "cut", "cut", "partition", "restart", "crash"))
    i = rng.randrange(3)
    replica = fleet.cluster[i]
    log.append((round(time.time(), 2), kind, i))
    if kind == "kill" and replica.process:
        replica.process.kill()
    elif kind == "stop" and replica.process:
        process = replica.process
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_MS / 1000 * rng.uniform(1.2, 3))
        process.send_signal(signal.SIGCONT)
    elif kind == "cut":
        fleet.proxies[i].cut()
    elif kind == "partition":
        fleet.proxies[i].cut(refuse=True)
        time.sleep(rng.uniform(0.2, 3))
        fleet.proxies[i].allow()
    elif kind in ("restart", "crash"):
        fleet.server.stop(signal.SIGINT if kind == "restart" else signal.SIGQUIT, keep=True)
        time.sleep(rng.uniform(0, 2))
        fleet.server.start()
    time.sleep(rng.uniform(0.5, 2.5))


def check_sweeps(cluster):
    """Whoever deletes holds the lease, and its token never goes back."""
    swept = cluster.rows("SELECT replica, token, app, (SELECT j.app FROM joined AS j WHERE j.number = s.replica "
                         "AND j.xid < s.xid ORDER BY j.xid DESC LIMIT 1) AS holder FROM swept AS s ORDER BY n")
    assert len(swept) > 10
    holders = {}
    last = 0
    for row in swept:
        assert row["holder"] == row["app"], row
        assert row["token"] >= last, (row, last)
        assert holders.setdefault(row["token"], row["app"]) == row["app"]
        last = row["token"]
    return len(swept), len(holders)


def check_agents(cluster, beaters):
    """No agent was evicted within a threshold of a heartbeat that was answered."""
    beats = {one.name_: one.beats for one in beaters}
    for row in cluster.rows("SELECT at, data FROM events WHERE kind = 'agent.evicted'"):
        name, at = json.loads(row["data"])["agent_id"], row["at"] / 1000
        wrong = [beat for beat in beats.get(name, ())
                 if beat[1] < at and at - beat[0] < EVICT_MS / 1000 - 0.05]
        assert not wrong, (name, at, wrong, row["data"])


def check_messages(cluster, senders):
    stored = {f"{row['id']:016x}" for row in cluster.rows("SELECT id FROM messages WHERE agent LIKE 'keep-%'")}
    answered = {one for sender in senders for one in sender.answered or ()}
    assert answered and not answered - stored, f"{len(answered - stored)} answered messages are missing"
    return len(answered)


def check_claims(claimers):
    by_message = collections.defaultdict(list)
    for claimer in claimers:
        for message, began, ended in claimer.claims or ():
            by_message[message].append((began, ended))
    for message, claims in by_message.items():
        claims.sort()
        for one, other in zip(claims, claims[1:]):
            assert max(one[1], other[1]) >= min(one[0], other[0]) + VISIBILITY_MS / 1000 - 0.005, (message, one, other)
    return sum(map(len, by_message.values()))


def describe_missing(cluster, followers, seq):
    """What the event is, and where each stream that should have had it was."""
    number = int(seq, 16)
    rows = cluster.rows("SELECT tbl, to_hex(seq) AS seq, at, kind, xid, pg_xact_commit_timestamp(xid) AS committed FROM ("
                        "SELECT 'events' AS tbl, seq, at, kind, xmin AS xid FROM events UNION ALL "
                        "SELECT 'messages', id, timestamp, agent, xmin FROM messages WHERE event = 1) AS e "
                        "WHERE seq BETWEEN $1 - 1000 * 2097152::bigint AND $1 + 2000 * 2097152::bigint "
                        "ORDER BY abs(seq - $1) LIMIT 9", number)
    places = []
    for one in followers:
        after = sum(i < seq for i in one.ids)
        begun = sum(place[0] <= after for place in one.places)
        places.append((seq in one.ids, one.ids[after - 1:after + 1], one.places[max(0, begun - 2):begun + 1]))
    return seq, number >> 21, rows, places


def check_streams(cluster, followers):
    """Each stream is in order, and has every event between its first and its last."""
    stored = sorted({f"{row['seq']:016x}" for row in cluster.rows(
        "SELECT seq FROM events WHERE owner IN ('', 'local') UNION SELECT id FROM messages WHERE event = 1")})
    for one in followers:
        assert one.gaps == []
        assert len(one.ids) > 10
        assert all(a < b for a, b in zip(one.ids, one.ids[1:])), "out of order"
        expected = [seq for seq in stored if one.ids[0] <= seq <= one.ids[-1]]
        missing = set(expected) - set(one.ids)
        assert not missing, (f"{len(missing)} of {len(expected)} events are missing: "
                             f"{[describe_missing(cluster, followers, seq) for seq in sorted(missing)[:5]]}")


def test_nemesis(server, tmp_path):
    print(f"\nNEMESIS_SEED={SEED}")
    rng = random.Random(SEED)
    fleet = Fleet(server, tmp_path / "cluster")
    setup = Caller(fleet, rng)
    for _ in range(30):
        assert setup.call("POST", "/v1/agents/work/messages", {"from": "n", "content": "w"})[0] == 201
    seeds = iter(range(SEED, SEED + 1000))
    beaters = [Beater(fleet, next(seeds), f"agent-{i}") for i in range(8)]
    senders = [Sender(fleet, next(seeds)) for _ in range(3)]
    claimers = [Claimer(fleet, next(seeds)) for _ in range(3)]
    followers = [Follower(fleet, next(seeds)) for _ in range(3)]
    everyone = beaters + senders + claimers + followers + [Reader(fleet, next(seeds))]
    for one in everyone:
        one.start()
    log = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        nemesis(fleet, rng, log)
    wait_until(lambda: all(Caller(fleet, rng).call("GET", "/v1/clock") for _ in range(6)), 30, "it heals", 0.5)
    time.sleep(2)
    for one in everyone:
        if one not in followers:
            one.finish()
    time.sleep(3)  # streams read to the end
    for one in followers:
        one.finish()
    try:
        fleet.end()
        for one in fleet.cluster:
            assert "assert" not in one.log().lower()
        deletions, tenures = check_sweeps(fleet.cluster)
        check_agents(fleet.cluster, beaters)
        messages = check_messages(fleet.cluster, senders)
        claims = check_claims(claimers)
        check_streams(fleet.cluster, followers)
        print(f"{len(log)} faults, ends {dict(fleet.restarts)}: {messages} answered messages, {claims} claims, "
              f"{sum(len(one.beats) for one in beaters)} heartbeats, {sum(len(one.ids) for one in followers)} events "
              f"read, {deletions} deletions under {tenures} tokens")
    except AssertionError:
        print(json.dumps(log))
        raise
    finally:
        fleet.cluster.close()
        for one in fleet.proxies:
            one.close()
