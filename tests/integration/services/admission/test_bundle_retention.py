"""Code that nothing runs any more goes after its time, and an upload or a submission of the same code loses nothing."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, BOB, World, config, seen_storage, training

from detlab.errors import BundleError
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.admission.bundle_retention import BundleRetention
from detlab_hub.services.admission.bundles import Bundles, bundle_file
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import bundles

DAY = 86400.0
KEEP = 10 * DAY


def packed(text: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


class Place:
    """A world whose code is kept for ten days."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.sent = 0

    @property
    def services(self) -> Any:
        return self.world.services

    async def send(self, text: str, caller: Any = ALICE) -> str:
        data = packed(text)
        self.sent += 1
        upload = self.folder / f"upload {self.sent}"
        upload.write_bytes(data)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        await self.services[Bundles].put(caller, digest, upload)
        return digest

    async def submit(self, digest: str) -> int:
        reply = await self.services[Experiments].create(ALICE, CreateExperiment(config=config(), bundle=digest))
        return reply.experiment.id

    async def days(self, count: int) -> int:
        gone = 0
        for _ in range(count):
            self.world.now += DAY
            self.world.store.renew_lease()
            gone += await self.services[BundleRetention].sweep()
        return gone

    def is_there(self, digest: str) -> bool:
        return bundle_file(self.world.settings, digest).exists()

    async def is_known(self, digest: str) -> bool:
        return await self.services.context.read(lambda s: bundles.is_stored(s, digest))


@pytest.fixture
async def place(make_world, tmp_path: Path) -> Place:
    world = await make_world(training(2), bundles_keep=KEEP, **seen_storage(tmp_path))
    await world.add_agent()
    return Place(world, tmp_path)


async def test_code_that_was_never_run_goes_and_what_is_named_stays(place: Place) -> None:
    idle, run, task = [await place.send(text) for text in ("1", "2", "3")]
    experiment = await place.submit(run)
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}, bundle=task)
    await place.services[UserTasks].create(ALICE, request)
    assert await place.days(10) == 0
    assert await place.days(1) == 1
    assert [place.is_there(one) for one in (idle, run, task)] == [False, True, True]
    assert not await place.is_known(idle)
    await place.world.finish(experiment)
    await place.services[Experiments].delete(ALICE, experiment)
    assert await place.days(10) == 0
    assert await place.days(1) == 1
    assert not place.is_there(run)


async def test_code_that_is_sent_or_run_again_stays(place: Place) -> None:
    again, run = await place.send("1"), await place.send("2")
    await place.days(9)
    await place.send("1", BOB)
    await place.submit(run)
    assert await place.days(9) == 0
    assert (place.is_there(again), place.is_there(run)) == (True, True)
    assert await place.days(2) == 1
    assert (place.is_there(again), place.is_there(run)) == (False, True)


async def test_for_ever_is_for_ever(make_world, tmp_path: Path) -> None:
    place = Place(await make_world(bundles_keep=0.0), tmp_path)
    digest = await place.send("1")
    assert await place.days(200) == 0
    assert place.is_there(digest)


async def test_an_upload_of_what_is_being_removed_stores_it_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file could be removed after the sender was told that it is stored: a submission would then fail for ever."""
    digest = await place.send("1")
    await place.days(1)
    place.world.now += KEEP
    place.world.store.renew_lease()
    run, began, go = place.services.context.workers.sweeps.run, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        began.set()
        await go.wait()
        return await run(*args)

    monkeypatch.setattr(place.services.context.workers.sweeps, "run", slow)
    removing = asyncio.create_task(place.services[BundleRetention].remove([digest]))
    await began.wait()
    assert not await place.is_known(digest)
    with pytest.raises(BundleError):
        await place.submit(digest)
    sending = asyncio.create_task(place.send("1"))
    await asyncio.sleep(0.2)
    assert not sending.done()
    go.set()
    assert await removing == 1
    await sending
    assert place.is_there(digest)
    assert await place.submit(digest)


async def test_what_is_named_between_the_look_and_the_removal_stays(place: Place) -> None:
    named, sent = await place.send("1"), await place.send("2")
    await place.days(1)
    place.world.now += KEEP
    place.world.store.renew_lease()
    await place.submit(named)
    await place.send("2")
    assert await place.services[BundleRetention].remove([named, sent]) == 0
    assert (place.is_there(named), place.is_there(sent)) == (True, True)


async def test_files_without_a_row_go_a_day_later(place: Place) -> None:
    """A crash between the rows and the files, or between a file and its row."""
    kept = await place.send("1")
    lost = bundle_file(place.world.settings, "sha256:" + "ab" * 32)
    fresh = lost.with_name("ac" * 32 + lost.name[64:])
    lost.parent.mkdir(parents=True, exist_ok=True)
    for path in (lost, fresh):
        path.write_bytes(b"1")
    for path, age in ((lost, 3 * DAY), (fresh, 0.0), (bundle_file(place.world.settings, kept), 3 * DAY)):
        os.utime(path, (place.world.now - age,) * 2)
    assert await place.services[BundleRetention].sweep() == 1
    assert (lost.exists(), fresh.exists(), place.is_there(kept)) == (False, True, True)
