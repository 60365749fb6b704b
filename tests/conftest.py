"""Fixtures shared by all tests: a fresh database of either kind."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from testbed import postgres

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
