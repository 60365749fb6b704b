"""Preemption after a checkpoint where one is near: nothing that was done is lost, and nobody waits for long."""

from __future__ import annotations

import pytest
from services_scripted import BOB, config, deaf
from sqlalchemy import select

from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab_hub.core.scheduling import Pool, PoolConfig, Pools, Scheduler
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.store.tables import AllocationRow

PREEMPTING = Pools({"default": PoolConfig("default", Pool(preemption=True))})
SHARING = Pools({"default": PoolConfig("default", Pool(scheduler=Scheduler.FAIR_SHARE))})
DIGEST = "sha256:" + "0" * 64


def wants(priority, slots=1):
    return {"slots_per_trial": slots, "priority": priority}


async def asked_at(world, experiment_id):
    """When the first attempt of an experiment was asked to leave, None: it was not."""
    query = select(AllocationRow.preempt_at).where(AllocationRow.experiment_id == experiment_id, AllocationRow.run == 1)
    return await world.services.context.read(lambda s: s.scalar(query))


async def saves(world, agent, experiment_id):
    """Each task of the experiment commits a checkpoint now."""
    for task in [task for task in agent.tasks.values() if task.launch.info.experiment_id == experiment_id]:
        step = int(world.now)
        file = CheckpointFile(size=1, digest=DIGEST)
        commit = CommitCheckpoint(
            uuid=world.next_uuid(task.caller.trial_id),
            steps_completed=step,
            files={"model.pt": file},
            manifest_digest=DIGEST,
        )
        await world.services[Tasks].commit_checkpoint(task.caller, commit)


async def saving_each_minute(make_world, slots=1, **settings):
    """A trial that holds all slots and has saved three times, a minute apart, the last time just now."""
    world = await make_world(deaf(3), pools=PREEMPTING, **settings)
    agent = await world.add_agent("one", slots)
    low = await world.submit(config(resources=wants(80, slots)))
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
    assert set(world.services.context.pending_codes.values()) == {"releasing"}
    assert world.services.context.saving
    world.services.context.scheduler_kick.clear()
    await saves(world, agent, low.id)
    assert world.services.context.scheduler_kick.is_set(), "the commit has the scheduler look again"
    await world.services.schedule()
    assert await asked_at(world, low.id) == world.now
    assert not world.services.context.saving
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


async def states(world, experiment_id):
    return [trial.display_state for trial in await world.trials(experiment_id)]


async def seconds_until(world, experiment_id, state, most):
    """How long it takes until the trial of an experiment is in that state."""
    for second in range(most):
        if await states(world, experiment_id) == [state]:
            return second
        await passes_by(world, 1)
    return most


async def test_lower_priorities_start_beside_one_that_is_to_leave_after_its_checkpoint(make_world):
    """Each pass chose it anew, and in a pass that takes slots from anybody nothing of lower priority starts."""
    world, agent, low = await saving_each_minute(make_world, slots=2)
    await passes_by(world, 48)
    await world.add_agent("two", 1)
    await world.submit(config(resources=wants(10, 2)), BOB)
    other = await world.submit(config(resources=wants(90)), BOB)
    assert await seconds_until(world, other.id, "RUNNING", 10) <= 4
    assert await asked_at(world, low.id) is None
    await saves(world, agent, low.id)
    await passes_by(world, 2)
    assert await asked_at(world, low.id) is not None
    assert await asked_at(world, other.id) is None


async def two_of_which_one_saves_soon(make_world):
    world, agent, low = await saving_each_minute(make_world)
    await world.add_agent("two", 1)
    other = await world.submit(config(resources=wants(80)))
    await passes_by(world, 48)
    assert await states(world, other.id) == ["RUNNING"]
    high = await world.submit(config(resources=wants(10, 2)), BOB)
    await passes_by(world, 5)
    return world, agent, (low, other), high


async def test_all_who_leave_for_one_are_asked_together(make_world):
    """The slots of the first to leave would only wait for the one that saves soon."""
    world, agent, victims, _ = await two_of_which_one_saves_soon(make_world)
    assert [await asked_at(world, one.id) for one in victims] == [None, None]
    await saves(world, agent, victims[0].id)
    await world.services.schedule()
    assert [await asked_at(world, one.id) for one in victims] == [world.now, world.now]


async def test_nothing_is_kept_for_the_one_that_waited_when_it_is_gone(make_world):
    """A lower priority that waits, too, does not get what was held back for the urgent one."""
    world, agent, victims, high = await two_of_which_one_saves_soon(make_world)
    await world.submit(config(resources=wants(95, 2)), BOB)
    await passes_by(world, 1)
    await world.services[Experiments].pause(BOB, high.id)
    await passes_by(world, 3)
    assert not world.services.context.saving
    await saves(world, agent, victims[0].id)
    await passes_by(world, 30)
    assert [await asked_at(world, one.id) for one in victims] == [None, None]


