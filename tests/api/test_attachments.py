# SPDX-License-Identifier: Apache-2.0
"""The attachment routes beyond the seed: owners, files of this host, names, ranges, limits, holds, mending."""
import concurrent.futures
import hashlib
import os
import pathlib
import socket
import threading
import time

import pytest

from harness import HOUR_MS, NEVER_MS, Clock, wait_until


def sha(content):
    return hashlib.sha256(content).hexdigest()


def paths(daemon):
    return sorted((daemon.data_dir / "files").glob("??/*"))


def metrics(api):
    return api.get("/v1/attachments/metrics").ok()


def stage(api, path, **fields):
    return api.post("/v1/attachments/stage", {"path": str(path), **fields})


# One file, whoever comes how often ----------------------------------------------------------------------------


def test_concurrent_staging_of_the_same_bytes_ends_with_one_file(daemon, api):
    content = os.urandom(300_000)
    gate = threading.Barrier(16)

    def one(_):
        client = daemon.client()
        gate.wait()
        return client.stage(content)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        staged = list(pool.map(one, range(16)))
    assert sum(not row["cached"] for row in staged) == 1
    wait_until(lambda: len(paths(daemon)) == 1, what="one file")
    assert api.content(sha(content)).body == content
    assert metrics(api)["total_count"] == 1 and metrics(api)["total_bytes"] == len(content)


@pytest.fixture
def fleets(daemon):
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    return [daemon.client(token=admin.token(name)["token"]) for name in ("red", "blue")] + [admin]


def test_another_owners_bytes_are_invisible(daemon, fleets):
    red, blue, _ = fleets
    staged = red.stage(b"secret")
    for answer in (blue.attachment(staged["checksum"]), blue.content(staged["checksum"]),
                   blue.delete(f"/v1/attachments/{staged['checksum']}")):
        answer.fails(404, "not_found")
    assert blue.attachments() == [] and metrics(blue)["total_count"] == 0
    own = blue.stage(b"secret", name="mine", ttl_ms=5)
    assert own["cached"] is False and own["ttl_ms"] == 5 and own["name"] == "mine"
    assert len(paths(daemon)) == 2
    assert red.attachment(staged["checksum"]).ok() == staged
    blue.delete(f"/v1/attachments/{staged['checksum']}").ok()
    assert red.content(staged["checksum"]).body == b"secret"


def test_a_fleet_cleans_up_and_stages_what_is_its_own(start, tmp_path):
    """An admin's cleanup is everybody's; a fleet's is its own, and a held file of it stays."""
    clock, source = Clock(tmp_path), tmp_path / "roots"
    source.mkdir()
    (source / "report").write_bytes(b"report")
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, attachment_sweep_ms=NEVER_MS,
                   attachment_stage_roots=str(source))
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    red, blue = (daemon.client(token=admin.token(owner)["token"]) for owner in ("red", "blue"))
    staged = stage(red, str(source / "report"), ttl_ms=1000).ok(201)
    assert red.attachment(staged["checksum"]).ok()["size"] == 6
    blue.attachment(staged["checksum"]).fails(404, "not_found")
    held = red.stage(b"held", ttl_ms=1000)
    admin.put(f"/v1/holds/attachments/{held['checksum']}", {"reason": "audit"}, headers={"X-Lapse-Owner": "red"}).ok()
    for i in range(120):
        red.stage(b"%d" % i, ttl_ms=1000)
    other = blue.stage(b"blue", ttl_ms=1000)
    red.stage(b"fresh", ttl_ms=5000)
    clock.advance(1000)
    assert red.post("/v1/attachments/cleanup").ok() == {
        "count": 121, "bytes": 6 + sum(len(b"%d" % i) for i in range(120)), "remaining": 0}
    assert len(paths(daemon)) == 3 and len(daemon.rows("SELECT * FROM attachments")) == 3
    assert red.post("/v1/attachments/cleanup").ok()["count"] == 0
    blue.attachment(other["checksum"]).fails(410, "expired")
    assert admin.post("/v1/attachments/cleanup").ok() == {"count": 1, "bytes": 4, "remaining": 0}
    assert len(paths(daemon)) == 2


def test_a_cleanup_answers_when_its_files_are_gone_or_says_how_many_remain(start):
    daemon = start(attachment_sweep_ms=NEVER_MS)
    api = daemon.client()
    stuck = api.stage(b"stuck", ttl_ms=1)
    path = next(p for p in paths(daemon) if stuck["checksum"] in p.name)
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    for i in range(200):
        api.stage(b"%d" % i, ttl_ms=1)
    time.sleep(0.01)
    answer = api.post("/v1/attachments/cleanup").ok()
    assert answer["count"] == 201 and answer["remaining"] == 1
    assert paths(daemon) == [path]


