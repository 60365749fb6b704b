"""A world to play in, on either database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services_scripted import Script, World, training
from sqlalchemy import Engine

from detlab_hub.store import store


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
    """Every world has engines of its own, and each would compile every statement again: half of what a start takes."""
    first: dict[tuple[str, str], Engine] = {}

    def sharing(make: Callable[..., Engine]) -> Callable[..., Engine]:
        def made(*arguments: Any) -> Engine:
            engine = make(*arguments)
            kind = (make.__name__, engine.dialect.name)
            if kind not in first:
                first[kind] = engine
                engine.connect().close()  # the dialect learns of the database
            engine.dialect, engine._compiled_cache = first[kind].dialect, first[kind]._compiled_cache
            return engine

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("writer_engine", "reader_engine"):
            patch.setattr(store, name, sharing(getattr(store, name)))
        yield
