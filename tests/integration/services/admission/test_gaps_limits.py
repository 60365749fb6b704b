"""Limits of containers from the config to the agent's order, for trials and user tasks alike."""

from __future__ import annotations

from services_scripted import ALICE, config, training

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services.usertasks.usertasks import UserTasks

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
    reply = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
    assert reply.warnings == []
    spec = await launched(world, agent)
    assert (spec.memory, spec.cpus, spec.shm_size) == (2 << 30, 1.5, 1 << 30)


async def test_limits_without_a_container_are_warned_about(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    raw = {"entrypoint": "true", "resources": LIMITS}
    reply = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
    assert {one.path for one in reply.warnings} == {"resources.memory", "resources.cpus", "resources.shm_size"}


async def test_all_that_a_config_says_of_its_container_reaches_the_agent(make_world):
    asked = {
        "image": {"cpu": "a:cpu", "cuda": "a:cuda"},
        "force_pull_image": True,
        "registry_auth": {"username": "ada", "password": "key"},
        "add_capabilities": ["NET_ADMIN"],
        "drop_capabilities": ["MKNOD"],
    }
    devices = [{"host_path": "/dev/null", "container_path": "/dev/nothing", "mode": "r"}]
    for submit in (
        lambda world: world.submit(
            config(runtime="docker", environment=asked, resources={"slots_per_trial": 1, "devices": devices})
        ),
        lambda world: world.services[UserTasks].create(
            ALICE,
            CreateTask(
                kind=TaskKind.COMMAND,
                config={
                    "entrypoint": "true",
                    "runtime": "docker",
                    "environment": asked,
                    "resources": {"devices": devices},
                },
            ),
        ),
    ):
        world, agent = await docker_world(make_world)
        await submit(world)
        spec = await launched(world, agent)
        assert (spec.image, spec.force_pull) == ("a:cpu", True)
        assert spec.registry_auth == {"username": "ada", "password": "key"}
        assert (spec.add_capabilities, spec.drop_capabilities) == (["NET_ADMIN"], ["MKNOD"])
        (device,) = spec.devices
        assert (device.host_path, device.container_path, device.mode) == ("/dev/null", "/dev/nothing", "r")


async def test_the_clusters_default_image_reaches_the_agent_by_its_kind_of_slots(make_world):
    world = await make_world(training(500), default_runtime="docker", default_image={"cpu": "d:cpu", "cuda": "d:cuda"})
    agent = await world.add_agent()
    agent.drop()
    await with_docker(agent).connect()
    await world.submit(config())
    assert (await launched(world, agent)).image == "d:cpu"