def test_a_path_is_shown_to_callers_on_this_host(start, tmp_path):
    """To an admin always, to a fleet where files are staged by path; the file lies there as long as the row lives."""
    daemon = start()
    admin = daemon.client(token=daemon.client().token("ops", admin=True)["token"])
    token = admin.token("red")["token"]
    red = daemon.client(token=token)
    staged = admin.stage(b"hello")
    path = pathlib.Path(staged["path"])
    assert path.is_absolute() and path.read_bytes() == b"hello"
    assert admin.attachment(staged["checksum"]).ok()["path"] == str(path)
    assert [row["path"] for row in admin.attachments()] == [str(path)]
    assert admin.stage(b"hello")["path"] == str(path)
    assert "path" not in red.stage(b"hello")
    forwarded = admin.get(f"/v1/attachments/{staged['checksum']}", headers={"X-Forwarded-For": "192.0.2.1"})
    assert "path" not in forwarded.ok()
    admin.delete(f"/v1/attachments/{staged['checksum']}").ok()
    wait_until(lambda: not path.exists(), what="the file goes with its row")
    daemon.restart(attachment_stage_roots=str(tmp_path))
    red = daemon.client(token=token)
    assert pathlib.Path(red.stage(b"hello")["path"]).read_bytes() == b"hello"


def test_a_default_lifetime_without_end(start):
    """attachment_ttl_ms takes infinity, as the seed's option does."""
    daemon = start(attachment_ttl_ms="infinity", attachment_sweep_ms=NEVER_MS)
    api = daemon.client()
    staged = api.stage(b"for ever")
    assert staged["ttl_ms"] == "infinity" and staged["expires_at"] is None and staged["persist"] is False
    assert api.stage(b"short", ttl_ms=1)["ttl_ms"] == 1


def test_metrics_of_the_route_are_the_owners_and_those_of_prometheus_everybodys(daemon, fleets):
    red, blue, admin = fleets
    red.stage(b"123", persist="true")
    blue.stage(b"12345")
    assert metrics(red)["total_bytes"] == 3 and metrics(blue)["total_bytes"] == 5
    figures = {(name, dict(labels).get("kind")): value for (name, labels), value in admin.metrics().items()
               if name.startswith("lapse_attachment")}
    assert [figures["lapse_attachments", kind] for kind in ("total", "persistent", "expirable")] == [2, 1, 1]
    assert [figures["lapse_attachment_bytes", kind] for kind in ("total", "persistent", "expirable")] == [8, 3, 5]


def test_staging_what_has_expired_is_a_new_attachment(daemon, api):
    api.stage(b"x", ttl_ms=0, name="old")
    staged = api.stage(b"x", name="new", ttl_ms=5000)
    assert (staged["cached"], staged["name"], staged["ttl_ms"]) == (False, "new", 5000)
    assert [event["reason"] for event in daemon.events("attachment.cleaned")] == ["expired"]
    wait_until(lambda: len(paths(daemon)) == 1, what="the old file is gone")


def test_an_empty_body_is_an_empty_attachment(api):
    staged = api.stage(b"")
    assert staged["size"] == 0 and staged["checksum"] == sha(b"")
    assert api.content(staged["checksum"]).body == b""


def test_lists_go_page_by_page_newest_first(api):
    made = [api.stage(b"%d" % i)["checksum"] for i in range(25)]
    first = api.get("/v1/attachments", limit=10).ok()
    assert [row["checksum"] for row in first["data"]] == made[:-11:-1] and first["pagination"]["has_more"]
    assert [row["checksum"] for row in api.attachments()] == made[::-1]


# Deleting -----------------------------------------------------------------------------------------------------


def test_delete_removes_row_and_file_and_says_so(daemon, api):
    staged = api.stage(b"bye", name="n")
    assert api.delete(f"/v1/attachments/{staged['checksum']}").ok() == {"checksum": staged["checksum"],
                                                                       "deleted": True}
    api.attachment(staged["checksum"]).fails(404, "not_found")
    api.delete(f"/v1/attachments/{staged['checksum']}").fails(404, "not_found")
    wait_until(lambda: paths(daemon) == [], what="the file is gone")
    assert [event["reason"] for event in daemon.events("attachment.cleaned")] == ["deleted"]


def test_a_persistent_one_can_be_deleted_by_hand(api):
    staged = api.stage(b"kept", persist="true")
    api.delete(f"/v1/attachments/{staged['checksum']}").ok()
    assert metrics(api)["persistent_count"] == 0


@pytest.mark.parametrize("checksum", ["nonsense", "A" * 64, "0" * 63, "0" * 65, "%2e%2e%2fetc%2fpasswd", "..%2f..",
                                      "0" * 64])
def test_what_is_no_checksum_does_not_exist(api, checksum):
    for answer in (api.attachment(checksum), api.content(checksum), api.delete(f"/v1/attachments/{checksum}")):
        answer.fails(404, "not_found")


