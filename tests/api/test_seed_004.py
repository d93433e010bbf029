# SPDX-License-Identifier: Apache-2.0
"""Seed 004, "Operational Table Maintenance Contract": every row of its matrix, every line of what operators should
expect, both non-goals, the observability hooks.

A row of the matrix is tested at its boundary to the millisecond: the sweep of that millisecond takes what is due and
leaves what is not, and the safety rule holds.
"""
import concurrent.futures

import pytest

from client import q
from harness import DAY_MS, HOUR_MS, NEVER_MS, Clock, wait_until

LEASE_TABLES = ["conversation_leases", "workspace_leases", "oauth_refresh_leases", "models_dev_refresh_leases"]
CALLERS = 64


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def daemon(start, clock):
    return start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS)


@pytest.fixture
def api(daemon):
    return daemon.client()


def advance(api, clock, ms):
    """A connection that idles through a leap of all clocks is late: the next request gets a new one."""
    clock.advance(ms)
    api.close()


def column(daemon, sql):
    """The first column of the store's rows."""
    return [next(iter(row.values())) for row in daemon.rows(sql)]


def count(daemon, rows):
    return column(daemon, f"SELECT count(*) FROM {rows}")[0]


def sweep(api, scheduler="statestore"):
    return api.sweep(scheduler)["tables"]


def hold(api, table, key, **fields):
    return api.put(f"/v1/holds/{table}/{q(key)}", {"reason": "evidence", **fields}).ok()


def at_once(daemon, work, callers=CALLERS):
    """`work(client, number)` by so many callers at the same moment, each with a connection of its own."""
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        return list(pool.map(lambda i: work(daemon.client(), i), range(callers)))


# Leases -------------------------------------------------------------------------------------------

def take(api, holder, table="workspace_leases", key="w1", ttl_ms=10_000):
    return api.put(f"/v1/leases/{table}/{key}", {"holder": holder, "ttl_ms": ttl_ms})


@pytest.mark.parametrize("table", LEASE_TABLES)
def test_a_lease_goes_when_it_has_expired_and_not_before(api, daemon, clock, table):
    """`lease_expires_at_ms` TTL, scheduler sweep: only expired leases are removed."""
    take(api, "a", table, "due").ok()
    take(api, "a", table, "renewed").ok()
    take(api, "a", table, "later", ttl_ms=10_001).ok()
    advance(api, clock, 9_999)
    assert sweep(api)[table] == 0
    take(api, "a", table, "renewed").ok()
    advance(api, clock, 1)
    assert [lease["key"] for lease in api.get(f"/v1/leases/{table}").ok()["data"]] == ["later", "renewed"], "before any sweep"
    assert {name: n for name, n in sweep(api).items() if n} == {table: 1}
    assert column(daemon, "SELECT key FROM leases ORDER BY key") == ["later", "renewed"]
    advance(api, clock, 1)
    assert sweep(api)[table] == 1


def test_leases_of_one_table_leave_those_of_another_alone(api, daemon, clock):
    for table in LEASE_TABLES:
        take(api, "a", table, "k", ttl_ms=1000).ok()
    advance(api, clock, 1000)
    assert sweep(api)["workspace_leases"] == 1
    assert daemon.metric("lifecycle_prune_rows_total", scheduler="statestore", table="oauth_refresh_leases") == 1


def test_a_held_lease_stays_and_can_be_taken_over(api, daemon, clock):
    take(api, "a", ttl_ms=1000).ok()
    hold(api, "workspace_leases", "w1")
    advance(api, clock, 5000)
    assert sweep(api)["workspace_leases"] == 0
    api.get("/v1/leases/workspace_leases/w1").fails(404, "not_found")
    assert take(api, "b").ok()["holder"] == "b"


def test_a_held_lease_that_is_released_stays_as_an_expired_one(api, daemon):
    first = take(api, "a").ok()
    hold(api, "workspace_leases", "w1")
    api.delete("/v1/leases/workspace_leases/w1?holder=a").ok()
    assert column(daemon, "SELECT holder FROM leases") == ["a"], "a held row is never removed"
    api.get("/v1/leases/workspace_leases/w1").fails(404, "not_found")
    assert take(api, "b").ok()["fencing_token"] > first["fencing_token"]


def test_a_lease_is_acquired_renewed_and_refused(api, clock):
    first = take(api, "a").ok()
    assert set(first) == {"table", "key", "holder", "fencing_token", "acquired_at", "expires_at"}
    advance(api, clock, 4000)
    renewed = take(api, "a").ok()
    assert renewed["fencing_token"] == first["fencing_token"]
    assert renewed["acquired_at"] == first["acquired_at"] and renewed["expires_at"] > first["expires_at"]
    refused = take(api, "b")
    refused.fails(409, "conflict", "holder", also=["lease"])
    assert refused.json()["lease"] == {"holder": "a", "expires_at": renewed["expires_at"]}
    assert api.get("/v1/leases/workspace_leases/w1").ok() == renewed


def test_an_expired_lease_can_be_taken_at_its_millisecond_by_anybody(api, daemon, clock):
    first = take(api, "a").ok()
    advance(api, clock, 9_999)
    take(api, "b").fails(409, "conflict", also=["lease"])
    advance(api, clock, 1)
    second = take(api, "b").ok()
    assert second["fencing_token"] > first["fencing_token"]
    advance(api, clock, 10_000)
    again = take(api, "b").ok()  # the same holder, too late: a new lease
    assert again["fencing_token"] > second["fencing_token"]
    assert len(daemon.events("lease.acquired")) == 3 and len(daemon.events("lease.expired")) == 2