async def each_saves_in_its_turn(world, experiment_ids, seconds):
    """Of five experiments each saves once a minute, twelve seconds after the one before, until it is asked to leave."""
    for second in range(seconds):
        await passes_by(world, 1)
        number = experiment_ids[second % 60 // 12]
        if second % 12 == 0 and await asked_at(world, number) is None:
            agents = world.agents.values()
            held = (one for one in agents for task in one.tasks.values() if task.launch.info.experiment_id == number)
            await saves(world, next(held), number)


async def test_those_that_save_in_turn_are_not_waited_for_without_end(make_world):
    """Of those that leave together one is always about to save: as long as one may take is enough for all."""
    world = await make_world(deaf(6), pools=PREEMPTING)
    victims = []
    for name in ("one", "two", "three", "four", "five"):
        await world.add_agent(name, 1)
        victims.append((await world.submit(config(resources=wants(80)))).id)
        await world.steps(2)
    await each_saves_in_its_turn(world, victims, 240)
    began = world.now
    await world.submit(config(resources=wants(10, 5)), BOB)
    await each_saves_in_its_turn(world, victims, 60)
    times = {await asked_at(world, number) for number in victims}
    assert len(times) == 1
    assert 30 <= times.pop() - began <= 34


async def test_who_is_held_back_is_noted_once_and_told_with_the_reason(make_world, caplog):
    world, _, low = await saving_each_minute(make_world)
    await passes_by(world, 48)
    caplog.set_level("INFO", "detlab_hub.services.placement.after_checkpoint")
    high = await world.submit(config(resources=wants(10)))
    await passes_by(world, 5)
    assert len([one for one in caplog.records if "is to leave" in one.getMessage()]) == 1
    assert (await world.view(high.id)).pending_reason.endswith("release their slots, after a checkpoint that is near")
    assert await asked_at(world, low.id) is None


async def test_a_checkpoint_right_after_the_pass_is_not_missed(make_world):
    """What it chose was known when its caller went on: a checkpoint that was committed before called nobody."""
    world, agent, low = await saving_each_minute(make_world)
    await passes_by(world, 48)
    await world.submit(config(resources=wants(10)), BOB)
    context = world.services.context
    write = context.write

    async def saves_before_the_caller_goes_on(action):
        result = await write(action)
        if context.write is not write:
            context.write = write
            context.scheduler_kick.clear()
            await saves(world, agent, low.id)
        return result

    context.write = saves_before_the_caller_goes_on
    await world.services.schedule()
    assert context.saving
    assert context.scheduler_kick.is_set()


async def asked_by_trial(world, experiment_id):
    """When the first attempt of each trial of an experiment was asked to leave, sorted; None: it was not."""
    query = select(AllocationRow.preempt_at).where(AllocationRow.experiment_id == experiment_id, AllocationRow.run == 1)
    times = await world.services.context.read(lambda s: s.scalars(query).all())
    return sorted(times, key=lambda at: (at is not None, at))


async def two_that_share_a_pool(make_world, **settings):
    """A job that has both slots of a fair pool with two trials, which save each minute; then another job comes."""
    world = await make_world(deaf(3), pools=SHARING, **settings)
    agent = await world.add_agent("one", 2)
    searcher = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}
    first = await world.submit(config(searcher=searcher))
    await world.steps(4)
    assert await states(world, first.id) == ["RUNNING", "RUNNING"]
    for _ in range(3):
        await passes_by(world, 60)
        await saves(world, agent, first.id)
    await passes_by(world, 50)
    began = world.now
    other = await world.submit(config(), BOB)
    await passes_by(world, 5)
    return world, agent, first, other, began


async def test_under_fair_share_too_what_is_beyond_a_share_is_given_back_right_after_a_checkpoint(make_world):
    world, agent, first, other, _ = await two_that_share_a_pool(make_world)
    assert await asked_by_trial(world, first.id) == [None, None]
    assert (await world.view(other.id)).pending_reason.endswith("after a checkpoint that is near")
    assert len(world.services.context.saving) == 1, "one slot is wanted, one trial is to leave"
    await saves(world, agent, first.id)
    await world.services.schedule()
    assert await asked_by_trial(world, first.id) == [None, world.now]
    await passes_by(world, 5)
    assert not world.services.context.saving
    assert [at is None for at in await asked_by_trial(world, first.id)] == [True, False], "the other stays"


async def test_under_fair_share_too_a_checkpoint_that_does_not_come_is_not_waited_for(make_world):
    world, _, first, _, began = await two_that_share_a_pool(make_world)
    await passes_by(world, 25)
    kept, asked = await asked_by_trial(world, first.id)
    assert kept is None
    assert began + 5 < asked <= began + 20


async def test_under_fair_share_too_it_may_be_turned_off(make_world):
    world, _, first, _, began = await two_that_share_a_pool(make_world, checkpoint_near=0.0)
    kept, asked = await asked_by_trial(world, first.id)
    assert kept is None
    assert began <= asked <= began + 2