def test_a_file_that_cannot_be_removed_becomes_a_dead_letter(start):
    daemon = start(cleanup_max_attempts=1)
    api = daemon.client()
    staged = api.stage(b"stuck")
    (path,) = paths(daemon)
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    api.delete(f"/v1/attachments/{staged['checksum']}").ok()
    wait_until(lambda: daemon.metric("lapse_dead_letters") == 1, what="a dead letter")
    (letter,) = api.get("/v1/dead-letters").ok()["data"]
    assert letter["kind"] == "attachment" and path.name in letter["target"]


# Holds --------------------------------------------------------------------------------------------------------


def test_a_held_attachment_is_never_removed(start, tmp_path):
    clock = Clock(tmp_path)
    daemon = start(clock=clock, request_timeout_ms=HOUR_MS, attachment_sweep_ms=NEVER_MS)
    api = daemon.client()
    staged = api.stage(b"evidence", ttl_ms=1000)
    hold = f"/v1/holds/attachments/{staged['checksum']}"
    api.put(hold, {"reason": "audit"}).ok()
    clock.advance(1000)
    assert api.post("/v1/attachments/cleanup").ok()["count"] == 0
    api.attachment(staged["checksum"]).fails(410, "expired")
    api.delete(f"/v1/attachments/{staged['checksum']}").fails(409, "conflict")
    assert len(paths(daemon)) == 1
    again = api.stage(b"evidence", ttl_ms=1000)
    assert again["cached"] is True, "a held row is refreshed, not replaced"
    api.delete(hold).ok()
    clock.advance(1000)
    assert api.post("/v1/attachments/cleanup").ok()["count"] == 1


def test_a_sweep_asked_for_by_hand_and_its_dry_run(start):
    daemon = start(attachment_sweep_ms=NEVER_MS)
    api = daemon.client()
    api.stage(b"x", ttl_ms=0)
    assert api.sweep("attachments", dry_run="true")["tables"] == {"attachments": 1}
    assert api.matrix("attachments")["due_rows"] == 1 and len(paths(daemon)) == 1
    assert api.sweep("attachments")["tables"] == {"attachments": 1}
    row = api.matrix("attachments")
    assert (row["live_rows"], row["due_rows"], row["pruned_total"]) == (0, 0, 1)
    assert row["paths"] == ["lazy", "sweep", "forced"]


# Content ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(shared):
    """An attachment too long to be answered in one piece."""
    content = os.urandom(1_000_003)
    return shared.client().stage(content)["checksum"], content


@pytest.mark.parametrize("header, part", [
    ("bytes=0-0", slice(0, 1)), ("bytes=10-19", slice(10, 20)), ("bytes=1000000-", slice(1_000_000, None)),
    ("bytes=-5", slice(-5, None)), ("bytes=0-99999999", slice(0, None)), ("bytes=-99999999", slice(0, None)),
    ("bytes=70000-900000", slice(70_000, 900_001)), ("bytes=0-", slice(0, None))])
def test_one_range_is_answered_with_that_part(shared_api, large, header, part):
    checksum, content = large
    answer = shared_api.content(checksum, Range=header)
    start, stop, _ = part.indices(len(content))
    assert answer.status == 206 and answer.body == content[part]
    assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(content)}"


@pytest.mark.parametrize("header", ["bytes=1000003-", "bytes=2000000-3000000", "bytes=-0",
                                    "bytes=99999999999999999999-"])
