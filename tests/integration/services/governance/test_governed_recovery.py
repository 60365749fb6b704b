"""A real governed trial and a real master, over HTTP: it saves, is stopped, goes on, and is refused."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator
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
    import sys, torch
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

    async def train(self, length: int, latest: str | None = None) -> tuple[int, str]:
        self.set(latest_checkpoint=latest)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
        environment = {**kept, "DET_TASK_DIR": str(self.root), "DET_SLOT_IDS": "[]", "OMP_NUM_THREADS": "1"}
        ran = await asyncio.create_subprocess_exec(
            sys.executable,
            "train.py",
            str(length),
            cwd=self.root / "work",
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(ran.communicate(), 90)
        return ran.returncode or 0, said.decode()

    async def ledger(self) -> list[Any]:
        return (await self.world.services[EvidenceReading].ledger(ALICE, self.task.caller.trial_id)).items


@pytest.fixture
async def live(make_world: Any, tmp_path: Path) -> AsyncIterator[LiveTrial]:
    storage = {"type": "directory", "container_path": str(tmp_path / "saved")}
    world = await make_world(idle, pools=declared())
    agent = await world.add_agent()
    await world.submit(config(governance=POLICY, checkpoint_storage=storage))
    await world.steps(2)
    (task,) = agent.tasks.values()
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    server = HTTPServer(make_application(world.services, Identifier(SimpleNamespace(), world.services), web))  # type: ignore[arg-type]
    sock, port = bind_unused_port()
    server.add_sockets([sock])
    yield LiveTrial(world, task, tmp_path / "task", storage, f"http://127.0.0.1:{port}/services/detlab/")
    server.stop()
    await server.close_all_connections()
    await background.wait()


async def test_t10_a_trial_saves_goes_on_and_is_refused_by_a_real_master(live: LiveTrial) -> None:
    status, said = await live.train(4)
    assert status == 0, said
    first = await live.ledger()
    assert [(one.kind, one.body["first_step"], one.body["step"]) for one in first] == [
        ("segment", 0, 2),
        ("segment", 2, 4),
    ]
    status, said = await live.train(6, first[-1].checkpoint)
    assert status == 0, said
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
