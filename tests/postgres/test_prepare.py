# SPDX-License-Identifier: Apache-2.0
"""Everything the program says to its database, PostgreSQL 15 understands."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from postgres import postgres_server  # noqa: F401 (a fixture)
from statements import ROOT, SOURCE, Unseen, collect, read_mentions

BUILD = Path(os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))).resolve().parent
# SQL_CHOOSE and SQL_SKIP_LOCKED in store/sql.h, and what the driver makes of them.
MARKS = {"IN (/*choose*/": "= ANY (ARRAY(", "/*skip locked*/)": " FOR UPDATE SKIP LOCKED))"}


@pytest.fixture(scope="module")
def texts():
    return json.loads(subprocess.check_output([BUILD / "tests" / "postgres" / "postgres_texts"]))


@pytest.fixture(scope="module")
def server(postgres_server, texts):  # noqa: F811
    postgres_server.run(texts["schema"])
    return postgres_server


@pytest.fixture(scope="module")
def statements():
    return collect(BUILD)


def complaints(server, named):
    """{name: error} of those that do not prepare, in one session; \\warn tells them apart."""
    script = ["\\set ON_ERROR_STOP off"]
    for i, (name, sql) in enumerate(named.items()):
        for ours, theirs in MARKS.items():
            sql = sql.replace(ours, theirs)
        script += [f"\\warn === {name}", f"PREPARE s{i} AS {sql};"]
    parts = server.run_whole("\n".join(script)).split("=== ")[1:]
    assert len(parts) == len(named)
    return {name: error for name, _, error in (part.partition("\n") for part in parts)
            if error.strip()}


def test_the_server_is_the_version_we_support(server):
    assert server.run("SHOW server_version").startswith("15.")


def test_every_static_statement_prepares(server, statements):
    assert len(statements) > 120
    assert complaints(server, statements) == {}


def test_a_statement_that_does_not_prepare_is_named(server):
    bad = complaints(server, {"good": "SELECT 1", "bad": "SELECT nothing FROM nowhere"})
    assert list(bad) == ["bad"] and "nowhere" in bad["bad"]


def test_every_bounds_statement_prepares(server, texts):
    named = {f"{bound}.{kind}": sql for bound, kinds in texts["bounds"].items()
             for kind, sql in kinds.items()}
    assert len(named) > 30
    assert complaints(server, named) == {}


def test_the_schema_keeps_its_promises(server):
    columns = server.run(
        "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || "
        "coalesce(collation_name, '') FROM information_schema.columns "
        "WHERE table_schema = 'public'").splitlines()
    assert "messages.timestamp bigint " in columns
    assert "messages.content text C" in columns
    assert {line.split()[1] for line in columns} == {"bigint", "text"}
    assert not [line for line in columns if line.split()[1] == "text" and not line.endswith(" C")]
    assert server.run("SELECT count(*) FROM pg_indexes WHERE indexname = 'messages_due'") == "1\n"


def test_other_sql_has_one_place():
    """Scripts are the schema's business; everything else is a statement the tests above see."""
    callers = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.c")
               if re.search(r"\bdb_script\(", path.read_text())}
    assert {name for name in callers if not name.startswith("store/sqlite/")} == {
        "store/db.c", "store/migrate.c", "store/postgres/move.c"}


@pytest.mark.parametrize("text", [
    "static const struct db_stmt MANY[] = { { \"SELECT 1\" } };",
    "q = db_query(db, &(const struct db_stmt){ \"SELECT 1\" });",
    "struct db_stmt made; made.sql = text;",
    "static const struct db_stmt X = { .sql = \"SELECT 1\" };",
    "struct table { struct db_stmt find; };",
])
def test_a_statement_in_another_form_is_noticed(text):
    with pytest.raises(Unseen):
        list(read_mentions(SOURCE / "x.c", text))


def test_a_statement_is_read_as_the_compiler_reads_it():
    text = 'static const struct db_stmt A = {\n\t"SELECT \\"a\\" "\n\t"FROM t"\n};'
    assert list(read_mentions(SOURCE / "x.c", text)) == [("x.c:A", 'SELECT "a" FROM t')]