def test_a_range_outside_is_416(shared_api, large, header):
    answer = shared_api.content(large[0], Range=header)
    answer.fails(416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{len(large[1])}"


@pytest.mark.parametrize("header", ["bytes=0-1,5-6", "lines=1-2", "bytes=5-1", "bytes=", "bytes=-", "bytes=a-b",
                                    "bytes 0-1", "bytes=0-1;", "bytes=+1-2"])
def test_several_ranges_and_nonsense_mean_the_whole(shared_api, large, header):
    answer = shared_api.content(large[0], Range=header)
    assert answer.status == 200 and answer.body == large[1]


def test_if_range_with_another_etag_means_the_whole(shared_api, large):
    checksum, content = large
    etag = shared_api.content(checksum).headers["ETag"]
    assert etag == f'"{checksum}"'
    assert shared_api.content(checksum, Range="bytes=0-1", If_Range=etag).status == 206
    assert shared_api.content(checksum, Range="bytes=0-1", If_Range='"other"').status == 200


def test_head_tells_length_and_nothing_else(shared_api, large):
    checksum, content = large
    answer = shared_api.request("HEAD", f"/v1/attachments/{checksum}/content")
    assert answer.status == 200 and answer.body == b""
    assert int(answer.headers["Content-Length"]) == len(content)
    answer = shared_api.request("HEAD", f"/v1/attachments/{checksum}/content", headers={"Range": "bytes=0-9"})
    assert answer.status == 206 and int(answer.headers["Content-Length"]) == 10


def test_content_is_a_download_nobody_sniffs(shared_api):
    staged = shared_api.stage(b"<script>alert(1)</script>", name="page.html", ttl_ms=5_000_000)
    headers = shared_api.content(staged["checksum"]).headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Disposition"].startswith("attachment;")
    assert headers["Sunset"].endswith("GMT")


def test_a_reader_keeps_its_bytes_while_the_attachment_goes(daemon, api):
    content = os.urandom(8_000_000)
    staged = api.stage(content)
    with daemon.raw() as slow:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.send(f"GET /v1/attachments/{staged['checksum']}/content HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        first = slow.sock.recv(1000)
        api.delete(f"/v1/attachments/{staged['checksum']}").ok()
        wait_until(lambda: paths(daemon) == [], what="the name is gone")
        received = first
        while len(received) < len(content) + first.index(b"\r\n\r\n") + 4:
            piece = slow.sock.recv(1 << 20)
            assert piece, "cut"
            received += piece
    assert received[received.index(b"\r\n\r\n") + 4:] == content


# Names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "a/b\\c", 'quo"te', "semi;colon", "per%cent", "ünï©ode.txt",
                                  "*", "~root", "-rf", ".hidden", "a" * 255, "名前"])
def test_any_printable_name_is_kept_and_harmless(shared, shared_api, name):
    before = set((shared.data_dir).rglob("*"))
    staged = shared_api.stage(os.urandom(8), name=name)
    assert staged["name"] == name and shared_api.attachment(staged["checksum"]).ok()["name"] == name
    new = [path for path in set(shared.data_dir.rglob("*")) - before if path.is_file() and "lapse.db" not in path.name]
    assert [path.name.split("-")[0] for path in new] == [staged["checksum"]], "no name reaches the file system"
    disposition = shared_api.content(staged["checksum"]).headers["Content-Disposition"]
    kind, plain, encoded = disposition.split("; ")
    assert kind == "attachment" and plain.isascii() and encoded.startswith("filename*=UTF-8''")
    shown = plain[len('filename="'):-1]
    assert not set(shown) & set('/\\"%;') and not shown.startswith(".")


@pytest.mark.parametrize("name", ["nul%00", "line%0Abreak", "%0D%0AX-Evil:%201", "tab%09", "bell%07", "del%7F", "", "a" * 256,
                                  "x" * 4096, "%ff%fe"])
def test_other_names_are_refused(daemon, api, name):
    answer = api.request("POST", f"/v1/attachments?name={name}", body=b"x")
    answer.fails(400, "invalid_request")
    assert paths(daemon) == []


@pytest.mark.parametrize("query", ["nmae=x", "name=a&name=b", "persist=yes", "persist=1", "path=/etc/passwd"])
def test_unknown_and_wrong_parameters_are_refused(daemon, api, query):
    api.request("POST", f"/v1/attachments?{query}", body=b"x").fails(400, "invalid_request")
    assert paths(daemon) == []


# Idempotency --------------------------------------------------------------------------------------------------


def test_the_same_key_and_bytes_give_the_first_answer_again(daemon, api):
    key = {"Idempotency-Key": "k1"}
    first = api.upload(b"once", headers=key, name="n")
    again = api.upload(b"once", headers=key, name="n")
    assert first.status == again.status == 201 and first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(daemon.events("attachment.staged")) == 1
    wait_until(lambda: len(paths(daemon)) == 1, what="the second copy is gone")


def test_the_same_key_with_other_bytes_or_terms_is_422(daemon, api):
    key = {"Idempotency-Key": "k1"}
    api.upload(b"once", headers=key, name="n").ok(201)
    api.upload(b"Once", headers=key, name="n").fails(422, "unprocessable")
    api.upload(b"once", headers=key, name="m").fails(422, "unprocessable")
    api.upload(b"once", headers=key, name="n", ttl_ms=5).fails(422, "unprocessable")
    wait_until(lambda: len(paths(daemon)) == 1, what="refused bytes are gone")
    assert metrics(api)["total_count"] == 1


# Limits -------------------------------------------------------------------------------------------------------


def test_a_file_over_the_limit_is_413_and_one_at_it_is_not(start):
    daemon = start(attachment_max_bytes=100_000)
    api = daemon.client()
    assert api.stage(b"x" * 100_000)["size"] == 100_000
    api.upload(b"x" * 100_001).fails(413, "too_large", "attachment_max_bytes")
    assert api.get("/healthz").status == 200
    assert len(paths(daemon)) == 1


