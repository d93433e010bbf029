# SPDX-License-Identifier: Apache-2.0
"""Seed 000, "Cleanup Read Messages After 24-Hour TTL": every scenario, flow and acceptance line.

The clock moves across a restart: a message is written by a daemon that lives 25 hours ago, and cleaned
by one that lives now. "The handler fires" is `POST /v1/sweep/messages`, or the timer itself.
The last acceptance line (compiles with warnings as errors) is the build's, not a test's.
"""
import datetime

import pytest

from mailrig import iso
from harness import DAY_MS, HOUR_MS, NEVER_MS, Clock, faketime_preload, wait_until

AGENT = "agent-42"


@pytest.fixture
def history(start, tmp_path):
    """history((48, False), (25, True)) gives a daemon of today, with a message of each age in hours,
    oldest first, read or not, and the messages as they were."""
    def write(*messages, agent=AGENT, **settings):
        settings.setdefault("message_sweep_ms", NEVER_MS)
        written, daemon = [], None
        for hours, read in messages:
            time = f"-{hours}h"
            if daemon is None:
                daemon = start(data_dir=tmp_path / "history", faketime=time,
                               message_sweep_ms=NEVER_MS)
            else:
                daemon.restart(faketime=time)
            message = daemon.client().send(agent, content=f"{hours} hours old")
            written.append(daemon.client().read(agent, message["id"]) if read else message)
        daemon.restart(faketime=None, **settings)
        return daemon, written

    return write


def ids(messages):
    return [message["id"] for message in messages]


def stored(daemon):
    """How many messages of AGENT there are, by the statistics, swept or not."""
    return daemon.client().stats().get(AGENT, {"total": 0})["total"]


def assert_pruned(daemon, message):
    api = daemon.client()
    api.message(AGENT, message["id"]).fails(404, "not_found")
    api.mark_read(AGENT, message["id"]).fails(404, "not_found")
    assert message["id"] not in ids(api.inbox(AGENT))


def assert_kept(daemon, message):
    assert daemon.client().message(AGENT, message["id"]).ok() == message
    assert message in daemon.client().inbox(AGENT)


# Scenarios ----------------------------------------------------------------------------------------

def test_s1_read_messages_older_than_24_hours_are_pruned(history):
    """Given "agent-42" has a message with read: true and timestamp 25 hours ago
    When the cleanup handler fires
    Then the lookup of "agent-42" returns an empty or shorter list
    And the old read message is no longer present"""
    daemon, (old,) = history((25, True))
    assert stored(daemon) == 1
    assert daemon.client().sweep()["pruned"] == 1
    assert daemon.client().inbox(AGENT) == []
    assert stored(daemon) == 0
    assert_pruned(daemon, old)


def test_s2_unread_messages_are_never_removed_regardless_of_age(history):
    """Given "agent-42" has a message with read: false and timestamp 48 hours ago
    When the cleanup handler fires
    Then the lookup of "agent-42" still contains the unread message"""
    daemon, (old,) = history((48, False))
    assert daemon.client().sweep()["pruned"] == 0
    assert_kept(daemon, old)


def test_s3_recent_read_messages_are_retained(history):
    """Given "agent-42" has a message with read: true and timestamp 1 hour ago
    When the cleanup handler fires
    Then the lookup of "agent-42" still contains the message"""
    daemon, (recent,) = history((1, True))
    assert daemon.client().sweep()["pruned"] == 0
    assert_kept(daemon, recent)


def test_s4_cleanup_reschedules_itself(start):
    """Given the cleanup handler runs
    When the handler completes
    Then a new cleanup is scheduled with 60_000 ms delay
    (the interval is the setting message_sweep_ms, here shortened)"""
    daemon = start(message_sweep_ms=20)
    seen = set()
    for _ in range(4):
        seen.add(wait_until(lambda: str(last) if str(last := daemon.client().matrix("messages")["last_sweep_at"])
                            not in seen | {"None"} else None, what="another sweep"))
    assert len(seen) == 4


def test_s4_the_timer_prunes_without_being_asked(history):
    """Trigger: the cleanup fires by its timer, and what S1 and S2 say holds for it too."""
    daemon, (unread, read) = history((48, False), (25, True), message_sweep_ms=50)
    wait_until(lambda: daemon.client().message(AGENT, read["id"]).status == 404, what="pruned by the timer")
    assert_kept(daemon, unread)


# Main flow ----------------------------------------------------------------------------------------

def test_main_flow_removes_exactly_the_read_and_old(history):
    """For each entry, it filters out messages where read == true AND older than 24 hours;
    it writes back the filtered list."""
    daemon, written = history((72, False), (72, True), (48, True), (30, False), (25, True), (23, True),
                              (2, False), (1, True))
    swept = daemon.client().sweep()
    kept = [message for message, hours_read in zip(written, [0, 1, 1, 0, 1, 0, 0, 0]) if not hours_read]
    assert swept["pruned"] == 3 and swept["tables"]["messages"] == 3
    assert daemon.client().inbox(AGENT) == kept[::-1]
    assert stored(daemon) == 5 and daemon.client().stats()[AGENT]["unread"] == 3
    for message in written:
        if message not in kept:
            assert_pruned(daemon, message)


