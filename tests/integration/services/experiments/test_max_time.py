"""`resources.max_time`: trials leave for good, user tasks are ended, and what is short passes by a task that waits."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, asha, config, deaf, training

from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import EndReason, ExperimentState, TrialState
from detlab_hub.services.agents import drains
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.usertasks import time_limits
from detlab_hub.services.usertasks.usertasks import UserTasks


def bounded(seconds, slots=1, **more):
    return config(resources={"slots_per_trial": slots, "max_time": seconds}, **more)


async def trial_of(world, made):
    (trial,) = await world.trials(made.id)
    return trial


async def command(world, **resources):
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "sleep 9", "resources": {"slots": 1, **resources}})
    return (await world.services.start_task(ALICE, wanted)).task


async def test_a_trial_leaves_for_good_at_its_maximum_time_and_its_card_says_so(make_world):
    world = await make_world(training(10_000))
    await world.add_agent()
    made = await world.submit(bounded("20s"))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trial = await trial_of(world, made)
    assert (trial.state, trial.end_reason, trial.run, trial.restarts) == (
        TrialState.COMPLETED,
        EndReason.MAX_TIME,
        1,
        0,
    )
    assert trial.latest_checkpoint
    assert 20 <= trial.ended_at - trial.started_at < 25
    card = (await world.services[Trials].get(ALICE, trial.id)).card
    assert card.kind == "max_time"
    assert (
        card.message == "max time reached: attempt 1 ran for its resources.max_time of 20 s; it stopped when requested"
    )


async def test_a_trial_that_does_not_leave_is_killed_when_its_preemption_timeout_is_over(make_world):
    world = await make_world(deaf(10_000))
    await world.add_agent()
    made = await world.submit(bounded(20, preemption_timeout=15))
    await world.finish(made.id)
    trial = await trial_of(world, made)
    assert (trial.state, trial.end_reason, trial.run) == (TrialState.COMPLETED, EndReason.MAX_TIME, 1)
    assert 35 <= trial.ended_at - trial.started_at < 40
    assert "it was killed" in (await world.services[Trials].get(ALICE, trial.id)).card.message


async def test_the_time_goes_on_while_the_master_is_away(make_world):
    world = await make_world(training(10_000))
    await world.add_agent()
    made = await world.submit(bounded(60))
    await world.steps(6)
    trial = await trial_of(world, made)
    world.now = trial.started_at + 59.0
    await world.reboot()
    assert (await trial_of(world, made)).state is TrialState.ACTIVE
    world.now = trial.started_at + 61.0
    await world.finish(made.id)
    assert (await trial_of(world, made)).end_reason is EndReason.MAX_TIME


async def test_a_trial_that_ends_before_its_maximum_time_is_none_the_worse(make_world):
    world = await make_world(training(5))
    await world.add_agent()
    made = await world.submit(bounded("1h"))
    await world.finish(made.id)
    assert (await trial_of(world, made)).end_reason is EndReason.COMPLETED


async def test_a_search_goes_on_when_a_trial_of_it_has_had_its_time(make_world):
    world = await make_world(training(10_000))
    await world.add_agent(slots=2)
    search = asha(trials=3, max_time=5000)
    made = await world.submit(bounded(15) | {"searcher": config(search)["searcher"]})
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert {trial.end_reason for trial in await world.trials(made.id)} == {EndReason.MAX_TIME}


async def test_a_user_task_is_ended_at_its_maximum_time_and_its_log_says_why(make_world):
    world = await make_world(deaf(10_000))
    await world.add_agent()
    task = await command(world, max_time="30s")

    async def over():
        return (await world.services[UserTasks].get(ALICE, task.id)).state.terminal

    await world.until(over)
    view = await world.services[UserTasks].get(ALICE, task.id)
    assert (view.state, view.end_reason) == (TrialState.CANCELED, TaskEnd.MAX_TIME)
    assert 30 <= view.ended_at - view.started_at < 45
    lines, _ = await world.services[UserTasks].logs(ALICE, task.id)
    assert "detlab: this command has run for its resources.max_time of 30 s: it is ended" in [one.text for one in lines]


async def test_what_is_short_passes_by_a_task_that_waits_for_something_longer(make_world):
    """Without preemption: the maximum times of those that run say when the first that waits can start."""
    world = await make_world(deaf(10_000))
    await world.add_agent(slots=2)
    await command(world, max_time="10m")
    await world.steps(3)
    big = await command(world, slots=2, priority=1)
    long = await command(world, max_time="11m")
    short = await command(world, max_time="5m")
    await world.steps(3)
    states = [(await world.services[UserTasks].get(ALICE, one.id)).display_state for one in (big, long, short)]
    assert states == ["QUEUED", "QUEUED", "RUNNING"]


async def test_a_trial_that_its_user_paused_is_not_over_when_its_time_passes_while_it_saves(make_world):
    """It was completed for good. Nor is it asked about at each tick."""
    world = await make_world(deaf(10_000))
    agent = await world.add_agent()
    made = await world.submit(bounded(20, preemption_timeout=600))
    await world.steps(6)
    (task,) = agent.tasks.values()
    await world.services[Experiments].pause(ALICE, made.id)
    await world.steps(60)
    assert (await trial_of(world, made)).state is TrialState.PAUSED
    assert await world.services.context.read(lambda s: time_limits.due(s, world.now)) == []
    await world.services[Tasks].ack_preempt(task.caller)
    task._exit(0)
    await world.steps(3)
    await world.services[Experiments].activate(ALICE, made.id)
    await world.steps(3)
    trial = await trial_of(world, made)
    assert (trial.state, trial.run, trial.restarts) == (TrialState.ACTIVE, 2, 0)


async def test_who_was_told_that_its_time_is_up_is_not_told_again(make_world):
    """Each tick wrote a transaction of nothing, for as long as something left."""
    world = await make_world(deaf(10_000))
    await world.add_agent()
    made = await world.submit(bounded(20, preemption_timeout=600))
    await world.steps(50)
    assert (await trial_of(world, made)).state is TrialState.STOPPING_COMPLETED
    assert await world.services.context.read(lambda s: time_limits.due(s, world.now)) == []
    before = world.writes[0]
    for _ in range(5):
        world.now += 0.5
        await world.services.tick()
    assert world.writes[0] == before


async def test_a_trial_that_leaves_for_another_node_does_not_come_back_when_its_time_is_over(make_world):
    world = await make_world(deaf(10_000))
    await world.add_agent()
    made = await world.submit(bounded(20, preemption_timeout=60))
    await world.steps(6)
    await world.services[Nodes].drain(ROOT, "node", drains.Drain.LEAVE)
    await world.finish(made.id)
    trial = await trial_of(world, made)
    assert (trial.state, trial.end_reason, trial.run) == (TrialState.COMPLETED, EndReason.MAX_TIME, 1)


async def test_one_whose_end_fails_keeps_neither_the_others_nor_a_drain(make_world, monkeypatch):
    world = await make_world(deaf(10_000))
    await world.add_agent(slots=2)
    bad, good = [await world.submit(bounded(60)) for _ in range(2)]
    await world.steps(6)
    (ill,) = await world.trials(bad.id)
    act, drained = time_limits.act, []

    def failing(unit, allocation_id):
        if unit.allocation(allocation_id).trial_id == ill.id:
            raise ZeroDivisionError
        act(unit, allocation_id)

    monkeypatch.setattr(time_limits, "act", failing)
    monkeypatch.setattr(drains, "due", lambda s, now: ["node"])
    monkeypatch.setattr(drains, "act_on_deadline", lambda unit, agent_id: drained.append(agent_id))
    world.now += 60
    world.services.connections.forgive(60)
    with pytest.raises(ExceptionGroup, match="deadlines") as failed:
        await world.services.tick()
    assert [type(one) for one in failed.value.exceptions] == [ZeroDivisionError]
    assert (await trial_of(world, good)).state is TrialState.STOPPING_COMPLETED
    assert (await trial_of(world, bad)).state is TrialState.ACTIVE
    assert drained == ["node"]
