"""Whole lives of experiments, with scripted agents and tasks."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, asha, config, report, training

from detlab.errors import Conflict, Forbidden, ResourcesError
from detlab.schemas.wire import AllocationState, EndReason, ExperimentState, TrialState


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
    full = await world.services.trials.get(ALICE, trial.id)
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


def deaf(length: int):
    """Never polls; heeds SIGTERM."""

    def script(launch):
        for step in range(1, length + 1):
            yield report(step, loss=float(launch.info.trial_index), batches=step)
        while True:
            yield ("wait",)

    return script


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
    view = await world.services.experiments.pause(ALICE, made.id)
    assert view.state is ExperimentState.PAUSED
    await world.steps(5)
    assert not agent.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.display_state, trial.restarts) == (TrialState.PAUSED, "PAUSED", 0)
    saved = trial.latest_checkpoint
    assert saved is not None
    await world.services.experiments.activate(ALICE, made.id)
    await world.steps(2)
    (task,) = agent.tasks.values()
    assert task.launch.info.latest_checkpoint == saved
    assert task.launch.run == 2
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (view.state, trial.restarts) == (ExperimentState.COMPLETED, 0)
    (curve,) = await world.services.trials.metrics(ALICE, trial.id, names=["loss"])
    assert curve.steps == list(range(1, 31))


async def test_services_a_paused_submit_waits_for_activate(make_world):
    world = await make_world(training(2))
    agent = await world.add_agent()
    made = await world.submit(config(), activate=False)
    await world.steps(4)
    assert not agent.launches
    assert made.state is ExperimentState.PAUSED
    await world.services.experiments.activate(ALICE, made.id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_services_a_pause_that_is_not_heeded_ends_in_a_kill_that_is_not_counted(make_world):
    world = await make_world(deaf(2))
    agent = await world.add_agent()
    made = await world.submit(config(preemption_timeout=30))
    await world.steps(6)
    await world.services.experiments.pause(ALICE, made.id)
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
    await world.services.experiments.cancel(ALICE, canceled.id)
    await world.services.experiments.kill(ALICE, killed.id)
    assert (await world.finish(canceled.id)).state is ExperimentState.CANCELED
    assert (await world.finish(killed.id)).state is ExperimentState.CANCELED
    (one,), (two,) = await world.trials(canceled.id), await world.trials(killed.id)
    assert (one.end_reason, one.latest_checkpoint is None) == (EndReason.CANCELED, False)
    assert (two.end_reason, two.latest_checkpoint is None) == (EndReason.KILLED, True)


async def test_services_killing_what_waits_needs_no_agent(make_world):
    world = await make_world()
    made = await world.submit(config(asha(concurrent=4)))
    view = await world.services.experiments.kill(ALICE, made.id)
    assert view.state is ExperimentState.CANCELED
    assert view.trials == {"CANCELED": 4}
    again = await world.services.experiments.kill(ALICE, made.id)
    assert again.state is ExperimentState.CANCELED
    with pytest.raises(Conflict, match="CANCELED"):
        await world.services.experiments.pause(ALICE, made.id)


async def test_services_a_killed_trial_does_not_end_the_search(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 1}))
    await world.steps(5)
    first = (await world.trials(made.id))[0]
    await world.services.trials.kill(ALICE, first.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [t.state for t in await world.trials(made.id)] == [TrialState.CANCELED, TrialState.COMPLETED]


async def test_services_the_only_trial_killed_cancels_the_experiment(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config())
    await world.steps(5)
    await world.services.trials.kill(ALICE, (await world.trials(made.id))[0].id)
    assert (await world.finish(made.id)).state is ExperimentState.CANCELED


# --- failures


def failing(code: int, lines: tuple[str, ...] = ()):
    def script(launch):
        for line in lines:
            yield ("log", 0, line)
        yield ("exit", code)

    return script


async def test_services_failures_restart_until_max_restarts(make_world):
    world = await make_world(failing(3))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=2))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ERROR, 2, 3)
    assert len(agent.launches) == 3
    assert view.failure.exit_code == 3
    assert view.failure.message == "exited with code 3"
    assert f"det trial logs {trial.id}" in view.failure.hint


async def test_services_a_traceback_becomes_a_failure_card(make_world):
    lines = (
        "starting",
        "Traceback (most recent call last):",
        '  File "/tmp/x/1.abc.1/work/train.py", line 12, in <module>',
        "    main()",
        '  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads',
        "    return f(s)",
        "ValueError: bad <img onerror=alert(1)>",
    )

    def script(launch):
        yield from failing(1, tuple(line.replace("1.abc.1", launch.allocation_id) for line in lines))(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0), source={"cells": {"train.py": {"cell": 4, "line_offset": 2}}})
    view = await world.finish(made.id)
    card = view.failure
    assert (card.kind, card.message) == ("exception", "ValueError: bad <img onerror=alert(1)>")
    assert card.where == "cell 4, line 10"
    assert card.rank == 0
    assert card.log_tail[0] == "starting"
    assert len(card.log_tail) == 7


async def test_services_an_experiment_with_one_good_trial_is_completed(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield ("exit", 1)
        yield report(1, loss=1.0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    searcher = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}
    made = await world.submit(config(searcher, max_restarts=0))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.trials == {"COMPLETED": 2, "ERROR": 1}


async def test_services_no_metrics_is_a_failure_under_asha(make_world):
    world = await make_world(failing(0))
    await world.add_agent()
    made = await world.submit(config(asha(trials=2)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    for trial in await world.trials(made.id):
        assert (trial.state, trial.end_reason) == (TrialState.ERROR, EndReason.NO_METRICS)
        assert trial.failure.kind == "no_metrics"
        assert "'loss'" in trial.failure.message


@pytest.mark.parametrize("name", ["single", "random", "grid"])
async def test_services_no_metrics_is_a_warning_elsewhere(make_world, name):
    world = await make_world(failing(0))
    await world.add_agent()
    searcher = {"name": name, "metric": "loss", **({"max_trials": 1} if name == "random" else {})}
    made = await world.submit(config(searcher, hyperparameters={"lr": 0.1}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert trial.warnings == ["never reported 'loss'"]
    assert view.warnings == [f"trial {trial.id} never reported 'loss'"]


async def test_services_invalid_hp_is_completed_and_replaced(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield ("early_exit", "INVALID_HP")
            yield ("exit", 0)
        yield from training(9)(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2, concurrent=1)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(made.id)
    assert (trials[0].state, trials[0].end_reason) == (TrialState.COMPLETED, EndReason.INVALID_HP)
    assert len(trials) == 3, "an invalid trial does not use up the budget"
    assert trials[0].restarts == 0
    assert view.trials_total == 3, "the plan of 2 made the progress line read 3/2"


async def test_services_a_metric_that_is_no_number_fails_the_trial_only(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield report(1, loss={"not": "a number"}, batches=1)
            while True:
                yield ("wait",)
        yield from training(9)(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2, concurrent=1)))
    view = await world.finish(made.id)
    first, *_ = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert (first.state, first.restarts, first.failure.kind) == (TrialState.ERROR, 0, "searcher")
    assert "'loss'" in first.failure.message


async def test_services_a_missing_time_metric_is_named_with_what_there_was(make_world):
    def script(launch):
        yield report(1, loss=0.5, other=2)
        while True:
            yield ("wait",)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=1, time_metric="epochs")))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    assert "'epochs'" in view.failure.message
    assert "loss, other" in view.failure.message


async def test_services_steps_completed_stands_for_the_time_metric_batches(make_world):
    def script(launch):
        for step in range(1, 10):
            yield report(step, loss=float(launch.info.trial_index))
            if (yield ("poll",)):
                yield ("exit", 0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=3)))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert any(trial.end_reason is EndReason.STOPPED for trial in await world.trials(made.id))


async def test_services_nan_ranks_worst_and_is_kept(make_world):
    def script(launch):
        for step in range(1, 10):
            yield report(step, loss="NaN" if launch.info.trial_index == 0 else 1.0, batches=step)
            if (yield ("poll",)):
                yield ("exit", 0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=4, concurrent=1)))
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.best.value == 1.0
    first = await world.services.trials.get(ALICE, trials[0].id)
    assert first.summary["validation"]["loss"].nan_count >= 1
    assert first.best_validation is None


# --- agents


async def test_services_a_short_absence_of_an_agent_changes_nothing(make_world):
    world = await make_world(training(30))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    agent.drop()
    await world.steps(20)
    (view,) = await world.services.agents.list(ROOT)
    assert view.state == "suspect"
    agent.online = True
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (view.state, trial.run, len(agent.launches)) == (ExperimentState.COMPLETED, 1, 1)


async def test_services_no_agent_is_lost_because_the_master_was_suspended(make_world):
    world = await make_world(training(30))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    world.now += 3600
    await world.services.tick()
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (view.state, trial.run, len(agent.launches)) == (ExperimentState.COMPLETED, 1, 1)


async def test_services_a_lost_agent_is_replaced_and_its_late_task_killed(make_world):
    world = await make_world(training(200, save_every=1))
    lost = await world.add_agent("lost")
    made = await world.submit(config())
    await world.steps(6)
    lost.drop()
    other = await world.add_agent("other")
    await world.steps(60)
    states = {view.id: view.state for view in await world.services.agents.list(ROOT)}
    assert states == {"lost": "lost", "other": "connected"}
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.agent_id) == (2, 0, "other")
    lost.online = True
    await world.steps(6)
    assert not lost.tasks, "a late task whose trial has moved on is killed"
    assert other.tasks
    assert (await world.trials(made.id))[0].run == 2


async def test_services_an_agent_that_forgot_its_task_runs_it_again_uncounted(make_world):
    world = await make_world(training(30))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    agent.drop()
    agent.tasks = {}
    agent.online = True
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts) == (2, 0)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_services_a_launch_that_was_lost_with_the_connection_is_sent_again(make_world):
    world = await make_world(training(3))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.services.schedule()
    assert any(message.type == "launch" for message in agent.inbox)
    agent.drop()
    agent.online = True
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert trial.run == 1


async def test_services_the_newer_connection_of_an_agent_wins(make_world):
    world = await make_world(training(3))
    agent = await world.add_agent()
    old = agent.session
    await agent.connect()
    with pytest.raises(Conflict, match="another connection"):
        await old.receive(agent.hello())
    old.closed()
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_services_an_agent_that_refuses_is_not_asked_again_at_once(make_world):
    def script(launch):
        if launch.info.agent_id == "picky":
            yield ("end", "refused", "serves bob only")
        yield report(1, loss=1.0)
        yield ("exit", 0)

    world = await make_world(script)
    picky = await world.add_agent("picky")
    made = await world.submit(config(max_restarts=0))
    await world.steps(20)
    assert len(picky.launches) == 1
    (trial,) = await world.trials(made.id)
    assert (trial.restarts, trial.state) == (0, TrialState.ACTIVE)
    assert trial.pending_reason is not None
    await world.add_agent("willing")
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_services_a_setup_failure_is_counted_and_told(make_world):
    def script(launch):
        yield ("end", "setup", "the bundle is damaged")

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(max_restarts=1))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    assert "the bundle is damaged" in view.failure.message


async def test_services_an_agent_of_one_user_gets_no_other_users_work(make_world):
    world = await make_world(training(2))
    bobs = await world.add_agent("bobs", serves_user="bob")
    with pytest.raises(ResourcesError, match="bob"):
        await world.submit(config())
    await world.add_agent("anyones")
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert not bobs.launches


async def test_services_what_waits_says_why(make_world):
    world = await make_world(training(9))
    made = await world.submit(config(asha(concurrent=3)))
    await world.services.schedule()
    view = await world.view(made.id)
    assert "agent" in view.pending_reason
    await world.add_agent(slots=1)
    await world.steps(3)
    view = await world.view(made.id)
    assert "slot" in view.pending_reason
    waiting = [trial for trial in await world.trials(made.id) if trial.allocation_state is AllocationState.PENDING]
    assert {trial.display_state for trial in waiting} == {"QUEUED"}
    assert all(trial.pending_reason for trial in waiting)


# --- drain


async def test_services_drain_preempts_uncounted_and_starts_nothing_until_a_restart(make_world):
    world = await make_world(training(60))
    agent = await world.add_agent(slots=2)
    made = await world.submit(config(asha(max_time=60, concurrent=2)))
    await world.steps(6)
    with pytest.raises(Forbidden):
        await world.services.cluster.drain(ALICE, 30.0)
    view = await world.services.cluster.drain(ROOT, 30.0)
    assert view.draining
    await world.steps(10)
    assert not agent.tasks
    assert (await world.services.cluster.view(ROOT)).slots_used == 0
    launches = len(agent.launches)
    await world.steps(5)
    assert len(agent.launches) == launches
    assert "draining" in (await world.view(made.id)).pending_reason
    await world.reboot()
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert {trial.restarts for trial in await world.trials(made.id)} == {0}


async def test_services_drain_kills_what_does_not_leave_in_time(make_world):
    world = await make_world(deaf(2))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    await world.services.cluster.drain(ROOT, 5.0)
    await world.steps(8)
    assert agent.tasks
    await world.steps(8)
    assert not agent.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 2)
