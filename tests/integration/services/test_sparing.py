"""Preemption after a checkpoint where one is near: nothing that was done is lost, and nobody waits for long."""

from __future__ import annotations

import pytest
from services_scripted import BOB, config, deaf
from sqlalchemy import select

from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab_hub.core.scheduling import Pool, PoolConfig, Pools
from detlab_hub.store.tables import AllocationRow

PREEMPTING = Pools({"default": PoolConfig("default", Pool(preemption=True))})
DIGEST = "sha256:" + "0" * 64


def wants(priority, slots=1):
    return {"slots_per_trial": slots, "priority": priority}


async def asked_at(world, experiment_id):
    """When the first attempt of an experiment was asked to leave, None: it was not."""
    query = select(AllocationRow.preempt_at).where(AllocationRow.experiment_id == experiment_id, AllocationRow.run == 1)
    return await world.services.shell.read(lambda s: s.scalar(query))


async def saves(world, agent, experiment_id):
    """A task of the experiment commits a checkpoint now."""
    (task,) = (task for task in agent.tasks.values() if task.launch.info.experiment_id == experiment_id)
    step = int(world.now)
    file = CheckpointFile(size=1, digest=DIGEST)
    commit = CommitCheckpoint(
        uuid=world.next_uuid(), steps_completed=step, files={"model.pt": file}, manifest_digest=DIGEST
    )
    await world.services.tasks.commit_checkpoint(task.caller, commit)


async def saving_each_minute(make_world, **settings):
    """A trial that holds the only slot and has saved three times, a minute apart, the last time just now."""
    world = await make_world(deaf(3), pools=PREEMPTING, **settings)
    agent = await world.add_agent("one", 1)
    low = await world.submit(config(resources=wants(80)))
    await world.steps(4)
    for _ in range(3):
        await passes_by(world, 60)
        await saves(world, agent, low.id)
    return world, agent, low


async def passes_by(world, seconds):
    """Time in which agents are heard and the scheduler looks every second."""
    await world.steps(seconds, 1.0)


async def test_a_trial_that_saves_soon_is_asked_to_leave_right_after_it(make_world):
    world, agent, low = await saving_each_minute(make_world)
    await passes_by(world, 50)
    high = await world.submit(config(resources=wants(10)), BOB)
    await passes_by(world, 5)
    assert await asked_at(world, low.id) is None
    assert set(world.services.shell.pending_codes.values()) == {"releasing"}
    assert world.services.shell.saving
    world.services.shell.scheduler_kick.clear()
    await saves(world, agent, low.id)
    assert world.services.shell.scheduler_kick.is_set(), "the commit has the scheduler look again"
    await world.services.schedule()
    assert await asked_at(world, low.id) == world.now
    assert not world.services.shell.saving
    assert (await world.view(high.id)).pending_reason


async def test_a_checkpoint_that_does_not_come_is_not_waited_for(make_world):
    world, _, low = await saving_each_minute(make_world)
    await passes_by(world, 50)
    began = world.now
    await world.submit(config(resources=wants(10)), BOB)
    await passes_by(world, 30)
    assert began < await asked_at(world, low.id) <= began + 20


@pytest.mark.parametrize(("waited", "settings"), [(10, {}), (50, {"checkpoint_near": 0.0})], ids=["far", "off"])
async def test_a_trial_that_saves_late_is_asked_at_once(make_world, waited, settings):
    world, _, low = await saving_each_minute(make_world, **settings)
    await passes_by(world, waited)
    began = world.now
    await world.submit(config(resources=wants(10)), BOB)
    await passes_by(world, 3)
    assert began <= await asked_at(world, low.id) <= began + 2


async def test_who_was_to_leave_after_its_checkpoint_stays_if_room_comes_before(make_world):
    world, agent, low = await saving_each_minute(make_world)
    await passes_by(world, 50)
    high = await world.submit(config(resources=wants(10)), BOB)
    await passes_by(world, 3)
    await world.add_agent("two", 1)
    await passes_by(world, 3)
    await saves(world, agent, low.id)
    await passes_by(world, 3)
    assert await asked_at(world, low.id) is None
    assert [trial.display_state for trial in await world.trials(high.id)] == ["RUNNING"]
