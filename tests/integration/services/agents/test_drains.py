"""Agents that are drained and single slots that are closed, with scripted agents and tasks."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, asha, config, deaf, training

from detlab.errors import Forbidden, NotFound
from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import ExperimentState, TrialState
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.drains import Drain
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.usertasks.usertasks import UserTasks


async def node(world, name="one"):
    (view,) = [view for view in await world.services[Agents].list(ROOT) if view.id == name]
    return view


async def actions(world, action):
    page = await world.services[Audit].page(ROOT, action=action)
    return [(item.action, item.subject, item.detail) for item in page.items]


async def shell_task(world):
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "sleep 9"})
    return (await world.services.start_task(ALICE, wanted)).task


async def test_a_drained_agents_trials_leave_at_a_checkpoint_uncounted_and_go_on_elsewhere(make_world):
    world = await make_world(training(60))
    one = await world.add_agent("one", slots=2)
    made = await world.submit(config(asha(trials=4, max_time=60)))
    await world.steps(6)
    two = await world.add_agent("two", slots=2)
    before = {trial.id: trial.latest_checkpoint for trial in await world.trials(made.id) if trial.agent_id == "one"}
    assert before, "it runs something"
    view = await world.services[Nodes].drain(ROOT, "one", Drain.LEAVE)
    assert (view.enabled, view.mode, view.drain_until) == (False, "draining", None)
    await world.steps(6)
    assert (await node(world)).mode == "drained"
    assert not one.tasks
    launches = len(one.launches)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert len(one.launches) == launches, "nothing started on it"
    assert two.launches
    trials = await world.trials(made.id)
    assert {trial.restarts for trial in trials} == {0}, "nothing is counted"
    assert {trial.run for trial in trials if trial.id in before} == {2}


async def test_a_trial_that_is_drained_says_so(make_world):
    world = await make_world(training(200))
    await world.add_agent("one")
    made = await world.submit(config())
    await world.steps(6)
    await world.services[Nodes].drain(ROOT, "one", Drain.LEAVE)
    await world.steps(6)
    (item,) = (await world.services[Queue].view(ALICE)).items
    assert item.reason == "agent one is draining"
    (trial,) = await world.trials(made.id)
    card = (await world.services[Trials].get(ALICE, trial.id)).card
    assert card.kind == "preempted"
    assert "is being drained" in card.message


async def test_a_drain_may_let_trials_run_to_their_end(make_world):
    world = await make_world(training(20))
    one = await world.add_agent("one")
    made = await world.submit(config())
    await world.steps(4)
    await world.services[Nodes].drain(ROOT, "one", Drain.FINISH)
    waiting = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    assert (trial.run, len(one.launches), (await node(world)).mode) == (1, 1, "drained")
    view = await world.services[Nodes].enable(ROOT, "one")
    assert (view.mode, view.enabled) == ("enabled", True)
    assert (await world.finish(waiting.id)).state is ExperimentState.COMPLETED


@pytest.mark.parametrize("drain", list(Drain))
async def test_a_trial_that_does_not_leave_by_the_deadline_is_killed_uncounted(make_world, drain):
    world = await make_world(deaf(2))
    one = await world.add_agent("one")
    made = await world.submit(config())
    await world.steps(4)
    await world.services[Nodes].drain(ROOT, "one", drain, 5.0)
    await world.steps(8)
    assert one.tasks, "its time is not over"
    grace = world.settings.stop_acked_grace if drain is Drain.FINISH else 0.0
    await world.steps(8 + int(grace * 2))
    assert not one.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 2)
    assert (await node(world)).mode == "drained"


async def test_users_of_tasks_are_told_of_a_drain_and_their_tasks_end_at_the_deadline_only(make_world):
    world = await make_world(deaf(0))
    one = await world.add_agent("one")
    task = await shell_task(world)
    await world.steps(4)
    view = await world.services[Nodes].drain(ROOT, "one", Drain.LEAVE, 30.0)
    assert (view.mode, view.drain_until) == ("draining", world.now + 30.0)
    lines = (await world.services[UserTasks].logs(ALICE, task.id))[0]
    assert [line.text for line in lines] == ["detlab: its node one is being drained: it is ended in 30 s"]
    await world.steps(20)
    assert one.tasks, "it has its time"
    await world.reboot()
    await world.steps(50)
    assert not one.tasks, "the deadline outlives the master"
    over = await world.services[UserTasks].get(ALICE, task.id)
    assert (over.state, over.end_reason) == (TrialState.CANCELED, TaskEnd.KILLED)
    lines = (await world.services[UserTasks].logs(ALICE, task.id))[0]
    assert "the time for that is over" in lines[-1].text
    assert (await node(world)).mode == "drained"


async def test_without_a_deadline_a_user_task_outlives_the_drain_and_keeps_the_agent_draining(make_world):
    world = await make_world(deaf(0))
    one = await world.add_agent("one")
    task = await shell_task(world)
    await world.steps(4)
    await world.services[Nodes].drain(ROOT, "one", Drain.LEAVE)
    await world.steps(20)
    assert one.tasks
    assert (await node(world)).mode == "draining"
    await world.services.end_task(ALICE, task.id)
    await world.steps(6)
    assert (await node(world)).mode == "drained"


async def test_a_drain_survives_the_master_and_a_new_connection_and_enable_takes_it_back(make_world):
    world = await make_world(training(30))
    one = await world.add_agent("one")
    await world.services[Nodes].drain(ROOT, "one", Drain.LEAVE, 3600.0)
    await world.reboot()
    one.drop()
    one.online = True
    await one.turn()
    made = await world.submit(config())
    await world.steps(4)
    assert (one.launches, (await node(world)).mode) == ([], "drained")
    assert (await world.services[Nodes].disable(ROOT, "one")).mode == "disabled"
    view = await world.services[Nodes].enable(ROOT, "one")
    assert (view.mode, view.drain_until) == ("enabled", None)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    noted = [(action, detail) for action, _, detail in await actions(world, "agent")]
    assert noted == [
        ("agent.enable", ""),
        ("agent.disable", ""),
        ("agent.drain", "its trials leave, all of it ends in 3600 s"),
    ]


async def test_a_deadline_that_was_taken_back_ends_nothing(make_world):
    world = await make_world(deaf(2))
    one = await world.add_agent("one")
    await world.submit(config())
    await world.steps(4)
    await world.services[Nodes].drain(ROOT, "one", Drain.FINISH, 5.0)
    await world.services[Nodes].enable(ROOT, "one")
    await world.steps(200)
    assert len(one.launches) == 1
    assert one.tasks


async def test_a_closed_slot_is_given_to_nobody_over_restarts_and_what_has_it_keeps_it(make_world):
    world = await make_world(training(12))
    one = await world.add_agent("one", slots=2)
    made = await world.submit(config())
    await world.steps(2)
    (trial,) = await world.trials(made.id)
    (held,) = trial.slots
    view = await world.services[Nodes].set_slot(ROOT, "one", held, enabled=False)
    assert [(slot.id == held, slot.enabled) for slot in view.slots] == [(True, False), (False, True)]
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert len(one.launches) == 1, "it ran to its end"
    await world.reboot()
    one.drop()
    one.online = True
    first, second = await world.submit(config()), await world.submit(config())
    await world.steps(4)
    running = [(await world.trials(each.id))[0] for each in (first, second)]
    assert [trial.slots for trial in running] == [[slot.id for slot in view.slots if slot.id != held], []]
    await world.services[Nodes].set_slot(ROOT, "one", held, enabled=True)
    await world.steps(2)
    assert (await world.trials(second.id))[0].slots == [held]
    await world.services[Nodes].set_slot(ROOT, "one", held, enabled=True)
    noted = [(action, subject) for action, subject, _ in await actions(world, "slot")]
    assert noted == [
        ("slot.enable", f"slot {held} of agent one"),
        ("slot.disable", f"slot {held} of agent one"),
    ], "twice is one action"


async def test_what_needs_more_slots_than_are_open_waits_and_is_told(make_world):
    world = await make_world(training(3))
    await world.add_agent("one", slots=2)
    await world.services[Nodes].set_slot(ROOT, "one", "one-1", enabled=False)
    made = await world.submit(config(resources={"slots_per_trial": 2}))
    await world.steps(3)
    assert "2 slots" in (await world.view(made.id)).pending_reason
    await world.services[Nodes].set_slot(ROOT, "one", "one-1", enabled=True)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_drains_and_slots_are_for_administrators_and_of_what_is_there(make_world):
    world = await make_world()
    await world.add_agent("one")
    with pytest.raises(Forbidden):
        await world.services[Nodes].drain(ALICE, "one", Drain.LEAVE)
    with pytest.raises(Forbidden):
        await world.services[Nodes].set_slot(ALICE, "one", "one-0", enabled=False)
    with pytest.raises(NotFound):
        await world.services[Nodes].drain(ROOT, "two", Drain.LEAVE)
    with pytest.raises(NotFound, match="has no slot 'one-7'"):
        await world.services[Nodes].set_slot(ROOT, "one", "one-7", enabled=False)
    assert (await node(world)).mode == "enabled"
    assert await actions(world, "agent") + await actions(world, "slot") == []
