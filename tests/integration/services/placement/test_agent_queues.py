"""Agents with a batch system behind them: whose pool it is, what is refused, and what waits in its queue."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, ROOT, config
from sqlalchemy.orm import Session

from detlab.errors import Conflict, ResourcesError
from detlab.schemas.jobwire import QuotaRequest
from detlab.schemas.poolwire import BatchSystemView
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import (
    Arrival,
    CreateExperiment,
    Heartbeat,
    HeldTask,
    Hello,
    Kill,
    Launch,
    MasterMessage,
    Partition,
    QueueHello,
    SlotView,
    TaskExited,
    TaskStage,
    TaskStarted,
)
from detlab_hub.backends.agents import LiveAgents
from detlab_hub.services import Services, Settings
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.agents.agents import Agents as AgentsService
from detlab_hub.services.agents.connection import AgentSession
from detlab_hub.services.base.callers import AgentCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest import rendezvous
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AllocationRow

QUEUE = QueueHello(name="Slurm", slots_per_node=2, slots=4)


@pytest.fixture
async def services(db_url: str, tmp_path: Path) -> AsyncIterator[Services]:
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    settings = Settings(state_dir=tmp_path, bundles_dir=tmp_path / "bundles", default_checkpoint_storage=storage)
    store = Store.open(db_url, holder="test", writer=InlineExecutor())
    clock = partial(next, count(1e6, 0.001))
    backend = LiveAgents(30.0, 60.0)
    yield Services(store, settings=settings, clock=clock, draw=random.Random(7), backend=backend)
    store.close()


def hello(name: str, *, queue: QueueHello | None = QUEUE, slots: int = 0, tasks: Sequence[HeldTask] = ()) -> Hello:
    own = [SlotView(id=f"cpu{number}", kind="cpu", name="CPU") for number in range(slots)]
    runtimes = ["slurm"]
    return Hello(agent_id=name, process=name, slots=own, runtimes=runtimes, queue=queue, tasks=[*tasks], uids={})


async def connect(services: Services, said: Hello) -> list[MasterMessage]:
    told: list[MasterMessage] = []
    await services[AgentsService].connect(AgentCaller(agent_id=said.agent_id, key_hash=""), said, told.append)
    return told


def ask(slots: int) -> CreateTask:
    raw = {"entrypoint": "true", "resources": {"slots": slots}, "runtime": "slurm"}
    return CreateTask(kind=TaskKind.COMMAND, config=raw)


async def test_what_waits_in_the_batch_systems_queue_is_queued_for_its_reason(services: Services) -> None:
    told = await connect(services, hello("batch"))
    task = (await services[UserTasks].create(ALICE, ask(2))).task.id
    await services.schedule()
    (launch,) = [message for message in told if isinstance(message, Launch)]
    assert launch.slots == ["any0", "any1"]
    session = await services[AgentsService].connect(
        AgentCaller(agent_id="batch", key_hash=""),
        hello("batch", tasks=[HeldTask(allocation_id=launch.allocation_id, run=launch.run, begun=False)]),
        told.append,
    )
    await session.receive(
        TaskStage(allocation_id=launch.allocation_id, run=launch.run, stage="queued", message="Slurm job 7: Resources")
    )
    view = await services[UserTasks].get(ALICE, task)
    assert (view.display_state, view.pending_reason) == ("QUEUED", "Slurm job 7: Resources")
    assert not [message for message in told if isinstance(message, Kill)], "a job that waits is not lost"
    (job,) = (await services[Jobs].list(ALICE)).items
    assert (job.state, job.reason, job.slots_held) == ("queued", "Slurm job 7: Resources", 2)
    await session.receive(TaskStarted(allocation_id=launch.allocation_id, run=launch.run))
    (job,) = (await services[Jobs].list(ALICE)).items
    assert (job.state, job.reason) == ("running", "")


async def test_the_batch_system_of_one_user_gets_nobody_elses_task(services: Services) -> None:
    """All of its jobs have one account, which reads what that user can."""
    told = await connect(services, hello("batch").model_copy(update={"serves_user": "alice"}))
    with pytest.raises(
        ResourcesError, match="agent batch, which takes the tasks of pool 'default', serves another user"
    ):
        await services[UserTasks].create(BOB, ask(1))
    await services[UserTasks].create(ALICE, ask(1))
    await services.schedule()
    assert [message.owner for message in told if isinstance(message, Launch)] == ["alice"]


async def test_a_task_that_waits_when_the_agent_of_one_user_comes_stays_where_it_is(services: Services) -> None:
    task = (await services[UserTasks].create(BOB, ask(1))).task.id
    told = await connect(services, hello("batch").model_copy(update={"serves_user": "alice"}))
    await services.schedule()
    assert not [message for message in told if isinstance(message, Launch)]
    view = await services[UserTasks].get(BOB, task)
    assert view.pending_reason == "batch, which takes the tasks of this pool, serves another user"


async def test_an_experiment_says_what_its_trials_wait_for_in_the_batch_systems_queue(services: Services) -> None:
    launch, _, session = await gang(services)
    number = launch.info.experiment_id or 0
    assert (await services[Experiments].get(ALICE, number)).pending_reason is None
    said = "Slurm job 7: Resources, expected to start 2026-11-27 16:00:00"
    told = TaskStage(allocation_id=launch.allocation_id, run=launch.run, stage="queued", message=said)
    await session.receive(told)
    assert (await services[Experiments].get(ALICE, number)).pending_reason == said
    why = await services[Jobs].why(ALICE, str(number))
    assert [(item.reason, item.detail, item.place, item.slots) for item in why.items] == [("batch_system", said, 0, 4)]
    assert why.waiting == 1
    await session.receive(TaskStarted(allocation_id=launch.allocation_id, run=launch.run))
    assert (await services[Experiments].get(ALICE, number)).pending_reason is None


async def test_what_waits_for_a_quota_is_told_so_and_not_that_the_batch_system_is_no_node(services: Services) -> None:
    await services[Quotas].put(ROOT, QuotaRequest(kind="user", name="alice", slots=2))
    told = await connect(services, hello("batch"))
    for _ in range(2):
        task = (await services[UserTasks].create(ALICE, ask(2))).task.id
    await services.schedule()
    assert len([message for message in told if isinstance(message, Launch)]) == 1
    (item,) = (await services[Jobs].why(ALICE, task)).items
    assert (item.reason, item.place) == ("at_quota", 1)
    assert "holds 2 of a quota of 2 slots" in item.detail
    assert (item.hints, item.estimated_start) == ([], None)


async def test_a_pool_tells_what_the_nodes_of_its_batch_system_do_as_they_change(services: Services) -> None:
    main = Partition(name="main", default=True, idle=2, time_limit="1:00:00")
    queue = QUEUE.model_copy(update={"partitions": [main]})
    session = await services[AgentsService].connect(
        AgentCaller(agent_id="batch", key_hash=""), hello("batch", queue=queue), lambda message: None
    )
    (pool,) = (await services[PoolViews].list()).items
    assert pool.batch == BatchSystemView(name="Slurm", slots=4, slots_per_node=2, partitions=[main])
    assert (pool.slots_total, pool.agents) == (4, 1)
    busy = main.model_copy(update={"idle": 1, "allocated": 1})
    await session.receive(Heartbeat(queue=queue.model_copy(update={"partitions": [busy], "slots": 6})))
    await session.receive(Heartbeat())
    (pool,) = (await services[PoolViews].list()).items
    assert pool.batch is not None
    assert (pool.batch.partitions, pool.slots_total) == ([busy], 6)
    assert (await services[Cluster].view(ROOT)).slots_total == 6
    assert await services[UserTasks].create(ALICE, ask(2)), "nodes are told apart by what they have"


async def test_more_than_a_node_or_the_cluster_has_is_refused(services: Services) -> None:
    await connect(services, hello("batch"))
    with pytest.raises(ResourcesError, match="needs 3 slots of one node; the largest node of Slurm has 2"):
        await services[UserTasks].create(ALICE, ask(3))
    assert await services[UserTasks].create(ALICE, ask(2))


async def gang(services: Services, **slurm: object) -> tuple[Launch, list[MasterMessage], AgentSession]:
    """Submit a trial of four slots, and hand it over."""
    told: list[MasterMessage] = []
    queue = QUEUE.model_copy(update={"gangs": True, "slots": 8})
    session = await services[AgentsService].connect(
        AgentCaller(agent_id="batch", key_hash=""), hello("batch", queue=queue), told.append
    )
    asked = config(resources={"slots_per_trial": 4}, runtime="slurm", slurm=slurm, max_restarts=1)
    await services[Experiments].create(ALICE, CreateExperiment(config=asked))
    await services.schedule()
    (launch,) = [message for message in told if isinstance(message, Launch)]
    return launch, told, session


async def parts_of(services: Services, launch: Launch) -> list[tuple[int, str, list[str], bool, str | None]]:
    def read(s: Session) -> list[tuple[int, str, list[str], bool, str | None]]:
        found = parts.of_allocation(s, s.get_one(AllocationRow, launch.allocation_id))
        return [(part.rank, part.agent_id, part.slots, part.started, part.end) for part in found]

    return await services.context.read(read)


async def test_a_trial_that_is_larger_than_a_node_is_one_launch_for_several(services: Services) -> None:
    launch, told, session = await gang(services)
    assert launch.slots == ["any0", "any1", "any2", "any3"]
    assert launch.info.container_slot_counts == [2, 2]
    assert (launch.info.container_rank, len(launch.info.container_addrs)) == (0, 2)
    assert [part[:3] for part in await parts_of(services, launch)] == [
        (0, "batch", ["any0", "any1"]), (1, "batch", ["any2", "any3"]),
    ]  # fmt: skip
    await session.receive(TaskStarted(allocation_id=launch.allocation_id, run=launch.run))
    assert [part[3] for part in await parts_of(services, launch)] == [True, True]
    (view,) = await services[AgentsService].list(ROOT)
    assert view.running == 1
    trial = await services[Trials].get(ALICE, launch.info.trial_id or 0)
    assert (trial.allocation_state, len(trial.slots)) == ("RUNNING", 4)

    await services[Experiments].kill(ALICE, trial.experiment_id)
    kills = [message for message in told if isinstance(message, Kill)]
    assert [message.allocation_id for message in kills] == [launch.allocation_id], "one job is killed once"
    await session.receive(TaskExited(allocation_id=launch.allocation_id, run=launch.run, exit_code=-15))
    assert [part[4] for part in await parts_of(services, launch)] == ["killed", "killed"]
    trial = await services[Trials].get(ALICE, launch.info.trial_id or 0)
    assert trial.allocation_state in {None, "TERMINATED"}


async def test_each_node_of_a_handed_over_trial_reports_as_itself_and_meets_the_others(services: Services) -> None:
    launch, _, session = await gang(services, slots_per_node=1)
    assert launch.info.container_slot_counts == [1, 1, 1, 1]
    caller = await services.context.read(lambda s: caller_of(s.get_one(AllocationRow, launch.allocation_id)))
    for node in range(3):
        arrival = Arrival(node=node, number=1, address=f"10.0.0.{node}", port=7, messages_port=8, key="ab")
        met = await services.context.write(lambda unit, arrival=arrival: rendezvous.arrive(unit, caller, arrival))
        assert not met.ready
    last = Arrival(node=3, number=1, address="10.0.0.3")
    met = await services.context.write(lambda unit: rendezvous.arrive(unit, caller, last))
    assert (met.ready, met.addresses) == (True, [f"10.0.0.{node}" for node in range(4)])
    failed = TaskExited(allocation_id=launch.allocation_id, run=launch.run, exit_code=1, rank=2)
    await session.receive(failed)
    await session.receive(failed)
    assert {part[4] for part in await parts_of(services, launch)} == {"failed"}
    trial = await services[Trials].get(ALICE, launch.info.trial_id or 0)
    assert trial.restarts == 1


async def test_an_agent_that_comes_back_with_a_job_over_several_nodes_keeps_it_and_without_it_has_lost_it(
    services: Services,
) -> None:
    launch, told, session = await gang(services)
    queue = QUEUE.model_copy(update={"gangs": True, "slots": 8})
    await session.receive(TaskStarted(allocation_id=launch.allocation_id, run=launch.run))
    mine = HeldTask(allocation_id=launch.allocation_id, run=launch.run)
    await connect(services, hello("batch", queue=queue, tasks=[mine]))
    assert {part[4] for part in await parts_of(services, launch)} == {None}
    await connect(services, hello("batch", queue=queue))
    assert {part[4] for part in await parts_of(services, launch)} == {"lost"}
    assert len([message for message in told if isinstance(message, Launch)]) == 1


async def test_what_no_number_of_nodes_can_run_is_refused(services: Services) -> None:
    queue = QUEUE.model_copy(update={"gangs": True})
    await connect(services, hello("batch", queue=queue))

    def of(slots: int, each: int | None = None, **resources: object) -> CreateExperiment:
        slurm = {} if each is None else {"slots_per_node": each}
        asked = config(resources={"slots_per_trial": slots, **resources}, runtime="slurm", slurm=slurm)
        return CreateExperiment(config=asked)

    for asked, said in (
        (of(6), "needs 6 slots; all nodes of Slurm have 4"),
        (of(4, 3), "needs 3 slots of one node; the largest node of Slurm has 2"),
        (of(3, 2), "3 slots, which cannot be divided into nodes of 2"),
        (of(4, is_single_node=True), "needs 4 slots of one node; the largest node of Slurm has 2"),
    ):
        with pytest.raises(ResourcesError, match=said):
            await services[Experiments].create(ALICE, asked)
    assert await services[Experiments].create(ALICE, of(4, 1))


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
