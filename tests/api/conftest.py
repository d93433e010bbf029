# SPDX-License-Identifier: Apache-2.0
"""Fixtures: daemons of a test or of a module, a name nobody else uses, a limit on every test's time."""
import itertools
import signal
import tempfile

import hypothesis.configuration
import pytest

import harness
import stores

TEST_LIMIT_S = 90

# Nothing is worth keeping between runs, and the source tree is not the place for it.
hypothesis.configuration.set_hypothesis_home_dir(tempfile.gettempdir() + "/lapse-hypothesis")


@pytest.fixture
def start(tmp_path):
    """start(**settings) gives a running Daemon; without `data_dir` each has its own directory.

    Those still running when the test ends are stopped and must end with 0.
    """
    started, numbers = [], itertools.count()

    def start_one(**options):
        options.setdefault("data_dir", tmp_path / f"data-{next(numbers)}")
        daemon = harness.Daemon(**options)
        started.append(daemon)
        return daemon.start()

    yield start_one
    for daemon in reversed(started):
        daemon.stop()


@pytest.fixture
def daemon(start):
    """A fresh daemon with default settings."""
    return start()


@pytest.fixture
def api(daemon):
    return daemon.client()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One daemon for a module, for tests that look only at agents of their own."""
    with harness.Daemon(tmp_path_factory.mktemp("shared") / "data") as daemon:
        yield daemon


@pytest.fixture
def shared_api(shared):
    client = shared.client()
    yield client
    client.close()


_agents = itertools.count()


@pytest.fixture
def agent():
    """An agent no other test of the process knows."""
    return f"agent-{next(_agents)}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A test that hangs fails with a trace instead."""
    def give_up(_signum, _frame):
        raise TimeoutError("the test took too long (see limit_s)")

    harness.STARTED[:] = [daemon for daemon in harness.STARTED if daemon.process is not None]
    stores.forget(stores.known() - {daemon.data_dir for daemon in harness.STARTED})
    before = signal.signal(signal.SIGALRM, give_up)
    own = item.get_closest_marker("limit_s")
    signal.alarm(own.args[0] if own else TEST_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_collection_modifyitems(items):
    for item in items:
        only = item.get_closest_marker("sqlite")
        if only and stores.KIND != "sqlite":
            item.add_marker(pytest.mark.skip(reason=f"SQLite only: {only.args[0]}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for daemon in harness.STARTED:
            text = "\n".join(daemon.log().splitlines()[-40:])
            report.sections.append((f"log of lapsed on {daemon.address}, last lines", text))
