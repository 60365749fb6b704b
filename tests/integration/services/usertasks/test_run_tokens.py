"""The token of a notebook run: its owner's, for less than its owner may, and only while the run lasts."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config
from sqlalchemy import select

from detlab.errors import Forbidden, NotFound
from detlab.schemas.jobwire import JobUpdate
from detlab.schemas.logwire import KeepLogs
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import ExperimentState, GrantRequest, Launch
from detlab.schemas.wire.storage import EmptyTrash
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import administers
from detlab_hub.services.base.callers import READ, WRITE, Caller
from detlab_hub.services.checkpoints.trash import Trash
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.logs.log_retention import LogRetention
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import TokenRow

TTL = 3600.0


def waits(_launch: Launch) -> Any:
    while True:
        yield ("wait",)


async def launched(world: World, kind: TaskKind = TaskKind.NOTEBOOK_RUN, caller: Caller = ALICE) -> Launch:
    """Start a task, and return what its agent was told."""
    if not world.agents:
        await world.add_agent(slots=8)
    task_config = {"entrypoint": "true", "resources": {"slots": 1}}
    task = (await world.services[UserTasks].create(caller, CreateTask(kind=kind, config=task_config))).task
    assert task is not None
    told = world.agents["node"].tasks

    async def there() -> bool:
        return any(one.caller.task_id == task.id for one in told.values())

    await world.until(there)
    return next(one.launch for one in told.values() if one.caller.task_id == task.id)


async def resolved(world: World, launch: Launch) -> Caller:
    assert launch.run_token is not None
    found = await world.services[Tokens].resolve(launch.run_token)
    assert isinstance(found, Caller)
    return found


async def test_only_a_notebook_run_has_one_and_the_database_has_only_its_hash(make_world):
    world = await make_world(waits)
    run = await launched(world)
    assert [(await launched(world, kind)).run_token for kind in (TaskKind.CELL, TaskKind.COMMAND)] == [None, None]
    assert run.run_token is not None
    assert run.run_token.startswith("dtrun_")
    caller = await resolved(world, run)
    assert (caller.name, caller.scopes, caller.admin) == ("alice", {READ, WRITE}, False)
    rows = world.store.read_sync(lambda s: s.scalars(select(TokenRow).where(TokenRow.kind == "run")).all())
    assert [row.subject for row in rows] == [run.allocation_id]
    assert run.run_token not in str([(row.hash, row.subject) for row in rows])
    listed = [token for token in (await world.services[Credentials].list(ROOT)).items if token.kind == "run"]
    assert [token.subject for token in listed] == [run.allocation_id]
    await world.services[Credentials].revoke(ROOT, listed[0].id)
    assert await world.services[Tokens].resolve(run.run_token) is None


async def test_it_submits_and_steers_as_its_owner_and_neither_shares_nor_deletes(make_world):
    world = await make_world(waits)
    caller = await resolved(world, await launched(world))
    made = await world.submit(config(), caller)
    assert made.owner == "alice"
    older = await world.submit(config())
    strangers = await world.submit(config(), BOB)
    seen, _ = await world.services[Experiments].list(caller)
    assert {found.id for found in seen} == {made.id, older.id}
    assert (await world.services[Experiments].pause(caller, older.id)).state is ExperimentState.PAUSED
    with pytest.raises(Forbidden, match="notebook run"):
        await world.services[Experiments].delete(caller, older.id)
    with pytest.raises(Forbidden):
        await world.services[Grants].put(caller, older.id, GrantRequest(kind="user", name="bob", write=True))
    for ask in (world.services[Experiments].get, world.services[Experiments].kill):
        with pytest.raises(NotFound):
            await ask(caller, strangers.id)


async def test_it_empties_no_trash_and_cuts_no_output(make_world):
    """Regression: it emptied its owner's whole trash, since no object was asked about."""
    world = await make_world(waits)
    caller = await resolved(world, await launched(world))
    made = await world.submit(config(), caller)
    for experiment_id in (None, made.id):
        with pytest.raises(Forbidden, match="a notebook run may not empty its trash"):
            await world.services[Trash].empty(caller, EmptyTrash(experiment_id=experiment_id))
    for wanted in (KeepLogs(days=0, all=True), KeepLogs(days=0, experiments=[made.id])):
        with pytest.raises(Forbidden, match="a notebook run may not set for how long"):
            await world.services[LogRetention].keep(caller, wanted)


