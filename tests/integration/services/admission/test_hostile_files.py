"""Files that run code when they are opened, and names of other places: the master takes, lists and gives bytes."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import socket
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from services_scripted import World, config
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab.errors import CheckpointError
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab_hub.services.base.callers import READ, WRITE, Caller
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.web.auth import Identifier
from detlab_hub.web.crosssite import CrossSite
from detlab_hub.web.routes import Background, WebSettings, make_application

UUID = checkpoint_id(0x11111111111141118111111111111111, trial_id=1)
BASE = "/services/detlab/api/v1/"


@pytest.fixture
def db_url(tmp_path: Path) -> str:
    """SQLite alone: what is asked here has nothing to do with the database."""
    return f"sqlite:///{tmp_path}/detlab.sqlite"


class Names(Identifier):
    """Takes the word of `Authorization: Bearer NAME`."""

    async def identify(self, handler: Any, rule: CrossSite) -> Caller | None:
        name = handler.request.headers.get("Authorization", "").removeprefix("Bearer ")
        return Caller(name=name, scopes=frozenset({READ, WRITE})) if name else None


@asynccontextmanager
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    server = HTTPServer(make_application(world.services, Names(SimpleNamespace(), world.services), web))
    sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server.add_sockets(sockets)
    base = f"http://127.0.0.1:{sockets[0].getsockname()[1]}{BASE}"
    try:
        headers = {"Authorization": "Bearer alice"}
        async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=20) as client:
            yield client
    finally:
        server.stop()
        await server.close_all_connections()
        await background.wait()


class Bomb:
    """What makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._mark),)


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def bundle_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def idle(_launch: Any) -> Any:
    while True:
        yield ("wait",)


async def commit(world: World, root: Path, files: dict[str, bytes]) -> None:
    """Have the first trial lay down and commit a checkpoint."""
    await world.steps(2)
    (task,) = next(iter(world.agents.values())).tasks.values()
    for path, data in files.items():
        place = root / "checkpoints" / UUID / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    found = {path: CheckpointFile(size=len(data), digest=sha(data)) for path, data in files.items()}
    manifest = CommitCheckpoint(uuid=UUID, steps_completed=1, files=found, manifest_digest="sha256:" + "0" * 64)
    await world.services[Tasks].commit_checkpoint(task.caller, manifest)


async def test_a_pickle_bomb_is_carried_through_the_master_and_never_opened(make_world, tmp_path):
    mark = tmp_path / "mark"
    bomb = pickle.dumps(Bomb(mark))
    names = ("model.pkl", "state_dict.pth", "conf.yaml", "sitecustomize.py", "__init__.pyc", "weights.joblib", "a.npy")
    files = {"train.py": b"", **dict.fromkeys(names, bomb)}
    bundle = bundle_of(files)
    world = await make_world(idle)
    await world.add_agent()
    async with served(world) as client:
        taken = await client.put(f"bundles/{sha(bundle)}", content=bundle)
        assert taken.is_success, taken.text
        body = {"config": config(entrypoint="python3 train.py"), "bundle": sha(bundle)}
        made = await client.post("experiments", json=body)
        assert made.is_success, made.text
        number = made.json()["experiment"]["id"]
        listed = (await client.get(f"experiments/{number}/code")).json()["items"]
        assert {item["path"] for item in listed} == set(files)
        assert (await client.get(f"experiments/{number}/code/{sha(bomb)}")).content == bomb
        assert (await client.get(f"experiments/{number}/bundle")).content == bundle
        await commit(world, tmp_path, dict.fromkeys(names, bomb))
        assert (await client.get(f"checkpoints/{UUID}")).json()["files"].keys() == set(names)
        assert (await client.get(f"experiments/{number}/checkpoints")).json()["items"]
        assert (await client.get(f"checkpoints/{UUID}/files/{sha(bomb)}")).content == bomb
        archive = (await client.get(f"checkpoints/{UUID}/archive")).content
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert [tar.extractfile(info).read() for info in tar.getmembers()] == [bomb] * len(names)
    assert not mark.exists()
    pickle.loads(bomb)
    assert mark.exists(), "it is one"


HOSTILE_IDS = (
    "..",
    "%2e%2e",
    "%252e%252e",
    "..%2f..%2fdetlab.sqlite",
    "..%5c..%5cdetlab.sqlite",
    "%00",
    f"{UUID}%00",
    f"{UUID}%2f..%2f..",
    f"{UUID}%0a",
    UUID.upper().replace("1", "A"),
    "%2fetc%2fpasswd",
    "file:%2f%2f%2fetc%2fpasswd",
    "https:%2f%2felsewhere.example%2f",
    "sha256:..%2f..%2f",
)


