# SPDX-License-Identifier: Apache-2.0
"""The store in PostgreSQL: what it refuses, and what becomes of writes when a connection is lost."""
import collections
import concurrent.futures
import itertools
import re
import signal
import threading
import time

import pytest

from harness import NEVER_MS, Daemon, run_to_end, wait_until
from pgproxy import PgProxy
from postgres import Postgres, postgres_server  # noqa: F401 (a fixture)
from pq import Connection
from test_stream import Stream, read_all_and_sweep

_names = itertools.count(1)
LAPSED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lapsed'"


@pytest.fixture
def url(postgres_server):  # noqa: F811
    return postgres_server.make_database(f"store-{next(_names)}")


@pytest.fixture
def start(tmp_path):
    started = []

    def start_one(store, **options):
        started.append(Daemon(tmp_path / f"data-{len(started)}", store=store, **options))
        return started[-1].start()

    yield start_one
    for daemon in started:
        daemon.stop()


def count(server, url):
    return int(server.run("SELECT count(*) FROM messages", re.search(r"/([^/?]+)\?", url).group(1)))


def test_a_second_lapsed_is_refused(start, url, tmp_path):
    start(url).client().send("a")
    code, said = run_to_end(tmp_path / "second", f"--store={url}", timeout_s=30)
    assert code == 1 and "another lapsed uses this database (process" in said, said


def test_the_next_lapsed_finds_what_the_last_one_wrote(start, url):
    daemon = start(url)
    sent = daemon.client().send("a")
    daemon.kill()
    assert daemon.start().client().inbox("a") == [sent]


def test_a_password_is_never_shown(start, url, tmp_path):
    secret = url.replace("lapse@", "lapse:hunter2@") + "&sslpassword=hunter3"
    code, said = run_to_end(tmp_path / "refused", f"--store={secret}")
    assert code == 2 and "can be read by everybody" in said and "hunter" not in said
    daemon = start(None, env={"LAPSE_STORE": secret})
    (row,) = [row for row in daemon.client().get("/v1/settings").ok()["data"] if row["name"] == "store"]
    assert row["value"] == url.replace("lapse@", "lapse:***@") + "&sslpassword=***"
    assert "hunter" not in daemon.log()


def test_the_uri_may_come_from_a_file(start, url, tmp_path):
    path = tmp_path / "uri"
    path.write_text(url + "\n")
    path.chmod(0o600)
    start(f"@{path}").client().send("a")


@pytest.mark.parametrize("store, words", [
    ("mysql://x", "must be sqlite, a postgresql:// URI"),
    ("@/nowhere/uri", "/nowhere/uri"),
    ("postgresql:///x?host=/nowhere", "cannot use the database"),
])
def test_a_store_that_cannot_be_is_refused(tmp_path, store, words):
    code, said = run_to_end(tmp_path / "data", f"--store={store}")
    assert code in (1, 2) and words in said, said


def test_a_lost_session_costs_no_request(start, url, postgres_server):  # noqa: F811
    daemon = start(url)
    api = daemon.client()
    for _ in range(3):
        api.send("a")
        postgres_server.run(LAPSED)
        api.inbox("a")
    assert len(api.inbox("a")) == 3 == count(postgres_server, url)
    assert api.metric("lapse_store_reconnects_total") == 3


def test_a_server_that_is_away_is_503_until_it_is_back(start, url, postgres_server):  # noqa: F811
    daemon = start(url)
    api = daemon.client()
    sent = api.send("a")
    postgres_server.stop(signal.SIGQUIT, keep=True)
    try:
        answer = api.post("/v1/agents/a/messages", {"from": "b", "content": "x"})
        answer.fails(503, "unavailable")
        assert answer.headers["Retry-After"]
        assert api.get("/readyz").status == 503
    finally:
        postgres_server.start()
    wait_until(lambda: api.get("/v1/agents/a/messages").status == 200, what="back again")
    assert api.inbox("a") == [sent]
    api.send("a")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_commit_is_looked_up(start, url, postgres_server, when):  # noqa: F811
    """The connection is cut as COMMIT goes out: nobody knows at first what became of it."""
    with PgProxy(postgres_server) as proxy:
        through = proxy.url.replace("/lapse?", "/" + re.search(r"/([^/?]+)\?", url).group(1) + "?")
        daemon = start(through)
        api = daemon.client()
        api.send("a")
        proxy.cut_at_commit(when)
        sent = api.send("a")
        assert proxy.cuts == 1
        assert sent in api.inbox("a") and count(postgres_server, url) == 2, "once, not twice"
        daemon.stop()


