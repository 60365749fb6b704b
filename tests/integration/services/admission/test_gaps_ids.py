"""One id that people can paste: a task's own, or the name of its server at the Hub, which is the id's beginning."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT

from detlab.errors import NotFound
from detlab.schemas.taskwire import SpawnRequest, TaskKind
from detlab.schemas.wire import TrialState
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks

HUB = HubCaller()


def talks(launch):
    yield ("log", None, "here I am")
    while True:
        yield ("wait",)


async def spawn(world, name, owner="alice", kind=TaskKind.SHELL, key="k"):
    world.now += 1
    request = SpawnRequest(owner=owner, server_name=name, key=key * 16, kind=kind, base_url=f"/user/{owner}/{name}/")
    return (await world.services[Spawns].post(HUB, request)).task_id


async def test_ids_of_drawn_servers_begin_with_the_servers_name(make_world):
    world = await make_world(talks)
    task_id = await spawn(world, "shell-f2cc6db6")
    assert task_id.startswith("shell-f2cc6db6")
    assert len(task_id) == len("shell-") + 12
    again = await spawn(world, "shell-f2cc6db6", key="l")
    assert again != task_id
    assert again.startswith("shell-f2cc6db6")
    other = await spawn(world, "shell-f2cc6db7", kind=TaskKind.NOTEBOOK, key="m")
    assert other.startswith("notebook-"), "an id says the kind, whatever a server is called"


async def test_ids_and_server_names_do_in_every_call(make_world):
    world = await make_world(talks)
    await world.add_agent()
    tasks = world.services[UserTasks]
    for name in ("shell-f2cc6db6", "my server <b>"):
        task_id = await spawn(world, name, key=name[0])
        await world.steps(4)
        for word in (task_id, name):
            assert (await tasks.get(ALICE, word)).id == task_id
            lines, _ = await tasks.logs(ALICE, word)
            assert [line.text for line in lines] == ["here I am"]
            assert (await world.services[Outputs].list(ALICE, word)).items == []
            async for batch in tasks.follow_logs(ALICE, word):
                assert [line.task_id for line in batch] == [task_id]
                break
        assert (await world.services.end_task(ALICE, name)).id == task_id
        await world.steps(4)
        assert (await tasks.get(ALICE, name)).state is TrialState.CANCELED


async def test_ids_of_others_stay_hidden_behind_their_servers_names(make_world):
    world = await make_world(talks)
    bobs = await spawn(world, "shell-f2cc6db6", owner="bob")
    tasks = world.services[UserTasks]
    for word in (bobs, "shell-f2cc6db6", "", "x" * 300, "../../etc/passwd", "a\x00b"):
        with pytest.raises(NotFound):
            await tasks.get(ALICE, word)
    assert (await tasks.get(ROOT, bobs)).id == bobs
    with pytest.raises(NotFound):  # a name is one's own, an administrator's, too
        await tasks.get(ROOT, "shell-f2cc6db6")
    mine = await spawn(world, "shell-f2cc6db6", key="l")
    assert (await tasks.get(ALICE, "shell-f2cc6db6")).id == mine
    assert (await tasks.get(BOB, "shell-f2cc6db6")).id == bobs
    roots = await spawn(world, "shell-f2cc6db6", owner="root", key="m")
    assert (await tasks.get(ROOT, "shell-f2cc6db6")).id == roots


async def test_ids_of_a_server_that_was_started_again_mean_the_new_one(make_world):
    world = await make_world(talks)
    first = await spawn(world, "work")
    await world.services.end_task(ALICE, "work")
    second = await spawn(world, "work", key="l")
    assert (await world.services[UserTasks].get(ALICE, "work")).id == second
    assert (await world.services[UserTasks].get(ALICE, first)).id == first
