"""A master that is a copy of a cluster: it shows all, starts nothing, and leaves the original's checkpoints alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, ROOT, World, config, seen_storage, training

from detlab.errors import Conflict
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab.storage.ownership import StorageHolder
from detlab.storage.posix import SharedFSStorage
from detlab_hub.services.base.settings import A_COPY
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.stored_files import EventFiles
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.usertasks import UserTasks

MakeWorld = Callable[..., Awaitable[World]]
ORIGINAL = StorageHolder("detlab", "original", 1)


@pytest.fixture
async def world(make_world: MakeWorld, tmp_path: Path) -> World:
    made = await make_world(training(3), trash_window=0.0, holder=ORIGINAL, **seen_storage(tmp_path))
    await made.add_agent()
    return made


async def becomes_a_copy(world: World, **changes: Any) -> None:
    world.settings = dataclasses.replace(world.settings, is_copy=True, **changes)
    await world.reboot()


async def test_a_copy_starts_nothing_and_says_why(world: World) -> None:
    await becomes_a_copy(world)
    await world.add_agent("second")
    made = await world.submit(config())
    await world.services.schedule()
    assert world.services.context.pending_reasons
    assert set(world.services.context.pending_reasons.values()) == {A_COPY}
    assert (await world.services[Cluster].view(ALICE)).is_copy
    why = await world.services[Jobs].why(ALICE, str(made.id))
    assert [(item.reason, item.detail) for item in why.items] == [("copy", A_COPY)]


async def test_a_submission_to_a_copy_is_told_what_follows(world: World) -> None:
    await becomes_a_copy(world)
    made = await world.services[Experiments].create(ALICE, CreateExperiment(config=config()))
    assert made.experiment is not None
    assert [warning.message for warning in made.warnings] == [f"it waits: {A_COPY}"]
    assert made.experiment.warnings == []
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"]})
    asked = await world.services[UserTasks].create(ALICE, task)
    assert f"it waits: {A_COPY}" in [warning.message for warning in asked.warnings]


async def test_a_copy_removes_nothing_whoever_asks(world: World, tmp_path: Path) -> None:
    made = await world.submit(config())
    await world.finish(made.id)
    (saved, *_) = await world.services[Experiments].checkpoints(ALICE, made.id)
    files = tmp_path / "checkpoints" / saved.uuid
    files.mkdir(exist_ok=True)
    (files / "model.pt").write_bytes(b"x")
    await becomes_a_copy(world)
    services = world.services
    asked: list[Callable[[], Awaitable[Any]]] = [
        lambda: services[Removals].delete(ALICE, saved.uuid, now=True),
        lambda: services[Removals].remove_files(ALICE, saved.uuid, ["*"]),
        lambda: services[Experiments].delete(ROOT, made.id),
        lambda: services[EventFiles].delete(ALICE, made.id),
    ]
    for ask in asked:
        with pytest.raises(Conflict, match="this cluster is a copy"):
            await ask()
    world.now += 10 * 86400
    for _ in range(3):
        await services.tick()
        await services[Removals].finish()
    assert (files / "model.pt").read_bytes() == b"x"


async def test_a_removal_of_the_original_is_not_carried_out_after_another_took_over(
    world: World, tmp_path: Path
) -> None:
    """The master of the original still runs when its copy takes over: what is there is the copy's from then on."""
    made = await world.submit(config())
    await world.finish(made.id)
    (saved, *_) = await world.services[Experiments].checkpoints(ALICE, made.id)
    files = tmp_path / "checkpoints" / saved.uuid
    files.mkdir(exist_ok=True)
    (files / "model.pt").write_bytes(b"x")
    SharedFSStorage(tmp_path / "checkpoints").held_by(StorageHolder("detlab", "copy", 2)).check()
    view = await world.services[Removals].delete(ALICE, saved.uuid, now=True)
    assert view.state == "DELETED"
    assert (files / "model.pt").read_bytes() == b"x"
