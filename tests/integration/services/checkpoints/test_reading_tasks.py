"""Checkpoints in a user's own store: a task reads them for their owner, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT
from sqlalchemy import select, update
from test_lost_checkpoints import Place, saved

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.taskwire import CreateTask, ReadCheckpoint, TaskKind, TaskView
from detlab.schemas.wire import GrantRequest
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.base.settings import MIB
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.usertasks.outputs import OutputsTooLarge
from detlab_hub.services.usertasks.reading_tasks import PROGRAM, ReadingTasks
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow, CheckpointRow, TaskRow

STORE = {"type": "s3", "bucket": "hers", "access_key": "AKIA", "secret_key": "only-alice-has-it"}


async def hers(make_world: Any, **settings: Any) -> Place:
    """A world whose checkpoints are in a store of alice's own."""
    place = await saved(make_world, **settings)
    await moved(place)
    return place


async def moved(place: Place) -> None:
    await place.end()

    def move(unit: Any) -> None:
        for uuid in place.uuids:
            unit.session.get_one(CheckpointRow, uuid).storage = STORE

    await place.services.context.write(move)


async def start(place: Place, caller: Caller = ALICE, *paths: str, **more: Any) -> TaskView:
    reads = ReadCheckpoint(uuid=place.uuids[0], paths=list(paths))
    request = CreateTask(**{"kind": TaskKind.COMMAND, "reads": reads, **more})
    reply = await place.services.start_task(caller, request)
    assert "only-alice-has-it" not in reply.model_dump_json()
    return reply.task


async def caller_in(place: Place, task_id: str) -> TaskCaller:
    await place.world.steps(4)

    def read(s: Any) -> TaskCaller:
        return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.task_id == task_id)).one())

    return await place.services.context.read(read)


async def test_the_owners_task_gets_the_block_with_its_keys(make_world: Any) -> None:
    place = await hers(make_world)
    task = await start(place, ALICE, "model.pt")
    assert (task.owner, task.config["entrypoint"], task.config["resources"]["slots"]) == (ALICE.name, PROGRAM, 0)
    found = await place.services[ReadingTasks].get(await caller_in(place, task.id))
    assert (found.uuid, found.storage, found.hands_over) == (place.uuids[0], STORE, True)
    assert found.files.keys() == {"model.pt"}
    task = await start(place)
    found = await place.services[ReadingTasks].get(await caller_in(place, task.id))
    assert (found.hands_over, len(found.files)) == (False, len(found.files) or 1)


async def test_nobody_else_gets_the_owners_keys(make_world: Any) -> None:
    """One to whom the experiment is shared, or an administrator, would have them in a task of their own."""
    place = await hers(make_world)
    with pytest.raises(NotFound):
        await start(place, BOB, "model.pt")
    await place.services[Grants].put(ALICE, place.experiment, GrantRequest(kind="user", name=BOB.name, write=True))
    for caller in (BOB, ROOT):
        for more in ({}, {"dry_run": True}):
            with pytest.raises(Forbidden, match="--mode direct"):
                await start(place, caller, "model.pt", **more)


async def test_a_task_whose_owner_is_another_than_the_checkpoints_gets_none(make_world: Any) -> None:
    place = await hers(make_world)
    task = await start(place, ALICE, "model.pt")
    caller = await caller_in(place, task.id)
    theirs = update(TaskRow).where(TaskRow.id == task.id).values(owner=BOB.name)
    await place.services.context.write(lambda unit: unit.session.execute(theirs))
    with pytest.raises(NotFound, match="reads no checkpoint"):
        await place.services[ReadingTasks].get(caller)


async def test_another_task_of_hers_gets_none(make_world: Any) -> None:
    place = await hers(make_world)
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"]})
    made = await place.services[UserTasks].create(ALICE, request)
    with pytest.raises(NotFound, match="reads no checkpoint"):
        await place.services[ReadingTasks].get(await caller_in(place, made.task.id))


async def test_the_command_is_the_masters_own(make_world: Any) -> None:
    place = await hers(make_world)
    for more in ({"config": {"entrypoint": ["env"]}}, {"bundle": f"sha256:{'0' * 64}"}, {"kind": TaskKind.SHELL}):
        with pytest.raises(ConfigError, match="itself"):
            await start(place, ALICE, **more)


async def test_what_cannot_be_handed_over_is_refused_at_once(make_world: Any) -> None:
    place = await hers(make_world, outputs_limit=MIB)
    with pytest.raises(OutputsTooLarge, match="--glob"):
        await start(place, ALICE, "model.pt")
    with pytest.raises(ConfigError, match="has no file"):
        await start(place, ALICE, "other.pt")
    await start(place)


async def test_what_the_master_opens_needs_no_task(make_world: Any) -> None:
    place = await saved(make_world)
    with pytest.raises(Conflict, match="--mode master"):
        await start(place)
    await moved(place)
    await place.services[Removals].delete(ALICE, place.uuids[0])
    with pytest.raises(Conflict, match="were deleted"):
        await start(place)


async def test_short_lived_keys_are_those_of_the_checkpoints_storage(make_world: Any) -> None:
    asked: list[Any] = []

    def give(owner: str, block: Any) -> dict[str, str]:
        asked.append((owner, block["bucket"]))
        return {"token": "t"}

    place = await hers(make_world, storage_credentials=give)
    task = await start(place)
    found = await place.services[Tasks].storage_credentials(await caller_in(place, task.id))
    assert found.values == {"token": "t"}
    assert asked == [(ALICE.name, "hers")]
