# SPDX-License-Identifier: Apache-2.0
"""Dead letters: a deletion outside that gave up is seen, retried or dropped by an admin.

What cannot be deleted here is a surplus backup whose name somebody has given to a directory.
"""
import shutil
import time

import pytest

from harness import wait_until
import stores
from mailrig import iso


class Stuck:
    """A daemon with one dead letter."""

    def __init__(self, start, **settings):
        if stores.KIND != "sqlite":
            pytest.skip("SQLite only: it takes a backup")
        self.daemon = start(backup_keep=1, cleanup_max_attempts=1, **settings)
        self.api = self.daemon.client()
        name = self.api.post("/v1/backup").ok(201)["file"]
        self.path = self.daemon.data_dir / "backups" / name.split("/")[-1]
        self.path.unlink()
        self.path.mkdir()
        self.api.post("/v1/backup").ok(201)
        wait_until(self.letters, what="a dead letter")

    def letters(self):
        return self.api.get("/v1/dead-letters").data


@pytest.fixture
def stuck(start):
    return Stuck(start)


def test_it_is_listed_counted_and_announced(stuck):
    (letter,) = stuck.letters()
    assert set(letter) == {"id", "kind", "target", "owner", "state", "attempts", "error",
                           "created_at"}
    assert letter["kind"] == "file"
    assert letter["target"].endswith(stuck.path.name)
    assert letter["state"] == "dead_letter" and letter["attempts"] == 1 and letter["error"]
    assert stuck.daemon.metric("lapse_dead_letters") == 1
    (event,) = stuck.daemon.events("cleanup.dead_letter")
    assert event["id"] == letter["id"]


def test_a_retry_that_succeeds_ends_it(stuck):
    (letter,) = stuck.letters()
    shutil.rmtree(stuck.path)
    stuck.path.write_text("a file again")
    answer = stuck.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    assert answer == {**letter, "state": "pending", "attempts": 0}
    wait_until(lambda: not stuck.path.exists(), what="the file to go")
    assert stuck.letters() == []
    assert stuck.daemon.metric("lapse_dead_letters") == 0
    stuck.api.post(f"/v1/dead-letters/{letter['id']}/retry").fails(404, "not_found", "id")


def test_a_retry_that_fails_is_a_dead_letter_again(stuck):
    (letter,) = stuck.letters()
    stuck.api.post(f"/v1/dead-letters/{letter['id']}/retry").ok()
    wait_until(stuck.letters, what="it to give up again")
    assert stuck.letters() == [letter]
    assert stuck.daemon.metric("lapse_dead_letters") == 1


def fill(daemon, letters):
    """Puts dead letters (kind, target, age in days) into the store of a daemon that is not running."""
    for n, (kind, target, days) in enumerate(letters):
        created = int((time.time() - days * 86400) * 1000)
        daemon.execute("INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, created_at, error) "
                       "VALUES (?, 'local', ?, ?, -1, 3, 0, ?, 'down')", n + 1, kind, target, created)


@pytest.fixture
def outage(start):
    """What an outage leaves: 250 dead letters, whose files are gone."""
    daemon = start()
    daemon.stop()
    fill(daemon, [("attachment" if i % 2 else "file", f"gone/{i}", i % 10) for i in range(250)])
    daemon.start()
    return daemon


def test_one_request_retries_all(outage):
    api = outage.client()
    assert api.post("/v1/dead-letters/retry", {}).ok() == {"retried": 250}
    wait_until(lambda: not outage.rows("SELECT * FROM cleanups"), what="all of them")
    assert outage.metric("lapse_dead_letters") == 0
    assert api.post("/v1/dead-letters/retry", {}).ok() == {"retried": 0}


def test_some_are_chosen_by_kind_and_by_age(outage):
    api = outage.client()
    assert api.post("/v1/dead-letters/retry", {"kind": "file"}).ok() == {"retried": 125}
    before = iso(int((time.time() - 4.5 * 86400) * 1000))
    assert api.post("/v1/dead-letters/retry", {"before": before}).ok() == {"retried": 75}
    wait_until(lambda: len(outage.rows("SELECT * FROM cleanups")) == 50, what="those")
    assert outage.metric("lapse_dead_letters") == 50
    for body, field in (({"kind": "mail"}, "kind"), ({"before": "now"}, "before"), ({"age": 1}, "age")):
        api.post("/v1/dead-letters/retry", body).fails(400, "invalid_request", names=field)
    assert outage.metric("lapse_dead_letters") == 50


def test_letters_that_die_again_are_retried_once_a_request(stuck):
    assert stuck.api.post("/v1/dead-letters/retry", {}).ok() == {"retried": 1}
    wait_until(stuck.letters, what="it is a dead letter again")


def test_a_dropped_one_is_forgotten_and_what_it_was_about_stays(stuck):
    (letter,) = stuck.letters()
    assert stuck.api.delete(f"/v1/dead-letters/{letter['id']}").ok() == {
        "id": letter["id"], "dropped": True}
    assert stuck.letters() == []
    assert stuck.path.is_dir()
    assert stuck.daemon.metric("lapse_dead_letters") == 0
    stuck.api.delete(f"/v1/dead-letters/{letter['id']}").fails(404, "not_found", "id")


def test_it_survives_a_restart(stuck):
    before = stuck.letters()
    stuck.daemon.restart()
    stuck.api = stuck.daemon.client()
    assert stuck.letters() == before
    assert stuck.daemon.metric("lapse_dead_letters") == 1


@pytest.mark.parametrize("name", ["x", "0" * 16, "0" * 17, "%00", "-1"])
def test_an_id_that_is_none_is_not_found(stuck, name):
    answer = stuck.api.post(f"/v1/dead-letters/{name}/retry")
    assert answer.status in (400, 404)
    assert len(stuck.letters()) == 1


def test_only_an_admin_may(stuck):
    stuck.api.post("/v1/tokens", {"owner": "boss", "admin": True}).ok(201)
    boss = stuck.api.post("/v1/tokens", {"owner": "ops", "admin": True})
    assert boss.status == 401  # from the first token on, nobody comes in without one
    for method, path in [("GET", "/v1/dead-letters"), ("POST", "/v1/dead-letters/1/retry"),
                         ("DELETE", "/v1/dead-letters/1")]:
        stuck.api.request(method, path).fails(401, "unauthorized")


def test_an_owner_without_admin_is_refused(start):
    stuck = Stuck(start)
    admin = stuck.api.post("/v1/tokens", {"owner": "boss", "admin": True}).ok(201)["token"]
    plain = stuck.daemon.client(token=admin).post("/v1/tokens", {"owner": "fleet"}).ok(201)["token"]
    fleet = stuck.daemon.client(token=plain)
    for method, path in [("GET", "/v1/dead-letters"), ("POST", "/v1/dead-letters/1/retry"),
                         ("DELETE", "/v1/dead-letters/1")]:
        fleet.request(method, path).fails(403, "forbidden")
    assert len(stuck.daemon.client(token=admin).get("/v1/dead-letters").data) == 1
