"""I9 for code: whether others have sent just these bytes shows nowhere, and their digest opens nothing."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import BundleError, ConfigError, NotFound
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment, GrantRequest, GrantTo
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.usertasks.usertasks import UserTasks


def packed(text: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


CODE = packed("print(1)")


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


HERS, NOBODYS = digest_of(CODE), digest_of(packed("print(2)"))


async def send(world, tmp_path, caller, data=CODE):
    upload = tmp_path / "upload"
    upload.write_bytes(data)
    return await world.services[Bundles].put(caller, digest_of(data), upload)


async def is_told(world, caller, digest=HERS):
    """What the reply to HEAD says."""
    try:
        await world.services[Bundles].path_for(caller, digest)
    except NotFound:
        return False
    return True


async def refusals(world, caller, digest):
    """In which words each way to run a bundle is refused; the digest is left out of them."""
    body = CreateExperiment(config=config(), bundle=digest)
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}, bundle=digest)
    said = []
    for kind, call, request in (
        (BundleError, world.services[Experiments].create, body),
        (BundleError, world.services[Experiments].create, body.model_copy(update={"dry_run": True})),
        (ConfigError, world.services[UserTasks].create, task),
    ):
        with pytest.raises(kind) as refused:
            await call(caller, request)
        said.append((str(refused.value).replace(digest, "DIGEST"), refused.value.hint))
    return said


async def test_I9_nobody_learns_that_another_has_sent_the_same_code(make_world, tmp_path):
    world = await make_world()
    await world.add_agent()
    assert await send(world, tmp_path, ALICE)
    await world.submit(config(), bundle=HERS)
    assert await is_told(world, ALICE)
    assert not await is_told(world, BOB)
    assert await refusals(world, BOB, HERS) == await refusals(world, BOB, NOBODYS)
    assert await send(world, tmp_path, BOB), "as when he is the first"
    assert not await send(world, tmp_path, BOB)
    assert not await send(world, tmp_path, ALICE)


async def test_code_that_another_has_sent_before_is_ones_own_once_it_is_sent(make_world, tmp_path):
    world = await make_world()
    await world.add_agent()
    await send(world, tmp_path, ALICE)
    await send(world, tmp_path, BOB)
    assert await is_told(world, BOB)
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}, bundle=HERS)
    assert (await world.services[UserTasks].create(BOB, task)).created
    assert (await world.submit(config(), caller=BOB, bundle=HERS)).bundle == HERS


async def test_code_of_what_is_shared_may_be_run_again_for_as_long_as_it_is_shared(make_world, tmp_path):
    world = await make_world()
    await send(world, tmp_path, ALICE)
    shared = await world.submit(config(), bundle=HERS)
    to_bob = GrantTo(kind="user", name="bob")
    await world.services[Grants].put(ALICE, shared.id, GrantRequest(**to_bob.model_dump()))
    assert await is_told(world, BOB)
    first = CreateExperiment(config=config(), bundle=HERS, dry_run=True)
    await world.services[Experiments].create(BOB, first)
    await world.services[Grants].remove(ALICE, shared.id, to_bob)
    assert not await is_told(world, BOB)
    assert await refusals(world, BOB, HERS) == await refusals(world, BOB, NOBODYS)


async def test_code_of_ones_own_experiments_stays_ones_own(make_world, tmp_path):
    """Somebody who ran what was shared with them has it from then on, as the experiment gives it out."""
    world = await make_world()
    await send(world, tmp_path, ALICE)
    shared = await world.submit(config(), bundle=HERS)
    to_bob = GrantTo(kind="user", name="bob")
    await world.services[Grants].put(ALICE, shared.id, GrantRequest(**to_bob.model_dump()))
    await world.submit(config(), caller=BOB, bundle=HERS)
    await world.services[Grants].remove(ALICE, shared.id, to_bob)
    assert await is_told(world, BOB)


async def test_administrators_see_all_code_and_none_that_is_not_there(make_world, tmp_path):
    world = await make_world()
    await send(world, tmp_path, ALICE)
    assert await is_told(world, ROOT)
    assert not await is_told(world, ROOT, NOBODYS)
    for odd in ("", "x", "sha256:\x00", "\ud800", "x" * 5000):
        for caller in (ROOT, BOB):
            assert not await is_told(world, caller, odd)
