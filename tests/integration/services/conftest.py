"""A world to play in, on either database."""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services_scripted import Script, World, training

from detlab_hub.store import store
from testbed.databases.engines import sharing

HERE = Path(__file__).parent
ALWAYS_ON_BOTH = {
    "test_crash_points.py",
    "test_faces_overview.py",
    "test_gaps_commits.py",
    "test_log_retention.py",
    "test_log_search.py",
    "test_services_chaos.py",
    "test_services_promises.py",
    "test_stream_tails.py",
    "test_task_tokens.py",
    "test_turns_together.py",
    "test_upgrades.py",
}
"""What databases do differently, or what must be shown on each: commits and crashes, migrations, searches and lists."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `DETLAB_ONE_DATABASE=1` most tests of the services run on one database, half of them on PostgreSQL.

    `make test` sets it for its half an hour: what the store does on either is tested in `tests/integration/store`, and
    `make soak` runs all of these on both.
    """
    if os.environ.get("DETLAB_ONE_DATABASE") != "1":
        return
    elsewhere = [item for item in items if _is_on_the_other_database(item)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if item not in set(elsewhere)]


def _is_on_the_other_database(item: pytest.Item) -> bool:
    if HERE not in item.path.parents or item.path.name in ALWAYS_ON_BOTH:
        return False
    drawn = getattr(item, "callspec", None)
    database = None if drawn is None else drawn.params.get("db_url")
    if database is None:
        return False
    rest = "-".join(part for part in drawn.id.split("-") if part != database)
    test = f"{item.path.name}::{getattr(item, 'originalname', item.name)}[{rest}]"
    return bool(zlib.crc32(test.encode()) % 2) == (database == "sqlite")


@pytest.fixture
async def make_world(db_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[World]]]:
    """Make worlds on the test's database; the last one is closed at the end."""
    made: list[World] = []

    async def make(script: Script | None = None, **more: Any) -> World:
        world = World(db_url, tmp_path, script=script or training(3), **more)
        await world.boot()
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


@pytest.fixture(scope="package", autouse=True)
def compiled_once() -> Iterator[None]:
    """Every world has engines of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("writer_engine", "reader_engine"):
            patch.setattr(store, name, sharing(getattr(store, name)))
        yield