def test_all_files_over_the_limit_are_429_and_room_comes_back(start):
    daemon = start(attachment_total_bytes=1000)
    api = daemon.client()
    first = api.stage(b"a" * 600)
    api.upload(b"b" * 401).fails(429, "limit_reached", "attachment_total_bytes")
    assert api.stage(b"c" * 400)["size"] == 400
    api.upload(b"d").fails(429, "limit_reached", "attachment_total_bytes")
    assert api.stage(b"a" * 600)["cached"] is True, "staging again needs no room"
    api.delete(f"/v1/attachments/{first['checksum']}").ok()
    assert api.stage(b"b" * 401)["cached"] is False
    wait_until(lambda: len(paths(daemon)) == 2, what="refused bytes are gone")
    assert metrics(api)["total_bytes"] == 801


def test_the_limit_holds_for_those_who_come_together(start):
    daemon = start(attachment_total_bytes=100_000)
    gate = threading.Barrier(12)

    def one(number):
        client = daemon.client()
        gate.wait()
        return client.upload(b"%02d" % number * 10_000).status

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(one, range(12)))
    assert sorted(statuses) == [201] * 5 + [429] * 7
    wait_until(lambda: len(paths(daemon)) == 5, what="refused bytes are gone")


# Files of this host -------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file.txt").write_bytes(b"inside")
    (tmp_path / "outside.txt").write_bytes(b"outside")
    return root


@pytest.fixture
def host(start, root, tmp_path):
    (tmp_path / "second").mkdir()
    return start(attachment_stage_roots=f"{root}/:{tmp_path / 'second'}")


def test_staging_a_path_is_forbidden_by_default(api):
    stage(api, "/etc/hostname").fails(403, "forbidden", "attachment_stage_roots")


def test_below_every_root_and_nowhere_else(host, root, tmp_path):
    api = host.client()
    (tmp_path / "second" / "s").write_bytes(b"second")
    assert stage(api, root / "sub" / "file.txt").ok(201)["checksum"] == sha(b"inside")
    assert stage(api, tmp_path / "second" / "s").ok(201)["checksum"] == sha(b"second")
    stage(api, tmp_path / "outside.txt").fails(403, "forbidden")
    stage(api, str(root) + "x/file").fails(403, "forbidden")
    stage(api, root).fails(403, "forbidden")


def test_no_dots_lead_out(host, root):
    api = host.client()
    stage(api, f"{root}/../outside.txt").fails(403, "forbidden")
    stage(api, f"{root}/sub/../../outside.txt").fails(403, "forbidden")
    assert stage(api, f"{root}/sub/../sub/file.txt").ok(201)["size"] == 6


def test_no_symlink_leads_anywhere(host, root, tmp_path):
    api = host.client()
    (root / "out").symlink_to(tmp_path / "outside.txt")
    (root / "in").symlink_to(root / "sub" / "file.txt")
    (root / "dir").symlink_to(tmp_path)
    (root / "magic").symlink_to("/proc/self/cwd")
    for path in ("out", "in", "dir/outside.txt", "magic/x"):
        stage(api, root / path).fails(403, "forbidden")


def test_a_source_swapped_for_a_symlink_never_shows_what_is_outside(host, root, tmp_path):
    api = host.client()
    target, stop = root / "swapped", threading.Event()

    def swap():
        while not stop.is_set():
            for make in (lambda path: path.write_bytes(b"inside"), lambda path: path.symlink_to(tmp_path / "outside.txt")):
                draft = root / "draft"
                make(draft)
                draft.rename(target)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            answer = stage(api, target)
            assert answer.status in (201, 403, 404), answer
    finally:
        stop.set()
        thread.join()
    assert {row["checksum"] for row in api.attachments()} <= {sha(b"inside"), sha(b"")}


