"""A backend that places by itself: it gets what may start, in queue order and within quotas, and no nodes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from services_scripted import ALICE, ROOT, config

from detlab.schemas.jobwire import QuotaRequest
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment, ExitAck, Kill, Launch, MasterMessage, TaskExited, TaskStarted
from detlab_hub.backends.agents import LiveAgents
from detlab_hub.services import Services, Settings
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.agents.connection import task_exited, task_started
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store import InlineExecutor, Store

BATCH = "batch"


class Batch(LiveAgents):
    """Places the pool `default`, as Slurm does; remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(30.0, 60.0, queues={"default": BATCH})
        self.told: list[Launch | Kill | ExitAck] = []

    def deliver(self, node_id: str, message: MasterMessage) -> None:
        assert node_id == BATCH, "nothing goes to a node"
        assert isinstance(message, Launch | Kill | ExitAck)
        self.told.append(message)

    def last_heartbeat(self, node_id: str) -> float | None:
        return 1e6 if node_id == BATCH else None

    def state_of(self, node_id: str, now: float) -> str:
        return "connected" if node_id == BATCH else "lost"

    def launched(self) -> list[str]:
        return [message.allocation_id for message in self.told if isinstance(message, Launch)]


@pytest.fixture
def batch() -> Batch:
    return Batch()


@pytest.fixture
async def services(db_url: str, tmp_path: Path, batch: Batch) -> AsyncIterator[Services]:
    settings = Settings(
        state_dir=tmp_path,
        bundles_dir=tmp_path / "bundles",
        default_checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "checkpoints")},
    )
    store = Store.open(db_url, holder="test", writer=InlineExecutor())
    yield Services(
        store, settings=settings, clock=partial(next, count(1e6, 0.001)), draw=random.Random(7), backend=batch
    )
    store.close()


def ask(slots: int) -> CreateTask:
    raw = {"entrypoint": "true", "resources": {"slots": slots}, "runtime": "slurm"}
    return CreateTask(kind=TaskKind.COMMAND, config=raw)


async def test_what_waits_is_handed_over_without_a_node_and_within_the_quota(services: Services, batch: Batch) -> None:
    await services[Quotas].put(ROOT, QuotaRequest(kind="user", name="alice", slots=5))
    first, second, third = [(await services[UserTasks].create(ALICE, ask(slots))).task.id for slots in (2, 2, 2)]
    await services.schedule()
    assert [name.rpartition(".")[0] for name in batch.launched()] == [first, second]
    launch = batch.told[0]
    assert isinstance(launch, Launch)
    assert (launch.runtime, launch.slots, launch.info.agent_id) == ("slurm", ["any0", "any1"], BATCH)
    view = await services[UserTasks].get(ALICE, third)
    assert "holds 4 of a quota of 5 slots" in (view.pending_reason or "")
    await services.schedule()
    assert len(batch.launched()) == 2, "what was handed over is told once"

    started = TaskStarted(allocation_id=launch.allocation_id, run=launch.run)
    await services.context.write(lambda unit: task_started(unit, BATCH, started))
    assert (await services[UserTasks].get(ALICE, first)).state.value == "ACTIVE"
    ended = TaskExited(allocation_id=launch.allocation_id, run=launch.run, exit_code=0)
    await services.context.write(lambda unit: task_exited(unit, BATCH, ended))
    assert (await services[UserTasks].get(ALICE, first)).state.value == "COMPLETED"
    await services.schedule()
    assert [name.rpartition(".")[0] for name in batch.launched()] == [first, second, third]

    await services.end_task(ALICE, second)
    assert [message.allocation_id for message in batch.told if isinstance(message, Kill)] == [batch.launched()[1]]
    await services.tick()
    assert (await services[UserTasks].get(ALICE, third)).state.value == "ACTIVE", (
        "who placed it was heard: it is not lost"
    )


async def test_a_trial_of_any_size_is_forecast_and_handed_over_whole(services: Services, batch: Batch) -> None:
    asked = config(resources={"slots_per_trial": 300}, runtime="slurm")
    judged = await services[Experiments].create(ALICE, CreateExperiment(config=asked, dry_run=True))
    assert (judged.forecast.agent_id, judged.forecast.reason) == (BATCH, "")
    await services[Experiments].create(ALICE, CreateExperiment(config=asked))
    await services.schedule()
    (launch,) = batch.told
    assert isinstance(launch, Launch)
    assert len(launch.slots) == 300
    assert launch.info.container_slot_counts == [300]
