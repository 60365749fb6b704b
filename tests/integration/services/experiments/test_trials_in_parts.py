"""A search that decides on many trials at once gets them in parts, each in a transaction of its own."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, config, training
from test_points_drawn_late import journal

from detlab.schemas.wire import SteerSearch
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.lifecycle import trials_to_make

MANY = {"name": "random", "metric": "loss", "max_trials": 12, "max_concurrent_trials": 0}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_to_make, "PART", 5)
    monkeypatch.setattr(trials_to_make, "PARTS", 1)


async def due(world):
    return await world.services.context.read(trials_to_make.due)


async def test_the_rest_of_the_trials_follows_in_order(make_world):
    world = await make_world(training(3))
    made = await world.submit(config(MANY))
    counts = [len(await world.trials(made.id))]
    while await due(world):
        await world.services.tick()
        counts.append(len(await world.trials(made.id)))
    assert counts == [5, 10, 12]
    told = await journal(world, made.id)
    assert [event["type"] for event, _ in told] == ["started", *["trial_created"] * 12]
    decided = [one["request_id"] for one in told[0][1]]
    assert [event["request_id"] for event, _ in told[1:]] == decided
    assert [one.index for one in await world.trials(made.id)] == list(range(12))
    await world.add_agent(slots=4)
    assert (await world.finish(made.id)).state == "COMPLETED"


async def test_I1_I8_a_master_that_dies_between_two_parts_goes_on(make_world):
    world = await make_world(training(3))
    made = await world.submit(config(MANY))
    await world.reboot()
    await world.services.tick()
    assert len(await world.trials(made.id)) == 10
    await world.reboot()
    await world.add_agent(slots=4)
    assert (await world.finish(made.id)).state == "COMPLETED"
    trials = await world.trials(made.id)
    assert [one.index for one in trials] == list(range(12))
    assert len({str(one.hparams) for one in trials}) == 12
    kinds = [event["type"] for event, _ in await journal(world, made.id)]
    assert kinds.count("trial_created") == kinds.count("trial_exited") == 12


async def test_trials_of_a_search_that_ends_before_they_are_made_are_not(make_world):
    world = await make_world(training(3))
    made = await world.submit(config(MANY))
    await world.services[Experiments].kill(ALICE, made.id)
    await world.steps(2)
    assert (await world.view(made.id)).state == "CANCELED"
    assert len(await world.trials(made.id)) == 5
    assert await due(world) == []


async def test_a_paused_search_gets_them_once_it_is_active(make_world):
    world = await make_world(training(3))
    made = await world.submit(config(MANY))
    await world.services[Experiments].pause(ALICE, made.id)
    await world.services.tick()
    assert len(await world.trials(made.id)) == 5
    await world.services[Experiments].activate(ALICE, made.id)
    await world.add_agent(slots=4)
    assert (await world.finish(made.id)).state == "COMPLETED"
    assert len(await world.trials(made.id)) == 12


async def test_a_goal_that_is_reached_before_they_are_made_ends_the_search(make_world):
    """It stops all trials, those too that were not made: each has an end, and the search its own."""
    world = await make_world(training(3))
    await world.add_agent(slots=4)
    made = await world.submit(config({**MANY, "goal": 1e9}))
    await world.services.schedule()
    for _ in range(20):
        for agent in world.agents.values():
            await agent.turn()
        if (await world.view(made.id)).state.terminal:
            break
    assert (await world.finish(made.id)).state == "COMPLETED"
    assert [one.index for one in await world.trials(made.id)] == list(range(12))
    assert await due(world) == []


async def test_an_extension_by_many_trials_comes_in_parts(make_world):
    world = await make_world(training(3))
    made = await world.submit(config({**MANY, "max_trials": 2}))
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="extend", trials=9))
    assert len(await world.trials(made.id)) == 7
    await world.services.tick()
    assert len(await world.trials(made.id)) == 11
    await world.add_agent(slots=4)
    assert (await world.finish(made.id)).state == "COMPLETED"
