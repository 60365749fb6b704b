"""Devices that several tasks share: who gets which share, what tasks are told, and a setting that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config, deaf, training

from detlab.errors import ResourcesError
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import SlotView
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.usertasks.usertasks import UserTasks


def shared(parts, **more):
    return read_pools({"default": {"slots_per_device": parts, **more}})[0]


async def node(world, name, devices=1, kind="cuda"):
    """An agent with GPUs that knows shares."""
    agent = await world.add_agent(name, devices)
    plain = agent.hello

    def hello():
        slots = [
            SlotView(id=f"cuda{n}", kind=kind, name="H200", uuid=f"GPU-{name}-{n}", memory=80 << 30)
            for n in range(devices)
        ]
        return plain().model_copy(update={"shares": True, "slots": slots})

    agent.hello = hello
    agent.drop()
    await agent.connect()
    return agent


def wants(slots=1, **more):
    return config(resources={"slots_per_trial": slots, **more})


def launches(agent):
    return [task.launch for task in agent.tasks.values()]


async def slots_of(world, *made):
    return [(await world.trials(one.id))[0].slots for one in made]


async def with_pools(world, pools):
    """The operator changes the setting and starts the master anew."""
    world.settings = replace(world.settings, pools=pools)
    await world.reboot()


async def test_two_trials_are_on_one_device_at_the_same_time_and_a_third_waits(make_world):
    world = await make_world(training(30), pools=shared(2))
    agent = await node(world, "one")
    first, second, third = await world.submit(wants()), await world.submit(wants(), BOB), await world.submit(wants())
    await world.steps(3)
    assert await slots_of(world, first, second) == [["cuda0.0"], ["cuda0.1"]]
    assert (await world.trials(third.id))[0].display_state == "QUEUED"
    for launch in launches(agent):
        assert (launch.info.slot_ids, launch.info.container_slot_counts) == ([0], [1])
        assert (launch.info.gpu_uuids, launch.info.device_shares) == (["GPU-one-0"], [0.5])
    (view,) = await world.services[Agents].list(ROOT)
    assert [(slot.id, slot.device, slot.shares, slot.memory >> 30) for slot in view.slots] == [
        ("cuda0.0", "cuda0", 2, 40),
        ("cuda0.1", "cuda0", 2, 40),
    ]
    (pool,) = (await world.services[PoolViews].list()).items
    assert (pool.slots_per_device, pool.slots_total, pool.slots_used) == (2, 2, 2)
    for one in (first, second, third):
        assert (await world.finish(one.id)).state == "COMPLETED"


async def test_a_trial_with_two_shares_of_a_device_has_one_rank_and_one_with_two_devices_two(make_world):
    world = await make_world(training(30), pools=shared(4))
    agent = await node(world, "one", 2)
    small, half, large = [await world.submit(wants(slots)) for slots in (1, 2, 5)]
    await world.steps(3)
    assert await slots_of(world, small, half) == [["cuda0.0"], ["cuda0.1", "cuda0.2"]]
    assert await slots_of(world, large) == [["cuda1.0", "cuda1.1", "cuda1.2", "cuda1.3", "cuda0.3"]]
    told = {launch.allocation_id.partition(".")[0]: launch for launch in launches(agent)}
    one, two = told[str(half.id)], told[str(large.id)]
    assert (one.info.slot_ids, one.info.container_slot_counts, one.info.device_shares) == ([0], [1], [0.5])
    assert (two.info.slot_ids, two.info.container_slot_counts, two.info.device_shares) == ([0, 1], [2], [1.0, 0.25])
    assert two.info.gpu_uuids == ["GPU-one-1", "GPU-one-0"]
    assert "torch_distributed" not in str(one.entrypoint)


async def test_a_trial_over_two_agents_counts_the_devices_of_each(make_world):
    world = await make_world(training(30), pools=shared(2, heterogeneous=True))
    agents = [await node(world, "left", 2), await node(world, "right", 1)]
    made = await world.submit(wants(6))
    await world.steps(3)
    assert (await slots_of(world, made))[0][:2] == ["left/cuda0.0", "left/cuda0.1"]
    infos = [launches(agent)[0].info for agent in agents]
    assert [info.container_slot_counts for info in infos] == [[2, 1], [2, 1]]
    assert [info.slot_ids for info in infos] == [[0, 1], [0]]
    assert [info.device_shares for info in infos] == [[], []]


async def test_a_command_gets_a_share_and_more_than_there_are_is_refused(make_world):
    world = await make_world(training(30), pools=shared(2))
    agent = await node(world, "one")
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 1}})
    await world.services[UserTasks].create(ALICE, request)
    await world.steps(2)
    assert launches(agent)[0].slots == ["cuda0.0"]
    with pytest.raises(ResourcesError, match="3 slots"):
        await world.submit(wants(3))


async def test_one_share_is_disabled_and_the_others_go_on(make_world):
    world = await make_world(training(60), pools=shared(2))
    await node(world, "one")
    await world.services[Nodes].set_slot(ROOT, "one", "cuda0.0", enabled=False)
    first, second = await world.submit(wants()), await world.submit(wants())
    await world.steps(3)
    assert await slots_of(world, first) == [["cuda0.1"]]
    assert (await world.trials(second.id))[0].display_state == "QUEUED"
    await world.services[Nodes].set_slot(ROOT, "one", "cuda0.0", enabled=True)
    await world.steps(3)
    assert await slots_of(world, second) == [["cuda0.0"]]


async def test_a_device_that_was_closed_stays_so_when_it_is_divided_and_can_be_opened(make_world):
    world = await make_world(training(60))
    await node(world, "one", 2)
    await world.services[Nodes].set_slot(ROOT, "one", "cuda0", enabled=False)
    await with_pools(world, shared(2))
    await world.steps(2)
    (view,) = await world.services[Agents].list(ROOT)
    assert [slot.enabled for slot in view.slots] == [False, False, True, True]
    view = await world.services[Nodes].set_slot(ROOT, "one", "cuda0", enabled=True)
    assert all(slot.enabled for slot in view.slots)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 2)])
async def test_the_setting_changes_below_running_trials(make_world, before, after):
    """Who has a slot that is no more ends, uncounted; nobody new is on its device before it is out."""
    world = await make_world(training(14, save_every=1), pools=shared(before))
    agent = await node(world, "one")
    made = [await world.submit(wants()) for _ in range(before)]
    waiting = await world.submit(wants())
    await world.steps(4)
    running = list(agent.tasks.values())
    assert len(running) == before
    for task in running:
        task.heeds_kill = False
    await with_pools(world, shared(after))
    await world.steps(4)
    kept = {task.launch.slots[0] for task in running} & {f"cuda0.{n}" for n in range(after)} if after > 1 else set()
    gone = [task for task in running if task.launch.slots[0] not in kept]
    assert gone
    assert all(task.killed is not None for task in gone)
    assert all(task.killed is None for task in running if task not in gone)
    assert len(agent.launches) == before, "its device is nobody's before it is out"
    for task in running:
        task.heeds_kill = True
    for one in made:
        assert (await world.finish(one.id)).state == "COMPLETED"
        (trial,) = await world.trials(one.id)
        assert trial.restarts == 0
    runs = [(await world.trials(one.id))[0].run for one in made]
    assert runs.count(2) == len(gone)
    assert (await world.finish(waiting.id)).state == "COMPLETED"


async def test_trials_that_come_and_go_never_have_more_than_the_shares_of_a_device(make_world):
    world = await make_world(training(6), pools=shared(3))
    agents = [await node(world, "left", 2), await node(world, "right", 1)]
    made = [
        await world.submit(wants(1 + number % 4, is_single_node=True)) for number in range(1, 25) if number % 4 != 3
    ]
    seen = set()
    for _ in range(200):
        await world.step()
        for agent in agents:
            held = [slot for task in agent.tasks.values() if not task.exited for slot in task.launch.slots]
            assert len(held) == len(set(held))
            assert set(held) <= {f"cuda{n}.{k}" for n in range(agent.slots) for k in range(3)}
            seen |= {(agent.name, slot) for slot in held}
    assert len(seen) == 9, "all shares were used"
    for one in made:
        assert (await world.view(one.id)).state == "COMPLETED"


async def test_a_share_is_asked_for_by_the_memory_that_it_has(make_world):
    world = await make_world(deaf(5), pools=shared(2))
    await node(world, "one")
    fits = await world.submit(wants(constraints={"memory": "40G"}))
    await world.steps(2)
    assert (await slots_of(world, fits))[0]
    with pytest.raises(ResourcesError):
        await world.submit(wants(constraints={"memory": "41G"}))
