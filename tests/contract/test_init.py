# SPDX-License-Identifier: Apache-2.0
"""`lapse contract init` on a database of fifty tables: its proposal parses, checks, and makes sense."""
import re

from world import lapse, now_ms

PEOPLE = ["users", "teams", "projects", "invoices", "products", "settings", "roles", "countries", "documents", "plans"]
WORK = {"sessions": "expires_at_ms", "oauth_states": "expires_at", "api_tokens": "valid_until",
        "workspace_leases": "lease_expires_at_ms", "audit_log": "created_at", "outbox_events": "created_at",
        "delivery_attempts": "sent_at", "job_runs": "finished_at", "presence": "last_seen"}


def build(db):
    script = []
    for table in PEOPLE:
        script.append(f"CREATE TABLE {table} (id {db.big} PRIMARY KEY, name text, created_at {db.big}, updated_at {db.big})")
    for table, column in WORK.items():
        script.append(f"CREATE TABLE {table} (id {db.big} PRIMARY KEY, {column} {db.big})")
        script.append(f"CREATE INDEX {table}_i ON {table} ({column})")
    for n in range(26):
        script.append(f"CREATE TABLE lookup_{n} (id {db.big} PRIMARY KEY, label text)")
    # No index on their times: the first is only appended to, in the second old rows have large keys, the third has no serial key.
    script.append(f"CREATE TABLE request_log (id {db.big} PRIMARY KEY, created_at_ms {db.big})")
    script.append(f"CREATE TABLE imported_events (id {db.big} PRIMARY KEY, created_at_ms {db.big})")
    script.append(f"CREATE TABLE trace_spans (id text PRIMARY KEY, created_at_ms {db.big})")
    # A quoted name, and one without a key.
    script.append(f"CREATE TABLE \"Odd \"\"Queue\"\"\" (id {db.big} PRIMARY KEY, \"expires at\" {db.big}, expires_at_ms {db.big})")
    script.append("CREATE INDEX odd_i ON \"Odd \"\"Queue\"\"\" (expires_at_ms)")
    script.append(f"CREATE TABLE keyless (expires_at_ms {db.big})")
    script.append(f"CREATE TABLE session_notes (id {db.big} PRIMARY KEY, session {db.big} REFERENCES sessions (id) ON DELETE CASCADE)")
    script.append("CREATE INDEX notes_i ON session_notes (session)")
    db.sql("; ".join(script))
    hour = 3_600_000
    db.fill("request_log", ["id", "created_at_ms"], [(i, now_ms() + (i - 500) * hour) for i in range(500)])
    db.fill("imported_events", ["id", "created_at_ms"], [(i, now_ms() - i * hour) for i in range(500)])


def test_fifty_tables(db, tmp_path):
    build(db)
    ran = lapse("contract", "init", db.uri)
    assert ran.code == 0, ran.err
    text = ran.out
    assert "of 50 tables" in text or "of 51 tables" in text
    proposed = re.findall(r"^  - table: (.+)$", text, re.M)
    assert sorted(proposed) == sorted([*WORK, "request_log", '"Odd \\"Queue\\""'])
    # People's data is never proposed, and what cannot be kept says what is missing.
    for table in PEOPLE:
        assert f"# - {table}: no column says when a row may go" in text
    assert "# - keyless: it has no primary key and no unique index" in text
    for table in ("imported_events", "trace_spans"):
        assert re.search(rf"^  #   CREATE INDEX .*\"{table}_created_at_ms_idx\"", text, re.M)
        assert f"  # - table: {table}\n" in text
    # A table that is only appended to needs no index, and the proposal says why.
    assert "# No index leads to 'created_at_ms'. Rows are walked in the order of the key 'id'" in text
    assert text.count("grows_with_key: true") == 1
    assert re.search(r"^  - table: request_log\n(    .+\n)*    grows_with_key: true$", text, re.M)
    assert "together_with:\n      - { table: session_notes, on: { session: id } }" in text

    path = tmp_path / "app.yaml"
    path.write_text(text, encoding="utf-8")
    checked = lapse("contract", "check", path, "--json")
    assert checked.code == 0, checked.err + checked.out
    assert all(b["state"] == "ok" for b in checked.json["bounds"])


def test_an_empty_database(db, tmp_path):
    ran = lapse("contract", "init", db.uri)
    assert ran.code == 0 and "No bound can be used as it is" in ran.out


def test_a_password_stays_out_of_the_file(server):
    uri = server.url.replace("//lapse@", "//lapse:hunter2@")
    ran = lapse("contract", "init", uri)
    assert ran.code == 0, ran.err
    assert "hunter2" not in ran.out and "${APP_DATABASE_URL}" in ran.out