def test_special_files_are_refused_and_never_waited_for(host, root):
    api = host.client()
    os.mkfifo(root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    cwd = os.getcwd()
    os.chdir(root)  # a socket's path must be short
    server.bind("socket")
    os.chdir(cwd)
    for name in ("fifo", "socket", "sub"):
        stage(api, root / name).fails(400, "invalid_request", "regular")
    server.close()


def test_a_device_is_refused(start):
    api = start(attachment_stage_roots="/dev").client()
    for name in ("zero", "null", "tty"):
        assert stage(api, f"/dev/{name}").status in (400, 403, 503)
    assert api.attachments() == []


@pytest.mark.parametrize("body, field", [({"path": "relative"}, "path"), ({"path": ""}, "path"), ({}, "path"),
                                         ({"path": "/x\u0000y"}, ""), ({"path": "/x", "ttl_ms": -1}, "ttl_ms"),
                                         ({"path": "/x", "ttl_ms": "soon"}, "ttl_ms"),
                                         ({"path": "/x", "persist": 1}, "persist"),
                                         ({"path": "/x", "mode": 1}, "mode")])
def test_wrong_bodies_name_their_field(host, body, field):
    host.client().post("/v1/attachments/stage", body).fails(400, "invalid_request", field)


def test_a_file_that_is_not_there_is_404(host, root):
    stage(host.client(), root / "nothing").fails(404, "not_found")
    stage(host.client(), root / "sub" / "file.txt" / "x").fails(404, "not_found")


def test_a_local_file_over_the_limit_is_413(start, root):
    api = start(attachment_stage_roots=root, attachment_max_bytes=5).client()
    stage(api, root / "sub" / "file.txt").fails(413, "too_large", "attachment_max_bytes")


def test_a_file_that_grows_is_staged_as_long_as_it_was_and_is_whole(host, root):
    api = host.client()
    path, stop = root / "growing", threading.Event()
    path.write_bytes(b"x" * 5_000_000)

    def grow():
        with open(path, "ab") as stream:
            while not stop.is_set():
                stream.write(b"x" * 100_000)
                stream.flush()
                time.sleep(0.001)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        staged = [stage(api, path).ok(201) for _ in range(5)]
    finally:
        stop.set()
        thread.join()
    for row in staged:
        assert row["checksum"] == sha(b"x" * row["size"]) and row["size"] >= 5_000_000


def test_what_is_hashed_is_the_copy_not_the_source(host, root):
    """A source that changes under the copy gives some bytes, and the checksum is of those."""
    api = host.client()
    path, stop = root / "changing", threading.Event()
    path.write_bytes(b"\0" * 8_000_000)

    def change():
        with open(path, "r+b") as stream:
            while not stop.is_set():
                stream.seek(int.from_bytes(os.urandom(3), "big") % 7_900_000)
                stream.write(os.urandom(100_000))
                stream.flush()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        staged = [stage(api, path).ok(201) for _ in range(5)]
    finally:
        stop.set()
        thread.join()
    for row in staged:
        assert sha(api.content(row["checksum"]).body) == row["checksum"]


def test_many_stagings_wait_for_each_other(host, root):
    for i in range(24):
        (root / f"f{i}").write_bytes(os.urandom(2_000_000))
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda i: stage(host.client(), root / f"f{i}").status, range(24)))
    assert answers == [201] * 24 and len(paths(host)) == 24


def test_staging_a_path_honours_an_idempotency_key(host, root):
    api, key = host.client(), {"Idempotency-Key": "k"}
    body = {"path": str(root / "sub" / "file.txt")}
    first = api.post("/v1/attachments/stage", body, headers=key).ok(201)
    assert api.post("/v1/attachments/stage", body, headers=key).ok(201) == first


@pytest.mark.parametrize("roots", ["relative", "/a:b", ":", "/a::/b"])
def test_roots_that_are_no_absolute_paths_stop_the_start(tmp_path, roots):
    from harness import run_to_end
    code, log = run_to_end(tmp_path / "data", f"--attachment-stage-roots={roots}")
    assert code != 0 and "attachment_stage_roots" in log


# Files that others touch --------------------------------------------------------------------------------------


def test_a_file_somebody_removed_is_reported_and_its_row_goes(daemon, api):
    staged = api.stage(b"lost", name="n")
    paths(daemon)[0].unlink()
    api.content(staged["checksum"]).fails(404, "not_found", "gone")
    wait_until(lambda: api.attachment(staged["checksum"]).status == 404, what="the row is gone")
    assert [event["reason"] for event in daemon.events("attachment.cleaned")] == ["file missing"]
    assert any(line["event"] == "attachment.file_missing" for line in daemon.log_lines())
    assert daemon.metric("lapse_attachments_mended_total", what="row_without_file") == 1


def test_staging_again_what_somebody_removed_brings_it_back(daemon, api):
    staged = api.stage(b"lost")
    api.put(f"/v1/holds/attachments/{staged['checksum']}", {"reason": "audit"}).ok()
    paths(daemon)[0].unlink()
    again = api.stage(b"lost")
    assert again["cached"] is False
    assert api.content(staged["checksum"]).body == b"lost"
    api.delete(f"/v1/attachments/{staged['checksum']}").fails(409, "conflict")
    assert metrics(api)["total_count"] == 1


def test_a_file_somebody_cut_is_never_served(daemon, api):
    staged = api.stage(b"whole")
    paths(daemon)[0].write_bytes(b"who")
    api.content(staged["checksum"]).fails(404, "not_found")


def orphan(daemon, content=b"orphan", made_at=None):
    """A file without a row, as a crash leaves it; its name tells when it was made."""
    identity = f"{int((made_at or time.time()) * 1000) << 21:016x}"
    directory = daemon.data_dir / "files" / sha(content)[:2]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{sha(content)}-{identity}"
    path.write_bytes(content)
    return path


