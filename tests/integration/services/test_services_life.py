"""Whole lives of experiments, with scripted agents and tasks."""

from __future__ import annotations

from services_scripted import asha, config, training

from detlab.schemas.wire import EndReason, ExperimentState, TrialState


async def test_services_single_from_submit_to_completed(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config())
    assert made.state is ExperimentState.ACTIVE
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.progress == 1.0
    (trial,) = await world.trials(made.id)
    assert trial.state is TrialState.COMPLETED
    assert trial.end_reason is EndReason.COMPLETED
    assert (trial.run, trial.restarts, trial.steps_completed) == (1, 0, 3)
    assert view.best is not None
    assert view.best.steps_completed == 3
    full = await world.services.trials.get(world_owner(), trial.id)
    assert full.summary["validation"]["loss"].count == 3


def world_owner():
    from services_scripted import ALICE

    return ALICE


async def test_services_asha_stops_trials_and_completes(make_world):
    world = await make_world(training(9))
    await world.add_agent(slots=2)
    made = await world.submit(config(asha()))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(made.id)
    assert len(trials) == 8
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}
    stopped = [trial for trial in trials if trial.end_reason is EndReason.STOPPED]
    assert len(stopped) >= 4
    assert min(trial.steps_completed for trial in trials) < 9
