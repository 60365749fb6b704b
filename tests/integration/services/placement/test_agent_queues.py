"""Agents with a batch system behind them: whose pool it is, what is refused, and what waits in its queue."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from services_scripted import ALICE

from detlab.errors import Conflict, ResourcesError
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import Hello, Kill, Launch, MasterMessage, QueueHello, RunningTask, SlotView, TaskStage
from detlab_hub.backends.agents import Agents
from detlab_hub.services import Services, Settings
from detlab_hub.services.kernel.callers import AgentCaller
from detlab_hub.store import InlineExecutor, Store

QUEUE = QueueHello(name="Slurm", slots_per_node=2, slots=4)


@pytest.fixture
async def services(db_url: str, tmp_path: Path) -> AsyncIterator[Services]:
    settings = Settings(state_dir=tmp_path, bundles_dir=tmp_path / "bundles")
    store = Store.open(db_url, holder="test", writer=InlineExecutor())
    clock = partial(next, count(1e6, 0.001))
    backend = Agents(30.0, 60.0)
    yield Services(store, settings=settings, clock=clock, draw=random.Random(7), backend=backend)
    store.close()


def hello(name: str, *, queue: QueueHello | None = QUEUE, slots: int = 0, tasks: Sequence[RunningTask] = ()) -> Hello:
    own = [SlotView(id=f"cpu{number}", kind="cpu", name="CPU") for number in range(slots)]
    runtimes = ["slurm"]
    return Hello(agent_id=name, process=name, slots=own, runtimes=runtimes, queue=queue, tasks=[*tasks], uids={})


async def connect(services: Services, said: Hello) -> list[MasterMessage]:
    told: list[MasterMessage] = []
    await services.agents.connect(AgentCaller(agent_id=said.agent_id, key_hash=""), said, told.append)
    return told


def ask(slots: int) -> CreateTask:
    raw = {"entrypoint": "true", "resources": {"slots": slots}, "runtime": "slurm"}
    return CreateTask(kind=TaskKind.COMMAND, config=raw)


async def test_what_waits_in_the_batch_systems_queue_is_queued_for_its_reason(services: Services) -> None:
    told = await connect(services, hello("batch"))
    task = (await services.usertasks.create(ALICE, ask(2))).task.id
    await services.schedule()
    (launch,) = [message for message in told if isinstance(message, Launch)]
    assert launch.slots == ["any0", "any1"]
    session = await services.agents.connect(
        AgentCaller(agent_id="batch", key_hash=""),
        hello("batch", tasks=[RunningTask(allocation_id=launch.allocation_id, run=launch.run, begun=False)]),
        told.append,
    )
    await session.receive(
        TaskStage(allocation_id=launch.allocation_id, run=launch.run, stage="queued", message="Slurm job 7: Resources")
    )
    view = await services.usertasks.get(ALICE, task)
    assert (view.display_state, view.pending_reason) == ("QUEUED", "Slurm job 7: Resources")
    assert not [message for message in told if isinstance(message, Kill)], "a job that waits is not lost"


async def test_more_than_a_node_or_the_cluster_has_is_refused(services: Services) -> None:
    await connect(services, hello("batch"))
    with pytest.raises(ResourcesError, match="needs 3 slots of one node; the largest node of Slurm has 2"):
        await services.usertasks.create(ALICE, ask(3))
    assert await services.usertasks.create(ALICE, ask(2))


async def test_a_pool_is_placed_by_one_batch_system_or_by_the_master(services: Services) -> None:
    await connect(services, hello("batch"))
    with pytest.raises(Conflict, match="the batch system of agent batch places the tasks of pool default"):
        await connect(services, hello("other"))
    with pytest.raises(Conflict, match="the batch system of agent batch places the tasks of pool default"):
        await connect(services, hello("plain", queue=None, slots=1))
    services.connections.give_up("batch")
    await connect(services, hello("plain", queue=None, slots=1))
    with pytest.raises(Conflict, match="has other agents \\(plain\\)"):
        await connect(services, hello("batch"))
