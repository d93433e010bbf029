# SPDX-License-Identifier: Apache-2.0
"""The sweep: it re-arms whatever happened, tells before it does, and everything it does can be seen."""
import time

import pytest

from harness import DAY_MS, NEVER_MS, Clock, wait_until

ALL_READ = {"before": "2100-01-01T00:00:00.000Z"}
TABLES = {"messages": "messages", "events": "housekeeping", "idempotency_keys": "housekeeping",
          "sweeps": "housekeeping", "tokens": "housekeeping", "holds": "housekeeping"}


def errors(daemon, scheduler="messages"):
    return daemon.metric("lifecycle_tick_errors_total", scheduler=scheduler)


def pruned(daemon, table="messages"):
    return daemon.metric("lifecycle_prune_rows_total", scheduler=TABLES[table], table=table)


def read_message(api, agent="a"):
    message = api.send(agent)
    api.read(agent, message["id"])
    return message["id"]


def wait_swept(api, message_id, agent="a"):
    wait_until(lambda: api.message(agent, message_id).status == 404, what="swept")


# Re-arming ----------------------------------------------------------------------------------------

def test_rearms_after_success(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=20)
    api = daemon.client()
    for round_ in range(1, 4):
        wait_swept(api, read_message(api))
        wait_until(lambda: pruned(daemon) == round_)
    assert errors(daemon) == 0


def test_rearms_after_failing_ticks_and_costs_no_data(start):
    """A failing store for a while costs ticks, not data; it works again with no restart."""
    daemon = start(message_ttl_ms=300, message_sweep_ms=20)
    api = daemon.client()
    kept = api.send("a", content="unread")
    due = read_message(api)
    with daemon.store_locked():
        wait_until(lambda: errors(daemon) >= 2, timeout_s=30, what="ticks that failed")
        api.get("/healthz").ok()
        assert len(daemon.rows("SELECT * FROM messages")) == 2
    wait_swept(api, due)
    assert api.message("a", kept["id"]).ok() == kept
    wait_swept(api, read_message(api))
    failed = [line for line in daemon.log_lines() if line["level"] in ("error", "warn", "warning")]
    assert failed, "a failed tick is a line of the log"
    wait_until(lambda: daemon.rows("SELECT * FROM events WHERE kind LIKE '%lifecycle_tick_failed'"),
               what="the event of the failure, once the store is back")
    assert pruned(daemon) == 2


def test_a_write_while_the_store_fails_is_503_and_leaves_nothing(start):
    daemon = start(message_sweep_ms=NEVER_MS)
    api = daemon.client()
    with daemon.store_locked():
        answer = api.post("/v1/agents/a/messages", {"from": "b", "content": "lost"})
        answer.fails(503, "unavailable")
        assert int(answer.headers["Retry-After"]) >= 0
    sent = api.send("a", content="kept")
    assert api.inbox("a") == [sent]


