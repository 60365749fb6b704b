"""A user's storages are compared with what the master knows: by a task of theirs, of theirs alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config
from sqlalchemy import select
from test_lost_checkpoints import Place, saved

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.schemas.taskwire import (
    CheckStorage,
    CreateTask,
    ExpectedQuery,
    StoredItem,
    StoredMark,
    StoredPage,
    TaskKind,
)
from detlab.schemas.wire import GrantRequest
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.usertasks.checking_tasks import PROGRAM, CheckingTasks
from detlab_hub.store.tables import AllocationRow, CheckpointRow, TrialRow


async def checker(place: Place, caller: Caller = ALICE, experiment: int | None = None) -> TaskCaller:
    checks = CheckStorage(experiment_id=experiment)
    reply = await place.services.start_task(caller, CreateTask(kind=TaskKind.COMMAND, checks=checks))
    assert (reply.task.owner, reply.task.config["entrypoint"]) == (caller.name, PROGRAM)
    await place.world.steps(4)

    def read(s: Any) -> TaskCaller:
        return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.task_id == reply.task.id)).one())

    return await place.services.context.read(read)


async def verdict(place: Place, task: TaskCaller, uuid: str, *marks: tuple[str, int]) -> str:
    item = StoredItem(uuid=uuid, marks=[StoredMark(owner=owner, run=run) for owner, run in marks])
    found = await place.services[CheckingTasks].verdicts(task, StoredPage(items=[item]))
    return found.verdicts[uuid]


async def number_of_trial(place: Place) -> int:
    return await place.services.context.read(lambda s: s.scalars(select(TrialRow.id)).first())


async def test_the_task_knows_what_is_to_be_there_and_what_never_was(make_world: Any) -> None:
    place = await saved(make_world)
    task, trial = await checker(place), await number_of_trial(place)
    view = await place.services[CheckingTasks].get(task)
    assert [block["type"] for block in view.storages] == ["directory"]
    expected = await place.services[CheckingTasks].expected(task, ExpectedQuery())
    assert sorted(expected.items) == sorted(place.uuids)
    sizes = await place.services.context.read(
        lambda s: dict(s.execute(select(CheckpointRow.uuid, CheckpointRow.size)).all())
    )
    assert dict(zip(expected.items, expected.sizes, strict=True)) == {uuid: sizes[uuid] for uuid in place.uuids}
    own = new_checkpoint_id(trial)
    assert await verdict(place, task, place.uuids[0]) == "kept"
    assert await verdict(place, task, own, (f"detlab-{trial}", 1)) == "busy", "its attempt may commit it still"
    assert await verdict(place, task, own, (f"detlab-{trial}", 0)) == "never", "an earlier attempt cannot"
    await place.end()
    assert await verdict(place, task, own, (f"detlab-{trial}", 1)) == "never"
    await place.services[Removals].delete(ALICE, place.uuids[0])
    assert await verdict(place, task, place.uuids[0]) == "trash"
    with pytest.raises(NotFound):
        await place.services[CheckingTasks].expected(task, ExpectedQuery(place=1))


async def test_what_is_not_surely_its_own_is_unknown(make_world: Any) -> None:
    """A mark is an object that anybody with keys to the bucket can write; the id must be of that trial, too."""
    place = await saved(make_world)
    task, trial = await checker(place), await number_of_trial(place)
    await place.end()
    own, stranger = new_checkpoint_id(trial), new_checkpoint_id(trial + 1)
    assert await verdict(place, task, own) == "unknown"
    assert await verdict(place, task, own, (f"another-{trial}", 1)) == "unknown", "another cluster's in the same bucket"
    assert await verdict(place, task, stranger, (f"detlab-{trial}", 1)) == "unknown", "the id is not of this trial"
    assert await verdict(place, task, stranger, (f"detlab-{trial + 1}", 1)) == "unknown", "there is no such trial"
    assert await verdict(place, task, "model", (f"detlab-{trial}", 1)) == "unknown"
    assert await verdict(place, task, own, ("detlab-" + "9" * 30, 1), ("detlab-x", 1), ("", 1)) == "unknown"


async def test_the_tenant_next_door_removes_nothing_of_hers(make_world: Any) -> None:
    place = await saved(make_world)
    await place.end()
    trial = await number_of_trial(place)
    await place.world.submit(config(), caller=BOB)
    task = await checker(place, BOB)
    own = new_checkpoint_id(trial)
    assert await verdict(place, task, own, (f"detlab-{trial}", 1)) == "another"
    assert await verdict(place, task, place.uuids[0]) == "another"
    expected = await place.services[CheckingTasks].expected(task, ExpectedQuery())
    assert not set(expected.items) & set(place.uuids)


async def test_a_copy_in_another_storage_is_left_alone_whatever_became_of_the_original(
    make_world: Any, tmp_path: Path
) -> None:
    place = await saved(make_world)
    archive = {"type": "directory", "container_path": str(tmp_path / "archive")}
    await place.world.submit(config(checkpoint_storage=archive))
    task = await checker(place)
    storages = (await place.services[CheckingTasks].get(task)).storages
    copies = next(n for n, block in enumerate(storages) if block["container_path"] == archive["container_path"])
    await place.end()
    uuid = place.uuids[0]
    await place.services[Removals].delete(ALICE, uuid, now=True)

    async def told(number: int | None) -> str:
        page = StoredPage(items=[StoredItem(uuid=uuid)], place=number)
        return (await place.services[CheckingTasks].verdicts(task, page)).verdicts[uuid]

    assert await told(1 - copies) in {"never", "trash"}
    assert await told(copies) == "another"
    with pytest.raises(NotFound):
        await told(2)


async def test_later_experiments_move_no_storage_of_a_check(make_world: Any, tmp_path: Path) -> None:
    place = await saved(make_world)
    task = await checker(place)
    place.world.now += 5.0
    later = {"type": "directory", "container_path": str(tmp_path / "later")}
    await place.world.submit(config(checkpoint_storage=later))
    expected = await place.services[CheckingTasks].expected(task, ExpectedQuery(place=0))
    assert sorted(expected.items) == sorted(place.uuids)


async def test_a_trial_asks_of_its_own_alone(make_world: Any) -> None:
    place = await saved(make_world)
    trial = await place.trial()
    number = await number_of_trial(place)
    assert await verdict(place, trial, place.uuids[0]) == "kept"
    assert await verdict(place, trial, new_checkpoint_id(number + 1), (f"detlab-{number + 1}", 1)) == "unknown"
    with pytest.raises(NotFound):
        await place.services[CheckingTasks].get(trial)


async def test_nobody_else_gets_the_owners_keys(make_world: Any) -> None:
    place = await saved(make_world)
    with pytest.raises(NotFound):
        await checker(place, BOB, place.experiment)
    with pytest.raises(NotFound):
        await checker(place, BOB)
    await place.services[Grants].put(ALICE, place.experiment, GrantRequest(kind="user", name=BOB.name, write=True))
    for caller in (BOB, ROOT):
        with pytest.raises(Forbidden, match="whose keys"):
            await checker(place, caller, place.experiment)


async def test_the_command_is_the_masters_own(make_world: Any) -> None:
    place = await saved(make_world)
    for more in ({"config": {"entrypoint": ["env"]}}, {"bundle": f"sha256:{'0' * 64}"}):
        request = CreateTask(kind=TaskKind.COMMAND, checks=CheckStorage(), **more)
        with pytest.raises(ConfigError, match="itself"):
            await place.services.start_task(ALICE, request)


async def test_a_copy_compares_nothing(make_world: Any) -> None:
    place = await saved(make_world)
    place.world.settings = dataclasses.replace(place.world.settings, is_copy=True)
    await place.world.reboot()
    with pytest.raises(Conflict, match=r"no storage is compared.*is a copy"):
        await checker(place)
