"""`load_model` from end to end: files in a storage, a master that serves them, and a process that has nothing yet."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import pickle
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save
from services_scripted import config
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab.pytorch.checkpoint.files import write_state
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab.testing.storage_faults import files_of
from detlab_hub.services.base.callers import READ, WRITE, Caller
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.web.auth import Identifier
from detlab_hub.web.routes import Background, WebSettings, make_application

ROOT = Path(__file__).parents[4]
EXPORT_TESTS = ROOT / "tests" / "integration" / "export"
TRIAL, FOLDER, PICKLED, FOREIGN, ONE_MODEL, TWO_MODELS, TREES = (
    checkpoint_id(n << 80, trial_id=1) for n in range(1, 8)
)

REGISTER = """
import detlab as det
from detlab import client
for name, uuid in {models!r}.items():
    version = client.create_model(name).register_version(uuid)
    client.get_model(name).move_label("production", version.model_version, reason="good")
"""
LOAD = """
import json, sys
import detlab as det
from detlab import client
trial = det.load_model("digits@production")
same = client.get_model_version("digits@1").load(mode="master")
folder = det.load_model("alice/net")
assert "torch" in sys.modules
print(json.dumps({
    "trial": trial["models_state_dict"][0]["w"].tolist(),
    "same": same["models_state_dict"][0]["w"].tolist(),
    "callbacks": trial["callbacks"],
    "folder": {name: tensor.tolist() for name, tensor in folder.items()},
}))
"""
REFUSED = """
import json
import detlab as det
from detlab.errors import DetlabError
try:
    det.load_model("evil")
