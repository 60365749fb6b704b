"""Ended user tasks go after a while, with all that was theirs; a crash at any point loses and keeps nothing wrongly."""

from __future__ import annotations

import hashlib
import os

import pytest
from services_scripted import ALICE, ROOT, CrashError, Flaw, FlawedStore, config, training
from sqlalchemy import func, select

from detlab.errors import NotFound
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services.usertasks import retention
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries.logs import chunks
from detlab_hub.store.tables import AllocationRow, LogChunk, OutputRow, PartRow, TaskRow

DAY = 86400.0
KEEP = 30 * DAY
LINES = 12


def talks(launch):
    if launch.kind == "trial":
        yield from training(2)(launch)
        return
    for number in range(LINES):
        yield ("log", None, f"line {number}")
    while True:
        yield ("wait",)


async def start(world):
    """A running task and who speaks for it."""
    if not world.agents:
        await world.add_agent(slots=4)
    raw = {"entrypoint": "true", "resources": {"slots": 1}}
    task = (await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.CELL, config=raw))).task
    await world.steps(LINES + 3)
    return task.id, next(t.caller for t in world.agents["node"].tasks.values() if t.caller.task_id == task.id)


async def put(world, caller, name, data):
    folder = world.settings.outputs_dir
    folder.mkdir(parents=True, exist_ok=True)
    upload = folder / f".upload-{hashlib.sha256(data + name.encode()).hexdigest()[:8]}"
    upload.write_bytes(data)
    await world.services[Outputs].put(caller, name, upload)


async def ended(world, *outputs):
    """A task that handed these over and has ended."""
    task_id, caller = await start(world)
    for number, data in enumerate(outputs):
        await put(world, caller, f"out-{number}", data)
    await world.services.end_task(ALICE, task_id)
    await world.steps(3)
    return task_id


def stored(world):
    return sorted(path.read_bytes() for path in world.settings.outputs_dir.rglob("*") if path.is_file())


async def rows(world, task_id):
    """How many rows of each sort a task has."""

    def count(s):
        found = {}
        for table, column in (
            (TaskRow, TaskRow.id), (AllocationRow, AllocationRow.task_id), (LogChunk, LogChunk.task_id),
            (OutputRow, OutputRow.task_id),
        ):  # fmt: skip
            found[table.__tablename__] = s.scalar(select(func.count()).select_from(table).where(column == task_id))
        of_task = PartRow.allocation_id.startswith(f"{task_id}.")
        found["allocation_parts"] = s.scalar(select(func.count()).select_from(PartRow).where(of_task))
        return found

    return await world.services.context.read(count)


async def test_ended_tasks_go_after_their_time_with_logs_and_outputs(make_world):
    world = await make_world(talks)
    old = await ended(world, b"old", b"shared")
    made = await world.submit(config())
    await world.finish(made.id)
    world.now += KEEP - 100
    young = await ended(world, b"young", b"shared")
    living, caller = await start(world)
    await put(world, caller, "kept", b"living")
    assert await world.services[retention.Retention].sweep() == 0, "not a moment too early"
    world.now += 100
    await world.services.tidy()
    with pytest.raises(NotFound):
        await world.services[UserTasks].get(ALICE, old)
    assert set((await rows(world, old)).values()) == {0}
    assert stored(world) == [b"living", b"shared", b"young"]
    for task_id in (young, living):
        assert (await rows(world, task_id))["log_chunks"] > 0
        assert (await rows(world, task_id))["allocation_parts"] == 1
    assert (await world.view(made.id)).state == "COMPLETED"
    world.now += 10 * KEEP
    assert await world.services[retention.Retention].sweep() == 1, "what lives is never too old"
    assert [task.id for task in (await world.services[UserTasks].list(ROOT)).items] == [living]


async def test_ended_tasks_stay_for_ever_where_the_operator_says_so(make_world):
    world = await make_world(talks, tasks_keep=0.0)
    task_id = await ended(world, b"kept")
    world.now += 100 * KEEP
    assert await world.services[retention.Retention].sweep() == 0
    assert (await world.services[UserTasks].get(ALICE, task_id)).id == task_id
    assert stored(world) == [b"kept"]


@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_crash_between_any_two_steps_is_made_good(make_world, monkeypatch, at, after_commit):
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)  # a line in each
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)
    monkeypatch.setattr(retention, "LINES_PER_STEP", LINES // 2 - 1)  # three steps: two of lines, then the rows
    world = await make_world(talks)
    task_id = await ended(world, b"bytes")
    world.now += KEEP + 1
    world.services.context.store = FlawedStore(world.store, Flaw(at, after_commit), [0])
    with pytest.raises(CrashError):
        await world.services[retention.Retention].sweep()
    gone = at == 3 and after_commit
    assert stored(world) == [b"bytes"], "files go last"
    assert (await rows(world, task_id))["tasks"] == (0 if gone else 1), "the row goes last of the rows"
    await world.reboot()
    assert await world.services[retention.Retention].sweep() == (0 if gone else 1)
    assert set((await rows(world, task_id)).values()) == {0}
    assert stored(world) == [], "the look through the folder finds what a crash left"


async def test_a_look_through_the_folder_takes_only_what_nobody_names(make_world):
    world = await make_world(talks)
    await ended(world, b"named")
    folder = world.settings.outputs_dir
    orphan = folder / "ab" / ("ab" + "0" * 62)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"orphan")
    foreign = folder / "ab" / "README"
    foreign.write_bytes(b"foreign")
    broken, sending = folder / ".upload-old", folder / ".upload-new"
    for path in (broken, sending):
        path.write_bytes(path.name.encode())
    os.utime(broken, (world.now - 2 * DAY, world.now - 2 * DAY))
    assert await world.services[retention.Retention].remove_orphans() == 2
    assert stored(world) == [b".upload-new", b"foreign", b"named"]


async def test_a_sweep_is_bounded_and_goes_on_next_time(make_world, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)  # a line in each
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)
    monkeypatch.setattr(retention, "LINES_PER_STEP", 2)
    monkeypatch.setattr(retention, "STEPS_PER_SWEEP", 3)
    world = await make_world(talks)
    task_id = await ended(world)
    world.now += KEEP + 1
    assert await world.services[retention.Retention].sweep() == 0
    assert (await rows(world, task_id))["log_chunks"] == LINES - 6
    sweeps = 0
    while (await rows(world, task_id))["tasks"]:
        await world.services[retention.Retention].sweep()
        sweeps += 1
    assert sweeps == 2
