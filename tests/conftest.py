"""Fixtures shared by all tests: a fresh database of either kind."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from testbed import docker as docker_testbed
from testbed import docker_images, postgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script: the programs that tests interrupt would inherit the deafness.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A private PostgreSQL server for this test run."""
    postgres.sweep()
    try:
        server = postgres.up()
    except postgres.CannotRun as error:
        pytest.skip(str(error))
    yield server
    postgres.down(server.directory)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker_testbed.Engine]:
    """A private Docker engine for this test run, with the images of `testbed.docker_images`."""
    docker_testbed.sweep()
    try:
        found = docker_testbed.up()
    except docker_testbed.CannotRun as error:
        pytest.skip(str(error))
    try:
        docker_images.build_all(found)
        yield found
    finally:
        docker_testbed.down(found.directory)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, once of SQLite and once of PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/detlab.sqlite"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    database = f"detlab_{next(_numbers)}"
    server.sql(f"CREATE DATABASE {database}")
    yield server.url(database)
    server.sql(f"DROP DATABASE {database} WITH (FORCE)")


TESTS = Path(__file__).parent
# Where no test starts more than a database: these have one try.
ONE_TRY = ("unit", "integration/services", "integration/store", "simulation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests of whole clusters and browsers one second try: a busy machine is no bug; the summary names each."""
    for item in items:
        if config.pluginmanager.hasplugin("rerunfailures") and _starts_clusters(item):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


def _starts_clusters(item: pytest.Item) -> bool:
    return not any(item.path.is_relative_to(TESTS / part) for part in ONE_TRY)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name what has an address or a time stamp in it without them: every worker must find the same names."""
    if isinstance(val, bytes) and len(val) > 16:
        return f"{argname}-of-{len(val)}-bytes"
    return f"{argname}-{type(val).__name__}" if type(val) is object else None


# Reasons that no machine can mend by installing something: only these may be skipped where CI runs.
MAY_SKIP = ("needs a GPU", "needs a user other than root", "needs root")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Under CI (DETLAB_FAIL_ON_SKIP=1) a skip is a failure: what this machine can run must have run."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("DETLAB_FAIL_ON_SKIP") == "1":
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(MAY_SKIP):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped where nothing may be skipped: {reason}"
    return report
