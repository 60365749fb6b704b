"""Whatever reads much for a person is made in that person's turn: nobody holds all readers of the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from services_scripted import ALICE, BOB, config

from detlab.schemas.wire.registry import CreateModel
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.context import LISTING
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.trash import Trash
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models

HEAVY = {
    "agents": lambda services, number: services[Agents].list(BOB),
    "jobs": lambda services, number: services[Jobs].list(BOB),
    "why": lambda services, number: services[Jobs].why(BOB, str(number)),
    "queue": lambda services, number: services[Queue].view(BOB),
    "replay": lambda services, number: services[SearchSteering].replay(BOB, number, None),
    "timeline": lambda services, number: services[Timeline].view(BOB, number),
    "collection": lambda services, number: services[Collecting].preview(BOB, number),
    "trash": lambda services, number: services[Trash].look(BOB),
    "usage": lambda services, number: services[Usage].view(BOB),
    "words": lambda services, number: services[Models].words(BOB),
    "history": lambda services, number: services[Labels].history(BOB, "mine"),
}


@pytest.mark.parametrize("name", HEAVY)
async def test_what_reads_much_waits_for_its_turn(make_world: Any, name: str) -> None:
    world = await make_world()
    services = world.services
    made = await world.submit(config(), caller=BOB, activate=False)
    await services[Models].create(BOB, CreateModel(name="mine"))
    places = [services.context.listing.of(ALICE.name) for _ in range(LISTING)]
    for place in places:
        await place.__aenter__()
    asked = asyncio.ensure_future(HEAVY[name](services, made.id))
    await asyncio.sleep(0.1)
    waits = not asked.done()
    for place in places:
        await place.__aexit__(None, None, None)
    await asked
    assert waits
