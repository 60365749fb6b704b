"""Limits of containers from the config to the agent's order, for trials and user tasks alike."""

from __future__ import annotations

from services_scripted import ALICE, config, training

from detlab.schemas.taskwire import CreateTask, TaskKind

LIMITS = {"memory": "2G", "cpus": 1.5, "shm_size": "1G"}


async def launched(world, agent):
    """The one order that the agent got."""
    await world.steps(2)
    (task,) = agent.tasks.values()
    return task.launch.container


def with_docker(agent):
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update={"runtimes": ["process", "docker"]})
    return agent


async def docker_world(make_world):
    world = await make_world(training(500))
    agent = await world.add_agent()
    agent.drop()
    await with_docker(agent).connect()
    return world, agent


async def test_limits_of_a_trial_reach_its_container(make_world):
    world, agent = await docker_world(make_world)
    resources = {"slots_per_trial": 1, **LIMITS}
    await world.submit(config(runtime="docker", environment={"image": "a:1"}, resources=resources))
    spec = await launched(world, agent)
    assert (spec.memory, spec.cpus, spec.shm_size) == (2 << 30, 1.5, 1 << 30)


async def test_limits_of_a_command_reach_its_container(make_world):
    world, agent = await docker_world(make_world)
    raw = {"entrypoint": "true", "runtime": "docker", "environment": {"image": "a:1"}, "resources": LIMITS}
    reply = await world.services.usertasks.create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
    assert reply.warnings == []
    spec = await launched(world, agent)
    assert (spec.memory, spec.cpus, spec.shm_size) == (2 << 30, 1.5, 1 << 30)


async def test_limits_without_a_container_are_warned_about(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    raw = {"entrypoint": "true", "resources": LIMITS}
    reply = await world.services.usertasks.create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
    assert {one.path for one in reply.warnings} == {"resources.memory", "resources.cpus", "resources.shm_size"}
