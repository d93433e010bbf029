# SPDX-License-Identifier: Apache-2.0
"""Holds: a held row is never removed, whatever is due; released, it goes with the next sweep."""
import re
import time

import pytest

from harness import NEVER_MS, Clock

UNKNOWN = "00000000deadbeef"


@pytest.fixture
def api(start):
    return start(message_ttl_ms=1, message_sweep_ms=NEVER_MS, housekeeping_sweep_ms=NEVER_MS).client()


def due_message(api):
    message = api.send("a")
    api.read("a", message["id"])
    time.sleep(0.005)
    return message["id"]


def hold(api, message_id, **body):
    return api.put(f"/v1/holds/messages/{message_id}", {"reason": "audit", **body})


def test_a_held_due_message_survives_and_goes_after_release(api):
    held, other = due_message(api), due_message(api)
    hold(api, held).ok()
    assert api.matrix("messages")["undeletable"]["held"] == 1
    assert api.sweep(dry_run="true")["pruned"] == 1
    assert api.sweep()["pruned"] == 1
    assert api.sweep()["pruned"] == 0
    assert api.mark_read("a", held).ok()["id"] == held, "still there"
    api.mark_read("a", other).fails(404, "not_found")
    assert api.delete(f"/v1/holds/messages/{held}").ok() == {"table": "messages", "key": held, "released": True}
    assert api.sweep()["pruned"] == 1
    api.mark_read("a", held).fails(404, "not_found")


def test_a_hold_survives_a_restart(start):
    daemon = start(message_ttl_ms=1, message_sweep_ms=NEVER_MS)
    held = due_message(daemon.client())
    hold(daemon.client(), held).ok()
    daemon.kill()
    daemon.start()
    assert daemon.client().sweep()["pruned"] == 0
    assert daemon.client().mark_read("a", held).ok()["id"] == held


def test_a_hold_says_what_it_is(api):
    message_id = api.send("a")["id"]
    placed = hold(api, message_id, reason="case 7: \u00fc", until="2100-01-01T00:00:00.000Z").ok()
    assert set(placed) == {"table", "key", "reason", "until", "created_at", "placed_at"}
    assert placed["created_at"] == placed["placed_at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", placed["created_at"])
    assert {k: placed[k] for k in ("table", "key", "reason", "until")} == {
        "table": "messages", "key": message_id, "reason": "case 7: \u00fc", "until": "2100-01-01T00:00:00.000Z"}
    assert api.get(f"/v1/holds/messages/{message_id}").ok() == placed
    assert api.get("/v1/holds").data == [placed]


def test_a_hold_without_end(api):
    message_id = api.send("a")["id"]
    assert hold(api, message_id).ok()["until"] is None


def test_placing_it_again_replaces_it(api):
    message_id = api.send("a")["id"]
    hold(api, message_id, reason="one", until="2100-01-01T00:00:00.000Z").ok()
    again = hold(api, message_id, reason="two").ok()
    assert (again["reason"], again["until"]) == ("two", None)
    assert api.get("/v1/holds").data == [again]


def test_a_hold_ends_by_itself(start, tmp_path):
    clock = Clock(tmp_path)
    api = start(clock=clock, message_ttl_ms=1000, message_sweep_ms=NEVER_MS).client()
    message = api.send("a")
    api.read("a", message["id"])
    hold(api, message["id"], until="2026-03-01T12:00:30.000Z").ok()
    clock.advance(29_999)
    assert api.sweep()["pruned"] == 0
    clock.advance(2)
    assert api.sweep()["pruned"] == 1


@pytest.mark.parametrize("path", [f"/v1/holds/messages/{UNKNOWN}", f"/v1/holds/nothing/{UNKNOWN}",
                                  f"/v1/holds/sqlite_master/{UNKNOWN}", "/v1/holds/messages/x"])
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_unknown_tables_and_rows_are_404(api, method, path):
    body = {"reason": "x"} if method == "PUT" else None
    api.request(method, path, json_body=body).fails(404, "not_found")
    assert api.get("/v1/holds").data == []


def test_a_hold_released_twice_is_404(api):
    message_id = api.send("a")["id"]
    hold(api, message_id).ok()
    api.delete(f"/v1/holds/messages/{message_id}").ok()
    api.delete(f"/v1/holds/messages/{message_id}").fails(404, "not_found")
    api.get(f"/v1/holds/messages/{message_id}").fails(404, "not_found")


@pytest.mark.parametrize("body,field", [
    ({}, "reason"), ({"reason": 1}, "reason"), ({"reason": ""}, "reason"), ({"reason": None}, "reason"),
    ({"reason": "x", "until": 5}, "until"), ({"reason": "x", "until": "soon"}, "until"),
    ({"reason": "x", "table": "messages"}, "table"),
])
def test_a_hold_refuses(api, body, field):
    message_id = due_message(api)
    api.put(f"/v1/holds/messages/{message_id}", body).fails(400, "invalid_request", names=field)
    assert api.get("/v1/holds").data == []
    assert api.sweep()["pruned"] == 1


def test_an_end_in_the_past_is_refused(api):
    hold(api, due_message(api), until="2020-01-01T00:00:00.000Z").fails(400, "invalid_request", names="until")


def test_release_honours_if_match(api):
    """A mutable resource carries an ETag, and release honours If-Match (412)."""
    path = f"/v1/holds/messages/{api.send('a')['id']}"
    old = api.put(path, {"reason": "one"}).headers["ETag"]
    new = api.put(path, {"reason": "two"}).headers["ETag"]
    assert old != new
    api.delete(path, headers={"If-Match": old}).fails(412, "precondition_failed")
    assert api.get(path).ok()["reason"] == "two"
    assert api.delete(path, headers={"If-Match": new}).ok()["released"] is True


def test_holds_are_bounded(start):
    api = start(holds_max=2).client()
    messages = [api.send("a")["id"] for _ in range(3)]
    for message_id in messages[:2]:
        hold(api, message_id).ok()
    hold(api, messages[2]).fails(429, "limit_reached")
    hold(api, messages[0], reason="changed").ok()
    api.delete(f"/v1/holds/messages/{messages[0]}").ok()
    hold(api, messages[2]).ok()


def test_the_list_of_holds_has_pages(api):
    messages = [message["id"] for message in api.broadcast([f"a{i}" for i in range(25)]).ok(201)["data"]]
    for message_id in messages:
        hold(api, message_id).ok()
    first = api.get("/v1/holds").ok()
    assert len(first["data"]) == 20 and first["pagination"]["has_more"] is True
    listed = [row["key"] for row in api.pages("/v1/holds", limit=7)]
    assert sorted(listed) == sorted(messages)


def test_placing_and_releasing_are_events(start):
    daemon = start()
    api = daemon.client()
    message_id = api.send("a")["id"]
    hold(api, message_id).ok()
    api.delete(f"/v1/holds/messages/{message_id}").ok()
    for kind in ("hold.placed", "hold.released"):
        (event,) = daemon.events(kind)
        assert message_id in str(event)


def test_a_held_message_past_its_lifetime_is_not_served_as_live(api):
    held = due_message(api)
    hold(api, held).ok()
    api.message("a", held).fails(410, "expired")
    assert api.inbox("a") == []


def test_the_matrix_counts_held_rows_and_holds(api):
    held = due_message(api)
    hold(api, held).ok()
    api.sweep()
    assert api.matrix("messages")["live_rows"] == 1
    assert api.matrix("holds")["live_rows"] == 1
