"""A whole checkpoint as one tar: complete and in order, verified file by file, or visibly broken; in bounded memory."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import tracemalloc
from collections.abc import Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from services_scripted import ALICE, BOB, ROOT, config
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab.errors import CheckpointError, NotFound
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab_hub.services.base.callers import READ, Caller
from detlab_hub.services.checkpoints.archives import Packing
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.stores import OpenStore
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.web.auth import Identifier
from detlab_hub.web.routes import Background, WebSettings, make_application

UUID = checkpoint_id(0x11111111111141118111111111111111, trial_id=1)
LONG = "/".join(["deep" * 20] * 4) + "/weights.pt"
FILES = {
    "model.pt": os.urandom(1_500_000),
    "a/empty": b"",
    "a/b.json": b"{}",
    "größe 重み\n.txt": b"x" * 512,
    LONG: b"long",
}


def idle(_launch):
    while True:
        yield ("wait",)


def entry(data: bytes, mode: int = 0o644) -> CheckpointFile:
    return CheckpointFile(size=len(data), digest="sha256:" + hashlib.sha256(data).hexdigest(), mode=mode)


def lay(root: Path, files: Mapping[str, bytes], uuid: str = UUID) -> None:
    for path, data in files.items():
        place = root / "checkpoints" / uuid / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


async def committed(make_world, root: Path, files: Mapping[str, bytes] = FILES):
    """A world in which Alice's trial has committed a checkpoint of these files."""
    world = await make_world(idle)
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(2)
    (task,) = agent.tasks.values()
    lay(root, files)
    found = {path: entry(data, 0o755 if path == "a/b.json" else 0o644) for path, data in files.items()}
    manifest = {"uuid": UUID, "steps_completed": 3, "files": found, "manifest_digest": "sha256:" + "0" * 64}
    await world.services[Tasks].commit_checkpoint(task.caller, CommitCheckpoint(**manifest))
    return world, task


class Names(Identifier):
    """Takes the word of `Authorization: Bearer NAME`: who may do what is asked of the real Hub in integration/web."""

    async def identify(self, handler, rule):
        name = handler.request.headers.get("Authorization", "").removeprefix("Bearer ")
        return Caller(name=name, scopes=frozenset({READ})) if name else None


@asynccontextmanager
async def served(world):
    """The address of an application on a world's services."""
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    identifier = Names(SimpleNamespace(), world.services)  # no Hub is asked
    server = HTTPServer(make_application(world.services, identifier, web))
    sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server.add_sockets(sockets)
    base = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/services/detlab/api/v1/"
    try:
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=20) as client:
            yield client
    finally:
        server.stop()
        await server.close_all_connections()
        await background.wait()


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar.getmembers()}


async def receive(client: httpx.AsyncClient, into: bytearray) -> None:
    """Take what comes of Alice's archive, also when it breaks off."""
    headers = {"Authorization": "Bearer alice"}
    async with client.stream("GET", f"checkpoints/{UUID}/archive", headers=headers) as reply:
        assert reply.status_code == 200
        async for chunk in reply.aiter_raw():
            into += chunk