def test_a_release_needs_the_holder_and_its_token(api, clock):
    lease = take(api, "a").ok()
    path = "/v1/leases/workspace_leases/w1"
    api.delete(path).fails(400, "invalid_request", "holder")
    api.delete(path + "?holder=b").fails(409, "conflict", "holder")
    api.delete(path + f"?holder=a&fencing_token={lease['fencing_token'] + 1}").fails(409, "conflict", "fencing_token")
    answer = api.delete(path + f"?holder=a&fencing_token={lease['fencing_token']}").ok()
    assert answer == {"table": "workspace_leases", "key": "w1", "released": True}
    api.delete(path + "?holder=a").fails(404, "not_found")
    assert take(api, "b").ok()["fencing_token"] > lease["fencing_token"]


def test_fencing_tokens_never_start_over(start, clock, tmp_path):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS)
    api = daemon.client()
    tokens = [take(api, "a", key="k1", ttl_ms=1).ok()["fencing_token"]]
    advance(api, clock, 10)
    assert sweep(api)["workspace_leases"] == 1
    assert count(daemon, "leases") == 0
    tokens += [take(api, "a", key=f"k{i}").ok()["fencing_token"] for i in range(5)]
    daemon.restart()
    api = daemon.client()
    tokens.append(take(api, "a", table="conversation_leases", key="k").ok()["fencing_token"])
    assert tokens == sorted(set(tokens)) and tokens[-1] < 2**53


def test_tokens_grow_although_an_old_store_was_restored(start, clock, tmp_path):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS)
    api = daemon.client()
    take(api, "a", key="before").ok()
    old = column(daemon, "SELECT last FROM fencing")[0]
    last = [take(api, "a", key=f"k{i}").ok()["fencing_token"] for i in range(20)][-1]
    advance(api, clock, 1000)
    daemon.execute("UPDATE fencing SET last = ?", old)  # what a restored backup has: the counter of long ago
    assert take(api, "a", key="after").ok()["fencing_token"] > last


def test_leases_are_listed_by_key_and_belong_to_their_owner(daemon, api, clock):
    for key in ("c", "a", "b"):
        take(api, "h", key=key).ok()
    take(api, "h", key="over", ttl_ms=1).ok()
    advance(api, clock, 1)
    assert [lease["key"] for lease in api.pages("/v1/leases/workspace_leases", limit=2)] == ["a", "b", "c"]
    api.get("/v1/leases/nothing").fails(404, "not_found", "workspace_leases")
    other = daemon.client(owner="other")
    other.get("/v1/leases/workspace_leases/a").fails(404, "not_found")
    assert take(other, "x", key="a").ok()["holder"] == "x"


def test_bad_leases_are_refused(api):
    path = "/v1/leases/workspace_leases/k"
    api.put(path, {"holder": "a"}).fails(400, "invalid_request", "ttl_ms")
    api.put(path, {"ttl_ms": 1}).fails(400, "invalid_request", "holder")
    api.put(path, {"holder": "a", "ttl_ms": 0}).fails(400, "invalid_request", "ttl_ms")
    api.put(path, {"holder": "", "ttl_ms": 1}).fails(400, "invalid_request", "holder")
    api.put("/v1/leases/leases/k", {"holder": "a", "ttl_ms": 1}).fails(404, "not_found")


def test_the_number_of_an_owners_leases_is_bounded(start):
    api = start(leases_max_per_owner=3).client()
    for i in range(3):
        take(api, "a", key=f"k{i}").ok()
    take(api, "a", key="k3").fails(429, "limit_reached")
    take(api, "a", key="k1").ok()
    take(api, "a", table="conversation_leases").ok()
    api.delete("/v1/leases/workspace_leases/k0?holder=a").ok()
    take(api, "a", key="k3").ok()


def test_of_64_callers_exactly_one_gets_the_lease(daemon):
    for round_ in range(3):
        answers = at_once(daemon, lambda api, i: take(api, f"h{i}", key=f"race{round_}"))
        winners = [answer.json() for answer in answers if answer.status == 200]
        assert len(winners) == 1
        assert all(answer.json()["lease"]["holder"] == winners[0]["holder"] for answer in answers if answer.status == 409)
        assert len([answer for answer in answers if answer.status == 409]) == CALLERS - 1


def test_tokens_of_64_callers_are_distinct_and_grow(daemon):
    answers = at_once(daemon, lambda api, i: [take(api, "h", key=f"k{i}-{n}").ok() for n in range(4)])
    tokens = [lease["fencing_token"] for one in answers for lease in one]
    assert len(set(tokens)) == len(tokens)
    assert all(one == sorted(one, key=lambda lease: lease["fencing_token"]) for one in answers)


# What operators should expect ---------------------------------------------------------------------

def test_the_counters_exist_from_the_start(api):
    for table in LEASE_TABLES:
        assert api.metric("lifecycle_prune_rows_total", scheduler="statestore", table=table) == 0
    assert api.metric("lifecycle_tick_errors_total", scheduler="statestore") == 0


def test_a_tick_that_removed_something_says_so_once_for_all_tables(api, daemon, clock):
    sweep(api)
    assert daemon.events("statestore.lifecycle_pruned") == []
    for table in LEASE_TABLES[:2]:
        take(api, "a", table, ttl_ms=1).ok()
    advance(api, clock, 1)
    sweep(api)
    events = daemon.events("statestore.lifecycle_pruned")
    assert len(events) == 1
    data = events[0]
    assert data["scheduler"] == "statestore" and data["pruned"] == 2
    assert data["tables"]["conversation_leases"] == 1 and data["tables"]["oauth_refresh_leases"] == 0
    assert [line for line in daemon.log_lines() if line["event"] == "statestore.lifecycle_pruned"]


