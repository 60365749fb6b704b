from __future__ import annotations

import pytest
from services_scripted import ALICE, config, report

from detlab.schemas.wire.registry import CreateModel, CreateVersion
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions


def scoring(launch):
    """Reports and saves three times: accuracy grows, loss falls."""
    for step in (1, 2, 3):
        yield report(step, loss=1.0 / step, accuracy=step / 10, batches=step)
        yield ("metrics", "training", step, {"loss": 2.0 / step})
        yield ("save", step)
    yield ("exit", 0)


class Place:
    """A world with one ended experiment of Alice's, that has three checkpoints, and her model `digits`."""

    def __init__(self, world, experiment, checkpoints):
        self.world, self.experiment, self.checkpoints = world, experiment, checkpoints

    @property
    def services(self):
        return self.world.services

    async def model(self, name="digits", caller=ALICE, **more):
        return await self.services[Models].create(caller, CreateModel(name=name, **more))

    async def register(self, place, model="digits", caller=ALICE, **more):
        wanted = CreateVersion(checkpoint=self.checkpoints[place], **more)
        return await self.services[Versions].register(caller, model, wanted)


@pytest.fixture
async def place(make_world):
    world = await make_world(scoring)
    await world.add_agent()
    made = await world.submit(config(name="mine", hyperparameters={"lr": 0.1}))
    await world.finish(made.id)
    found = await world.services[Experiments].checkpoints(ALICE, made.id)
    here = Place(world, made.id, [one.uuid for one in sorted(found, key=lambda item: item.steps_completed)])
    await here.model()
    return here
