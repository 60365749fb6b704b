"""Methods that learn draw a trial's point when it is placed, not when it is created."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, config, training
from sqlalchemy import select

from detlab.schemas.wire import CreateExperiment, SteerSearch
from detlab_hub.core.searchers import RULES
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.suggestions import Suggestions
from detlab_hub.store.tables import SearcherJournal

TPE = {"name": "tpe", "metric": "loss", "max_trials": 20}


async def journal(world, experiment_id):
    def read(s):
        query = select(SearcherJournal).where(SearcherJournal.experiment_id == experiment_id)
        return [(row.event, row.decisions) for row in s.scalars(query.order_by(SearcherJournal.seq))]

    return await world.services.context.read(read)


async def finish(world, experiment_id):
    """Go on to the end; answer the questions of the search as the master does."""

    async def ended():
        await asyncio.gather(*world.services[Suggestions].take())
        return (await world.view(experiment_id)).state.terminal

    await world.until(ended)
    return await world.view(experiment_id)


async def warnings(world, **more):
    reply = await world.services[Experiments].create(
        ALICE, CreateExperiment(config=config({**TPE, **more}), dry_run=True)
    )
    return [one.message for one in reply.warnings]


async def test_trials_queue_without_a_point_that_is_drawn_when_they_are_placed(make_world):
    """Of 20 trials on 4 slots, 16 queue as ever, and 4 points are drawn: the others learn from their results."""
    world = await make_world(training(3))
    await world.add_agent(slots=4)
    made = await world.submit(config(TPE))
    assert all(one.point_due and one.hparams == {} for one in await world.trials(made.id))
    await world.step()
    trials = await world.trials(made.id)
    assert len(trials) == 16
    assert [one.index for one in trials if not one.point_due] == [0, 1, 2, 3]
    assert all(set(one.hparams) == set(made.config["hyperparameters"]) for one in trials if not one.point_due)
    view = await finish(world, made.id)
    assert view.state == "COMPLETED"
    ended = await world.trials(made.id)
    assert len(ended) == 20
    assert not any(one.point_due for one in ended)
    told = await journal(world, made.id)
    kinds = [event["type"] for event, _ in told]
    assert kinds.count("trial_placed") == 20
    assert told[0][0] == {"type": "started", "rules": RULES}
    asked = [one for _, decisions in told for one in decisions if one["type"] == "suggest"]
    assert sum(one["count"] for one in asked) == 14, "6 startup trials are random, the others are suggested"


async def test_a_master_that_dies_between_a_question_and_its_answer_launches_each_trial_once(make_world):
    """I8: the question stands in the journal; the trial has its slots, waits, and is launched with its point."""
    world = await make_world(training(3))
    await world.add_agent(slots=2)
    made = await world.submit(config({**TPE, "max_trials": 4, "startup_trials": 1}))
    await world.services.schedule()
    trials = await world.trials(made.id)
    due = [one for one in trials if one.point_due and one.allocation_state == "ASSIGNED"]
    assert len(due) == 1, "the second trial is placed, and its point is being computed"
    await world.reboot()
    view = await finish(world, made.id)
    assert view.state == "COMPLETED"
    ended = await world.trials(made.id)
    assert all(one.hparams and one.restarts == 0 for one in ended)


async def test_killing_a_trial_that_waits_for_its_point_frees_its_slot(make_world):
    world = await make_world(training(3))
    await world.add_agent(slots=2)
    made = await world.submit(config({**TPE, "max_trials": 4, "startup_trials": 1}))
    await world.services.schedule()
    [due] = [one for one in await world.trials(made.id) if one.point_due and one.allocation_state == "ASSIGNED"]
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="stop", trial_ids=[due.id]))
    view = await finish(world, made.id)
    assert view.state == "COMPLETED"
    ended = {one.id: one for one in await world.trials(made.id)}
    assert ended[due.id].point_due
    assert sum(one.point_due for one in ended.values()) == 1


@pytest.mark.parametrize(("slots", "limit", "warned"), [(4, 16, False), (4, 0, True), (20, 16, False), (20, 20, True)])
async def test_a_limit_that_makes_a_method_blind_is_warned_of(make_world, slots, limit, warned):
    world = await make_world(training(3))
    await world.add_agent(slots=slots)
    assert any("learns nothing" in said for said in await warnings(world, max_concurrent_trials=limit)) is warned


async def test_free_slots_for_all_trials_make_a_method_blind(make_world):
    world = await make_world(training(3))
    await world.add_agent(slots=12)
    assert any("the pool has 12 slots" in said for said in await warnings(world, max_trials=10))
