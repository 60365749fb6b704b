"""A pass keeps what it made of the agents: what changed of one since is seen by the next pass."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, config, deaf

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services.agents.drains import Drain
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.queue.queue import Queue


async def say_otherwise(agent, **said):
    """Let an agent come again, as another than it was."""
    agent.drop()
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update=said)
    await agent.connect()


async def shell_task(world, **resources):
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "sleep 9", "resources": resources})
    return (await world.services.start_task(ALICE, wanted)).task


async def reasons(world):
    return [item.reason for item in (await world.services[Queue].view(ALICE)).items]


@pytest.fixture
async def world(make_world):
    """One that has made passes: its agent runs something, and something else waits."""
    world = await make_world(deaf(10**6))
    await world.add_agent("one", slots=1)
    await world.submit(config())
    await world.submit(config())
    await world.steps(3)
    assert len(world.agents["one"].tasks) == 1
    return world


async def test_more_slots_of_an_agent_are_seen_by_the_next_pass(world):
    one = world.agents["one"]
    one.slots = 2
    await say_otherwise(one)
    await world.steps(3)
    assert len(one.tasks) == 2


async def test_another_label_of_an_agent_is_seen_by_the_next_pass(world):
    one = world.agents["one"]
    await say_otherwise(one, labels={"zone": "a"})
    task = await shell_task(world, slots=0, constraints={"labels": {"zone": "a"}})
    await world.steps(3)
    assert any(key[0].startswith(task.id) for key in one.tasks), await reasons(world)
    later = await shell_task(world, slots=0, constraints={"labels": {"zone": "a"}})
    await say_otherwise(one, labels={"zone": "b"})
    await world.steps(3)
    assert not any(key[0].startswith(later.id) for key in one.tasks)
    assert any("zone" in reason for reason in await reasons(world))


async def test_a_closed_agent_and_an_open_one_are_seen_by_the_next_pass(world):
    one = world.agents["one"]
    await world.services[Nodes].drain(ROOT, "one", Drain.FINISH)
    task = await shell_task(world, slots=0)
    await world.steps(3)
    assert not any(key[0].startswith(task.id) for key in one.tasks)
    await world.services[Nodes].enable(ROOT, "one")
    await world.steps(3)
    assert any(key[0].startswith(task.id) for key in one.tasks)


async def test_an_agent_whose_connection_is_lost_gets_nothing_at_the_next_pass(world):
    one = world.agents["one"]
    one.drop()
    task = await shell_task(world, slots=0)
    await world.services.schedule()
    assert not one.inbox
    assert any("one" in reason for reason in await reasons(world)), await reasons(world)
    await world.steps(3)
    one.online = True
    await world.steps(3)
    assert any(key[0].startswith(task.id) for key in one.tasks)