async def test_no_id_is_a_path(make_world, tmp_path):
    """Checkpoints, their files, outputs, bundles and code are found by what they are called, nowhere else."""
    world = await make_world(idle)
    await world.add_agent()
    await world.submit(config())
    await commit(world, tmp_path, {"a": b"x"})
    (tmp_path / "secret").write_bytes(b"secret")
    async with served(world) as client:
        assert (await client.get(f"checkpoints/{UUID}/files/{sha(b'x')}")).content == b"x"
        port = client.base_url.port
        for path in (
            "checkpoints/{}",
            "checkpoints/{}/archive",
            f"checkpoints/{UUID}/files/{{}}",
            "checkpoints/{}/files/" + sha(b"x"),
            "bundles/{}",
            "experiments/1/code/{}",
            "tasks/{}/outputs",
            "tasks/x/outputs/{}",
        ):
            for hostile in HOSTILE_IDS:
                status, said = await raw(port, BASE + path.format(hostile))
                assert status in {400, 403, 404, 405, 422}, (path, hostile, status, said)
                assert "secret" not in said
                assert "Traceback" not in said
                assert "root:" not in said


async def raw(port: int, path: str) -> tuple[int, str]:
    """Ask for a path as it is: cleverer clients tidy it up."""
    import asyncio

    def ask() -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path, headers={"Authorization": "Bearer alice"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode(errors="replace")
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


OUTSIDE = ("..", "../x", "a/../../x", "/etc/passwd", "a\\..\\x", "a\0", "", ".", "./a", "a//b", "x" * 1025)
NO_UUID = ("../x", UUID.upper().replace("1", "A"), f"{UUID}/..", f"{UUID}\n", "", "x", "a\0b")


async def test_a_checkpoint_with_a_path_that_leads_out_or_an_id_that_is_none_is_not_committed(make_world):
    world = await make_world(idle)
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(2)
    (task,) = agent.tasks.values()
    entry = CheckpointFile(size=1, digest=sha(b"x"))
    for uuid, path in [*((UUID, path) for path in OUTSIDE), *((uuid, "a") for uuid in NO_UUID)]:
        manifest = CommitCheckpoint(
            uuid=uuid, steps_completed=1, files={path: entry}, manifest_digest="sha256:" + "0" * 64
        )
        with pytest.raises(CheckpointError, match=r"not a relative path|not a UUID"):
            await world.services[Tasks].commit_checkpoint(task.caller, manifest)


async def test_a_name_that_means_a_path_elsewhere_is_a_name_in_a_checkpoint(make_world, tmp_path):
    names = ("%2e%2e/%252e%252e%252fx", "file:/etc/passwd", "C:x")
    world = await make_world(idle)
    await world.add_agent()
    await world.submit(config())
    await commit(world, tmp_path, {name: name.encode() for name in names})
    async with served(world) as client:
        for name in names:
            assert (await client.get(f"checkpoints/{UUID}/files/{sha(name.encode())}")).content == name.encode()
        archive = (await client.get(f"checkpoints/{UUID}/archive")).content
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert sorted(tar.getnames()) == sorted(f"{UUID}/{name}" for name in names)


@pytest.mark.parametrize("kind", ["file", "folder", "root"])
async def test_a_link_in_a_checkpoint_is_not_followed(make_world, tmp_path, kind):
    world = await make_world(idle)
    await world.add_agent()
    await world.submit(config())
    await commit(world, tmp_path, {"sub/a": b"secret"})
    elsewhere = tmp_path / "elsewhere" / "sub"
    elsewhere.mkdir(parents=True)
    (elsewhere / "a").write_bytes(b"secret")
    own = tmp_path / "checkpoints" / UUID
    match kind:
        case "file":
            (own / "sub" / "a").unlink()
            (own / "sub" / "a").symlink_to(elsewhere / "a")
        case "folder":
            (own / "sub").rename(tmp_path / "before")
            (own / "sub").symlink_to(elsewhere)
        case "root":
            own.rename(tmp_path / "before")
            own.symlink_to(elsewhere.parent)
    async with served(world) as client:
        for path in (f"checkpoints/{UUID}/files/{sha(b'secret')}", f"checkpoints/{UUID}/archive"):
            reply = await client.get(path)
            assert reply.status_code == 404, (kind, path)
            assert b"secret" not in reply.content