def test_a_number_that_a_crashed_server_gives_out_again_proves_nothing(start):
    """PostgreSQL does not log the numbers of transactions that it gives out, so after a crash they come again."""
    server = Postgres()
    url = server.make_database("again")
    at_commit, crashed = threading.Event(), threading.Event()

    def crash():
        with Connection(url) as db:
            lost = db.run("SELECT max(backend_xid::text::bigint) AS n FROM pg_stat_activity")[0]["n"]
        server.stop(signal.SIGQUIT, keep=True)
        server.start()
        with Connection(url) as db:
            assert db.run("SELECT pg_current_xact_id()::text::bigint AS n")[0]["n"] <= lost
            while db.run("SELECT pg_current_xact_id()::text::bigint AS n")[0]["n"] < lost:
                pass

    try:
        with PgProxy(server) as proxy, concurrent.futures.ThreadPoolExecutor(1) as pool:
            daemon = start(proxy.url.replace("/lapse?", "/again?"))
            api = daemon.client()
            sent = api.send("a")
            proxy.cut_at_commit("before", meanwhile=lambda: at_commit.set() or crashed.wait(30))
            answer = pool.submit(api.post, "/v1/agents/a/messages", {"from": "b", "content": "x"})
            assert at_commit.wait(30)
            crash()  # here, because the server ends with the thread that started it
            crashed.set()
            answer.result(30).fails(503, "unavailable")
            wait_until(lambda: api.get("/v1/agents/a/messages").status == 200, 20)
            assert api.inbox("a") == [sent]
            daemon.stop()
    finally:
        server.stop()


def test_a_write_that_is_refused_is_that_requests_own(start, url, postgres_server):  # noqa: F811
    """Requests that share a transaction are sent without waiting; one of them hits a limit."""
    daemon = start(url, unread_max_per_agent=20)
    apis = [daemon.client() for _ in range(16)]

    def send(client):
        agent = "full" if client % 2 else f"other-{client}"
        answers = [apis[client].post(f"/v1/agents/{agent}/messages", {"from": "b", "content": "x"}) for _ in range(8)]
        return [(agent.split("-")[0], answer.status) for answer in answers]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = collections.Counter(itertools.chain.from_iterable(pool.map(send, range(16))))
    assert statuses == {("full", 201): 20, ("full", 429): 44, ("other", 201): 64}
    assert count(postgres_server, url) == 84


FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"


@pytest.mark.parametrize("place", ("before the end of a round", "instead of an answer"))
def test_the_last_words_of_a_server_cost_a_repetition(start, url, postgres_server, place):  # noqa: F811
    """A server that shuts down may say so at any moment, also where libpq expects something else."""
    said = []

    def insert(data):
        ready = data[-6:] == b"Z\0\0\0\x05T"  # of a transaction
        if said or not ready:
            return data
        said.append(place)
        words = b"E" + (len(FATAL) + 4).to_bytes(4, "big") + FATAL
        return data[:-6] + words + data[-6:] if place.startswith("before") else words + data

    with PgProxy(postgres_server) as proxy:
        through = proxy.url.replace("/lapse?", "/" + re.search(r"/([^/?]+)\?", url).group(1) + "?")
        daemon = start(through)
        api = daemon.client()
        sent = [api.send("a")]
        proxy.change = insert
        sent += [api.send("a") for _ in range(3)]
        assert said and api.inbox("a") == sent[::-1] and count(postgres_server, url) == 4
        daemon.stop()


