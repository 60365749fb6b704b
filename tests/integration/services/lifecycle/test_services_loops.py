"""The services with their own loops, on the real clock."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path

import pytest
from services_scripted import ALICE, config

from detlab.schemas.wire import (
    CreateExperiment,
    ExitAck,
    ExperimentState,
    Heartbeat,
    Hello,
    Kill,
    Launch,
    MetricsRecord,
    RecordBatch,
    SlotView,
    TaskExited,
    TaskStarted,
    Welcome,
)
from detlab_hub.services import AgentCaller, Services, Settings, master
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.store import LeaseHeld, Store, StoreBusy


class LiveAgent:
    """Answers each launch with a report and each kill with an exit."""

    def __init__(self, services: Services, *, ends: bool = True) -> None:
        self.services = services
        self.ends = ends
        self.inbox: asyncio.Queue = asyncio.Queue()
        self.heard: list[str] = []

    async def run(self) -> None:
        hello = Hello(uids={}, agent_id="live", slots=[SlotView(id="0")])
        session = await self.services[Agents].connect(AgentCaller("live"), hello, self.inbox.put_nowait)
        while True:
            message = await self.inbox.get()
            self.heard.append(message.type)
            match message:
                case Launch():
                    await session.receive(TaskStarted(allocation_id=message.allocation_id, run=message.run))
                    task = await self.services[Tokens].resolve(message.task_token)
                    report = MetricsRecord(
                        seq=1, time=1.0, group="validation", steps_completed=1, metrics={"loss": 1.0}
                    )
                    await self.services[Tasks].records(task, RecordBatch(stream="metrics", records=[report]))
                    if self.ends:
                        await self._exit(session, message, 0)
                case Kill():
                    await self._exit(session, message, -15)
                case Heartbeat() | Welcome() | ExitAck():
                    pass

    async def _exit(self, session, message, code) -> None:
        await session.receive(TaskExited(allocation_id=message.allocation_id, run=message.run, exit_code=code))


def settings(folder: Path, **more) -> Settings:
    storage = {"type": "directory", "container_path": str(folder)}
    return Settings(state_dir=folder, bundles_dir=folder / "b", default_checkpoint_storage=storage, tick=0.05, **more)


async def wait_for(condition, seconds: float = 10.0):
    async def loop():
        while not await condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(loop(), seconds)


async def test_loops_run_an_experiment_by_themselves(db_url, tmp_path):
    store = Store.open(db_url, holder="loops")
    services = Services(store, settings=settings(tmp_path, heartbeat_period=0.05))
    await services.start()
    agent = LiveAgent(services)
    running = asyncio.create_task(agent.run())
    try:
        reply = await services[Experiments].create(ALICE, CreateExperiment(config=config()))

        async def done() -> bool:
            return (await services[Experiments].get(ALICE, reply.experiment.id)).state is ExperimentState.COMPLETED

        await wait_for(done)
        await wait_for(lambda: asyncio.sleep(0, "heartbeat" in agent.heard))
        assert services[Cluster].healthy()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await services.stop()
        store.close()


async def test_loops_kill_what_does_not_stop(db_url, tmp_path):
    store = Store.open(db_url, holder="loops")
    services = Services(store, settings=settings(tmp_path, stop_grace=0.2))
    await services.start()
    agent = LiveAgent(services, ends=False)
    running = asyncio.create_task(agent.run())
    searcher = {
        "name": "async_halving", "metric": "loss", "time_metric": "batches",
        "max_time": 1, "num_rungs": 1, "max_trials": 2, "max_concurrent_trials": 1,
    }  # fmt: skip
    try:
        reply = await services[Experiments].create(ALICE, CreateExperiment(config=config(searcher)))

        async def done() -> bool:
            return (await services[Experiments].get(ALICE, reply.experiment.id)).state is ExperimentState.COMPLETED

        await wait_for(done)
        assert agent.heard.count("kill") == 2
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await services.stop()
        store.close()


async def test_a_write_that_fails_after_its_caller_has_gone_is_noted_once(tmp_path, caplog):
    """Requests and loops are cancelled while a lost lease fails their writes; those are no errors nobody asked for."""
    unheard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: unheard.append(said["message"]))
    store = Store.open(f"sqlite:///{tmp_path}/gone.sqlite", holder="gone")
    services = Services(store, settings=settings(tmp_path))
    begun, held = threading.Event(), threading.Event()

    def fails(error: Exception):
        def write(_):
            begun.set()
            held.wait(10)
            raise error

        return write

    try:
        for error in (StoreBusy("the database is busy"), ValueError("a bug")):
            begun.clear()
            held.clear()
            asked = asyncio.create_task(services.context.write(fails(error)))
            assert await asyncio.to_thread(begun.wait, 10)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            held.set()
            await services.context.store.write(lambda _: None)
            await wait_for(lambda: asyncio.sleep(0, not services.context._writes))
        gc.collect()
        assert not unheard
        assert [record.message for record in caplog.records if record.exc_info] == [
            "a write whose caller had gone failed"
        ]
    finally:
        await services.stop()
        store.close()


async def test_loops_end_when_another_master_takes_the_lease(tmp_path):
    url = f"sqlite:///{tmp_path}/lease.sqlite"
    now = [1000.0]
    store = Store.open(url, holder="first", clock=lambda: now[0])
    services = Services(store, settings=settings(tmp_path), clock=lambda: now[0])
    await services.start()
    with pytest.raises(LeaseHeld):
        Store.open(url, holder="second", clock=lambda: now[0])
    now[0] += 100
    second = Store.open(url, holder="second", clock=lambda: now[0])
    services.context.scheduler_kick.set()

    async def unhealthy() -> bool:
        return not services[Cluster].healthy()

    await wait_for(unhealthy)
    await services.stop()
    store.close()
    second.close()


async def test_who_joins_a_queue_that_waits_is_looked_at_together_and_room_at_once(tmp_path, monkeypatch):
    """Each trial that a search stops makes one that waits: one pass for each was a third of what its report cost."""
    monkeypatch.setattr(master, "PASS_PERIOD", 3600.0)
    store = Store.open(f"sqlite:///{tmp_path}/paced.sqlite", holder="test")
    services = Services(store, settings=settings(tmp_path))
    passes = 0
    schedule = services.schedule

    async def counted() -> None:
        nonlocal passes
        await schedule()
        passes += 1

    services.schedule = counted
    await services.start()
    try:
        await services[Experiments].create(ALICE, CreateExperiment(config=config()))

        async def waits() -> bool:
            return bool(services.context.pending_reasons)

        await wait_for(waits)
        before = passes
        for _ in range(5):
            services.context.scheduler_kick.set()
            await asyncio.sleep(0.02)
        assert passes == before

        services.context.room.set()  # as when a task has ended

        async def looked() -> bool:
            return passes == before + 1

        await wait_for(looked)
    finally:
        await services.stop()
        store.close()


async def test_costly_passes_take_a_fifth_of_a_core_whatever_ends_meanwhile(tmp_path, monkeypatch):
    """Of a large cluster where something ends all the time: each end is room, and may mean a pass."""
    place, costs = master.placement.place, []

    def costly(*args, **more):
        began = time.thread_time()
        while time.thread_time() < began + 0.1:
            pass
        costs.append(0.1)
        return place(*args, **more)

    monkeypatch.setattr(master.placement, "place", costly)
    store = Store.open(f"sqlite:///{tmp_path}/costly.sqlite", holder="test")
    services = Services(store, settings=settings(tmp_path))
    await services.start()
    try:
        await services[Experiments].create(ALICE, CreateExperiment(config=config()))
        began, costs[:] = time.monotonic(), []
        while (passed := time.monotonic() - began) < 2.0:
            services.context.room.set()
            services.context.scheduler_kick.set()
            await asyncio.sleep(0.01)
        assert costs
        assert sum(costs) <= 0.2 * passed + 0.2, "one that was due at the beginning, one that is under way"
    finally:
        await services.stop()
        store.close()
