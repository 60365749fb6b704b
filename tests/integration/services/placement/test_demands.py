"""CPUs and memory that trials and tasks ask for: counted on their agents, refused where none has so much."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import ResourcesError
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.usertasks import UserTasks

GIB = 1 << 30


async def node(world, name, slots=4, cpus=8.0, memory=32 * GIB):
    """An agent that says what it has; None: one of an older version."""
    agent = await world.add_agent(name, slots)
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update={"cpus": cpus, "memory": memory})
    agent.drop()
    await agent.connect()
    return agent


def wants(slots=1, **more):
    return config(resources={"slots_per_trial": slots, **more})


async def states(world, *made):
    """RUNNING: it has a place; else the code of why it waits."""
    told = []
    for one in made:
        why = await world.services[Jobs].why(ROOT, str(one.id))
        told.append(why.items[0].reason if why.items else "RUNNING")
    return told


async def test_who_finds_too_little_memory_waits_and_is_told_why_and_what_would_help(make_world):
    world = await make_world(training(30))
    await node(world, "one")
    first = await world.submit(wants(memory="24G", cpus=2))
    await world.steps(2)
    second = await world.submit(wants(memory="16G"), BOB)
    third = await world.submit(wants(memory="4G", cpus=6), BOB)
    await world.steps(3)
    assert await states(world, first, second, third) == ["RUNNING", "no_free_resources", "RUNNING"], (
        "the third is small enough to pass"
    )
    said = (await world.view(second.id)).pending_reason
    assert said == (
        "waits for 16 GiB of memory on one agent: an agent with room for its slots has at most 4 GiB free;"
        " would start now with memory 4 GiB"
    )
    why = await world.services[Jobs].why(BOB, str(second.id))
    (wait,) = why.items
    assert wait.reason == "no_free_resources"
    assert [(hint.change, hint.value) for hint in wait.hints] == [("memory", "4 GiB")]
    (view,) = await world.services[Agents].list(ROOT)
    assert (view.cpus, view.cpus_asked, view.memory, view.memory_asked) == (8.0, 8.0, 32 * GIB, 28 * GIB)
    assert (await world.finish(third.id)).state == "COMPLETED"


async def test_what_was_asked_for_counts_after_a_restart_of_the_master(make_world):
    world = await make_world(training(60))
    await node(world, "one")
    await world.submit(wants(memory="24G"))
    await world.steps(3)
    await world.reboot()
    waiting = await world.submit(wants(memory="16G"))
    await world.steps(3)
    assert await states(world, waiting) == ["no_free_resources"]
    assert (await world.finish(waiting.id)).state == "COMPLETED"


async def test_more_than_any_agent_has_is_refused_at_submit(make_world):
    world = await make_world(training(3))
    agent = await node(world, "one")
    with pytest.raises(ResourcesError, match="needs 1 slot with 33 GiB of memory on one agent"):
        await world.submit(wants(memory="33G"))
    aside = {"entrypoint": "true", "resources": {"slots": 0, "cpus": 9}}
    with pytest.raises(ResourcesError, match="needs 9 CPUs on one agent; an agent has at most 8 CPUs"):
        await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=aside))
    agent.drop()  # as what it said when it was last here
    with pytest.raises(ResourcesError, match="33 GiB"):
        await world.submit(wants(memory="33G"))


async def test_a_task_without_slots_holds_its_memory(make_world):
    world = await make_world(training(60))
    await node(world, "one")
    asked = {"entrypoint": "true", "resources": {"slots": 0, "memory": "20G", "cpus": 1}}
    held = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=asked))
    await world.steps(2)
    assert (await world.services[UserTasks].get(ALICE, held.task.id)).agent_id == "one"
    request = CreateExperiment(config=wants(memory="16G"), dry_run=True)
    forecast = (await world.services[Experiments].create(ALICE, request)).forecast
    assert (forecast.agent_id, forecast.reason) == (None, "no_free_resources")


async def test_a_trial_over_two_agents_needs_it_on_each(make_world):
    world = await make_world(training(30))
    await node(world, "large", 2)
    await node(world, "small", 2, memory=8 * GIB)
    with pytest.raises(ResourcesError, match="needs 4 slots with 16 GiB of memory on each of its agents"):
        await world.submit(wants(4, memory="16G"))
    made = await world.submit(wants(4, memory="8G", cpus=8))
    await world.steps(3)
    assert await states(world, made) == ["RUNNING"]
    views = await world.services[Agents].list(ROOT)
    assert [(view.id, view.memory_asked, view.cpus_asked) for view in views] == [
        ("large", 8 * GIB, 8.0),
        ("small", 8 * GIB, 8.0),
    ]


async def test_an_agent_that_says_nothing_has_no_bound(make_world):
    world = await make_world(training(30))
    await node(world, "older", 2, cpus=None, memory=None)
    both = [await world.submit(wants(memory="900G", cpus=500)) for _ in range(2)]
    await world.steps(3)
    assert await states(world, *both) == ["RUNNING", "RUNNING"]