def test_a_tick_that_failed_is_logged_counted_and_told_later(start):
    daemon = start(table_sweep_ms=50)
    api = daemon.client()
    with daemon.store_locked():
        wait_until(lambda: [line for line in daemon.log_lines()
                            if line["event"] == "statestore.lifecycle_tick_failed"], what="the log line")
    wait_until(lambda: daemon.events("statestore.lifecycle_tick_failed"), what="the event, once the store is back")
    assert api.metric("lifecycle_tick_errors_total", scheduler="statestore") >= 1


def test_a_tick_has_a_limit_and_the_rest_follows_a_second_later(start):
    daemon = start(table_sweep_ms=NEVER_MS, table_sweep_batch=7, table_sweep_batches=3)
    api = daemon.client()
    for i in range(50):
        take(api, "a", key=f"k{i}", ttl_ms=1).ok()
    assert sweep(api)["workspace_leases"] == 21
    wait_until(lambda: len(daemon.events("statestore.lifecycle_pruned")) == 3, timeout_s=30, what="the rest")
    assert count(daemon, "leases") == 0
    assert [event["pruned"] for event in daemon.events("statestore.lifecycle_pruned")] == [21, 21, 8]


def test_normal_operation_keeps_the_tables_bounded_by_itself(start):
    daemon = start(table_sweep_ms=50)
    api = daemon.client()
    for i in range(20):
        take(api, "a", key=f"k{i}", ttl_ms=50).ok()
    wait_until(lambda: count(daemon, "leases") == 0, what="an empty table")

# Entries: presence_entries and connections --------------------------------------------------------

ENTRY_TABLES = ["presence_entries", "connections"]


def put_entry(api, key, table="presence_entries", ttl_ms=10_000, **fields):
    return api.put(f"/v1/tables/{table}/{key}", {"ttl_ms": ttl_ms, **fields})


@pytest.mark.parametrize("table", ENTRY_TABLES)
def test_an_entry_goes_when_it_is_not_refreshed(api, daemon, clock, table):
    """`expires_at_ms` TTL: only expired rows; active owners keep refreshing."""
    for key in ("due", "held", "refreshed"):
        put_entry(api, key, table).ok(201)
    hold(api, table, "held")
    advance(api, clock, 9_999)
    assert sweep(api)[table] == 0
    put_entry(api, "refreshed", table).ok()  # a put also cleans, but nothing is over yet
    assert count(daemon, "entries") == 3
    advance(api, clock, 1)
    assert {name: n for name, n in sweep(api).items() if n} == {table: 1}
    assert column(daemon, "SELECT key FROM entries ORDER BY key") == ["held", "refreshed"]


@pytest.mark.parametrize("table", ENTRY_TABLES)
def test_a_put_removes_a_few_of_the_owners_expired_entries(api, daemon, clock, table):
    """Heartbeat cleanup beside the sweep: only the owner's own, only expired ones, never held ones."""
    other = daemon.client(owner="other")
    put_entry(other, "theirs", table, ttl_ms=1).ok(201)
    for i in range(6):
        put_entry(api, f"k{i}", table, ttl_ms=1000 + i).ok(201)
    hold(api, table, "k0")
    put_entry(api, "live", table, ttl_ms=10_000).ok(201)
    advance(api, clock, 2000)
    other.close()
    put_entry(api, "live", table).ok()
    left = column(daemon, "SELECT key FROM entries WHERE owner = '' OR owner = 'default' ORDER BY key") \
        or column(daemon, "SELECT key FROM entries WHERE owner <> 'other' ORDER BY key")
    assert "k0" in left and "live" in left and 2 < len(left) < 7
    for _ in range(3):
        put_entry(api, "live", table).ok()
    assert count(daemon, "entries WHERE owner <> 'other'") == 2
    assert count(daemon, "entries WHERE owner = 'other'") == 1
    assert api.metric("lifecycle_prune_rows_total", scheduler="statestore", table=table) == 5
    assert sum(event["pruned"] for event in daemon.events("statestore.lifecycle_pruned")) == 5


def test_an_entry_is_put_refreshed_read_and_deleted(api, clock):
    made = put_entry(api, "a", data={"host": "h1"}).ok(201)
    assert set(made) == {"key", "data", "created_at", "last_seen_at", "expires_at"} and made["data"] == {"host": "h1"}
    advance(api, clock, 5000)
    again = put_entry(api, "a").ok()
    assert again["data"] == {"host": "h1"} and again["created_at"] == made["created_at"]
    assert again["last_seen_at"] > made["last_seen_at"] and again["expires_at"] > made["expires_at"]
    assert put_entry(api, "a", data={}).ok()["data"] == {}
    assert api.get("/v1/tables/presence_entries/a").ok()["key"] == "a"
    advance(api, clock, 10_000)
    api.get("/v1/tables/presence_entries/a").fails(404, "not_found")
    api.delete("/v1/tables/presence_entries/a").fails(404, "not_found")
    assert api.get("/v1/tables/presence_entries").data == []
    fresh = put_entry(api, "a").ok(201)  # past its deadline it is another one
    assert fresh["data"] == {} and fresh["created_at"] == fresh["last_seen_at"]
    assert api.delete("/v1/tables/presence_entries/a").ok() == {"key": "a", "deleted": True}
    api.get("/v1/tables/nothing/a").fails(404, "not_found", "connections")


