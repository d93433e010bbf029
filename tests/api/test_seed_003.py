# SPDX-License-Identifier: Apache-2.0
"""Seed 003, "Attachment Lifecycle Manager": every goal, note, telemetry line and verification line.

`Codex.Files.stage/2` is `POST /v1/attachments` (and `/stage` for a file of this host), `metrics/0` is
`GET /v1/attachments/metrics`, `force_cleanup/0` is `POST /v1/attachments/cleanup`, the GenServer's timer is the
scheduler `attachments`, telemetry is the events' table. What belongs to that runtime alone (ETS, application
environment) is left out; "persist staged file index across reboot" is no goal there and works here.
"""
import datetime
import hashlib
import os

import hypothesis
import hypothesis.strategies as st
import pytest

from harness import DAY_MS, HOUR_MS, NEVER_MS, Clock, wait_until

NO_METRICS = dict(total_count=0, total_bytes=0, persistent_count=0, persistent_bytes=0, expirable_count=0,
                  expirable_bytes=0)


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def daemon(start, clock):
    return start(clock=clock, request_timeout_ms=HOUR_MS, attachment_sweep_ms=NEVER_MS)


@pytest.fixture
def api(daemon):
    return daemon.client()


def sha(content):
    return hashlib.sha256(content).hexdigest()


def files(daemon):
    """Names of all stored files, by checksum."""
    return sorted(path.name.split("-")[0] for path in (daemon.data_dir / "files").glob("??/*"))


def metrics(api):
    return api.get("/v1/attachments/metrics").ok()


def advance(api, clock, ms):
    """A connection that idles through a leap of all clocks is late: the next request gets a new one."""
    clock.advance(ms)
    api.close()


def cleanup(api):
    return api.post("/v1/attachments/cleanup").ok()


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


# Goals --------------------------------------------------------------------------------------------------------


def test_goal_default_ttl_is_24_hours(api, clock):
    staged = api.stage(b"day")
    assert staged["ttl_ms"] == DAY_MS and staged["persist"] is False
    assert at(staged["expires_at"]) - at(staged["inserted_at"]) == DAY_MS
    advance(api, clock, DAY_MS - 1)
    assert api.attachment(staged["checksum"]).ok() == staged
    assert cleanup(api)["count"] == 0  # and the next sweep is a day away
    advance(api, clock, 1)
    api.attachment(staged["checksum"]).fails(410, "expired")


def test_goal_default_ttl_is_configurable(start):
    api = start(attachment_ttl_ms=5000).client()
    assert api.stage(b"x")["ttl_ms"] == 5000


def test_goal_background_job_prunes_expired_entries(start):
    daemon = start(attachment_sweep_ms=50)
    api = daemon.client()
    gone, stays = api.stage(b"gone", ttl_ms=1), api.stage(b"stays")
    wait_until(lambda: files(daemon) == [stays["checksum"]], what="only the live file is left")
    api.attachment(gone["checksum"]).fails(404, "not_found")
    assert metrics(api)["total_count"] == 1


def test_goal_staging_stats_count_and_total_bytes(api):
    assert metrics(api) == NO_METRICS
    api.stage(b"12345")
    api.stage(b"123", persist="true")
    assert metrics(api) == dict(total_count=2, total_bytes=8, persistent_count=1, persistent_bytes=3,
                                expirable_count=1, expirable_bytes=5)


def test_goal_telemetry_events_for_staging_and_cleanup(daemon, api):
    api.stage(b"x", ttl_ms=0)
    cleanup(api)
    assert len(daemon.events("attachment.staged")) == 1 and len(daemon.events("attachment.cleaned")) == 1


# Architecture and API -----------------------------------------------------------------------------------------


def test_stage_records_inserted_at_and_marks_persist(api, clock):
    staged = api.stage(b"x", persist="true", name="kept.bin")
    assert at(staged["inserted_at"]) == clock.now_ms
    assert (staged["persist"], staged["name"], staged["expires_at"]) == (True, "kept.bin", None)


