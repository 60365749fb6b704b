"""Agents that come, go, forget and refuse, and a master that drains; with scripted agents and tasks."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, asha, config, deaf, report, training

from detlab.errors import Conflict, Forbidden, ResourcesError
from detlab.schemas.wire import AllocationState, ExperimentState, TrialState
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.cluster.cluster import Cluster

# --- agents


async def test_services_a_short_absence_of_an_agent_changes_nothing(make_world):
    world = await make_world(training(30))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    agent.drop()
    await world.steps(20)
    (view,) = await world.services[Agents].list(ROOT)
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
    states = {view.id: view.state for view in await world.services[Agents].list(ROOT)}
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
    with pytest.raises(ResourcesError, match="another user"):
        await world.submit(config())
    await world.add_agent("anyones")
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert not bobs.launches
    told = {name: await world.services[Agents].list(caller) for name, caller in (("alice", ALICE), ("root", ROOT))}
    assert [agent.serves_user for agent in told["root"]] == [None, "bob"]
    assert [agent.serves_user for agent in told["alice"]] == [None, "another user"], "I9"


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
        await world.services[Cluster].drain(ALICE, 30.0)
    view = await world.services[Cluster].drain(ROOT, 30.0)
    assert view.draining
    await world.steps(10)
    assert not agent.tasks
    assert (await world.services[Cluster].view(ROOT)).slots_used == 0
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
    await world.services[Cluster].drain(ROOT, 5.0)
    await world.steps(8)
    assert agent.tasks
    await world.steps(8)
    assert not agent.tasks
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ACTIVE, 0, 2)