@pytest.mark.parametrize("table", ["presence_entries", "connections"])
def test_a_held_entry_is_not_deleted(api, daemon, table):
    put_entry(api, "a", table=table).ok(201)
    hold(api, table, "a")
    api.delete(f"/v1/tables/{table}/a").fails(409, "conflict", "held")
    assert column(daemon, "SELECT key FROM entries") == ["a"]
    api.delete(f"/v1/holds/{table}/a").ok()
    api.delete(f"/v1/tables/{table}/a").ok()
    assert column(daemon, "SELECT key FROM entries") == []


def test_beyond_the_cap_the_least_recently_seen_entry_goes(start, clock):
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS, presence_entries_max=3)
    api = daemon.client()
    for key in ("a", "b", "c"):
        put_entry(api, key).ok(201)
        advance(api, clock, 10)
    put_entry(api, "a").ok()
    put_entry(api, "d").ok(201)
    assert column(daemon, "SELECT key FROM entries ORDER BY key") == ["a", "c", "d"]
    hold(api, "presence_entries", "c")
    advance(api, clock, 10)
    put_entry(api, "e").ok(201)
    assert column(daemon, "SELECT key FROM entries ORDER BY key") == ["c", "d", "e"]  # a: seen before d was
    for key in ("d", "e"):
        hold(api, "presence_entries", key)
    put_entry(api, "f").fails(429, "limit_reached")
    put_entry(api, "c").ok()
    reasons = [event["reason"] for event in daemon.events("statestore.lifecycle_pruned")]
    assert reasons == ["over presence_entries_max"] * 2
    put_entry(api, "x", "connections").ok(201)


# Dedupe -------------------------------------------------------------------------------------------

def dedupe(api, message_id="m1", **fields):
    return api.post("/v1/dedupe", {"channel": "mail", "account_id": "a", "container_id": "c",
                                   "message_id": message_id, **fields})


def test_a_dedupe_key_is_valid_inside_its_window_and_goes_after_it(api, daemon, clock):
    """`expires_at_ms` TTL: replay protection remains valid inside the window."""
    first = dedupe(api, window_ms=5000).ok()
    assert first["fresh"] is True
    advance(api, clock, 4999)
    assert dedupe(api, window_ms=60_000).ok() == {"fresh": False, "expires_at": first["expires_at"]}
    assert sweep(api)["channel_inbound_dedupe"] == 0
    advance(api, clock, 1)
    assert sweep(api)["channel_inbound_dedupe"] == 1
    assert dedupe(api).ok()["fresh"] is True


def test_a_key_whose_window_is_over_is_fresh_without_a_sweep(api, clock):
    dedupe(api, window_ms=1000).ok()
    advance(api, clock, 999)
    assert dedupe(api).ok()["fresh"] is False
    advance(api, clock, 1)
    again = dedupe(api, window_ms=1000).ok()
    assert again["fresh"] is True
    assert dedupe(api).ok() == {"fresh": False, "expires_at": again["expires_at"]}


def test_inserts_remove_a_few_expired_keys_but_no_held_one(api, daemon, clock):
    for i in range(10):
        dedupe(api, f"old{i}", window_ms=1000).ok()
    key = '["mail","a","c","old0"]'
    api.put(f"/v1/holds/channel_inbound_dedupe/{q(key)}", {"reason": "evidence"}).ok()
    api.put(f"/v1/holds/channel_inbound_dedupe/{q('old0')}", {"reason": "x"}).fails(400, "invalid_request", "key")
    advance(api, clock, 1000)
    dedupe(api, "new0").ok()
    assert 5 < count(daemon, "channel_inbound_dedupe") < 11
    for i in range(1, 4):
        dedupe(api, f"new{i}").ok()
    assert count(daemon, "channel_inbound_dedupe WHERE message_id LIKE 'old%'") == 1
    assert sweep(api)["channel_inbound_dedupe"] == 0


def test_every_part_of_the_key_and_the_owner_count(daemon, api):
    assert dedupe(api).ok()["fresh"]
    for other in ({"channel": "chat"}, {"account_id": "b"}, {"container_id": "d"}, {"message_id": "m2"}):
        assert dedupe(api, **other).ok()["fresh"], other
        assert not dedupe(api, **other).ok()["fresh"], other
    assert dedupe(daemon.client(owner="other")).ok()["fresh"]
    api.post("/v1/dedupe", {"channel": "c", "account_id": "a", "container_id": "c"}).fails(
        400, "invalid_request", "message_id")
    dedupe(api, window_ms=0).fails(400, "invalid_request", "window_ms")


def test_of_64_callers_exactly_one_is_fresh(daemon):
    for round_ in range(3):
        answers = at_once(daemon, lambda api, i: dedupe(api, f"race{round_}").ok())
        assert [answer["fresh"] for answer in answers].count(True) == 1
        assert len({answer["expires_at"] for answer in answers}) == 1


# OAuth --------------------------------------------------------------------------------------------

def put_state(api, state="s1", ttl_ms=10_000, **fields):
    return api.put(f"/v1/oauth/{state}", {"ttl_ms": ttl_ms, "data": {"verifier": "v"}, **fields})


def consume(api, state="s1"):
    return api.post(f"/v1/oauth/{state}/consume")


def test_a_sign_in_survives_until_its_expiry_and_goes_then(api, daemon, clock):
    """`expires_at`, scheduler sweep plus callback consumption: live handshakes survive."""
    made = put_state(api).ok(201)
    assert set(made) == {"state", "created_at", "expires_at"}
    put_state(api, "live", ttl_ms=10_001).ok(201)
    put_state(api, "held").ok(201)
    hold(api, "oauth_pending", "held")
    advance(api, clock, 9_999)
    assert sweep(api)["oauth_pending"] == 0
    advance(api, clock, 1)
    consume(api).fails(410, "expired")
    assert sweep(api)["oauth_pending"] == 1
    consume(api).fails(404, "not_found")
    assert consume(api, "live").ok() == {"data": {"verifier": "v"}}
    assert column(daemon, "SELECT state FROM oauth_pending") == ["held"]


