"""An API server that does not answer is no other agent: launches wait, and go on when it answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.base import RefusedTask
from detlab_agent.runtimes.kubernetes import lease
from detlab_agent.runtimes.kubernetes.kubeconfig import Access
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.runtime import LEASE, KubernetesRuntime
from detlab_agent.runtimes.preparation import Order
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.waiting import soon

LAUNCHES = 40
SILENT = 60.0


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster of one node that runs nothing; the seconds of the lease are shorter, and in the same relation."""
    for name, seconds in (("DURATION", 0.8), ("RENEW", 0.1), ("_ANSWER", 0.3)):
        monkeypatch.setattr(lease, name, seconds)
    with FakeCluster(tmp_path) as found:
        found.add_node("idle-1", gpus=2)
        yield found


@asynccontextmanager
async def running(
    fake: FakeCluster, place: Path, **options: float
) -> AsyncIterator[tuple[KubernetesRuntime, list[str]]]:
    """A runtime that has begun, and its calls that what it offers has changed."""
    changes: list[str] = []
    opened = await Access(fake.kubeconfig(), environ={}).open()
    rules = Rules(KubernetesOptions.model_validate({"image": "python", **options}), "ours")
    runtime = KubernetesRuntime(opened, rules, place)
    await runtime.begin(lambda: changes.append("changed"))
    try:
        await soon(lambda: fake.objects("leases", group="coordination.k8s.io"), 10)
        yield runtime, changes
    finally:
        await runtime.close()


def orders(place: Path) -> Iterator[Order]:
    (place / "tasks").mkdir()
    for _ in itertools.count():
        image = ContainerSpec(image="i:1")
        made = MasterDouble().allocate(["true"], runtime="kubernetes", node="idle-1", slots=[], container=image)
        task = TaskDir(place / "tasks" / made.launch.allocation_id)
        yield Order(made.launch, task, task.root.with_suffix(".json"), Identity("alice", 20000, 20000), [], 0)


async def unanswered(runtime: KubernetesRuntime, fake: FakeCluster) -> None:
    fake.slow = SILENT
    held = runtime._held
    assert held is not None
    await soon(lambda: held.standing is lease.LeaseStanding.UNANSWERED, 10)


@pytest.mark.slow
async def test_launches_wait_while_the_api_server_is_silent(fake: FakeCluster, tmp_path: Path) -> None:
    """338 of them were refused, as if another agent had taken the namespace."""
    async with running(fake, tmp_path) as (runtime, changes):
        await unanswered(runtime, fake)
        assert runtime.available(), "the agent does not say that it runs nothing"
        told: list[tuple[str, str]] = []
        wanted = list(itertools.islice(orders(tmp_path), LAUNCHES))
        waiting = [asyncio.create_task(runtime.ready(order, lambda *said: told.append(said))) for order in wanted]
        await asyncio.sleep(1.0)
        assert not any(one.done() for one in waiting)
        assert len(told) == LAUNCHES
        assert {stage for stage, _ in told} == {"queued"}
        assert "Kubernetes does not answer" in told[0][1]
        fake.slow = 0.0
        async with asyncio.timeout(20):
            await asyncio.gather(*waiting)
            await asyncio.gather(*(asyncio.to_thread(runtime.make, order) for order in wanted[:4]))
        assert len(fake.objects("pods")) == 4
        assert changes == []


@pytest.mark.slow
async def test_they_are_refused_once_it_answers_that_another_agent_has_taken_over(
    fake: FakeCluster, tmp_path: Path
) -> None:
    async with running(fake, tmp_path) as (runtime, changes):
        await unanswered(runtime, fake)
        waiting = asyncio.create_task(runtime.ready(next(orders(tmp_path)), lambda *said: None))
        kind, taken = fake.store.kind("leases", "coordination.k8s.io"), {"holderIdentity": "another"}
        fake.do(lambda: fake.store.modify(kind, "default", LEASE, lambda one: one["spec"].update(taken)))
        fake.slow = 0.0
        with pytest.raises(RefusedTask, match="another agent serves the namespace"):
            async with asyncio.timeout(20):
                await waiting
        await soon(lambda: bool(changes), 10)
        assert not runtime.available()


@pytest.mark.slow
async def test_they_wait_no_longer_than_a_pod_may(fake: FakeCluster, tmp_path: Path) -> None:
    async with running(fake, tmp_path, pending_limit=0.5) as (runtime, _):
        await unanswered(runtime, fake)
        with pytest.raises(RefusedTask, match=r"Kubernetes has not answered for 0\.5 s: .*TimeoutError"):
            await runtime.ready(next(orders(tmp_path)), lambda *said: None)


async def test_a_short_silence_changes_nothing(fake: FakeCluster, tmp_path: Path) -> None:
    """As long as nobody else can have taken the lease, pods are made: they are asked for again until it answers."""
    async with running(fake, tmp_path) as (runtime, changes):
        order = next(orders(tmp_path))
        fake.failures.extend([0] * 6)
        await runtime.ready(order, lambda *said: None)
        await asyncio.to_thread(runtime.make, order)
        assert len(fake.objects("pods")) == 1
        assert changes == []
