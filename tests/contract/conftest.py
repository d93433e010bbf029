# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import world  # noqa: E402  (the path comes first)
import postgres  # noqa: E402

NUMBERS = itertools.count()


# A zone of the session's own shows where a time was read in it.
SETTINGS = {"timezone": "Asia/Kolkata", "synchronous_commit": "off", "autovacuum": "off"}


@pytest.fixture(scope="session")
def server():
    """One PostgreSQL for each worker of the test run."""
    running = postgres.Postgres(SETTINGS)
    yield running
    running.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def db(request, tmp_path):
    """An empty database, once on each engine."""
    if request.param == "sqlite":
        return world.Sqlite(tmp_path)
    return world.Postgres(request.getfixturevalue("server"), f"t{next(NUMBERS)}")


@pytest.fixture
def pg(server):
    """An empty database on PostgreSQL, for what only it has."""
    return world.Postgres(server, f"t{next(NUMBERS)}")


@pytest.fixture
def contract(tmp_path, db):
    return lambda bounds, **options: world.Contract(tmp_path, db, bounds, **options)