def test_a_state_is_consumed_once(daemon, api):
    put_state(api).ok(201)
    put_state(api, data={"verifier": "w"}).ok()
    daemon.client(owner="other").post("/v1/oauth/s1/consume").fails(404, "not_found")
    answers = at_once(daemon, lambda client, i: consume(client))
    assert [answer.status for answer in answers].count(200) == 1
    assert [answer.status for answer in answers].count(404) == CALLERS - 1
    assert next(answer for answer in answers if answer.status == 200).json() == {"data": {"verifier": "w"}}
    assert count(daemon, "oauth_pending") == 0
    api.put("/v1/oauth/s", {"ttl_ms": 1}).fails(400, "invalid_request", "data")


def test_a_held_state_is_consumed_once_and_its_row_stays(api, daemon):
    put_state(api).ok(201)
    hold(api, "oauth_pending", "s1")
    assert consume(api).ok() == {"data": {"verifier": "v"}}
    consume(api).fails(410, "expired")
    assert column(daemon, "SELECT state FROM oauth_pending") == ["s1"]
    api.delete("/v1/holds/oauth_pending/s1").ok()
    assert sweep(api)["oauth_pending"] == 1


def test_every_table_has_a_limit_per_owner(start):
    daemon = start(table_max_per_owner=2)
    api = daemon.client()
    for i in range(2):
        put_state(api, f"s{i}").ok(201)
        dedupe(api, f"m{i}").ok()
        put_entry(api, f"k{i}", "connections").ok(201)
    put_state(api, "s2").fails(429, "limit_reached")
    dedupe(api, "m2").fails(429, "limit_reached")
    put_entry(api, "k2", "connections").fails(429, "limit_reached")
    assert dedupe(api, "m1").ok()["fresh"] is False
    consume(api, "s0").ok()
    put_state(api, "s2").ok(201)
    put_state(daemon.client(owner="other"), "s2").ok(201)


# Non-goals ----------------------------------------------------------------------------------------

def test_models_dev_cache_is_one_row_that_nothing_prunes(api, daemon, clock):
    """It is bounded by a singleton primary key; the lease's cleanup does not touch it."""
    api.get("/v1/cache/models_dev").fails(404, "not_found")
    api.put("/v1/cache/models_dev", {"data": {"models": 1}}).ok()
    made = api.put("/v1/cache/models_dev", {"data": {"models": 2}}).ok()
    take(api, "a", "models_dev_refresh_leases", ttl_ms=1).ok()
    advance(api, clock, 400 * DAY_MS)
    sweep(api)
    assert count(daemon, "leases") == 0
    assert api.get("/v1/cache/models_dev").ok() == made and made["data"] == {"models": 2}
    assert count(daemon, "models_dev_cache") == 1
    assert "models_dev_cache" not in [row["table"] for row in api.get("/v1/matrix").data]
    assert api.metric("lifecycle_prune_rows_total", scheduler="statestore", table="models_dev_cache") is None


# Queues: channel_inbox and channel_outbox ---------------------------------------------------------

QUEUES = ["channel_inbox", "channel_outbox"]
WEEK_MS = 7 * DAY_MS


def add(api, table="channel_inbox", **fields):
    return api.post(f"/v1/queues/{table}", {"payload": {"n": 1}, **fields}).ok(201)["id"]


def claim(api, table="channel_inbox", worker="w", **fields):
    return api.post(f"/v1/queues/{table}/claim", {"worker": worker, **fields}).ok()["data"]


def report(api, what, item, table="channel_inbox", worker="w", attempt=1, **fields):
    return api.post(f"/v1/queues/{table}/{item}/{what}", {"worker": worker, "attempt": attempt, **fields})


def finish(api, table, how, **fields):
    item = add(api, table, **fields)
    assert claim(api, table)[0]["id"] == item
    report(api, how, item, table, **({"error": "broken"} if how == "fail" else {})).ok()
    return item


def test_a_finished_inbox_item_goes_when_its_window_is_over(api, daemon, clock):
    """Terminal retention window: completed and failed rows go, more than the window after they ended; others stay."""
    finish(api, "channel_inbox", "complete")
    finish(api, "channel_inbox", "fail")
    held = finish(api, "channel_inbox", "fail")
    hold(api, "channel_inbox", held)
    working = add(api)
    claim(api, lease_ms=DAY_MS)
    queued = add(api)
    advance(api, clock, WEEK_MS)
    assert sweep(api)["channel_inbox"] == 0
    advance(api, clock, 1)
    assert {name: n for name, n in sweep(api).items() if n} == {"channel_inbox": 2}
    assert {row["id"] for row in api.pages("/v1/queues/channel_inbox")} == {held, working, queued}


def test_a_completed_inbox_item_waits_for_its_outbox_items(api, daemon, clock):
    """Completed rows wait for dependent channel_outbox cleanup; failed rows age out after the window."""
    waits = finish(api, "channel_inbox", "complete")
    fails = finish(api, "channel_inbox", "fail")
    answer = add(api, "channel_outbox", inbox_id=waits)
    add(api, "channel_outbox", inbox_id=fails)
    advance(api, clock, WEEK_MS + 1)
    sweep(api)
    api.get(f"/v1/queues/channel_inbox/{fails}").fails(404, "not_found")
    api.get(f"/v1/queues/channel_inbox/{waits}").ok()
    claim(api, "channel_outbox", limit=2)
    report(api, "complete", answer, "channel_outbox").ok()
    assert sweep(api)["channel_inbox"] == 1