def report(daemon):
    return [line for line in daemon.log_lines() if line["event"] == "attachment.reconciled"]


def test_start_finds_files_without_a_row(daemon, api):
    kept = api.stage(b"kept")
    daemon.stop()
    lost = orphan(daemon)
    leftover = daemon.data_dir / "files" / "new-0000000000000456"
    leftover.write_bytes(b"half")
    foreign = daemon.data_dir / "files" / "00"
    foreign.mkdir(exist_ok=True)
    (foreign / "README").write_text("not ours")
    daemon.start()
    wait_until(lambda: not lost.exists() and not leftover.exists(), what="the leftovers are gone")
    assert daemon.client().content(kept["checksum"]).body == b"kept" and (foreign / "README").exists()
    (line,) = wait_until(lambda: report(daemon), what="it is reported")
    assert (line["files_without_row"], line["rows_without_file"], line["temporary"]) == (1, 0, 1)
    assert daemon.metric("lapse_attachments_mended_total", what="file_without_row") == 1


def test_start_finds_rows_without_a_file(daemon, api):
    kept, lost, held = api.stage(b"kept"), api.stage(b"lost"), api.stage(b"held")
    api.put(f"/v1/holds/attachments/{held['checksum']}", {"reason": "audit"}).ok()
    daemon.stop()
    for path in paths(daemon):
        if path.name.split("-")[0] in (lost["checksum"], held["checksum"]):
            path.unlink()
    daemon.start()
    api = daemon.client()
    wait_until(lambda: api.attachment(lost["checksum"]).status == 404, what="the row is gone")
    assert api.attachment(held["checksum"]).status == 200, "a held row stays"
    assert api.content(kept["checksum"]).body == b"kept"
    assert [(event["checksum"], event["reason"]) for event in daemon.events("attachment.cleaned")] == [
        (lost["checksum"], "file missing")]
    (line,) = wait_until(lambda: report(daemon), what="it is reported")
    assert line["rows_without_file"] == 2
    assert metrics(api)["total_count"] == 2


def test_files_that_are_all_gone_remove_nothing(daemon, api):
    """A disk that is not mounted: likelier than that somebody deleted everything."""
    made = [api.stage(b"%d" % i)["checksum"] for i in range(12)]
    daemon.stop()
    (daemon.data_dir / "files").rename(daemon.data_dir.parent / "elsewhere")
    daemon.start()
    wait_until(lambda: any(line["event"] == "attachment.files_gone" for line in daemon.log_lines()), what="it says so")
    assert len(daemon.client().attachments()) == 12
    daemon.stop()
    for path in (daemon.data_dir / "files").glob("*"):
        path.rmdir()
    (daemon.data_dir / "files").rmdir()
    (daemon.data_dir.parent / "elsewhere").rename(daemon.data_dir / "files")
    daemon.start()
    assert daemon.client().content(made[3]).body == b"3"


def test_readers_of_a_disk_that_is_not_mounted_lose_nothing(daemon, api):
    """Had a reader ended the row, its file would be a leftover after the disk is back."""
    made = [api.stage(b"%d" % i)["checksum"] for i in range(3)]
    daemon.stop()
    (daemon.data_dir / "files").rename(daemon.data_dir.parent / "elsewhere")
    daemon.start()
    api = daemon.client()
    for checksum in made:
        api.content(checksum).fails(404, "not_found", "gone")
    wait_until(lambda: any(line["event"] == "attachment.files_gone" for line in daemon.log_lines()), what="it says so")
    api.content(made[0]).fails(404, "not_found", "gone")
    time.sleep(0.2)
    assert len(api.attachments()) == 3
    daemon.stop()
    (daemon.data_dir / "files").rmdir()
    (daemon.data_dir.parent / "elsewhere").rename(daemon.data_dir / "files")
    daemon.start()
    time.sleep(0.5)
    assert [daemon.client().content(checksum).body for checksum in made] == [b"0", b"1", b"2"]
    assert not any(line.get("files_without_row") for line in report(daemon))


def test_what_is_not_a_file_in_its_place_is_none(daemon, api):
    """A symlink is not followed, a pipe is not waited for: the file is gone, and staging mends it."""
    for i, replace in enumerate((lambda path: path.symlink_to("/etc/passwd"), os.mkfifo)):
        staged = api.stage(b"whole %d" % i)
        (path,) = (path for path in paths(daemon) if path.name.startswith(staged["checksum"]))
        path.unlink()
        replace(path)
        api.content(staged["checksum"]).fails(404, "not_found", "gone")
        api.stage(b"whole %d" % i)
        assert api.content(staged["checksum"]).body == b"whole %d" % i


