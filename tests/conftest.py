"""Fixtures shared by all tests: a fresh database of either kind."""

from __future__ import annotations

import asyncio
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """A file's browser that ended badly leaves its event loop marked as running: say so, and spare the next files."""
    try:
        yield
    finally:
        if (nextitem is None or nextitem.path != item.path) and (left := asyncio._get_running_loop()) is not None:
            asyncio._set_running_loop(None)
            item.user_properties.append(("left behind", f"{item.path.name} left a running event loop: {left!r}"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files that left something behind."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    said = {
        value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "left behind"
    }
    for line in sorted(said):
        terminalreporter.write_line(line, yellow=True)
