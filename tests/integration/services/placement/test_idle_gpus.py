"""GPUs that are held at 0 %: found by what agents report, told of, and released where the pool says so."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training
from sqlalchemy import select

from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.services.views.task_views import state_of
from detlab_hub.store.tables import AlertRow, AllocationRow

POLICY = {"idle_gpu_warning": 600, "idle_gpu_release": 900}


def pools(**settings: Any) -> Any:
    found, errors = read_pools({"default": settings or POLICY})
    assert not errors
    return found


def waiting(launch):
    """A trial that has saved once, and waits for something for ever; it leaves when it is asked to."""
    yield ("resume",)
    yield ("save", 1)
    while not (yield ("poll",)):
        pass
    yield ("exit", 0)


async def rows(world: Any, table: Any) -> list[Any]:
    return await world.services.context.read(
        lambda s: list(s.scalars(select(table).order_by(*table.__mapper__.primary_key)))
    )


def measured(world: Any, percent: float, name: str = "node") -> None:
    agent = world.agents[name]
    agent.gpus = {slot.id: percent for slot in agent.hello().slots}


async def command(world: Any, slots: int = 1, caller: Any = ALICE) -> str:
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "sleep 1d", "resources": {"slots": slots}})
    reply = await world.services[UserTasks].create(caller, wanted)
    return reply.task.id


async def task(world: Any, task_id: str) -> Any:
    return await world.services[UserTasks].get(ALICE, task_id)


def forever(launch):
    while True:
        yield ("wait",)


async def minutes(world: Any, count: float) -> None:
    await world.steps(round(count * 3), 20.0)


async def test_an_idle_trial_is_told_of_then_paused_and_keeps_what_it_saved(make_world):
    world = await make_world(waiting, pools=pools())
    await world.add_agent("node", 1)
    measured(world, 0.0)
    mine = await world.submit(config())
    await minutes(world, 12)
    assert await rows(world, AlertRow) == [], "the first ten minutes do not count"
    await minutes(world, 10)
    (told,) = await rows(world, AlertRow)
    assert (told.owner, told.title) == ("alice", "GPUs of trial 1 are idle")
    assert "released in 5 min" in told.text
    (trial,) = await world.trials(mine.id)
    assert any("GPUs are idle in attempt 1" in one for one in trial.warnings)
    why = await world.services[Jobs].why(ALICE, str(mine.id))
    assert [(one.trial_id, one.slots) for one in why.idle] == [(1, 1)]
    await minutes(world, 8)
    view = await world.view(mine.id)
    assert view.state == "PAUSED"
    assert [one for one in view.warnings if one.startswith("paused: its GPUs were at 0 %")]
    assert [one.exit_code for one in await rows(world, AllocationRow)] == [0], "it was asked, not killed"
    assert [one.title for one in await rows(world, AlertRow)][-1] == "Idle GPUs of trial 1 are released"
    await world.services[Experiments].activate(ALICE, mine.id)
    measured(world, 80.0)
    await minutes(world, 40)
    again = await world.view(mine.id)
    assert (again.state, again.warnings) == ("ACTIVE", [])
    assert len(await rows(world, AlertRow)) == 2


async def test_a_task_is_told_of_spared_when_it_works_and_ended_after_the_grace(make_world):
    world = await make_world(forever, pools=pools())
    await world.add_agent("node", 2)
    measured(world, 0.0)
    mine = await command(world, 2)
    await minutes(world, 22)
    view = await task(world, mine)
    assert view.gpus_idle_since is not None
    assert 0 < view.gpus_released_at - world.now <= 300
    assert state_of(view.model_dump(mode="json"))["gpus_idle_since"] is None, "members see its state alone"
    idle = (await world.services[Usage].view(ALICE)).idle
    assert [(one.user, one.task_id, one.trial_id, one.slots) for one in idle] == [("alice", mine, None, 2)]
    assert (await world.services[Usage].view(BOB)).idle == []
    assert len((await world.services[Usage].view(ROOT)).idle) == 1
    measured(world, 3.0)
    await minutes(world, 2)
    view = await task(world, mine)
    assert (view.gpus_idle_since, view.gpus_released_at) == (None, None)
    await minutes(world, 30)
    assert (await task(world, mine)).state == "ACTIVE"
    measured(world, 0.0)
    await minutes(world, 12)
    assert (await task(world, mine)).gpus_idle_since is not None
    await minutes(world, 6)
    view = await task(world, mine)
    assert (view.state, view.end_reason) == ("CANCELED", TaskEnd.IDLE)
    assert [one.title for one in await rows(world, AlertRow)] == [
        f"GPUs of {mine} are idle",
        f"GPUs of {mine} are idle",
        f"Idle GPUs of {mine} are released",
    ]


@pytest.mark.parametrize("known", ["nothing", "one of two", "not now", "in use"])
async def test_what_is_not_known_is_not_idle(make_world, known):
    world = await make_world(forever, pools=pools())
    await world.add_agent("node", 2)
    agent = world.agents["node"]
    if known == "one of two":
        agent.gpus = {"node-0": 0.0}
    elif known == "in use":
        agent.gpus = {"node-0": 0.0, "node-1": 1.0}
    elif known == "not now":
        measured(world, 0.0)
    mine = await command(world, 2)
    await minutes(world, 15)
    if known == "not now":
        agent.gpus = None  # it still sends heartbeats: its driver hangs
    await minutes(world, 60)
    assert await rows(world, AlertRow) == []
    assert ((await task(world, mine)).state, (await world.services[Usage].view(ALICE)).idle) == ("ACTIVE", [])


async def test_a_restart_of_the_master_is_no_idle_time_and_warns_again(make_world):
    world = await make_world(forever, pools=pools())
    await world.add_agent("node", 1)
    measured(world, 0.0)
    mine = await command(world)
    await minutes(world, 18)
    world.now += 6 * 3600.0
    await world.reboot()
    await minutes(world, 8)
    assert await rows(world, AlertRow) == []
    await minutes(world, 4)
    assert (await task(world, mine)).gpus_released_at is not None
    await world.reboot()  # after the warning: the grace begins anew, and the page says so
    await minutes(world, 2)
    assert (await task(world, mine)).gpus_idle_since is None
    await minutes(world, 10)
    assert (await task(world, mine)).state == "ACTIVE"
    await minutes(world, 8)
    assert (await task(world, mine)).end_reason is TaskEnd.IDLE


async def test_a_clock_that_jumps_ends_nothing(make_world):
    world = await make_world(forever, pools=pools())
    await world.add_agent("node", 1)
    measured(world, 0.0)
    mine = await command(world)
    await minutes(world, 12)
    world.now += 24 * 3600.0
    await minutes(world, 5)
    world.now -= 24 * 3600.0
    await minutes(world, 5)
    assert (await task(world, mine)).state == "ACTIVE"
    assert await rows(world, AlertRow) == []


async def test_an_idle_trial_beside_working_ones_starts_again_alone(make_world):
    world = await make_world(waiting, pools=pools())
    await world.add_agent("lazy", 1)
    await world.add_agent("busy", 1)
    measured(world, 0.0, "lazy")
    measured(world, 50.0, "busy")
    grid = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}
    mine = await world.submit(config(grid))
    await minutes(world, 30)
    assert (await world.view(mine.id)).state == "ACTIVE"
    found = await rows(world, AllocationRow)
    assert sorted((one.run, one.agent_id) for one in found) == [(1, "busy"), (1, "lazy"), (2, "lazy")]


async def test_without_a_policy_it_is_shown_and_nobody_is_told(make_world):
    world = await make_world(forever, pools=pools(price=1.0))
    await world.add_agent("node", 1)
    measured(world, 0.0)
    mine = await command(world)
    await minutes(world, 43)
    assert ((await task(world, mine)).gpus_idle_since, (await task(world, mine)).gpus_released_at) != (None, None)
    assert [one.task_id for one in (await world.services[Usage].view(ALICE)).idle] == [mine]
    await minutes(world, 200)
    assert (await task(world, mine)).state == "ACTIVE"
    assert await rows(world, AlertRow) == []


async def test_what_works_is_never_touched(make_world):
    world = await make_world(training(200), pools=pools(idle_gpu_warning=60, idle_gpu_release=120))
    await world.add_agent("node", 1)
    measured(world, 100.0)
    mine = await world.submit(config())
    assert (await world.finish(mine.id)).state == "COMPLETED"
    assert await rows(world, AlertRow) == []


def test_nobody_loses_gpus_without_a_warning():
    for wrong in ({"idle_gpu_release": 900}, {"idle_gpu_warning": 900, "idle_gpu_release": 900}):
        _, errors = read_pools({"default": wrong})
        assert len(errors) == 1
        assert "needs a shorter 'idle_gpu_warning'" in errors[0]
