"""Whatever reads much for a person is made in that person's turn: nobody holds all readers of the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from services_scripted import ALICE, BOB, config

from detlab.schemas.wire.registry import CreateModel
from detlab_hub.services.kernel.shell import LISTING

HEAVY = {
    "agents": lambda services, number: services.agents.list(BOB),
    "jobs": lambda services, number: services.jobs.list(BOB),
    "why": lambda services, number: services.jobs.why(BOB, str(number)),
    "queue": lambda services, number: services.queue.view(BOB),
    "replay": lambda services, number: services.steering.replay(BOB, number, None),
    "timeline": lambda services, number: services.timeline.view(BOB, number),
    "collection": lambda services, number: services.collecting.preview(BOB, number),
    "trash": lambda services, number: services.trash.look(BOB),
    "usage": lambda services, number: services.usage.view(BOB),
    "words": lambda services, number: services.models.words(BOB),
    "history": lambda services, number: services.version_labels.history(BOB, "mine"),
}


@pytest.mark.parametrize("name", HEAVY)
async def test_what_reads_much_waits_for_its_turn(make_world: Any, name: str) -> None:
    world = await make_world()
    services = world.services
    made = await world.submit(config(), caller=BOB, activate=False)
    await services.models.create(BOB, CreateModel(name="mine"))
    places = [services.shell.listing.of(ALICE.name) for _ in range(LISTING)]
    for place in places:
        await place.__aenter__()
    asked = asyncio.ensure_future(HEAVY[name](services, made.id))
    await asyncio.sleep(0.1)
    waits = not asked.done()
    for place in places:
        await place.__aexit__(None, None, None)
    await asked
    assert waits
