"""Searches that pause trials, on a whole master: slots are freed, trials resume, clones start from their parents."""

from __future__ import annotations

from services_scripted import ALICE, World, config, report, training
from sqlalchemy import select

from detlab.errors import Conflict
from detlab.schemas.wire import ExperimentState, TrialState
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.store.tables import CheckpointRow, TrialRow

PBT = {
    "name": "pbt",
    "metric": "loss",
    "time_metric": "batches",
    "population_size": 4,
    "num_rounds": 3,
    "length_per_round": 2,
    "replace_function": {"truncate_fraction": 0.25},
}


def rows(world: World, kind):
    return list(world.store.read_sync(lambda s: s.scalars(select(kind)).all()))


def worse_and_worse(launch):
    """Train as `training` does; the trials that were created first are the best."""
    start = yield ("resume",)
    for step in range(start + 1, 20):
        yield report(step, loss=launch.info.trial_index + 1.0 / step, batches=step)
        if (yield ("poll",)):
            yield ("save", step)
            yield ("exit", 0)


async def ended(world: World, experiment_id: int):
    async def over() -> bool:
        return (await world.view(experiment_id)).state.terminal

    await world.until(over)
    return await world.view(experiment_id)


def watch(agent) -> list:
    """Return the list of an agent's launches to come: trial and checkpoint."""
    seen = []
    hear = agent._hear

    async def heard(message):
        if message.type == "launch":
            seen.append((message.info.trial_id, message.info.latest_checkpoint))
        await hear(message)

    agent._hear = heard
    return seen


async def test_asha_runs_more_trials_than_slots_by_pausing_them_at_their_rungs(make_world):
    world = await make_world(worse_and_worse)
    agent = await world.add_agent(slots=1)
    launched = watch(agent)
    searcher = {
        "name": "asha",
        "metric": "loss",
        "time_metric": "batches",
        "max_time": 9,
        "divisor": 3,
        "max_trials": 9,
    }
    made = await world.submit(config({**searcher, "max_concurrent_trials": 2}))
    view = await ended(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = rows(world, TrialRow)
    assert len(trials) == 9
    order = [trial for trial, _ in launched]
    resumed = [at for at, (trial, _) in enumerate(launched) if trial in order[:at]]
    assert resumed, "a promoted trial is launched again"
    assert all(launched[at][1] is not None for at in resumed), "from its checkpoint"
    # With one slot, others can only have run between a trial's launches because it had left its slot.
    assert all(order[order.index(order[at]) + 1 : at] for at in resumed)


def best_ends_early(launch):
    """Train as `worse_and_worse`, but the best trial's code ends with its first round."""
    if launch.info.trial_index > 0:
        yield from worse_and_worse(launch)
        return
    for step in (1, 2):
        yield report(step, loss=0.0, batches=step)
    yield ("save", 2)
    yield ("exit", 0)


async def test_pbt_clones_start_from_their_parents_checkpoints_which_cannot_be_deleted_before(make_world):
    world = await make_world(best_ends_early)
    agent = await world.add_agent(slots=1)
    launched = watch(agent)
    made = await world.submit(config(PBT))
    refused = []

    async def over() -> bool:
        for row in rows(world, CheckpointRow):
            try:
                await world.services[Removals].delete(ALICE, row.uuid)
            except Conflict as error:
                refused.append(error.message)
        return (await world.view(made.id)).state.terminal

    await world.until(over)
    assert (await world.view(made.id)).state is ExperimentState.COMPLETED
    clones = [trial for trial in rows(world, TrialRow) if trial.parent_checkpoint is not None]
    assert [trial.idx for trial in clones] == [4, 5]
    for clone in clones:
        assert next(uuid for trial, uuid in launched if trial == clone.id) == clone.parent_checkpoint
    assert any("may start further trials from it" in message for message in refused), "its trial has ended"
    views = await world.trials(made.id)
    parents = [(one.index, one.parent and one.parent.parent_id) for one in views]
    assert all((parent is not None) == (index >= 4) for index, parent in parents)
    told = {one.trial_id: one.parent_id for one in [view.parent for view in views] if one is not None}
    replay = await world.services[SearchSteering].replay(ALICE, made.id, None)
    assert told == {one.id: one.parent.parent_id for one in replay.trials if one.parent is not None}
    assert any("in round 1: " in view.stop_evidence for view in views), [view.stop_evidence for view in views]
    assert any("in round 1: " in one.why for one in replay.trials)


def forgetful(launch):
    """Report at every step, and leave without a checkpoint when told to."""
    for step in range(1, 20):
        yield report(step, loss=float(launch.info.trial_index), batches=step)
        if (yield ("poll",)):
            yield ("exit", 0)


async def test_pbt_without_checkpoints_pauses_the_experiment_which_continues_once_the_code_is_mended(make_world):
    world = await make_world(forgetful)
    await world.add_agent(slots=4)
    made = await world.submit(config(PBT))

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    view = await world.view(made.id)
    assert "left round 1 without a checkpoint" in view.failure.message
    assert TrialState.ERROR.value not in {trial.state for trial in rows(world, TrialRow)}
    world.script = training(20)
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await ended(world, made.id)).state is ExperimentState.COMPLETED