async def test_archive_holds_every_file_and_tells_its_length_first(make_world, tmp_path):
    world, _task = await committed(make_world, tmp_path)
    async with served(world) as client:
        reply = await client.get(f"checkpoints/{UUID}/archive", headers={"Authorization": "Bearer alice"})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/x-tar"
    assert reply.headers["content-disposition"] == f'attachment; filename="checkpoint-{UUID}.tar"'
    assert int(reply.headers["content-length"]) == len(reply.content)
    assert unpacked(reply.content) == {f"{UUID}/{path}": data for path, data in FILES.items()}
    with tarfile.open(fileobj=io.BytesIO(reply.content)) as tar:
        modes = {info.name.removeprefix(f"{UUID}/"): info.mode for info in tar.getmembers()}
        assert {info.mtime for info in tar.getmembers()} == {int(world.now)}
        # Python 3.11.2, which Debian 12 has, knows of no filters.
        tar.extractall(tmp_path / "out", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    assert (modes["a/b.json"], modes["model.pt"]) == (0o755, 0o644)
    assert (tmp_path / "out" / UUID / "model.pt").read_bytes() == FILES["model.pt"]


async def test_archive_is_its_owners_and_of_what_is_there(make_world, tmp_path):
    world, task = await committed(make_world, tmp_path)
    archive = world.services[Checkpoints].open_archive
    (await archive(ROOT, UUID)).chunks.close()
    for caller, uuid in ((BOB, UUID), (ALICE, UUID.replace("1", "2")), (ALICE, "../../etc")):
        with pytest.raises(NotFound):
            await archive(caller, uuid)
    async with served(world) as client:
        for name, status in ((None, 401), ("bob", 404)):
            headers = {"Authorization": f"Bearer {name}"} if name else {}
            reply = await client.get(f"checkpoints/{UUID}/archive", headers=headers)
            assert reply.status_code == status
            assert reply.json()["message"]
    await world.services[Tasks].delete_checkpoint(task.caller, UUID)
    with pytest.raises(NotFound):
        await archive(ALICE, UUID)


async def test_archive_with_a_missing_cut_or_linked_file_is_refused_before_its_first_byte(make_world, tmp_path):
    world, _task = await committed(make_world, tmp_path)
    folder = tmp_path / "checkpoints" / UUID
    (folder / LONG).write_bytes(b"longer")
    with pytest.raises(CheckpointError, match="not what was committed"):
        await world.services[Checkpoints].open_archive(ALICE, UUID)
    (folder / LONG).unlink()
    async with served(world) as client:
        reply = await client.get(f"checkpoints/{UUID}/archive", headers={"Authorization": "Bearer alice"})
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
        assert "weights.pt" in reply.json()["message"]
    (tmp_path / "secret").write_bytes(b"long")
    (folder / LONG).symlink_to(tmp_path / "secret")
    with pytest.raises(NotFound):
        await world.services[Checkpoints].open_archive(ALICE, UUID)


async def test_archive_with_an_altered_file_breaks_off_where_it_is(make_world, tmp_path):
    world, _task = await committed(make_world, tmp_path)
    (tmp_path / "checkpoints" / UUID / "model.pt").write_bytes(bytes(len(FILES["model.pt"])))
    got = bytearray()
    async with served(world) as client:
        with pytest.raises(httpx.RemoteProtocolError, match="peer closed"):
            await receive(client, got)
    assert 0 < len(got) < sum(map(len, FILES.values()))
    assert b"weights.pt" in got, "what comes before it was sent"
    assert f"{UUID}/model.pt".encode() not in got, "nothing of what is not what was committed"


async def test_archive_whose_first_file_was_altered_is_an_error_and_no_archive(make_world, tmp_path):
    world, _task = await committed(make_world, tmp_path, {"model.pt": b"weights"})
    (tmp_path / "checkpoints" / UUID / "model.pt").write_bytes(b"altered")
    async with served(world) as client:
        reply = await client.get(f"checkpoints/{UUID}/archive", headers={"Authorization": "Bearer alice"})
    assert (reply.status_code, reply.headers["content-type"]) == (422, "application/json")
    assert reply.headers.get("content-disposition") is None
    assert "not what was committed" in reply.json()["message"]


def test_archive_of_nothing_is_an_empty_tar():
    archive = Packing(OpenStore({"type": "directory", "container_path": "/nowhere"}), UUID, {}, 0.0).archive()
    data = b"".join(archive.chunks)
    assert (len(data), unpacked(data)) == (archive.size, {})


def test_archive_of_much_needs_little_memory_and_says_more_than_eight_gigabytes(tmp_path):
    data = bytes(40 * 1024 * 1024)
    lay(tmp_path, {"big": data})
    storage = OpenStore({"type": "directory", "container_path": str(tmp_path / "checkpoints")})
    packing = Packing(storage, UUID, {"big": entry(data).model_dump()}, 0.0)
    del data
    tracemalloc.start()
    archive = packing.archive()
    with closing(archive.chunks) as chunks:
        assert sum(len(chunk) for chunk in chunks) == archive.size
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    huge = Packing(storage, UUID, {"big": {"size": 10**13, "digest": "", "mode": 0}}, 0.0)
    with pytest.raises(CheckpointError):
        next(huge.looking())
    with tarfile.open(fileobj=io.BytesIO(huge._header("big"))) as tar:
        assert next(iter(tar)).size == 10**13
