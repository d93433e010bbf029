# SPDX-License-Identifier: Apache-2.0
"""Trusted time: a wall clock that leaps, stops or goes back deletes nothing, by no path."""
import pytest

from harness import DAY_MS, NEVER_MS, Clock, wait_until

MINUTE_MS = 60_000


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path, wall_only=True)


@pytest.fixture
def daemon(start, clock):
    return start(clock=clock, message_sweep_ms=NEVER_MS)


def read_message(api):
    message = api.send("a")
    return api.read("a", message["id"])


def reasons(api):
    return " ".join(api.get("/readyz").json().get("reasons", []))


def test_nothing_expires_because_of_a_leap(daemon, clock):
    api = daemon.client()
    message = read_message(api)
    clock.advance(2 * DAY_MS)
    assert api.message("a", message["id"]).ok() == message
    assert api.inbox("a") == [message]
    assert api.sweep(dry_run="true")["pruned"] == 0 and api.sweep()["pruned"] == 0
    assert api.get("/readyz").status == 503 and "clock" in reasons(api)
    assert api.metric("lapse_clock_trusted") == 0
    assert api.send("a")["timestamp"] < "2026-03-01T13", "what is written is not from the future"
    wait_until(lambda: daemon.events("clock.jumped"), what="the event")


def test_a_leap_that_is_accepted_counts(daemon, clock):
    api = daemon.client()
    message = read_message(api)
    clock.advance(2 * DAY_MS)
    api.message("a", message["id"]).ok()
    assert api.get("/v1/clock").ok()["state"] != "trusted"
    assert api.post("/v1/clock/accept").ok()["state"] == "trusted"
    api.message("a", message["id"]).fails(410, "expired")
    assert api.sweep()["pruned"] == 1
    assert api.get("/readyz").ok() == {"status": "ready"} and api.metric("lapse_clock_trusted") == 1
    wait_until(lambda: daemon.events("clock.accepted"), what="the event")


def test_a_leap_ends_when_the_clock_comes_back(daemon, clock):
    api = daemon.client()
    message = read_message(api)
    clock.advance(2 * DAY_MS)
    assert api.get("/readyz").status == 503
    clock.advance(-2 * DAY_MS)
    assert api.get("/readyz").status == 200
    assert api.message("a", message["id"]).ok() == message and api.sweep()["pruned"] == 0


def test_a_small_step_is_followed(start, clock):
    api = start(clock=clock, message_ttl_ms=30_000, message_sweep_ms=NEVER_MS).client()
    message = read_message(api)
    clock.advance(MINUTE_MS - 5_000)
    api.message("a", message["id"]).fails(410, "expired")
    assert api.get("/readyz").status == 200


def test_a_steady_leap_of_up_to_an_hour_is_accepted_by_itself(start, clock):
    daemon = start(clock=clock, clock_accept_after_ms=300, message_ttl_ms=10 * MINUTE_MS, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    message = read_message(api)
    clock.advance(50 * MINUTE_MS)
    assert api.message("a", message["id"]).ok() == message
    wait_until(lambda: api.get("/readyz").status == 200, what="accepted")
    api.message("a", message["id"]).fails(410, "expired")


def test_a_larger_leap_waits_for_a_person(start, clock):
    api = start(clock=clock, clock_accept_after_ms=100, message_sweep_ms=20).client()
    message = read_message(api)
    clock.advance(25 * 60 * MINUTE_MS)
    before = str(api.matrix("messages")["last_sweep_at"])
    for _ in range(20):
        before = wait_until(lambda: str(api.matrix("messages")["last_sweep_at"]) != before
                            and str(api.matrix("messages")["last_sweep_at"]), what="another sweep")
    assert api.message("a", message["id"]).ok() == message and api.get("/readyz").status == 503


def test_nothing_to_accept_is_409(daemon):
    daemon.client().post("/v1/clock/accept").fails(409, "conflict")
    assert daemon.client().get("/v1/clock").ok()["state"] == "trusted"


def test_accepting_needs_an_admin(daemon):
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    user = daemon.client(token=admin.token("fleet")["token"])
    user.post("/v1/clock/accept").fails(403, "forbidden")
    user.get("/v1/clock").ok()


def test_downtime_is_no_leap(daemon, clock):
    message = read_message(daemon.client())
    daemon.stop()
    clock.advance(DAY_MS + MINUTE_MS)
    daemon.start()
    assert daemon.client().get("/readyz").status == 200
    daemon.client().message("a", message["id"]).fails(410, "expired")


def test_time_does_not_go_back_across_a_restart(daemon, clock):
    first = daemon.client().send("a")
    daemon.stop()
    clock.advance(-DAY_MS)
    daemon.start()
    second = daemon.client().send("a")
    assert second["timestamp"] >= first["timestamp"] and second["id"] > first["id"]
    assert [message["id"] for message in daemon.client().inbox("a")] == [second["id"], first["id"]]
