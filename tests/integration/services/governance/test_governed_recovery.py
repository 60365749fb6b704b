"""A real governed trial and a real master, over HTTP: it saves, is stopped, goes on, and is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from governed_world import POLICY, declared, idle
from services_scripted import ALICE, config
from sqlalchemy import update
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from detlab_hub.services.governance.reading import EvidenceReading
from detlab_hub.store.tables import EvidenceRow
from detlab_hub.web.auth import Identifier
from detlab_hub.web.routes import Background, WebSettings, make_application
from testbed.task_dirs import make_task_dir

PROGRAM = """
    import logging, os, signal, sys, torch
    from torch import nn
    from detlab import pytorch, governance
    from detlab.pytorch import Batch

    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(Net())
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

        def build_training_data_loader(self):
            parts = {name: [torch.ones(2) * at for at in range(8)] for name in ("trusted", "web")}
            return pytorch.DataLoader(governance.combine(parts), batch_size=4, shuffle=True)

        def build_validation_data_loader(self):
            return pytorch.DataLoader([torch.ones(2)] * 4, batch_size=4)

        def train_batch(self, batch, epoch_idx, batch_idx):
            if batch_idx == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            losses = (self.model(batch)[:, 0] - 1) ** 2
            self.context.backward(losses)
            self.context.step_optimizer(self.optimizer)
            return {"loss": losses.mean()}

        def evaluate_batch(self, batch, batch_idx):
            return {"loss": self.model(batch).mean()}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.head(self.body(x))

    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO)
    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=Batch(int(sys.argv[1])),
            checkpoint_period=Batch(2),
            checkpoint_policy="none",
        )
"""


class LiveTrial:
    """A task of a real master, whose program is started by the test."""

    def __init__(self, world: Any, task: Any, root: Path, storage: dict[str, Any], url: str) -> None:
        self.world, self.task, self.root = world, task, root
        self.storage = Path(storage["container_path"])
        block = {"governance": POLICY, "checkpoint_storage": storage}
        make_task_dir(
            root, url, storage=storage, trial_id=task.caller.trial_id, experiment_id=task.caller.experiment_id
        )
        (root / "token").write_text(task.launch.task_token)
        self.info = root / "info.json"
        said = json.loads(self.info.read_text())
        self.set(config={**said["config"], **block}, allocation_id=task.caller.allocation_id)
        (root / "work" / "train.py").write_text(textwrap.dedent(PROGRAM))

    def set(self, **changes: Any) -> None:
        self.info.write_text(json.dumps({**json.loads(self.info.read_text()), **changes}))

    async def train(self, length: int, latest: str | None = None, killed_at: int = -1) -> tuple[int, str]:
        self.set(latest_checkpoint=latest)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
        environment = {**kept, "DET_TASK_DIR": str(self.root), "DET_SLOT_IDS": "[]", "OMP_NUM_THREADS": "1"}
        ran = await asyncio.create_subprocess_exec(
            sys.executable,
            "train.py",
            str(length),
            str(killed_at),
            cwd=self.root / "work",
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(ran.communicate(), 90)
        return ran.returncode or 0, said.decode()

    def weights(self, checkpoint: str) -> bytes:
        return (self.storage / checkpoint / "model_0.safetensors").read_bytes()

    async def ledger(self) -> list[Any]:
        return (await self.world.services[EvidenceReading].ledger(ALICE, self.task.caller.trial_id)).items


@pytest.fixture
async def another(make_world: Any, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[LiveTrial]]]:
    """Makes a trial of one master, with a storage of its own."""
    world = await make_world(idle, pools=declared())
    agent = await world.add_agent(slots=2)
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    server = HTTPServer(make_application(world.services, Identifier(SimpleNamespace(), world.services), web))  # type: ignore[arg-type]
    sock, port = bind_unused_port()
    server.add_sockets([sock])
    numbers = itertools.count()

    async def made() -> LiveTrial:
        number, before = next(numbers), set(agent.tasks)
        storage = {"type": "directory", "container_path": str(tmp_path / f"saved{number}")}
        await world.submit(config(governance=POLICY, checkpoint_storage=storage))
        await world.steps(2)
        (new,) = set(agent.tasks) - before
        url = f"http://127.0.0.1:{port}/services/detlab/"
        return LiveTrial(world, agent.tasks[new], tmp_path / f"task{number}", storage, url)

    yield made
    server.stop()
    await server.close_all_connections()
    await background.wait()


@pytest.fixture
async def live(another: Callable[[], Awaitable[LiveTrial]]) -> LiveTrial:
    return await another()


async def test_t10_a_trial_saves_goes_on_and_is_refused_by_a_real_master(live: LiveTrial) -> None:
    status, said = await live.train(4)
    assert status == 0, said
    first = await live.ledger()
    assert [(one.kind, one.body["first_step"], one.body["step"]) for one in first] == [
        ("segment", 0, 2),
        ("segment", 2, 4),
    ]
    assert "verified" not in said
    status, said = await live.train(6, first[-1].checkpoint)
    assert status == 0, said
    assert f"verified: the evidence of checkpoint {first[-1].checkpoint} is in order" in said
    whole = await live.ledger()
    assert [(one.body["first_step"], one.body["step"]) for one in whole] == [(0, 2), (2, 4), (4, 6)]
    assert sum(sum(one.body["counts"].values()) for one in whole) == 24
    seen = await live.world.services[EvidenceReading].of_checkpoint(ALICE, whole[-1].checkpoint)
    assert (seen.problems, sorted(seen.predicate["taint"])) == ([], ["trusted", "web"])

    status, said = await live.train(8, first[0].checkpoint)
    assert (status != 0, "CHAIN" in said) == (True, True), said
    await live.world.services.context.write(
        lambda unit: unit.session.execute(update(EvidenceRow).values(envelope={"payload": "forged"}))
    )
    status, said = await live.train(8, whole[-1].checkpoint)
    assert (status != 0, "GovernanceError" in said, "SIG" in said) == (True, True, True), said
    kinds = [one.kind for one in await live.ledger()]
    assert kinds == ["segment", "segment", "segment", "refused", "refused"]


async def test_t10_a_trial_that_is_killed_goes_on_to_the_same_bits_with_a_ledger_without_gaps(
    another: Callable[[], Awaitable[LiveTrial]],
) -> None:
    whole, broken = await another(), await another()
    status, said = await whole.train(8)
    assert status == 0, said
    latest = None
    for step in (3, 7):  # a batch after a checkpoint that may not have been committed yet; the second epoch has others
        status, said = await broken.train(8, latest, killed_at=step)
        assert status == -signal.SIGKILL, said
        latest = next((one.checkpoint for one in reversed(await broken.ledger())), None)
    assert latest is not None
    status, said = await broken.train(8, latest)
    assert status == 0, said
    first, again = await whole.ledger(), await broken.ledger()
    assert [(one.kind, one.body["first_step"], one.body["step"]) for one in again] == [
        ("segment", step, step + 2) for step in (0, 2, 4, 6)
    ]
    for key in ("counts", "order", "taint"):
        assert [one.body[key] for one in again] == [one.body[key] for one in first]
    for one, other in zip(first, again, strict=True):
        assert whole.weights(one.checkpoint) == broken.weights(other.checkpoint)
    seen = await broken.world.services[EvidenceReading].of_checkpoint(ALICE, again[-1].checkpoint)
    assert seen.problems == []