@pytest.mark.sqlite("it puts another file in the place of the database")
def test_files_from_before_the_store_are_not_its_own(daemon, api):
    """The database was lost, or files/ is another daemon's: what is there is reported and stays."""
    kept = api.stage(b"kept")
    daemon.stop()
    lost, elsewhere = orphan(daemon, b"lost"), orphan(daemon, b"elsewhere", made_at=time.time() - 86_400)
    (daemon.data_dir / "lapse.db").rename(daemon.data_dir / "lapse.db.aside")
    for suffix in ("-wal", "-shm"):
        (daemon.data_dir / f"lapse.db{suffix}").unlink(missing_ok=True)
    daemon.start()
    (line,) = wait_until(lambda: report(daemon), what="the check is over")
    assert (line["files_of_another_store"], line["files_without_row"]) == (3, 0)
    assert lost.exists() and elsewhere.exists() and len(paths(daemon)) == 3
    daemon.stop()
    (daemon.data_dir / "lapse.db.aside").rename(daemon.data_dir / "lapse.db")
    daemon.start()
    wait_until(lambda: not lost.exists(), what="the leftover of the old database is gone")
    assert elsewhere.exists() and daemon.client().content(kept["checksum"]).body == b"kept"


def test_a_directory_that_cannot_be_read_stops_no_check(daemon, api):
    kept = api.stage(b"kept")
    daemon.stop()
    files = daemon.data_dir / "files"
    (files / kept["checksum"][:2]).rename(daemon.data_dir.parent / "aside")
    (files / kept["checksum"][:2]).write_text("in the way")
    lost = orphan(daemon)
    daemon.start()
    (line,) = wait_until(lambda: report(daemon), what="the check is over")
    assert (line["files_without_row"], line["rows_without_file"], line["unreadable"]) == (1, 0, 2)
    assert line["first_unreadable"] == f"files/{kept['checksum'][:2]}: Not a directory"
    wait_until(lambda: not lost.exists(), what="the leftover is gone")
    assert daemon.client().attachment(kept["checksum"]).status == 200


def test_what_is_staged_while_the_check_runs_is_no_leftover(start):
    daemon = start()
    daemon.stop()
    for i in range(600):
        orphan(daemon, b"orphan %d" % i)
    daemon.start()
    api = daemon.client()
    made = [api.stage(b"new %d" % i)["checksum"] for i in range(200)]
    wait_until(lambda: report(daemon), timeout_s=30, what="the check is over")
    assert report(daemon)[0]["files_without_row"] == 600
    wait_until(lambda: len(paths(daemon)) == 200, timeout_s=30, what="only the new ones are left")
    for i, checksum in enumerate(made):
        assert api.content(checksum).body == b"new %d" % i


def test_a_directory_that_cannot_be_written_is_a_clear_error(daemon, api):
    """Root writes through any mode, so the directory is a file instead."""
    api.stage(b"before")
    files = daemon.data_dir / "files"
    files.rename(daemon.data_dir / "moved")
    files.write_text("in the way")
    error = api.upload(b"x").fails(503, "unavailable")
    assert "file" in error["message"].lower() or "attachment" in error["message"].lower()
    files.unlink()
    (daemon.data_dir / "moved").rename(files)
    assert api.stage(b"x")["size"] == 1


def test_files_are_private(daemon, api):
    api.stage(b"x")
    for path in [daemon.data_dir / "files", *(daemon.data_dir / "files").rglob("*")]:
        assert pathlib.Path(path).stat().st_mode & 0o077 == 0, path


def test_staging_again_without_the_bytes(start):
    """POST /v1/attachments/{checksum}/stage refreshes, upgrades and stretches, as sending them again would."""
    api = start().client()
    first = api.request("POST", "/v1/attachments", body=b"bytes", query={"ttl_ms": 3600000}).ok(201)
    path = f"/v1/attachments/{first['checksum']}/stage"
    again = api.post(path, {"ttl_ms": 60000}).ok(201)
    assert again["cached"] is True and again["ttl_ms"] == 3600000 and again["persist"] is False
    assert api.post(path, {"ttl_ms": 7200000, "persist": True}).ok(201)["persist"] is True
    assert api.get("/v1/attachments").ok()["data"][0]["ttl_ms"] == 7200000
    assert api.request("POST", path).ok(201)["persist"] is True
    api.post(path, {"ttl_ms": -1}).fails(400, "invalid_request")
    api.post(path, {"name": "x"}).fails(400, "invalid_request")
    api.post(f"/v1/attachments/{'0' * 64}/stage", {}).fails(404, "not_found")
    api.post("/v1/attachments/nonsense/stage", {}).fails(404, "not_found")


def test_staging_again_what_has_expired(start):
    api = start(attachment_sweep_ms=86400000).client()
    first = api.request("POST", "/v1/attachments", body=b"bytes", query={"ttl_ms": 0}).ok(201)
    api.post(f"/v1/attachments/{first['checksum']}/stage", {}).fails(404, "not_found")