def test_main_flow_covers_every_agent(start, tmp_path):
    """It reads all entries; for each {agent_id, messages} entry it filters."""
    daemon = start(data_dir=tmp_path / "many", faketime="-25h", message_sweep_ms=NEVER_MS)
    agents = [f"agent-{i}" for i in range(30)]
    sent = daemon.client().broadcast(agents).ok(201)["data"]
    for message in sent[::2]:
        daemon.client().read(message["to"], message["id"])
    daemon.restart(faketime=None)
    assert daemon.client().sweep()["pruned"] == 15
    left = [message["id"] for name in agents for message in daemon.client().inbox(name)]
    assert left == ids(sent[1::2])


# Alternate flows ----------------------------------------------------------------------------------

def test_a1_mailbox_with_nothing_read_and_old_is_unchanged(history):
    """A1: All messages are either unread or read within the last 24 hours.
    The filter retains all messages for this agent."""
    daemon, written = history((30, False), (23, True), (1, True), (1, False))
    before = daemon.client().inbox(AGENT)
    assert daemon.client().sweep()["pruned"] == 0
    assert daemon.client().inbox(AGENT) == before == written[::-1]


def test_a2_mailbox_with_only_unread_messages_is_unchanged(history):
    """A2: Some messages are old but none have read: true.
    The filter retains all messages (unread messages are never removed regardless of age)."""
    daemon, written = history((2000, False), (100, False), (25, False), (1, False))
    for _ in range(3):
        assert daemon.client().sweep()["pruned"] == 0
    assert daemon.client().inbox(AGENT) == written[::-1]


# Failure flows ------------------------------------------------------------------------------------

def test_f1_cleanup_runs_again_after_the_first_cycle(start):
    """F1: The cleanup fires once after startup; messages accumulate indefinitely after the first
    cleanup cycle. That must not be: what becomes due after each cycle goes in a later one."""
    daemon = start(message_ttl_ms=1, message_sweep_ms=20)
    api = daemon.client()
    for _ in range(4):
        message = api.send(AGENT)
        api.read(AGENT, message["id"])
        wait_until(lambda: api.message(AGENT, message["id"]).status == 404, what="swept in this cycle")
    assert api.metric("lifecycle_prune_rows_total", scheduler="messages", table="messages") == 4


def test_f2_an_old_unread_message_is_there_for_the_agent_that_polls(history):
    """F2: An agent attempting to poll finds its messages gone. That must not be: after many cleanups
    it is listed, can be claimed, and can be read; only then it goes."""
    daemon, (old,) = history((48, False), message_sweep_ms=20)
    api = daemon.client()
    before = str(api.matrix("messages")["last_sweep_at"])
    wait_until(lambda: str(api.matrix("messages")["last_sweep_at"]) not in (before, "None"), what="a sweep")
    assert ids(api.list(AGENT, unread="true").data) == [old["id"]]
    claim = api.claim(AGENT).ok()
    assert ids(claim["data"]) == [old["id"]]
    assert api.mark_read(AGENT, old["id"], claim_id=claim["claim_id"]).ok()["read"] is True
    wait_until(lambda: api.message(AGENT, old["id"]).status == 404, what="swept once it was read")


# Moving in ----------------------------------------------------------------------------------------

def test_a_platform_moves_its_messages_in_at_their_age(start, tmp_path):
    """An admin may date a message: one that is read and 24 hours and a millisecond old goes with the next sweep."""
    clock = Clock(tmp_path)
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, message_sweep_ms=NEVER_MS)
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    old, edge = (admin.post("/v1/agents/bob/messages", {"from": "a", "content": "x", "timestamp": iso(clock.now_ms - age)})
                 .ok(201) for age in (DAY_MS + 1, DAY_MS))
    assert old["timestamp"] == iso(clock.now_ms - DAY_MS - 1)
    admin.post("/v1/agents/bob/messages/read", {"ids": [old["id"], edge["id"]]}).ok()
    assert admin.sweep("messages")["pruned"] == 1
    admin.get(f"/v1/agents/bob/messages/{edge['id']}").ok()
    for bad in (iso(clock.now_ms + 1), "yesterday", 12):
        admin.post("/v1/agents/bob/messages", {"from": "a", "content": "x", "timestamp": bad}).fails(
            400, "invalid_request", names="timestamp")
    fleet = daemon.client(token=admin.token("red")["token"])
    fleet.post("/v1/agents/bob/messages", {"from": "a", "content": "x", "timestamp": iso(clock.now_ms - 1)}).fails(
        403, "forbidden", names="timestamp")
    assert fleet.get("/v1/agents/bob/messages").data == []


