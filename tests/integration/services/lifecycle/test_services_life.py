"""Whole lives of experiments, with scripted agents and tasks: to their end, stopped, paused, cancelled, killed."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, asha, config, deaf, training

from detlab.errors import Conflict
from detlab.schemas.wire import EndReason, ExperimentState, TrialState
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials


async def test_services_single_from_submit_to_completed(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config())
    assert made.state is ExperimentState.ACTIVE
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.progress == 1.0
    assert view.started_at is not None
    assert view.ended_at is not None
    (trial,) = await world.trials(made.id)
    assert trial.state is TrialState.COMPLETED
    assert trial.end_reason is EndReason.COMPLETED
    assert (trial.run, trial.restarts, trial.steps_completed) == (1, 0, 3)
    assert view.best is not None
    assert view.best.steps_completed == 3
    full = await world.services[Trials].get(ALICE, trial.id)
    assert full.summary["validation"]["loss"].count == 3
    assert view.best.checkpoint == trial.latest_checkpoint


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


# --- stop by the searcher


async def test_services_a_polling_trial_frees_its_slot_right_after_the_stop(make_world):
    world = await make_world(training(9))
    await world.add_agent(slots=1)
    made = await world.submit(config(asha(concurrent=1)))
    await world.finish(made.id)
    used = []
    for trial in await world.trials(made.id):
        used.append(trial.ended_at - trial.started_at)
    assert max(used) < 20, "a stopped trial that polls must not run into its deadline"


async def test_services_a_deaf_trial_gets_sigterm_ten_seconds_after_the_stop(make_world):
    world = await make_world(deaf(1))
    agent = await world.add_agent(slots=2)
    searcher = asha(trials=2, max_time=1, concurrent=2, num_rungs=1)
    made = await world.submit(config(searcher))
    await world.steps(6, 0.5)
    states = [trial.state for trial in await world.trials(made.id)]
    assert states == [TrialState.STOPPING_COMPLETED] * 2
    assert all(task.killed is None for task in agent.tasks.values())
    await world.steps(14, 0.5)
    assert all(task.killed is None for task in agent.tasks.values())
    await world.steps(8, 0.5)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    for trial in await world.trials(made.id):
        assert (trial.state, trial.end_reason, trial.restarts) == (TrialState.COMPLETED, EndReason.COMPLETED, 0)
        assert 9.5 <= trial.ended_at - trial.started_at <= 14


@pytest.mark.parametrize(
    ("code", "reason", "end", "kind"),
    [
        (-9, "", (TrialState.COMPLETED, EndReason.COMPLETED), None),
        (None, "launcher_lost", (TrialState.COMPLETED, EndReason.COMPLETED), None),
        (1, "", (TrialState.ERROR, EndReason.ERROR), "unknown"),
        (-9, "oom", (TrialState.ERROR, EndReason.ERROR), "oom"),
        (None, "setup", (TrialState.ERROR, EndReason.ERROR), "config"),
    ],
)
async def test_services_a_stopped_trial_that_is_slain_is_stopped_one_that_fails_has_failed(
    make_world, code, reason, end, kind
):
    """`kill -9` between the search's decision and the trial's end made another outcome of the same search."""
    world = await make_world(deaf(1))
    agent = await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=1, max_time=1, concurrent=1, num_rungs=1)))
    await world.steps(6, 0.5)
    assert (await world.trials(made.id))[0].state is TrialState.STOPPING_COMPLETED
    for task in agent.tasks.values():
        task.reason = reason
        task._exit(code)
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.end_reason, trial.restarts) == (*end, 0)
    assert (None if trial.failure is None else trial.failure.kind) == kind


async def test_services_deadlines_survive_a_restart_of_the_master(make_world):
    world = await make_world(deaf(1))
    agent = await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=1, max_time=1, concurrent=1, num_rungs=1)))
    await world.steps(6, 0.5)
    await world.reboot()
    world.now += 20
    await world.services.tick()
    await world.steps(3, 0.1)
    assert not agent.tasks
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


# --- pause, activate, cancel, kill


async def test_services_pause_checkpoints_and_activate_goes_on(make_world):
    world = await make_world(training(30))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(8)
    view = await world.services[Experiments].pause(ALICE, made.id)
    assert view.state is ExperimentState.PAUSED
    await world.steps(5)
    assert not agent.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.display_state, trial.restarts) == (TrialState.PAUSED, "PAUSED", 0)
    saved = trial.latest_checkpoint
    assert saved is not None
    await world.services[Experiments].activate(ALICE, made.id)
    await world.steps(2)
    (task,) = agent.tasks.values()
    assert task.launch.info.latest_checkpoint == saved
    assert task.launch.run == 2
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (view.state, trial.restarts) == (ExperimentState.COMPLETED, 0)
    (curve,) = await world.services[Trials].metrics(ALICE, trial.id, names=["loss"])
    assert curve.steps == list(range(1, 31))


async def test_services_a_paused_submit_waits_for_activate(make_world):
    world = await make_world(training(2))
    agent = await world.add_agent()
    made = await world.submit(config(), activate=False)
    await world.steps(4)
    assert not agent.launches
    assert made.state is ExperimentState.PAUSED
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_services_a_pause_that_is_not_heeded_ends_in_a_kill_that_is_not_counted(make_world):
    world = await make_world(deaf(2))
    agent = await world.add_agent()
    made = await world.submit(config(preemption_timeout=30))
    await world.steps(6)
    await world.services[Experiments].pause(ALICE, made.id)
    await world.steps(50)
    assert agent.tasks
    await world.steps(20)
    assert not agent.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts) == (TrialState.PAUSED, 0)


async def test_services_cancel_lets_trials_save_and_kill_does_not(make_world):
    world = await make_world(training(100, save_every=1000))
    await world.add_agent(slots=2)
    canceled = await world.submit(config())
    killed = await world.submit(config())
    await world.steps(6)
    await world.services[Experiments].cancel(ALICE, canceled.id)
    await world.services[Experiments].kill(ALICE, killed.id)
    assert (await world.finish(canceled.id)).state is ExperimentState.CANCELED
    assert (await world.finish(killed.id)).state is ExperimentState.CANCELED
    (one,), (two,) = await world.trials(canceled.id), await world.trials(killed.id)
    assert (one.end_reason, one.latest_checkpoint is None) == (EndReason.CANCELED, False)
    assert (two.end_reason, two.latest_checkpoint is None) == (EndReason.KILLED, True)


async def test_services_killing_what_waits_needs_no_agent(make_world):
    world = await make_world()
    made = await world.submit(config(asha(concurrent=4)))
    view = await world.services[Experiments].kill(ALICE, made.id)
    assert view.state is ExperimentState.CANCELED
    assert view.trials == {"CANCELED": 4}
    again = await world.services[Experiments].kill(ALICE, made.id)
    assert again.state is ExperimentState.CANCELED
    with pytest.raises(Conflict, match="CANCELED"):
        await world.services[Experiments].pause(ALICE, made.id)


async def test_services_a_killed_trial_does_not_end_the_search(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 1}))
    await world.steps(5)
    first = (await world.trials(made.id))[0]
    await world.services[Trials].kill(ALICE, first.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [t.state for t in await world.trials(made.id)] == [TrialState.CANCELED, TrialState.COMPLETED]


async def test_services_the_only_trial_killed_cancels_the_experiment(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config())
    await world.steps(5)
    await world.services[Trials].kill(ALICE, (await world.trials(made.id))[0].id)
    assert (await world.finish(made.id)).state is ExperimentState.CANCELED