except DetlabError as error:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
allowed = det.load_model("evil", allow_pickle=True)
by_name = det.client.get_model_version("evil").load(allow_pickle=True, alone=False)
print(json.dumps({**told, "allowed": allowed, "by_name": by_name}))
"""
ONE = """
import json
import detlab as det
names = ("Gro\u0308ße 数字", "alice/Größe 数字@production", "two", "trees")
print(json.dumps([type(det.load_model(name, allow_pickle=True)).__name__ for name in names]))
"""
VOICE = """
import json, sys
import detlab as det, torch
sys.path.insert(0, sys.argv[1])
from test_export_foreign_model import VoiceActivity, heard, voice
torch.manual_seed(1)
network = VoiceActivity()
network.load_state_dict(det.load_model("voice@production"))
network.eval()
print(json.dumps({"spoken": heard(network, voice(2.0))[3:], "silent": heard(network, torch.zeros(16000))}))
"""


class Loud:
    """Says so when it is unpickled."""

    def __reduce__(self):
        return os.getenv, ("HOME",)


def idle(_launch):
    while True:
        yield ("wait",)


class Names(Identifier):
    """Takes the word of `Authorization: Bearer NAME`: who may do what is asked of the real Hub in integration/web."""

    async def identify(self, handler, rule):
        name = handler.request.headers.get("Authorization", "").split()[-1]
        return Caller(name=name, scopes=frozenset({READ, WRITE})) if name else None


@asynccontextmanager
async def served(world):
    """The address of the master's application on a world's services."""
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    server = HTTPServer(make_application(world.services, Names(SimpleNamespace(), world.services), web))
    sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server.add_sockets(sockets)
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    finally:
        server.stop()
        await server.close_all_connections()
        await background.wait()


class Registry:
    """A master with committed checkpoints of Alice's, and processes that talk to it."""

    def __init__(self, world, task, root, address):
        self.world, self.task, self.root, self.address = world, task, root, address

    async def save(self, uuid: str, files: dict[str, bytes]) -> None:
        """Save a checkpoint as a trial does: its files to the storage, then the commit."""
        found = {}
        for path, data in files.items():
            place = self.root / "checkpoints" / uuid / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            found[path] = CheckpointFile(size=len(data), digest="sha256:" + hashlib.sha256(data).hexdigest())
        manifest = {"uuid": uuid, "steps_completed": 3, "files": found, "manifest_digest": "sha256:" + "0" * 64}
        await self.world.services[Tasks].commit_checkpoint(self.task.caller, CommitCheckpoint(**manifest))

    async def run(self, code: str, *arguments: str) -> str:
        """Run code in a process of its own, as Alice; return what it prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DET_", "JUPYTERHUB"))}
        environment |= {"DET_URL": self.address, "DET_TOKEN": "alice", "HOME": str(self.root / "home")}
        environment |= {f"XDG_{kind}_HOME": str(self.root / kind.lower()) for kind in ("CACHE", "STATE", "CONFIG")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *arguments, env=environment, cwd=self.root, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def register(self, **models: str) -> None:
        await self.run(REGISTER.format(models=models))


@pytest.fixture
async def registry(make_world, tmp_path: Path):
    world = await make_world(idle)
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(2)
    (task,) = agent.tasks.values()
    async with served(world) as address:
        yield Registry(world, task, tmp_path, address)


async def test_models_are_registered_and_loaded_by_processes_of_their_own(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    write_state(tmp_path / "state", {"models_state_dict": [{"w": torch.ones(3)}], "callbacks": {"n": 5}})
    await registry.save(TRIAL, files_of(tmp_path / "state"))
    await registry.save(FOLDER, {"weights/model.bin": save({"v": torch.arange(2.0)}), "config.json": b"{}"})
    await registry.register(digits=TRIAL, net=FOLDER)
    for _ in range(2):  # the second time from the cache
        found = json.loads(await registry.run(LOAD))
        assert found["trial"] == found["same"] == [1.0, 1.0, 1.0]
        assert found["callbacks"] == {"n": 5}
        assert found["folder"] == {"v": [0.0, 1.0]}


async def test_a_registered_pickle_is_refused_with_what_it_would_import(registry: Registry) -> None:
    await registry.save(PICKLED, {"model.pt": pickle.dumps(Loud())})
    await registry.register(evil=PICKLED)
    told = json.loads(await registry.run(REFUSED))
    assert told["code"] == "checkpoint.pickled"
    assert "model.pt is a pickle: opening it would import, and may call, os.getenv" in told["message"]
    assert "allow_pickle=True" in told["hint"]
    assert told["by_name"] == {"model.pt": told["allowed"]}


async def test_of_a_folder_with_one_model_the_model_is_loaded(registry: Registry) -> None:
    """It was a dict with the file's name, which nobody who had registered a model expected."""
    model = io.BytesIO()
    torch.save(torch.nn.Linear(2, 1), model)
    await registry.save(ONE_MODEL, {"model.pt": model.getvalue(), "config.json": b"{}"})
    await registry.save(TWO_MODELS, {"a.pt": model.getvalue(), "b.pt": model.getvalue()})
    await registry.save(TREES, {"model.json": b'{"learner": {}}'})
    await registry.register(**{"Größe 数字": ONE_MODEL, "two": TWO_MODELS, "trees": TREES})
    assert json.loads(await registry.run(ONE)) == ["Linear", "Linear", "dict", "dict"]


async def test_a_foreign_model_is_registered_loaded_and_run(registry: Registry) -> None:
    """silero-vad's tensors, as its authors ship them, under a name that says nothing."""
    shipped = list(ROOT.glob(".venv-mlflow/lib/python3.*/site-packages/silero_vad/data/silero_vad_16k.safetensors"))
    if not shipped:
        assert "CI" not in os.environ, "make setup-test makes .venv-mlflow"
        pytest.skip("no .venv-mlflow: make setup-test")
    await registry.save(FOREIGN, {"model.bin": shipped[0].read_bytes()})
    await registry.register(voice=FOREIGN)
    found = json.loads(await registry.run(VOICE, str(EXPORT_TESTS)))
    assert max(found["silent"]) < 0.2
    assert sum(sure > 0.5 for sure in found["spoken"]) > 0.6 * len(found["spoken"])
