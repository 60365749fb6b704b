"""kill -9 of the master's own process at a commit of its database, before it or after it: the search ends the same.

Ten points for each database; all of them with DETLAB_ALL_CRASH_POINTS=1 (`make soak`). Every point in one process,
without HTTP: `tests/integration/services/lifecycle/test_crash_points.py`.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from detlab_hub.store import InlineExecutor, Store
from testbed import small_search
from testbed.cluster import Cluster
from testbed.crash_points import ALL, CALM, CrashPoint
from testbed.databases import postgres
from testbed.master_forks import Masters
from testbed.scripted_node import Node, service_at

pytestmark = [pytest.mark.hub, pytest.mark.slow]

POINTS = 10
LEAST = 40
"""Commits that the search has at least."""
_numbers = itertools.count(1)
Databases = Callable[[], Any]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Databases:
    """Makes databases with a schema and nothing in it, copied from one."""
    if request.param == "sqlite":
        return sqlite_databases(tmp_path)
    return postgres_databases(request.getfixturevalue("postgres_server"))


def sqlite_databases(folder: Path) -> Databases:
    Store.open(f"sqlite:///{folder}/empty.sqlite", holder="setup", writer=InlineExecutor()).close()

    @contextmanager
    def database() -> Iterator[str]:
        path = folder / f"{next(_numbers)}.sqlite"
        shutil.copyfile(folder / "empty.sqlite", path)
        yield f"sqlite:///{path}"

    return database


def postgres_databases(server: postgres.Server) -> Databases:
    empty = f"killed_empty_{next(_numbers)}"
    server.sql(f"CREATE DATABASE {empty}")
    Store.open(server.url(empty), holder="setup", writer=InlineExecutor()).close()

    @contextmanager
    def database() -> Iterator[str]:
        name = f"killed_{next(_numbers)}"
        server.sql(f"CREATE DATABASE {name} TEMPLATE {empty}")
        yield server.url(name)
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")

    return database


def spread(commits: int, count: int) -> list[CrashPoint]:
    """So many points from the first commit to the last, by turns before it and after it."""
    return [CrashPoint(1 + number * (commits - 1) // (count - 1), number % 2 == 1) for number in range(count)]


@pytest.mark.parametrize("commits", range(LEAST, 3 * LEAST))
def test_points_are_spread_over_both_sides_of_the_commits(commits: int) -> None:
    """However many commits there are: a stride over (before, after, before, after, …) may meet one side alone."""
    points = spread(commits, POINTS)
    assert [point.after for point in points].count(True) == POINTS / 2
    assert (points[0].at, points[-1].at) == (1, commits)
    assert len(set(points)) == POINTS


@pytest.mark.timeout(3600 if ALL else 600)
async def test_I1_I4_I5_I7_I8_kill_9_of_the_master_at_its_commits_changes_nothing(
    databases: Databases, cluster: Cluster, forks: Masters, tmp_path: Path
) -> None:
    commits = tmp_path / "commits"

    async def attempt(point: CrashPoint) -> Any:
        with databases() as url:
            service, enrolment = service_at(url, cluster, forks, tmp_path / "state")
            service.start(at=point.at, after=point.after, **({"commits": str(commits)} if point == CALM else {}))
            try:
                await Node(service, cluster.token, enrolment).search()
                if point != CALM and not service.deaths:  # fewer commits than in the calm run: the next one will be it
                    assert forks.wait(service.process) == -signal.SIGKILL, str(point)
                assert service.deaths in ([], [-signal.SIGKILL]), service.log.read_text(encoding="utf-8")
                return small_search.outcome_in(url)
            finally:
                forks.end(service.process)

    calm = await attempt(CALM)
    total = commits.stat().st_size
    assert total >= LEAST
    every = [CrashPoint(at, after) for at in range(1, total + 1) for after in (False, True)]
    for point in every if ALL else spread(total, POINTS):
        assert await attempt(point) == calm, f"a master killed {point} changed the outcome"
    print(f"{total} commits")
