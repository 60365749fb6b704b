"""A trial that makes no progress is not retried forever: one that kills its machines, or whose jobs are too short.

Nor one whose jobs are over as soon as they have begun, whatever the reason.
"""

from __future__ import annotations

import pytest
from services_scripted import ALICE, config, deaf, report, training

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import TrialState
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.lifecycle import no_progress
from detlab_hub.services.usertasks.usertasks import UserTasks


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(no_progress, "MOST_LOSSES", 3)


async def loses(world, made, times):
    """The agent that has the trial goes away for too long, until it has begun elsewhere, and comes back; so often."""
    for _ in range(times):
        await world.steps(6, 1.0)
        agent = world.agents[(await trial_of(world, made)).agent_id]
        agent.drop()
        await world.steps(30, 1.0)
        agent.online = True
        await world.steps(3, 1.0)


async def trial_of(world, made):
    (trial,) = await world.trials(made.id)
    return await world.services[Trials].get(ALICE, trial.id)


async def test_a_trial_that_is_lost_again_and_again_without_getting_on_is_given_up(make_world):
    world = await make_world(deaf(3))
    for name in ("node", "other"):
        await world.add_agent(name)
    made = await world.submit(config(max_restarts=0))
    await loses(world, made, 2)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 3)
    last = trial.agent_id
    await loses(world, made, 1)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ERROR, 0, 3)
    assert trial.card.kind == "lost"
    assert trial.card.message == (
        f"3 attempts in a row, all from its beginning, were lost with their agents, the last with {last}"
    )
    assert trial.card.command == f"det trial logs {trial.id}"


async def test_an_agent_that_comes_and_goes_costs_no_trial(make_world):
    world = await make_world(deaf(3))
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await loses(world, made, 5)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 6)


async def test_a_trial_that_saves_in_between_goes_on_however_often_its_agent_is_lost(make_world):
    world = await make_world(training(10_000, save_every=1))
    for name in ("node", "other"):
        await world.add_agent(name)
    made = await world.submit(config(max_restarts=0))
    await loses(world, made, 6)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 7)


async def reaches_its_time_limit(world, made, times):
    """The batch system that runs the trial says that its time is nearly up; so often."""
    for _ in range(times):
        await world.steps(6, 1.0)
        task = next(task for agent in world.agents.values() for task in agent.tasks.values() if not task.exited)
        await world.services[Tasks].leave_soon(task.caller)
        await world.steps(8, 1.0)


def slow_to_start(launch):
    while True:
        if (yield ("poll",)):
            yield ("exit", 0)


async def test_a_trial_whose_jobs_are_too_short_for_its_start_is_given_up_and_told_what_to_raise(make_world):
    world = await make_world(slow_to_start)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await reaches_its_time_limit(world, made, 1)
    trial = await trial_of(world, made)
    assert trial.card.message == "attempt 1 was preempted: the time limit of its batch job came near"
    await reaches_its_time_limit(world, made, 1)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 3)
    await reaches_its_time_limit(world, made, 1)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ERROR, 0, 3)
    assert (trial.card.kind, trial.card.message) == (
        "max_time",
        "3 attempts in a row, all from its beginning, reached the time limit of their batch jobs without a checkpoint",
    )
    assert "raise slurm.time" in trial.card.hint


async def test_a_trial_that_saves_when_its_time_is_up_goes_on_job_after_job(make_world):
    world = await make_world(training(10_000, save_every=10_000))
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await reaches_its_time_limit(world, made, 6)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 7)


async def test_only_time_limits_in_a_row_count(make_world):
    world = await make_world(slow_to_start)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    for _ in range(3):
        await reaches_its_time_limit(world, made, 2)
        await world.steps(6, 1.0)
        await world.services[Experiments].pause(ALICE, made.id)
        await world.steps(8, 1.0)
        await world.services[Experiments].activate(ALICE, made.id)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts) == (TrialState.ACTIVE, 0)


RENAMED = "Slurm job 7 on n0: Slurm does not know it by its name (any more)"


def vanishes(launch):
    """Its job is renamed, or cancelled, as soon as it runs: nobody's fault, and over in seconds."""
    yield ("end", "machine_restarted", RENAMED)


def is_refused(launch):
    yield ("end", "refused", "no room for it")


async def test_jobs_that_vanish_at_once_are_started_later_and_later_and_then_no_more(make_world):
    """They were submitted again every few seconds, forever."""
    world = await make_world(vanishes)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await world.steps(120, 5.0)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts) == (TrialState.ACTIVE, 0)
    assert 5 <= trial.run <= 12, "of 120 looks"
    assert RENAMED in trial.card.message
    await world.steps(150, 60.0)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ERROR, 0, no_progress.MOST_SHORT)
    assert trial.card.kind == "lost"
    assert "20 attempts in a row" in trial.card.message
    assert "all from its beginning" in trial.card.message
    assert "lost 20 times, by node" in trial.card.message
    assert RENAMED in trial.card.message
    assert "det agent list" in trial.card.hint


@pytest.mark.soak
async def test_attempts_that_last_are_no_streak_however_often_they_are_lost(make_world):
    def lasts(launch):
        began = world.now
        while world.now < began + 700:
            yield ("poll",)
        yield ("end", "machine_restarted", "its spot node was taken back")

    world = await make_world(lasts)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await world.steps(600, 60.0)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts) == (TrialState.ACTIVE, 0)
    assert trial.run > 25


async def test_one_that_saves_before_it_vanishes_goes_on(make_world):
    def saves(launch):
        step = 1 + (yield ("resume",))
        yield report(step, loss=1.0, batches=step)
        yield ("save", step)
        yield from vanishes(launch)

    world = await make_world(saves)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await world.steps(200, 60.0)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts) == (TrialState.ACTIVE, 0)
    assert trial.run > 25


async def test_twenty_within_minutes_are_not_enough(make_world, monkeypatch):
    """As where a whole cluster is restarted again and again for a while."""
    monkeypatch.setattr(no_progress, "LONGEST_PAUSE", 0.0)
    world = await make_world(vanishes)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await world.steps(200, 5.0)
    trial = await trial_of(world, made)
    assert trial.run > 25
    assert trial.state == TrialState.ACTIVE


async def test_an_agent_that_refuses_a_trial_is_waited_for_a_day(make_world, monkeypatch):
    monkeypatch.setattr(no_progress, "REFUSED_SPAN", 4 * 3600.0)
    world = await make_world(is_refused)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    await world.steps(220, 60.0)
    trial = await trial_of(world, made)
    assert (trial.state, trial.restarts) == (TrialState.ACTIVE, 0), "as while a disk is full"
    await world.steps(60, 60.0)
    trial = await trial_of(world, made)
    assert trial.state == TrialState.ERROR
    assert "refused" in trial.card.message
    assert "no room for it" in trial.card.message


async def test_a_task_that_never_gets_to_run_ends_with_its_reason(make_world, monkeypatch):
    monkeypatch.setattr(no_progress, "REFUSED_SPAN", 3600.0)
    world = await make_world(is_refused)
    await world.add_agent()
    made = await world.services[UserTasks].create(
        ALICE, CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"})
    )
    await world.steps(240, 60.0)
    view = await world.services[UserTasks].get(ALICE, made.task.id)
    assert view.state == TrialState.ERROR
    assert "refused" in view.failure.message
    assert "no room for it" in view.failure.message