def test_a_sweep_asked_for_while_the_store_fails_says_so(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    due = read_message(api)
    time.sleep(0.005)
    with daemon.store_locked():
        api.post("/v1/sweep/messages").fails(503, "unavailable")
    assert api.mark_read("a", due).ok()["read"] is True
    assert api.sweep()["pruned"] == 1


def test_rearms_after_a_slow_run(start):
    """Many slices of one millisecond: all of it goes, requests are answered meanwhile, the next run comes."""
    daemon = start(message_ttl_ms=1, message_sweep_ms=20, sweep_budget_ms=1)
    api = daemon.client()
    agents = [f"a{i}" for i in range(1000)]
    for _ in range(4):
        api.broadcast(agents).ok(201)
    for name in agents[:250]:
        assert api.read_many(name, **ALL_READ).ok()["count"] == 4
    wait_until(lambda: pruned(daemon) == 1000, timeout_s=30, what="all that was due")
    assert sum(row["total"] for row in api.stats().values()) == 3000
    wait_swept(api, read_message(api, "later"), "later")
    assert errors(daemon) == 0


def test_a_sweep_by_hand_prunes_all_in_one_call(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS, sweep_budget_ms=1)
    api = daemon.client()
    for _ in range(3):
        api.broadcast([f"a{i}" for i in range(1000)]).ok(201)
    for i in range(1000):
        api.read_many(f"a{i}", **ALL_READ).ok()
    time.sleep(0.005)
    assert api.sweep()["pruned"] == 3000
    assert daemon.rows("SELECT * FROM messages") == []


def test_the_interval_counts_from_the_end_of_the_last_run(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=200)
    api = daemon.client()
    ends = []
    for _ in range(3):
        wait_swept(api, read_message(api))
        ends.append(time.monotonic())
    assert ends[1] - ends[0] > 0.15 and ends[2] - ends[1] > 0.15


def test_due_rows_of_before_a_start_are_swept(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    due = read_message(daemon.client())
    daemon.kill()
    daemon.settings["message_sweep_ms"] = 20
    daemon.start()
    wait_swept(daemon.client(), due)


# Sweeps by hand -----------------------------------------------------------------------------------

def test_sweep_answers_what_it_did(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    for _ in range(3):
        read_message(api)
    time.sleep(0.005)
    answer = api.sweep()
    assert answer == {"scheduler": "messages", "dry_run": False, "pruned": 3, "tables": {"messages": 3},
                      "duration_ms": answer["duration_ms"]}
    assert 0 <= answer["duration_ms"] < 10_000
    again = api.sweep()
    assert (again["pruned"], again["tables"]) == (0, {"messages": 0})


def test_dry_run_changes_nothing_and_counts_the_same(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()
    for _ in range(5):
        read_message(api)
    api.send("a")
    time.sleep(0.005)
    tables = ("messages", "inboxes", "events")
    before = [daemon.rows(f"SELECT * FROM {table}") for table in tables]
    told = api.sweep(dry_run="true")
    assert told["dry_run"] is True and told["pruned"] == 5 and told["tables"] == {"messages": 5}
    assert api.sweep(dry_run="true")["pruned"] == 5
    assert [daemon.rows(f"SELECT * FROM {table}") for table in tables] == before
    assert pruned(daemon) == 0 and api.matrix("messages")["pruned_total"] == 0
    done = api.sweep(dry_run="false")
    assert (done["dry_run"], done["pruned"], done["tables"]) == (False, 5, told["tables"])
    assert pruned(daemon) == 5


def test_dry_run_of_housekeeping_counts_the_same(start):
    daemon = start(event_keep_ms=1, message_sweep_ms=NEVER_MS, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()
    for _ in range(7):
        read_message(api)
    time.sleep(0.005)
    events = len(daemon.rows("SELECT * FROM events"))
    told = api.sweep("housekeeping", dry_run="true")
    assert told["tables"]["events"] == events >= 7
    assert len(daemon.rows("SELECT * FROM events")) == events
    done = api.sweep("housekeeping")
    assert done["tables"]["events"] == events and done["pruned"] == sum(done["tables"].values())


@pytest.mark.parametrize("name", ["unknown", "Messages", "agents ", ""])
def test_unknown_scheduler_is_404(shared_api, name):
    shared_api.post(f"/v1/sweep/{name.replace(' ', '%20')}").fails(404, "not_found")


@pytest.mark.parametrize("value", ["1", "yes", "TRUE", "", "null"])
def test_dry_run_is_true_or_false(start, value):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    due = read_message(daemon.client())
    time.sleep(0.005)
    daemon.client().post("/v1/sweep/messages", dry_run=value).fails(400, "invalid_request", names="dry_run")
    assert daemon.client().mark_read("a", due).status == 200, "nothing was swept"


# What can be seen ---------------------------------------------------------------------------------

def test_metrics_are_zero_from_the_start(start):
    daemon = start()
    for table in TABLES:
        assert pruned(daemon, table) == 0, table
    assert errors(daemon, "messages") == 0 and errors(daemon, "housekeeping") == 0


def test_metrics_count_rows(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    for total in (2, 4, 6):
        read_message(api)
        read_message(api)
        time.sleep(0.005)
        api.sweep()
        assert pruned(daemon) == total == api.matrix("messages")["pruned_total"]


def test_a_sweep_that_pruned_is_one_event(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    api.sweep()
    assert daemon.events("message.pruned") == [], "none for a sweep that found nothing"
    first = api.send("a")
    api.read("a", first["id"])
    time.sleep(0.005)
    read_message(api)
    time.sleep(0.005)
    api.sweep()
    (event,) = daemon.events("message.pruned")
    assert {"table", "count", "oldest", "reason"} <= set(event)
    assert event["table"] == "messages" and event["count"] == 2


def test_sweep_history(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    api = daemon.client()
    read_message(api)
    time.sleep(0.005)
    api.sweep()
    (row,) = daemon.rows("SELECT * FROM sweeps WHERE scheduler = 'messages'")
    assert (row["pruned"], row["dry_run"], row["error"]) == (1, 0, "")
    assert row["started_at"] <= row["ended_at"]
    assert api.matrix("messages")["last_sweep_at"] is not None
    api.sweep(dry_run="true")
    assert len(daemon.rows("SELECT * FROM sweeps WHERE scheduler = 'messages' AND dry_run = 0")) == 1


# The matrix ---------------------------------------------------------------------------------------

def test_matrix_has_a_row_for_each_table(shared_api):
    rows = shared_api.matrix()
    assert set(TABLES) <= set(rows)
    fields = {"table", "scheduler", "bounded_by", "due_when", "window_ms", "paths", "safety_rule", "action",
              "live_rows", "due_rows", "oldest_due_age_ms", "interval_ms", "next_sweep_at", "last_sweep_at", "last_sweep",
              "last_sweep_rows", "last_sweep_ms", "pruned_total",
              "undeletable_rows", "undeletable", "last_success_at", "rows_per_second", "clears_in_ms"}
    for table, scheduler in TABLES.items():
        assert set(rows[table]) == fields
        assert rows[table]["scheduler"] == scheduler
        assert isinstance(rows[table]["paths"], list) and rows[table]["paths"]
    assert rows["messages"]["window_ms"] == DAY_MS
    assert "read" in rows["messages"]["safety_rule"]


def test_matrix_tells_what_is_due(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=10_000, message_sweep_ms=NEVER_MS).client()
    for _ in range(3):
        read_message(api)
    api.send("a")
    row = api.matrix("messages")
    assert (row["live_rows"], row["due_rows"], row["oldest_due_age_ms"]) == (4, 0, None)
    clock.advance(15_000)
    row = api.matrix("messages")
    assert row["due_rows"] == 3 and row["live_rows"] in (1, 4)
    assert row["oldest_due_age_ms"] in (5_000, 15_000)
    assert api.sweep()["pruned"] == 3
    row = api.matrix("messages")
    assert (row["live_rows"], row["due_rows"], row["oldest_due_age_ms"]) == (1, 0, None)
    assert row["pruned_total"] == 3 and row["last_sweep_at"] is not None


# Housekeeping -------------------------------------------------------------------------------------

def test_housekeeping_keeps_events_for_their_window(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, event_keep_ms=10_000, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()
    api.broadcast(["a", "b"], content="one").ok(201)  # its event is a row
    clock.advance(10_000)
    api.broadcast(["a", "b"], content="two").ok(201)
    assert api.sweep("housekeeping")["tables"]["events"] == 0
    clock.advance(1)
    assert api.sweep("housekeeping")["tables"]["events"] == 2, "the start, and the first message"
    assert len(daemon.events("message.sent")) == 1
    assert len(api.inbox("a")) == 2, "messages are none of its business"


def test_housekeeping_runs_by_its_timer(start):
    daemon = start(event_keep_ms=1, housekeeping_sweep_ms=20)
    api = daemon.client()
    for _ in range(3):
        api.broadcast(["a", "b"]).ok(201)
        wait_until(lambda: daemon.events("message.sent") == [], what="events pruned")
    assert pruned(daemon, "events") >= 3


def test_idempotency_keys_are_bounded(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, idempotency_keep_ms=10_000, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()

    def send():
        return api.post("/v1/agents/a/messages", {"from": "b", "content": "x"}, {"Idempotency-Key": "k"})

    first = send().ok(201)
    clock.advance(10_000)
    assert send().ok(201) == first
    clock.advance(1)
    assert api.sweep("housekeeping")["tables"]["idempotency_keys"] == 1
    assert daemon.rows("SELECT * FROM idempotency_keys") == []
    second = send().ok(201)
    assert second["id"] != first["id"] and len(api.inbox("a")) == 2


def test_an_idempotency_key_past_its_lifetime_is_not_used_before_its_sweep(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, idempotency_keep_ms=10_000, housekeeping_sweep_ms=NEVER_MS).client()
    sent = []
    for _ in range(2):
        answer = api.post("/v1/agents/a/messages", {"from": "b", "content": "x"}, {"Idempotency-Key": "k"})
        sent.append(answer.ok(201)["id"])
        clock.advance(10_001)
    assert sent[0] != sent[1]


def test_the_history_of_sweeps_is_bounded(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS, sweep_keep_ms=1, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()
    for _ in range(3):
        read_message(api)
        time.sleep(0.005)
        api.sweep()
    before = len(daemon.rows("SELECT * FROM sweeps"))
    assert before >= 3
    time.sleep(0.005)
    assert api.sweep("housekeeping")["tables"]["sweeps"] == before


def test_expired_tokens_are_removed(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, housekeeping_sweep_ms=NEVER_MS)
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    admin.token("fleet", ttl_ms=10_000)
    clock.advance(20_000)
    assert admin.sweep("housekeeping")["tables"]["tokens"] == 1
    assert len(admin.get("/v1/tokens").data) == 1


def test_holds_past_their_end_are_removed(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, housekeeping_sweep_ms=NEVER_MS)
    api = daemon.client()
    for until in ("2026-03-01T12:00:10.000Z", None):
        body = {"reason": "audit", **({"until": until} if until else {})}
        api.put(f"/v1/holds/messages/{api.send('a')['id']}", body).ok()
    clock.advance(20_000)
    assert api.sweep("housekeeping")["tables"]["holds"] == 1
    assert len(api.get("/v1/holds").data) == 1