def test_a_pooler_is_refused(postgres_server, tmp_path):  # noqa: F811
    def other_key(data):
        return re.sub(rb"K\0\0\0\x0c....", b"K\0\0\0\x0c\0\0\0\x07", data, flags=re.S)

    with PgProxy(postgres_server) as proxy:
        proxy.change = other_key
        code, said = run_to_end(tmp_path / "data", f"--store={proxy.url}")
    assert code == 2 and "a connection pooler stands between" in said, said


def test_another_version_is_refused(postgres_server, tmp_path):  # noqa: F811
    with PgProxy(postgres_server) as proxy:
        proxy.change = lambda data: data.replace(b"server_version\x0015.", b"server_version\x0014.")
        code, said = run_to_end(tmp_path / "data", f"--store={proxy.url}")
    assert code == 1 and "it is PostgreSQL 14, and lapsed is tested with 15 only" in said, said


def test_a_backup_is_the_servers_business(start, url):
    start(url).client().post("/v1/backup").fails(409, "conflict")


def test_what_a_lost_transaction_leaves_is_nothing(start, url):
    """Sessions are ended at any moment; no statement of a transaction may survive it."""
    daemon = start(url)
    stop = threading.Event()

    def work(i):
        client = daemon.client()
        while not stop.is_set():
            sent = client.post(f"/v1/agents/agent-{i}/messages", {"from": "me", "content": "x"})
            if sent.status == 201:
                client.post(f"/v1/agents/agent-{i}/messages/{sent.json()['id']}/read", {})
            client.post(f"/v1/agents/agent-{i}/heartbeat", {"cluster_id": "c", "capabilities": [f"c{time.monotonic_ns()}"]})

    with concurrent.futures.ThreadPoolExecutor(6) as pool, Connection(url) as killer:
        workers = [pool.submit(work, i) for i in range(6)]
        end = time.monotonic() + 8
        while time.monotonic() < end:
            killer.run(LAPSED + " AND datname = current_database()")
            time.sleep(0.03)
        stop.set()
        for one in workers:
            one.result(30)
        wait_until(lambda: daemon.client().get("/v1/agents").status == 200, 20)
        wrong = killer.run("SELECT i.agent, i.total, i.unread, m.n, m.unread AS m_unread FROM inboxes AS i FULL JOIN "
                           "(SELECT agent, count(*) AS n, count(*) FILTER (WHERE read = 0) AS unread FROM messages "
                           "GROUP BY agent) AS m USING (agent) "
                           "WHERE i.total IS DISTINCT FROM m.n OR i.unread IS DISTINCT FROM m.unread")
        assert wrong == []
        counted = {row["tbl"]: row["live"] for row in killer.run("SELECT tbl, live FROM counts")}
        for table in ("messages", "agents", "events"):
            assert counted[table] == killer.run(f"SELECT count(*) AS n FROM {table}")[0]["n"], table


def test_a_sweep_in_the_middle_of_a_replay_costs_no_event(start, url, postgres_server):  # noqa: F811
    """A swept message leaves its event behind in another table. A replay that read that table before, and the messages
    after it, would find the event in neither."""
    with PgProxy(postgres_server) as proxy:
        through = proxy.url.replace("/lapse?", "/" + re.search(r"/([^/?]+)\?", url).group(1) + "?")
        daemon = start(through, message_ttl_ms=1, message_sweep_ms=NEVER_MS)
        api = daemon.client()
        with Stream(daemon) as stream:
            for _ in range(4):
                api.send("bob")
            live = stream.events(4)
        daemon.restart()  # nothing is in memory
        swept = []
        daemon.rows = Connection(url).run
        proxy.call_before(b"event = 1 ORDER BY id LIMIT", lambda: swept.append(read_all_and_sweep(daemon)))
        with Stream(daemon, last_event_id=live[0][2]) as stream:
            assert stream.events(3) == live[1:]
        assert swept