def test_the_matrix_tells_what_stays_and_why(api, daemon, clock):
    """For every bound, from the start: undeletable rows and why, last success, pace, time to clear."""
    for row in api.get("/v1/matrix").data:
        assert row["undeletable"] == {"unreadable": 0, "held": 0, "protected": 0, "locked": 0}, row
        assert row["undeletable_rows"] == 0 and row["clears_in_ms"] == 0 and row["rows_per_second"] is None, row
    waits = finish(api, "channel_inbox", "complete")
    held = finish(api, "channel_inbox", "complete")
    finish(api, "channel_inbox", "complete")
    add(api, "channel_outbox", inbox_id=waits)
    hold(api, "channel_inbox", held)
    advance(api, clock, WEEK_MS)
    assert api.matrix("channel_inbox")["undeletable_rows"] == 0
    advance(api, clock, 1)
    row = api.matrix("channel_inbox")
    assert row["due_rows"] == 1 and row["oldest_due_age_ms"] == 1
    assert row["undeletable"] == {"unreadable": 0, "held": 1, "protected": 1, "locked": 0} and row["undeletable_rows"] == 2
    assert row["clears_in_ms"] is None  # nothing was removed so far: the pace is not known
    for reason, n in {"held": 1, "protected": 1, "unreadable": 0, "locked": 0}.items():
        assert api.metric("lapse_undeletable_rows", table="channel_inbox", reason=reason) == n
    assert sweep(api)["channel_inbox"] == 1
    row = api.matrix("channel_inbox")
    assert row["undeletable_rows"] == 2 and row["due_rows"] == 0 and row["clears_in_ms"] == 0
    assert row["last_success_at"] and row["rows_per_second"] >= 1
    assert api.metric("lapse_clear_seconds", table="channel_inbox") == 0
    assert api.metric("lapse_last_success_timestamp_seconds", table="channel_inbox") > 0
    assert api.metric("lapse_prune_rows_per_second", table="channel_inbox") == row["rows_per_second"]
    finish(api, "channel_inbox", "complete")
    advance(api, clock, WEEK_MS)
    wait_until(lambda: api.matrix("channel_inbox")["last_success_at"] != row["last_success_at"])  # the periodic one
    row = api.matrix("channel_inbox")
    advance(api, clock, 1)
    assert api.matrix("channel_inbox")["clears_in_ms"] > 0  # the pace is known, and when the next sweep comes
    daemon.restart()
    assert daemon.client().matrix("channel_inbox")["last_success_at"] == row["last_success_at"]


def test_a_delivered_outbox_item_goes_at_once_and_a_failed_one_after_its_window(api, daemon, clock):
    """Inline success deletion; terminal retention for failures."""
    done = finish(api, "channel_outbox", "complete")
    api.get(f"/v1/queues/channel_outbox/{done}").fails(404, "not_found")
    assert count(daemon, "queue_items") == 0
    finish(api, "channel_outbox", "fail")
    queued = add(api, "channel_outbox")
    advance(api, clock, WEEK_MS)
    assert sweep(api)["channel_outbox"] == 0
    advance(api, clock, 1)
    assert sweep(api)["channel_outbox"] == 1
    assert [row["id"] for row in api.pages("/v1/queues/channel_outbox")] == [queued]


def test_a_held_outbox_item_stays_when_it_is_delivered(api, daemon, clock):
    """Held rows are never removed: it is completed, offered to no one, and goes after its window without the hold."""
    inbox = finish(api, "channel_inbox", "complete")
    item = add(api, "channel_outbox", inbox_id=inbox)
    hold(api, "channel_outbox", item)
    assert claim(api, "channel_outbox")[0]["id"] == item
    report(api, "complete", item, "channel_outbox").ok()
    assert api.get(f"/v1/queues/channel_outbox/{item}").ok()["status"] == "completed"
    report(api, "complete", item, "channel_outbox").fails(409, "conflict")
    advance(api, clock, 2 * WEEK_MS)
    assert claim(api, "channel_outbox") == []
    swept = sweep(api)
    assert swept["channel_outbox"] == 0 and swept["channel_inbox"] == 0
    api.delete(f"/v1/holds/channel_outbox/{item}").ok()
    assert sweep(api)["channel_outbox"] == 1
    assert sweep(api)["channel_inbox"] <= 1 and count(daemon, "queue_items") == 0
    other = finish(api, "channel_outbox", "complete")
    api.get(f"/v1/queues/channel_outbox/{other}").fails(404, "not_found")


def test_no_sweep_looks_for_delivered_outbox_items(api, daemon):
    """A second background success-prune job would duplicate that lifecycle: there is none."""
    row = api.matrix("channel_outbox")
    assert row["due_when"].startswith("failed ")
    finish(api, "channel_outbox", "complete")
    assert api.metric("lifecycle_prune_rows_total", scheduler="statestore", table="channel_outbox") == 0


def test_a_reader_recovers_from_durable_state_after_a_prune(start, clock):
    """Critical state is reconstructible without the operational buffers: what is swept was not the only copy."""
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS)
    api = daemon.client()
    api.put("/v1/cache/models_dev", {"data": {"models": 2}}).ok()
    api.send("agent", "the transcript")
    finish(api, "channel_outbox", "fail")
    advance(api, clock, WEEK_MS + 1)
    sweep(api)
    daemon.restart()
    api = daemon.client()
    assert [message["content"] for message in api.inbox("agent")] == ["the transcript"]
    assert api.get("/v1/cache/models_dev").ok()["data"] == {"models": 2}