def test_on_cleanup_the_file_and_the_row_go(daemon, api):
    staged = api.stage(b"x", ttl_ms=0)
    assert files(daemon) == [staged["checksum"]]
    assert cleanup(api) == {"count": 1, "bytes": 1, "remaining": 0}
    assert daemon.rows("SELECT * FROM attachments") == []
    wait_until(lambda: files(daemon) == [], what="the file is gone")


def test_ttl_accepts_infinity_and_integers(api):
    assert api.stage(b"1", ttl_ms="infinity")["ttl_ms"] == "infinity"
    assert api.stage(b"2", ttl_ms=1234)["ttl_ms"] == 1234


@pytest.mark.parametrize("ttl", ["-1", "1.5", "", "Infinity", "forever", "1e3", "99999999999999999999"])
def test_ttl_accepts_nothing_else(daemon, api, ttl):
    api.upload(b"x", ttl_ms=ttl).fails(400, "invalid_request", "ttl_ms")
    assert files(daemon) == [] and metrics(api) == NO_METRICS


def test_stage_of_a_local_path_is_the_same_operation(start, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "report.txt").write_bytes(b"from the host")
    api = start(attachment_stage_roots=root).client()
    staged = api.post("/v1/attachments/stage", {"path": str(root / "report.txt"), "ttl_ms": "infinity"}).ok(201)
    assert (staged["checksum"], staged["name"], staged["size"]) == (sha(b"from the host"), "report.txt", 13)
    assert (staged["ttl_ms"], staged["cached"], staged["expires_at"]) == ("infinity", False, None)
    assert api.content(staged["checksum"]).body == b"from the host"
    assert api.stage(b"from the host")["cached"] is True


# Risks --------------------------------------------------------------------------------------------------------


def test_risk_cleanup_handles_missing_files_gracefully(daemon, api):
    staged = api.stage(b"x", ttl_ms=0)
    for path in (daemon.data_dir / "files").glob("??/*"):
        path.unlink()
    assert cleanup(api) == {"count": 1, "bytes": 1, "remaining": 0}
    wait_until(lambda: not daemon.rows("SELECT * FROM cleanups"), what="the deletion is settled")
    assert daemon.metric("lapse_dead_letters") == 0
    api.attachment(staged["checksum"]).fails(404, "not_found")


def test_risk_staging_between_cleanup_and_deletion_keeps_its_file(daemon, api):
    for _ in range(50):
        api.stage(b"again", ttl_ms=0)
        cleanup(api)
        staged = api.stage(b"again")
        assert api.content(staged["checksum"]).body == b"again"
        assert api.delete(f"/v1/attachments/{staged['checksum']}").status == 200
    wait_until(lambda: files(daemon) == [], what="no file is left behind")


# Implementation notes -----------------------------------------------------------------------------------------


def test_note_inserted_at_is_utc_with_milliseconds(api, clock):
    advance(api, clock, 123)
    inserted_at = api.stage(b"x")["inserted_at"]
    assert inserted_at.endswith(".123Z")


