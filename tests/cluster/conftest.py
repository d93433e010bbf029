# SPDX-License-Identifier: Apache-2.0
"""Three replicas of lapsed on a private PostgreSQL server."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "double"), str(HERE.parent / "api")]
os.environ["TEST_STORE"] = "postgres"

from cluster import Cluster  # noqa: E402
from postgres import Postgres  # noqa: E402


@pytest.fixture(scope="session")
def server():
    one = Postgres({"max_connections": "200", "track_commit_timestamp": "on"})
    yield one
    one.stop()


@pytest.fixture
def cluster(server, tmp_path):
    """cluster(**settings) gives three running replicas on a database of their own."""
    made = []

    def make(count=3, **settings):
        made.append(Cluster(server, tmp_path / f"cluster-{len(made)}", count, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
