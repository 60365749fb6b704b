"""The scripted world of the services' tests, for the Hub's spawner."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "services"))

from services_scripted import World


def _wait(launch: Any) -> Any:
    while True:
        yield ("wait",)


@pytest.fixture
async def make_world(db_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[World]]]:
    """Make worlds on the test's database, whose tasks run until they are killed; closed at the end."""
    made: list[World] = []

    async def make(script: Any = None, **more: Any) -> World:
        world = World(db_url, tmp_path, script=script or _wait, **more)
        await world.boot()
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()