def test_note_same_checksum_refreshes_inserted_at(daemon, api, clock):
    first = api.stage(b"same", name="first")
    advance(api, clock, HOUR_MS // 2)
    again = api.stage(b"same", name="second")
    assert at(again["inserted_at"]) - at(first["inserted_at"]) == HOUR_MS // 2
    assert at(again["expires_at"]) - at(first["expires_at"]) == HOUR_MS // 2
    assert (first["cached"], again["cached"]) == (False, True)
    assert again["name"] == "first", "the name is the first one's"
    wait_until(lambda: files(daemon) == [again["checksum"]], what="one file")
    assert api.attachment(again["checksum"]).ok() == again


@pytest.mark.parametrize("before, given, after", [(False, True, True), (True, False, True), (False, False, False),
                                                  (True, True, True)])
def test_note_same_checksum_only_upgrades_persist(api, before, given, after):
    api.stage(b"same", persist=str(before).lower())
    assert api.stage(b"same", persist=str(given).lower())["persist"] is after
    assert metrics(api)["persistent_count"] == int(after)


@pytest.mark.parametrize("before, given, after", [(1000, 5000, 5000), (5000, 1000, 5000), (5000, 0, 5000),
                                                  (5000, "infinity", "infinity"), ("infinity", 5000, "infinity")])
def test_note_same_checksum_stretches_ttl_never_shortens(api, before, given, after):
    api.stage(b"same", ttl_ms=before)
    assert api.stage(b"same", ttl_ms=given)["ttl_ms"] == after


def test_note_force_cleanup_prunes_only_expired_non_persistent(daemon, api, clock):
    api.stage(b"short", ttl_ms=1000)
    kept = {api.stage(b"long")["checksum"], api.stage(b"kept", ttl_ms=1000, persist="true")["checksum"],
            api.stage(b"infinite", ttl_ms="infinity")["checksum"]}
    advance(api, clock, 1000)
    assert cleanup(api) == {"count": 1, "bytes": 5, "remaining": 0}
    assert {row["checksum"] for row in api.attachments()} == kept
    assert (metrics(api)["total_count"], metrics(api)["total_bytes"]) == (3, len(b"long" b"kept" b"infinite"))
    wait_until(lambda: set(files(daemon)) == kept, what="the file of the expired one is gone")
    assert cleanup(api) == {"count": 0, "bytes": 0, "remaining": 0}


def test_note_metrics_has_six_figures(api):
    assert set(metrics(api)) == set(NO_METRICS)


# Telemetry reference ------------------------------------------------------------------------------------------


def test_telemetry_staged_measurements_and_metadata(daemon, api):
    staged = api.stage(b"four", name="a.bin", ttl_ms=77)
    api.stage(b"four", ttl_ms="infinity", persist="true")
    common = dict(size_bytes=4, checksum=staged["checksum"], name="a.bin")
    assert daemon.events("attachment.staged") == [
        dict(common, persist=False, ttl_ms=77, cached=False),
        dict(common, persist=True, ttl_ms="infinity", cached=True)]


def test_telemetry_cleaned_measurements_and_metadata(daemon, api):
    staged = api.stage(b"four", name="a.bin", ttl_ms=0)
    cleanup(api)
    assert daemon.events("attachment.cleaned") == [
        dict(count=1, bytes=4, checksum=staged["checksum"], name="a.bin", ttl_ms=0, reason="expired")]


def test_telemetry_manual_cleanup_emits_one_event_per_attachment(daemon, api):
    made = {api.stage(b"%d" % i, ttl_ms=0)["checksum"] for i in range(5)}
    assert cleanup(api)["count"] == 5
    events = daemon.events("attachment.cleaned")
    assert len(events) == 5 and {event["checksum"] for event in events} == made


def test_telemetry_periodic_sweeps_reuse_the_same_contract(start):
    daemon = start(attachment_sweep_ms=50)
    made = {daemon.client().stage(b"%d" % i, ttl_ms=0, name="n")["checksum"] for i in range(5)}
    wait_until(lambda: len(daemon.events("attachment.cleaned")) == 5, what="five events")
    events = daemon.events("attachment.cleaned")
    assert {event["checksum"] for event in events} == made
    assert all(set(event) == {"count", "bytes", "checksum", "name", "ttl_ms", "reason"} for event in events)


# Verification -------------------------------------------------------------------------------------------------


def test_verification_ttl_immediate_expiration(api):
    staged = api.stage(b"x", ttl_ms=0)
    assert staged["expires_at"] == staged["inserted_at"]
    api.attachment(staged["checksum"]).fails(410, "expired")
    api.content(staged["checksum"]).fails(410, "expired")
    assert api.attachments() == []


def test_verification_ttl_infinity(api, clock):
    staged = api.stage(b"x", ttl_ms="infinity")
    advance(api, clock, 100 * 365 * DAY_MS)
    assert cleanup(api)["count"] == 0
    assert api.attachment(staged["checksum"]).ok()["expires_at"] is None


@pytest.mark.parametrize("before_ms, status", [(1, 200), (0, 410)])
def test_verification_ttl_boundary_is_at_least(api, clock, before_ms, status):
    staged = api.stage(b"x", ttl_ms=5000)
    advance(api, clock, 5000 - before_ms)
    assert api.attachment(staged["checksum"]).status == status
    assert cleanup(api)["count"] == int(status == 410)


def test_verification_staging_then_forced_cleanup(daemon, api, clock):
    staged = api.stage(b"integration", ttl_ms=1000)
    assert cleanup(api) == {"count": 0, "bytes": 0, "remaining": 0}
    advance(api, clock, 1000)
    assert cleanup(api) == {"count": 1, "bytes": 11, "remaining": 0}
    api.attachment(staged["checksum"]).fails(404, "not_found")
    wait_until(lambda: files(daemon) == [], what="the file is gone")
    assert metrics(api) == NO_METRICS


class Model:
    """What the owner's attachments should be, by content."""

    def __init__(self):
        self.rows = {}

    def stage(self, content, persist):
        self.rows[content] = self.rows.get(content, False) or persist

    def metrics(self):
        kept = [content for content, persist in self.rows.items() if persist]
        free = [content for content, persist in self.rows.items() if not persist]
        return dict(total_count=len(self.rows), total_bytes=sum(map(len, self.rows)),
                    persistent_count=len(kept), persistent_bytes=sum(map(len, kept)),
                    expirable_count=len(free), expirable_bytes=sum(map(len, free)))


@hypothesis.given(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=30))
@hypothesis.settings(max_examples=40, deadline=None,
                     suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_verification_property_staging_repeatedly_is_idempotent(shared, stagings):
    admin, model = shared.client(), Model()
    owner = f"owner-{os.urandom(8).hex()}"
    api = shared.client(owner=owner)
    for content, persist in stagings:
        known = content in model.rows
        assert api.stage(content, persist=str(persist).lower())["cached"] is known
        model.stage(content, persist)
        assert metrics(api) == model.metrics()
    for content in model.rows:
        assert api.delete(f"/v1/attachments/{sha(content)}").status == 200
    assert metrics(api) == NO_METRICS
    admin.close()
    api.close()


# Open questions -----------------------------------------------------------------------------------------------


def test_question_ttl_does_not_apply_to_persistent_attachments(api, clock):
    staged = api.stage(b"x", ttl_ms=1, persist="true")
    advance(api, clock, DAY_MS)
    assert cleanup(api)["count"] == 0
    assert api.content(staged["checksum"]).body == b"x"


def test_question_a_persistent_attachment_stays_whatever_its_deadline_says(daemon, api):
    staged = api.stage(b"x", persist="true")
    daemon.execute("UPDATE attachments SET due_at = 1 WHERE persist = 1")
    assert cleanup(api)["count"] == 0
    assert len(daemon.rows("SELECT 1 FROM attachments WHERE checksum = ?", staged["checksum"])) == 1


@pytest.mark.parametrize("flag, left", [("true", 0), ("false", 1)])
def test_question_cleanup_at_start_is_an_option(start, flag, left):
    daemon = start(attachment_sweep_ms=NEVER_MS)
    daemon.client().stage(b"x", ttl_ms=0)
    daemon.restart(attachment_sweep_at_start=flag)
    if left == 0:
        wait_until(lambda: files(daemon) == [], what="swept at the start")
    else:
        daemon.client().get("/readyz")
        assert len(files(daemon)) == 1


def test_the_index_survives_a_restart(daemon, api):
    staged = api.stage(b"survives", name="s")
    daemon.restart()
    assert daemon.client().attachment(staged["checksum"]).ok() == staged
    assert daemon.client().content(staged["checksum"]).body == b"survives"