def test_an_item_is_claimed_completed_and_shown(api, clock):
    item = add(api, key="thread-1")
    shown = api.get(f"/v1/queues/channel_inbox/{item}").ok()
    assert shown["status"] == "queued" and shown["attempt"] == 0 and shown["key"] == "thread-1"
    taken = claim(api, lease_ms=1000)[0]
    assert taken["attempt"] == 1 and taken["worker"] == "w" and taken["lease_expires_at"]
    assert claim(api) == []
    report(api, "complete", item, worker="x").fails(409, "conflict")
    report(api, "complete", item, attempt=2).fails(409, "conflict")
    assert report(api, "complete", item).ok() == {"id": item, "status": "completed"}
    report(api, "complete", item).fails(409, "conflict")
    assert [row["id"] for row in api.pages("/v1/queues/channel_inbox", status="completed")] == [item]
    api.get("/v1/queues/channel_inbox", status="lost").fails(400, "invalid_request", "status")
    api.get("/v1/queues/channel_inbox/00000000deadbeef").fails(404, "not_found")
    api.post("/v1/queues/nothing", {"payload": {}}).fails(404, "not_found", "channel_outbox")


def test_a_lease_that_ends_gives_the_item_to_the_next_worker(api, clock):
    item = add(api)
    claim(api, worker="a", lease_ms=1000)
    advance(api, clock, 999)
    assert claim(api, worker="b") == []
    assert report(api, "extend", item, worker="a", lease_ms=500).ok()["status"] == "processing"
    advance(api, clock, 499)
    assert claim(api, worker="b") == []
    advance(api, clock, 1)
    report(api, "extend", item, worker="a", lease_ms=500).fails(409, "conflict")
    again = claim(api, worker="b")[0]
    assert again["id"] == item and again["attempt"] == 2
    report(api, "complete", item, worker="a").fails(409, "conflict")
    report(api, "complete", item, worker="b", attempt=2).ok()


def test_after_the_last_attempt_an_item_has_failed(start, clock):
    api = start(clock=clock, request_timeout_ms=HOUR_MS, table_sweep_ms=NEVER_MS, queue_attempts_max=3).client()
    by_lease, by_report = add(api), add(api)
    for attempt in (1, 2, 3):
        taken = claim(api, limit=2, lease_ms=1000)
        assert [row["attempt"] for row in taken] == [attempt] * 2
        answer = report(api, "fail", by_report, attempt=attempt, error="no luck", retry=True).ok()
        assert answer["status"] == ("queued" if attempt < 3 else "failed")
        advance(api, clock, 1000)
    assert claim(api) == []
    for item, error in ((by_lease, "no worker finished it in time"), (by_report, "no luck")):
        shown = api.get(f"/v1/queues/channel_inbox/{item}").ok()
        assert shown["status"] == "failed" and shown["error"] == error and shown["finished_at"]


def test_items_come_oldest_first_and_a_dedupe_key_adds_once(api, daemon):
    items = [add(api) for _ in range(5)]
    assert [row["id"] for row in claim(api, limit=3)] == items[:3]
    assert [row["id"] for row in claim(api, limit=10)] == items[3:]
    first = add(api, dedupe_key="d")
    assert api.post("/v1/queues/channel_inbox", {"payload": {}, "dedupe_key": "d"}).ok(200) == {
        "id": first, "status": "queued"}
    add(api, "channel_outbox", dedupe_key="d")
    api.post("/v1/queues/channel_inbox", {"payload": {}, "inbox_id": first}).fails(400, "invalid_request", "inbox_id")
    api.post("/v1/queues/channel_outbox", {"payload": {}, "inbox_id": "00000000deadbeef"}).fails(
        400, "invalid_request", "inbox_id")
    api.post("/v1/queues/channel_outbox", {"payload": {}, "inbox_id": "0" * 16}).fails(
        400, "invalid_request", "inbox_id")
    api.post("/v1/queues/channel_inbox", {}).fails(400, "invalid_request", "payload")
    assert claim(daemon.client(owner="other")) == []


def test_64_workers_get_every_item_once(daemon, api):
    items = [add(api) for _ in range(40)]
    taken = [row["id"] for rows in at_once(daemon, lambda client, i: claim(client, worker=f"w{i}")) for row in rows]
    assert sorted(taken) == sorted(items)


def test_a_claim_waits_for_an_item_and_for_the_end_of_a_lease(start):
    daemon = start()
    api = daemon.client()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: claim(daemon.client(), wait_ms=20_000))
        wait_until(lambda: not waiting.done())
        item = add(api)
        assert [row["id"] for row in waiting.result(15)] == [item]
    assert claim(api, wait_ms=20) == []
    item = add(api)
    claim(api, lease_ms=300)
    assert [row["attempt"] for row in claim(api, wait_ms=20_000)] == [2]


def test_the_number_of_an_owners_items_is_bounded(start):
    api = start(queue_max_per_owner=2).client()
    first = [add(api), add(api)][0]
    api.post("/v1/queues/channel_inbox", {"payload": {}}).fails(429, "limit_reached")
    assert claim(api)[0]["id"] == first
    add(api, "channel_outbox")


# The outbox and its consumers ---------------------------------------------------------------------

def append(api, topic="t", **payload):
    return api.post("/v1/outbox", {"topic": topic, "payload": payload}).ok(201)["id"]


def read(api, **query):
    return api.get("/v1/outbox", **query).ok()


def put_consumer(api, cursor, name="c", **fields):
    return api.put(f"/v1/outbox/consumers/{name}", {"cursor": cursor, **fields})


