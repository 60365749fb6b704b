"""Fixtures shared by all tests: a database of either kind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx._transports.default
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from testbed.containers import docker as docker_testbed
from testbed.containers import docker_images
from testbed.databases import postgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script: the programs that tests interrupt would inherit the deafness.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests make thousands of HTTP clients, many of them in waiting loops, and each would read the certificates of the world
# anew, which takes 50 ms of processor time. What is read is the same each time.
httpx._transports.default.create_ssl_context = cache(httpx._transports.default.create_ssl_context)

# Machines that run the tests are shared: no deadline per example.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

_numbers = itertools.count(1)

_failed: dict[str, None] = {}
"""Ids of tests that failed in this run, in order."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the ids of failed tests in the file that `DETLAB_FAILED_TESTS` names, for `again.sh`."""
    path = os.environ.get("DETLAB_FAILED_TESTS")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(f"{name}\n" for name in _failed), encoding="utf-8")


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
    """A private Docker engine for this test run, with the images of `testbed.containers.docker_images`."""
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse ids with addresses of objects: workers would disagree about what there is, and run nothing."""
    unsteady = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unsteady:
        raise pytest.UsageError(f"the id has the address of an object, give ids=[…]: {unsteady[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Thousands of tests are collected, and stay: to look through them for garbage takes half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class Folder(pytest.Package):
    """A folder of tests with fixtures of its own: those of scope `package` end when its last test here has run."""

    def setup(self) -> None:
        """There is no `__init__.py` to import."""


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Let fixtures have a folder for their scope: a cluster that nobody asks any more costs memory and processor."""
    if (path / "conftest.py").is_file() and not (path / "__init__.py").exists():
        return Folder.from_parent(parent, path=path)
    return None


DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def migrated(url: str) -> None:
    """Give a database the newest schema as a master does that opens it, but no lease and no other row."""
    from detlab_hub.store import migrate
    from detlab_hub.store.engine import parse_url, writer_engine

    migrate.check_file(parse_url(url))
    engine = writer_engine(parse_url(url))
    with engine.begin() as connection:
        migrate.upgrade(connection)
    engine.dispose()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that `sqlite_url` copies."""
    path = tmp_path_factory.mktemp("migrated") / "detlab.sqlite"
    migrated(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: postgres.Server) -> Iterator[str]:
    """The name of a database that `db_url` copies."""
    with postgres_server.database("detlab_migrated") as url:
        migrated(url)
        yield "detlab_migrated"


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """The URL of an SQLite database with the newest schema and nothing in it."""
    shutil.copy(migrated_sqlite, tmp_path / "detlab.sqlite")
    return f"sqlite:///{tmp_path}/detlab.sqlite"


@pytest.fixture(params=DATABASES)
def db_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with the newest schema and nothing in it, once of SQLite and once of PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.database(f"detlab_{next(_numbers)}", request.getfixturevalue("migrated_postgres")) as url:
        yield url


@pytest.fixture(params=DATABASES)
def empty_db_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table: for tests of how masters open, migrate and take one."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/detlab.sqlite"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.database(f"detlab_{next(_numbers)}") as url:
        yield url


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name what has an address or a time stamp in it without them: every worker must find the same names."""
    if isinstance(val, bytes) and len(val) > 16:
        return f"{argname}-of-{len(val)}-bytes"
    return f"{argname}-{type(val).__name__}" if type(val) is object else None


# Reasons that no machine can mend by installing something: only these may be skipped where CI runs.
MAY_SKIP = (
    "needs a GPU",
    "needs a user other than root",
    "needs root",
    "needs a kernel that lets one process trace",
    "needs a machine without sshd",
)


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


LONG_RUN = 300.0
"""Seconds of tests from which on the files that took most of them are printed."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files that left something behind, and after a long run those that took most of it."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    seconds: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    if (total := seconds.total()) > LONG_RUN:
        terminalreporter.section(f"slowest 40 of {len(seconds)} files: {total:.0f} s of all workers")
        for path, took in seconds.most_common(40):
            terminalreporter.write_line(f"{took:7.1f}s {path}")
    said = {
        value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "left behind"
    }
    for line in sorted(said):
        terminalreporter.write_line(line, yellow=True)
