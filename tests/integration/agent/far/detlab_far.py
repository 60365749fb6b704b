"""A runtime whose tasks are elsewhere: jobs of the batch system `batch.py`, at the address in DET_TEST_BATCH."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.error import HTTPError

from detlab.launch.elsewhere import VARIABLE
from detlab.schemas.wire import NodeHello
from detlab_agent.runtimes.base import RefusedTask, Say, TaskExit
from detlab_agent.runtimes.ports import hold_port
from detlab_agent.runtimes.preparation import Order
from detlab_agent.runtimes.records import TaskElsewhere
from detlab_agent.runtimes.registry import RuntimeSetup

LOOK = 0.1
"""Seconds between two looks at a job: a batch system is asked."""


class Batch:
    """The batch system, by its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; None for a job that is not there."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.load(reply)
        except HTTPError as error:
            error.close()
            return None


@dataclass
class FarTask(TaskElsewhere):
    """A job; see `RunningTask`."""

    runtime: ClassVar[str] = "far"

    batch: Batch = field(kw_only=True)
    _signals: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    @property
    def job(self) -> str:
        """Name of its job."""
        return self.record.stem

    async def begun(self, say: Say) -> None:
        """See `RunningTask.begun`."""
        if self.port is not None:
            say("starting", "the job waits for a machine")
            self.address = "127.0.0.1"
        await super().begun(say)

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        while True:
            job = await asyncio.to_thread(self.batch.ask, "GET", f"/jobs/{self.job}")
            if job is None:
                return self.exit_of(None, "")
            if job["status"] is not None:
                return self.exit_of(job["status"], job["said"])
            await asyncio.sleep(LOOK)

    def interrupt(self, grace: float) -> None:
        """See `RunningTask.interrupt`."""
        job = asyncio.create_task(self._signal(signal.SIGTERM))
        self._signals.add(job)
        job.add_done_callback(self._signals.discard)

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`."""
        await self._signal(signal.SIGUSR1)
        try:
            await asyncio.wait_for(self.finished(), delivery_grace)
        except TimeoutError:
            await self._signal(signal.SIGKILL)

    async def _signal(self, number: int) -> None:
        await asyncio.to_thread(self.batch.ask, "POST", f"/jobs/{self.job}/{int(number)}", {})

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        await asyncio.to_thread(self.batch.ask, "DELETE", f"/jobs/{self.job}")
        self.forget(clean=clean)


class FarRuntime:
    """See `NodeRuntime`."""

    name = "far"
    tasks_are: Literal["elsewhere"] = "elsewhere"

    def __init__(self, batch: Batch, nodes: Sequence[str], reached: bool) -> None:
        self.batch, self.names, self.reached = batch, nodes, reached

    def nodes(self) -> Sequence[NodeHello]:
        """See `NodeRuntime.nodes`."""
        return [NodeHello(name=name, slot_count=2) for name in self.names]

    def queue(self) -> None:
        """See `NodeRuntime.queue`."""

    def available(self) -> bool:
        """See `NodeRuntime.available`."""
        return True

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`."""

    async def close(self) -> None:
        """See `NodeRuntime.close`."""

    async def ready(self, order: Order, say: Say) -> None:
        """See `NodeRuntime.ready`."""

    def make(self, order: Order) -> FarTask:
        """See `NodeRuntime.make`."""
        launch = order.launch
        task = FarTask(
            launch.allocation_id, launch.run, tuple(launch.slots), order.record, batch=self.batch, node=launch.node
        )
        if launch.service is not None:
            task.port = hold_port("127.0.0.1").getsockname()[1]  # nobody keeps the socket: it is the job's to take
        environment = {VARIABLE: order.parcel(("127.0.0.1", task.port) if task.port else None)}
        task.note()
        command = [sys.executable, "-s", "-P", "-m", "detlab.launch.elsewhere"]
        job = {"name": task.job, "command": command, "environment": environment}
        try:
            self.batch.ask("POST", "/jobs", job)
        except OSError as error:
            raise RefusedTask(f"the batch system at {self.batch.url} does not answer: {error}") from error
        return task

    def recover(self, record: Path, noted: dict[str, Any]) -> FarTask | None:
        """See `NodeRuntime.recover`."""
        task = FarTask(**FarTask.noted(record, noted), batch=self.batch)
        known = self.batch.ask("GET", f"/jobs/{task.job}") is not None
        return task if known else None

    def sweep(self, kept: set[str]) -> None:
        """See `NodeRuntime.sweep`."""
        for name in self.batch.ask("GET", "/jobs") or ():
            if name not in kept:
                self.batch.ask("DELETE", f"/jobs/{name}")


def make(setup: RuntimeSetup) -> FarRuntime:
    """Make the runtime of an agent."""
    names = setup.environ.get("DET_TEST_NODES", "")
    return FarRuntime(Batch(setup.environ["DET_TEST_BATCH"]), names.split(), "DET_TEST_REACHED" in setup.environ)
