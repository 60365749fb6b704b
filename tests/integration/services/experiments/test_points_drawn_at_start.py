"""Where a batch system places, a trial's point is drawn when its job runs and asks, not when it is handed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from batch_agent import Batch
from services_scripted import ALICE, config, training
from test_points_drawn_late import TPE, finish, journal, warnings

from detlab.errors import StaleAttempt
from detlab.schemas.wire import SteerSearch
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.suggestions import Suggestions
from detlab_hub.services.ingest.tasks import Tasks


async def batch(world: Any, **more: Any) -> Batch:
    agent = Batch(world, "batch", 0, **more)
    world.agents["batch"] = agent
    await agent.connect()
    return agent


async def suggested(world: Any, experiment_id: int) -> int:
    told = await journal(world, experiment_id)
    return sum(one["count"] for _, decisions in told for one in decisions if one["type"] == "suggest")


async def test_jobs_queue_without_a_point_that_is_drawn_when_they_run(make_world):
    """All 12 trials are handed over at once, two run at a time, and each point knows the results before it."""
    world = await make_world(training(3))
    agent = await batch(world)
    made = await world.submit(config({**TPE, "max_trials": 12, "startup_trials": 6}))
    await world.services.schedule()
    await agent.turn()
    trials = await world.trials(made.id)
    assert len(agent.waiting) + len(agent.tasks) == 12, "they are all in the queue of the batch system"
    assert [one.index for one in trials if not one.point_due] == [0, 1]
    view = await finish(world, made.id)
    assert view.state == "COMPLETED"
    ended = await world.trials(made.id)
    assert all(one.hparams and one.restarts == 0 and not one.point_due for one in ended)
    assert len(agent.launches) == 12, "each is launched once"
    kinds = [event["type"] for event, _ in await journal(world, made.id)]
    assert kinds.count("trial_placed") == 12
    assert kinds.index("validation_reported") < len(kinds) - kinds[::-1].index("trial_placed")
    assert await suggested(world, made.id) == 6, "6 startup trials are random, the others are suggested"


async def test_an_earlier_agent_gets_trials_with_their_points(make_world):
    world = await make_world(training(3))
    agent = await batch(world, asks=False)
    made = await world.submit(config({**TPE, "max_trials": 6, "startup_trials": 6}))
    await world.services.schedule()
    trials = await world.trials(made.id)
    assert not any(one.point_due for one in trials)
    assert (await finish(world, made.id)).state == "COMPLETED"
    assert agent.asked == []


async def test_a_master_that_dies_before_the_answer_gives_it_once(make_world):
    """I8: who asks again, the next master too, gets the point that the journal has."""
    world = await make_world(training(3))
    agent = await batch(world)
    made = await world.submit(config({**TPE, "max_trials": 4, "startup_trials": 1}))
    await world.services.schedule()
    await agent.turn()
    await agent.turn()
    due = [one for one in await world.trials(made.id) if one.point_due]
    assert len(due) == 3, "one has asked, and its point is being computed"
    await world.reboot()
    assert (await finish(world, made.id)).state == "COMPLETED"
    kinds = [event["type"] for event, _ in await journal(world, made.id)]
    assert kinds.count("trial_placed") == 4
    assert all(one.hparams and one.restarts == 0 for one in await world.trials(made.id))


async def test_I3_a_replaced_attempt_gets_no_point_and_draws_none(make_world):
    world = await make_world(training(3))
    agent = await batch(world, places=0)
    made = await world.submit(config({**TPE, "max_trials": 2}))
    await world.services.schedule()
    await agent.turn()
    first = next(iter(agent.waiting.values()))
    caller = await agent.caller(first)
    await world.services[Experiments].pause(ALICE, made.id)
    await agent.turn()
    await world.services[Experiments].activate(ALICE, made.id)
    await world.services.schedule()
    await agent.turn()
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].point(caller, 0.0)
    assert all(one.point_due for one in await world.trials(made.id))
    agent.places = 2
    assert (await finish(world, made.id)).state == "COMPLETED"
    assert not any(one.point_due for one in await world.trials(made.id))
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].point(caller, 0.0)


async def test_a_job_that_waits_for_its_point_leaves_at_once(make_world):
    """It was sent to the agent, which is told to end it; nothing was saved, so that nothing is waited for."""
    world = await make_world(training(3))
    agent = await batch(world)
    made = await world.submit(config({**TPE, "max_trials": 4, "startup_trials": 1}))
    await world.services.schedule()
    await agent.turn()
    await agent.turn()
    key = agent.asked[-1]
    [due] = [one for one in await world.trials(made.id) if one.point_due and one.index == 1]
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="stop", trial_ids=[due.id]))
    await agent.turn()
    assert key not in agent.waiting
    assert (await finish(world, made.id)).state == "COMPLETED"
    ended = {one.id: one for one in await world.trials(made.id)}
    assert ended[due.id].point_due
    assert sum(one.point_due for one in ended.values()) == 1


async def test_a_question_waits_for_the_answer(make_world):
    world = await make_world(training(3))
    agent = await batch(world, places=0)
    made = await world.submit(config({**TPE, "max_trials": 4, "startup_trials": 1}))
    await world.services.schedule()
    await agent.turn()
    callers = [await agent.caller(launch) for launch in agent.waiting.values()]
    assert (await world.services[Tasks].point(callers[0], 0.0)).ready
    waits = asyncio.create_task(world.services[Tasks].point(callers[1], 30.0))
    while not world.services.context.questions:
        await asyncio.sleep(0.01)
    assert not waits.done()
    await asyncio.gather(*world.services[Suggestions].take())
    reply = await waits
    assert reply.ready
    assert reply == await world.services[Tasks].point(callers[1], 0.0)
    [row] = [one for one in await world.trials(made.id) if one.index == 1]
    assert row.hparams == reply.hparams


@pytest.mark.parametrize(("places", "asks", "warned"), [(2, True, False), (20, True, True), (2, False, True)])
async def test_a_batch_system_makes_a_method_blind_only_by_its_size(make_world, places, asks, warned):
    world = await make_world(training(3))
    await batch(world, places=places, asks=asks)
    assert any("learns nothing" in said for said in await warnings(world, max_trials=10)) is warned