def test_an_outbox_row_goes_when_its_window_is_over(api, daemon, clock):
    """Time retention window, 24 h by default: replay history is bounded."""
    append(api)
    held = append(api)
    hold(api, "outbox", held)
    advance(api, clock, 1)
    later = append(api)
    advance(api, clock, DAY_MS - 1)
    assert sweep(api, "outbox") == {"outbox": 0, "outbox_consumers": 0}
    assert len(read(api)["data"]) == 3
    advance(api, clock, 1)
    assert [row["id"] for row in read(api)["data"]] == [later]  # past the window it is not served, swept or not
    assert sweep(api, "outbox")["outbox"] == 1
    assert count(daemon, "outbox") == 2
    assert daemon.events("outbox.lifecycle_pruned")[-1]["tables"] == {"outbox": 1, "outbox_consumers": 0}
    assert api.metric("lifecycle_prune_rows_total", scheduler="outbox", table="outbox") == 1


def test_a_consumer_goes_when_it_has_stopped_advancing(api, daemon, clock):
    """Stale `updated_at` against the same window; the same cursor put again counts as advancing."""
    append(api)
    cursor = read(api)["next_cursor"]
    for name in ("stale", "alive", "held"):
        put_consumer(api, cursor, name).ok()
    hold(api, "outbox_consumers", "held")
    advance(api, clock, DAY_MS)
    assert sweep(api, "outbox")["outbox_consumers"] == 0
    put_consumer(api, cursor, "alive").ok()
    advance(api, clock, 1)
    assert [row["name"] for row in api.pages("/v1/outbox/consumers")] == ["alive"]
    assert sweep(api, "outbox")["outbox_consumers"] == 1
    assert column(daemon, "SELECT name FROM outbox_consumers ORDER BY name") == ["alive", "held"]


def test_the_outbox_is_read_in_order_by_cursor_topic_and_consumer(daemon, api):
    ids = [append(api, topic, n=n) for n, topic in enumerate(["a", "b", "a", "b", "a"])]
    first = read(api, limit=2)
    assert [row["id"] for row in first["data"]] == ids[:2] and first["gap"] is False
    rest = read(api, after=first["next_cursor"])
    assert [row["payload"]["n"] for row in rest["data"]] == [2, 3, 4]
    assert read(api, after=rest["next_cursor"]) == {"data": [], "next_cursor": rest["next_cursor"], "gap": False}
    assert [row["id"] for row in read(api, topic="b")["data"]] == [ids[1], ids[3]]
    assert [row["id"] for row in read(api, consumer="new")["data"]] == ids
    put_consumer(api, first["next_cursor"]).ok()
    assert [row["id"] for row in read(api, consumer="c")["data"]] == ids[2:]
    assert api.get("/v1/outbox/consumers").data[0]["lag"] == 3
    put_consumer(api, rest["next_cursor"]).ok()
    put_consumer(api, first["next_cursor"]).fails(409, "conflict", "cursor")
    put_consumer(api, first["next_cursor"], force=True).ok()
    api.get("/v1/outbox", after=first["next_cursor"], consumer="c").fails(400, "invalid_request", "consumer")
    api.get("/v1/outbox", after="nonsense").fails(400, "invalid_request", "cursor")
    assert read(daemon.client(owner="other"))["data"] == []


def test_a_reader_that_was_too_far_behind_is_told_of_the_gap(api, daemon, clock):
    append(api)
    append(api)
    behind = read(api, limit=1)["next_cursor"]
    level = read(api)["next_cursor"]
    advance(api, clock, DAY_MS + 1)
    append(api)
    for _ in range(2):  # before the sweep, and after it
        assert read(api, after=behind)["gap"] is True and len(read(api, after=behind)["data"]) == 1
        assert read(api, after=level)["gap"] is False
        sweep(api, "outbox")
    assert count(daemon, "outbox") == 1


def test_a_reader_waits_for_a_row(start):
    daemon = start()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: read(daemon.client(), wait_ms=20_000))
        wait_until(lambda: not waiting.done())
        row = append(daemon.client())
        assert [found["id"] for found in waiting.result(15)["data"]] == [row]
    assert daemon.metric("lifecycle_tick_errors_total", scheduler="outbox") == 0


def test_a_failed_item_gets_one_more_attempt(start):
    api = start(queue_attempts_max=1).client()
    item = api.post("/v1/queues/channel_inbox", {"payload": {}}).ok(201)["id"]
    path = f"/v1/queues/channel_inbox/{item}"
    api.post(f"{path}/retry").fails(409, "conflict")
    claimed = api.post("/v1/queues/channel_inbox/claim", {"worker": "w"}).ok()["data"][0]
    api.post(f"{path}/fail", {"worker": "w", "attempt": claimed["attempt"], "error": "broken"}).ok()
    depth = api.get("/v1/queues").ok()["data"][0]
    assert (depth["table"], depth["queued"], depth["failed"]) == ("channel_inbox", 0, 1)
    assert api.post(f"{path}/retry").ok() == {"id": item, "status": "queued"}
    again = api.post("/v1/queues/channel_inbox/claim", {"worker": "w"}).ok()["data"][0]
    assert again["id"] == item and again["attempt"] == 2 and again["error"] == "broken"
    assert api.get("/v1/queues").ok()["data"][0]["processing"] == 1
    api.post(f"{path}/complete", {"worker": "w", "attempt": 1}).fails(409, "conflict")
    api.post(f"{path}/complete", {"worker": "w", "attempt": 2}).ok()
    api.post("/v1/queues/channel_inbox/0000000000000001/retry").fails(404, "not_found")