async def test_it_ends_its_owners_tasks_and_moves_none_in_the_queue(make_world):
    world = await make_world(waits)
    caller = await resolved(world, await launched(world))
    launch = await launched(world, TaskKind.COMMAND)
    task_id = next(one.id for one in (await world.services[UserTasks].list(ALICE)).items if one.kind == "command")
    assert (await world.services[UserTasks].get(caller, task_id)).id == task_id
    with pytest.raises(Forbidden, match="a notebook run may not change its pool"):
        await world.services[Jobs].update(caller, task_id, JobUpdate(weight=2))
    assert (await world.services[UserTasks].end(caller, task_id)).id == task_id
    assert launch.run_token is None


async def test_an_administrators_run_administers_nothing(make_world):
    world = await make_world(waits)
    other = await world.submit(config(), BOB)
    caller = await resolved(world, await launched(world, caller=ROOT))
    assert not any(administers(caller, kind) for kind in ObjectKind)
    with pytest.raises(NotFound):
        await world.services[Experiments].get(caller, other.id)
    with pytest.raises(Forbidden):
        await world.services[Credentials].list(caller)


async def test_what_a_run_starts_has_no_such_token_and_no_server_of_the_hub(make_world):
    """Each run could start the next one, and a stolen token would work for ever."""
    world = await make_world(waits)
    caller = await resolved(world, await launched(world))
    assert (await launched(world, caller=caller)).run_token is None
    for kind in (TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD):
        with pytest.raises(Forbidden, match="notebook run"):
            await world.services[Servers].start(caller, CreateTask(kind=kind))


@pytest.mark.parametrize("end", ["killed", "agent lost"])
async def test_it_ends_with_its_run_and_no_restart_brings_it_back(make_world, end):
    world = await make_world(waits, agent_reconnect_wait=5.0)
    run = await launched(world)
    await resolved(world, run)
    if end == "killed":
        task_id = (await world.services[UserTasks].list(ALICE)).items[0].id
        await world.services[UserTasks].end(ALICE, task_id)
    else:
        world.agents["node"].drop()

    async def void() -> bool:
        return await world.services[Tokens].resolve(run.run_token) is None

    await world.until(void)
    assert not [one for one in (await world.services[Credentials].list(ROOT)).items if one.kind == "run"]
    await world.reboot()
    assert await void()
    world.now += TTL
    await world.services.tidy()
    assert not world.store.read_sync(lambda s: s.scalars(select(TokenRow).where(TokenRow.kind == "run")).all())


async def test_it_lives_as_long_as_its_launcher_renews_and_an_hour_longer(make_world):
    world = await make_world(waits, task_token_ttl=TTL, agent_reconnect_wait=1e9)
    run = await launched(world)
    (task,) = world.agents["node"].tasks.values()
    for _ in range(3):
        world.now += 0.6 * TTL
        await world.services[Tasks].renew_token(task.caller)
        await resolved(world, run)
    world.agents["node"].drop()
    world.now += TTL + 1
    assert await world.services[Tokens].resolve(run.run_token) is None


async def test_a_restart_of_the_master_keeps_the_token_of_a_run_that_goes_on(make_world):
    world = await make_world(waits, task_token_ttl=TTL)
    run = await launched(world)
    world.now += 2 * TTL  # nobody was there to renew it
    await world.reboot()
    assert (await resolved(world, run)).run == run.allocation_id