# Acceptance criteria ------------------------------------------------------------------------------

def test_acceptance_read_and_25_hours_old_is_no_longer_there(history):
    """A test that inserts a message with read: true and a timestamp 25 hours in the past, fires the
    cleanup, and asserts the message is no longer in the lookup of "agent-42" (S1). Down to the rows:
    nothing of it is left, and the removal is visible."""
    daemon, (old,) = history((25, True))
    daemon.client().sweep()
    assert daemon.rows("SELECT * FROM messages") == []
    (event,) = daemon.events("message.pruned")
    assert event["table"] == "messages" and event["count"] == 1 and event["reason"]
    assert str(event["oldest"]) in (old["timestamp"], str(_ms(old["timestamp"])))


def test_acceptance_unread_and_48_hours_old_is_not_removed(history):
    """A test asserts that a message with read: false and a timestamp 48 hours in the past is NOT
    removed by the cleanup handler (S2), a day later included."""
    daemon, (old,) = history((48, False))
    daemon.client().sweep()
    daemon.restart(faketime="+24h")
    daemon.client().sweep()
    assert_kept(daemon, old)


def test_acceptance_read_and_1_hour_old_is_not_removed(history):
    """A test asserts that a message with read: true and a timestamp 1 hour in the past is NOT removed
    by the cleanup handler (S3); 24 hours later it is."""
    daemon, (recent,) = history((1, True))
    daemon.client().sweep()
    assert_kept(daemon, recent)
    daemon.restart(faketime="+24h")
    assert daemon.client().sweep()["pruned"] == 1
    assert_pruned(daemon, recent)


# Boundaries ---------------------------------------------------------------------------------------

def _ms(time):
    return round(datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)


@pytest.mark.parametrize("age_ms,goes", [
    (DAY_MS - 1, False),
    (DAY_MS, False),
    (DAY_MS + 1, True),
    (DAY_MS + HOUR_MS - 1, True),  # not whole hours: 24 h 59 min is more than 24 h
])
def test_boundary_24_hours_exactly_stays_one_millisecond_more_goes(start, tmp_path, age_ms, goes):
    """`timestamp` more than 24 hours in the past: more than 86 400 000 ms, exactly."""
    clock = Clock(tmp_path)
    daemon = start(clock=clock, message_sweep_ms=NEVER_MS)
    message = daemon.client().send(AGENT)
    assert _ms(message["timestamp"]) == clock.now_ms
    message = daemon.client().read(AGENT, message["id"])
    daemon.stop()
    clock.advance(age_ms)
    daemon.start()
    if goes:
        daemon.client().message(AGENT, message["id"]).fails(410, "expired")
        assert daemon.client().inbox(AGENT) == []
    else:
        assert_kept(daemon, message)
    assert daemon.client().sweep(dry_run="true")["pruned"] == goes
    assert daemon.client().sweep()["pruned"] == goes
    if goes:
        assert_pruned(daemon, message)
    else:
        assert_kept(daemon, message)


def test_boundary_counts_from_the_timestamp_not_from_the_reading(history):
    """Older than 24 hours by `timestamp`: an old message is due as soon as it is read."""
    daemon, (old,) = history((25, False))
    api = daemon.client()
    assert api.read(AGENT, old["id"])["read"] is True
    api.message(AGENT, old["id"]).fails(410, "expired")
    assert api.inbox(AGENT) == [] and stored(daemon) == 1
    again = api.mark_read(AGENT, old["id"]).ok()
    assert again["read"] is True, "until it is swept, reading it again is no error"
    assert api.sweep()["pruned"] == 1
    assert_pruned(daemon, old)


@pytest.mark.sqlite("only its own clock runs faster, not the database's")
def test_default_interval_is_60_seconds_from_the_end_of_the_last_run(start):
    """Process.send_after(self(), :cleanup_old_messages, 60_000), in init and after each run: with the
    default settings, in a process whose clocks, all of them, run 200 times as fast."""
    fast = {"LD_PRELOAD": faketime_preload(), "FAKETIME": "@2026-03-01 12:00:00 x200"}
    daemon = start(env=fast)
    sweeps = wait_until(lambda: len(rows := daemon.rows(
        "SELECT started_at, ended_at FROM sweeps WHERE scheduler = 'messages' ORDER BY id")) >= 3 and rows,
        timeout_s=30, what="three sweeps", every_s=0.05)
    born = _ms("2026-03-01T12:00:00.000Z")
    gaps = [begun["started_at"] - ended for ended, begun in
            zip([born] + [row["ended_at"] for row in sweeps], sweeps)]
    assert all(60_000 <= gap < 90_000 for gap in gaps), gaps
