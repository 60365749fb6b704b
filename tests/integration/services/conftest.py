"""A world to play in, on either database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services_scripted import Script, World, training

from detlab_hub.store import store
from testbed.engines import sharing


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
