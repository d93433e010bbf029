# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "api"), str(ROOT / "tests" / "provider")]


@pytest.fixture(scope="session", params=os.environ.get("STALWART", "").split() or [None],
                ids=lambda path: pathlib.Path(path).name if path else "none")
def server(request, tmp_path_factory):
    from server import Stalwart  # pylint: disable=import-outside-toplevel
    assert request.param, "say where the server is: make test-stalwart STALWART=/path/to/stalwart"
    with Stalwart(request.param, tmp_path_factory.mktemp("stalwart")) as running:
        yield running
