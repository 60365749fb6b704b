"""Files that user tasks hand over: by digest, for their owner, within a quota, and only from a live attempt."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config

from detlab.errors import Conflict, NotFound, StaleAttempt
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services import TaskCaller
from detlab_hub.services.usertasks.outputs import MOST_FILES, OutputName, Outputs, OutputsTooLarge
from detlab_hub.services.usertasks.usertasks import UserTasks


def waits(_launch):
    while True:
        yield ("wait",)


async def started(world: World, kind: TaskKind = TaskKind.CELL) -> tuple[str, TaskCaller]:
    """A running task and who speaks for it."""
    if not world.agents:
        await world.add_agent(slots=2)
    request = CreateTask(kind=kind, config={"entrypoint": "true", "resources": {"slots": 1}})
    task = (await world.services[UserTasks].create(ALICE, request)).task
    assert task is not None
    agent = world.agents["node"]
    await world.until(lambda: _there(agent, task.id))
    return task.id, next(t.caller for t in agent.tasks.values() if t.caller.task_id == task.id)


async def _there(agent, task_id: str) -> bool:
    return any(t.caller.task_id == task_id for t in agent.tasks.values())


async def put(world: World, caller: TaskCaller, name: str, data: bytes):
    folder = world.settings.outputs_dir
    folder.mkdir(parents=True, exist_ok=True)
    upload = folder / f".upload-{hashlib.sha256(data + name.encode()).hexdigest()[:8]}"
    upload.write_bytes(data)
    try:
        return await world.services[Outputs].put(caller, name, upload)
    finally:
        assert not upload.exists(), "uploads are moved away or removed"


async def read(world: World, caller, task_id: str, digest: str) -> bytes:
    file, size = await world.services[Outputs].open(caller, task_id, digest)
    with file:
        data = file.read()
    assert len(data) == size
    return data


def stored(world: World) -> list[Path]:
    return [path for path in world.settings.outputs_dir.rglob("*") if path.is_file()]


async def test_an_output_is_listed_and_read_by_its_owner_and_an_administrator(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    view = await put(world, caller, "naïve result.value", b"abc")
    assert view.digest == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    for person in (ALICE, ROOT):
        assert (await world.services[Outputs].list(person, task_id)).items == [view]
        assert await read(world, person, task_id, view.digest) == b"abc"


async def test_somebody_else_learns_nothing_of_it(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    view = await put(world, caller, "x", b"abc")
    with pytest.raises(NotFound) as known:
        await world.services[Outputs].list(BOB, task_id)
    with pytest.raises(NotFound) as unknown:
        await world.services[Outputs].list(BOB, "cell-000000000000")
    assert known.value.message.replace(task_id, "T") == unknown.value.message.replace("cell-000000000000", "T")
    with pytest.raises(NotFound):
        await world.services[Outputs].open(BOB, task_id, view.digest)


async def test_a_digest_of_another_task_is_not_given_out(make_world):
    world = await make_world(waits)
    _, first = await started(world)
    second_id, _ = await started(world)
    view = await put(world, first, "x", b"secret")
    with pytest.raises(NotFound):
        await world.services[Outputs].open(ALICE, second_id, view.digest)
    with pytest.raises(NotFound):
        await world.services[Outputs].open(ALICE, second_id, "../../secrets")


async def test_a_file_of_the_same_name_is_replaced_and_its_bytes_removed(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    for number in range(5):
        await put(world, caller, "executed.ipynb", b"state %d" % number)
    (item,) = (await world.services[Outputs].list(ALICE, task_id)).items
    assert await read(world, ALICE, task_id, item.digest) == b"state 4"
    assert len(stored(world)) == 1


async def test_bytes_that_another_file_is_stay(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    same = await put(world, caller, "a", b"same")
    await put(world, caller, "b", b"same")
    await put(world, caller, "a", b"other")
    assert await read(world, ALICE, task_id, same.digest) == b"same"
    await put(world, caller, "b", b"same")
    assert len(stored(world)) == 2


async def test_the_quota_counts_all_files_of_a_task_and_says_the_numbers(make_world):
    world = await make_world(waits, outputs_limit=1000)
    task_id, caller = await started(world)
    await put(world, caller, "a", b"x" * 600)
    with pytest.raises(OutputsTooLarge, match="a task may hold"):
        await put(world, caller, "b", b"y" * 401)
    await put(world, caller, "a", b"z" * 1000)  # replaced: what was there before does not count
    assert [item.size for item in (await world.services[Outputs].list(ALICE, task_id)).items] == [1000]
    other_id, other = await started(world)
    await put(world, other, "a", b"y" * 1000)
    assert len(stored(world)) == 2
    assert other_id != task_id


async def test_the_number_of_files_is_limited(make_world, monkeypatch):
    monkeypatch.setattr("detlab_hub.services.usertasks.outputs.MOST_FILES", 3)
    assert MOST_FILES > 3
    world = await make_world(waits)
    _, caller = await started(world)
    for number in range(3):
        await put(world, caller, f"f{number}", b"x")
    with pytest.raises(OutputsTooLarge, match="3 files"):
        await put(world, caller, "f3", b"x")
    await put(world, caller, "f2", b"new")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../x", "a\\b", "a\nb", "a\0b", "x" * 300, "ends.", "\u202egnp.exe"]
)
async def test_a_name_that_no_file_can_have_is_refused(make_world, name):
    world = await make_world(waits)
    _, caller = await started(world)
    with pytest.raises(OutputName):
        await put(world, caller, name, b"x")
    assert stored(world) == []


async def test_a_task_that_has_ended_hands_nothing_over_but_what_it_did_stays(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    view = await put(world, caller, "x", b"partial")
    await world.services[UserTasks].end(ALICE, task_id)

    async def over() -> bool:
        return (await world.services[UserTasks].get(ALICE, task_id)).state.terminal

    await world.until(over)
    with pytest.raises(StaleAttempt):
        await put(world, caller, "x", b"late")
    assert await read(world, ALICE, task_id, view.digest) == b"partial"


async def test_a_trial_has_checkpoints_and_no_outputs(make_world):
    world = await make_world(waits)
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(4)
    (trial,) = agent.tasks.values()
    with pytest.raises(Conflict, match="trial"):
        await put(world, trial.caller, "x", b"x")


async def test_outputs_survive_a_master_that_was_killed(make_world):
    world = await make_world(waits)
    task_id, caller = await started(world)
    view = await put(world, caller, "x", b"kept")
    await world.reboot()
    assert await read(world, ALICE, task_id, view.digest) == b"kept"
