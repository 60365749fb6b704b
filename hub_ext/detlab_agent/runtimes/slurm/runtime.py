"""The runtime `slurm`: it submits the tasks of its pool to a Slurm cluster, which places them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal

from detlab.launch.taskdir import read_object, write_json
from detlab.schemas.runtimes import SLURM
from detlab.schemas.wire import NodeHello, QueueHello
from detlab_agent.runtimes.base import Say
from detlab_agent.runtimes.preparation import Order
from detlab_agent.runtimes.registry import RuntimeSetup
from detlab_agent.runtimes.slurm.arrays import Arrays
from detlab_agent.runtimes.slurm.client import Commands, SlurmAway, SlurmClient, SlurmRefused
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.slurm.script import files_in, request_of, shape_of
from detlab_agent.runtimes.slurm.task import SlurmTask
from detlab_agent.runtimes.slurm.watch import JobWatch
from detlab_agent.settings import AgentError

SIZE_FACTOR = 6
"""So much rarer than at the jobs are the looks at the cluster."""
_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "SSH_AUTH_SOCK", "SLURM_JWT")
"""Of the agent's environment, for Slurm's commands: SLURM_PARTITION and its like would change every job."""


class SlurmRuntime:
    """See `NodeRuntime`.

    Args:
        client: The cluster.
        options: The agent's settings.
        directory: The shared folder.
        comment: Marks the jobs of this agent.
        queue: How large the cluster is.
        gpus: Whether its slots are GPUs.
    """

    name = SLURM
    tasks_are: Literal["elsewhere"] = "elsewhere"
    reached = True
    asks_point = True

    def __init__(
        self,
        client: SlurmClient,
        options: SlurmOptions,
        directory: PurePath,
        comment: str,
        queue: QueueHello,
        *,
        gpus: bool,
    ) -> None:
        self._client, self._options, self._directory, self._comment = client, options, directory, comment
        self._queue, self._gpus = queue.model_copy(update={"gangs": True}), gpus
        self.watch = JobWatch(client, comment, options.interval, every_users=options.for_owners)
        self._arrays = Arrays(client, self.watch, options.array_size) if options.array_size > 1 else None
        self._turn, self._turns = itertools.count(), dict[str, int]()
        self._watching: list[asyncio.Task[None]] = []

    def nodes(self) -> Sequence[NodeHello]:
        """See `NodeRuntime.nodes`: Slurm chooses among its own."""
        return ()

    def queue(self) -> QueueHello | None:
        """See `NodeRuntime.queue`."""
        return self._queue

    def available(self) -> bool:
        """See `NodeRuntime.available`: while Slurm is away, tasks wait for it."""
        return True

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`."""
        self._watching = [asyncio.create_task(self.watch.run()), asyncio.create_task(self._measure())]

    async def close(self) -> None:
        """See `NodeRuntime.close`."""
        if self._arrays is not None:
            await self._arrays.close()
        for job in self._watching:
            job.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def _measure(self) -> None:
        """Look at the cluster again and again: nodes come, go and get work."""
        while True:
            await asyncio.sleep(self._options.interval * SIZE_FACTOR)
            try:
                queue, self._gpus = await asyncio.to_thread(self._client.size, self._options.partition)
            except (SlurmAway, SlurmRefused):
                continue  # the watch over the jobs says so
            self._queue = queue.model_copy(update={"gangs": True})

    async def ready(self, order: Order, say: Say) -> None:
        """See `NodeRuntime.ready`. It is called in order; the threads of `make` are not."""
        self._turns[order.launch.allocation_id] = next(self._turn)

    def make(self, order: Order) -> SlurmTask:
        """See `NodeRuntime.make`. The job is submitted by `SlurmTask.begun`, which can wait for Slurm."""
        launch = order.launch
        order.slots = order.slots[: shape_of(launch).slots]  # what each node is told of
        request = request_of(
            order,
            self._options,
            self._directory,
            self._comment,
            gpus=self._gpus,
        )
        task = SlurmTask(
            launch.allocation_id,
            launch.run,
            tuple(launch.slots),
            order.record,
            client=self._client,
            watch=self.watch,
            directory=self._directory,
            request=request,
            steps=request.steps,
            nodes=request.nodes,
            serves=launch.service is not None,
            certificate_later=launch.service is not None and launch.service.certificate_later,
            arrays=self._arrays,
            turn=self._turns.pop(launch.allocation_id, 0),
            files=files_in(self._directory, request.directory, request.files),
            uid=request.whose.uid,
        )
        task.note()
        return task

    def recover(self, record: Path, noted: dict[str, Any]) -> SlurmTask | None:
        """See `NodeRuntime.recover`: where no job was noted, one is looked for by its name."""
        fields = SlurmTask.noted(record, noted)
        return SlurmTask(**fields, client=self._client, watch=self.watch, directory=self._directory)

    def sweep(self, kept: set[str]) -> None:
        """See `NodeRuntime.sweep`: the watch ends the jobs that nobody knows, at its first look and at all others."""


def make(setup: RuntimeSetup) -> SlurmRuntime | None:
    """Make the runtime of an agent; see `registry.Factory`.

    Raises:
        AgentError: Slurm does not answer, or its options are wrong.
    """
    if not setup.required:
        return None
    options: SlurmOptions = setup.settings.of_runtimes.get(SLURM, SlurmOptions())
    directory = PurePosixPath(options.directory or setup.directory / "slurm")
    if not directory.is_absolute():
        raise AgentError(f"--slurm-dir {directory}: name the folder by its whole path, as the nodes see it")
    environ = {name: setup.environ[name] for name in _VARIABLES if name in setup.environ}
    client = Commands(options.host, environ, everyone=options.for_owners)
    where = f" on {options.host}" if options.host else ""
    try:
        queue, gpus = _size(client, options, setup.directory / "slurm.json")
        client.prepare(directory)
    except SlurmAway as error:
        hint = "see scontrol ping, and start the agent again"
        raise AgentError(f"Slurm{where} does not answer: {error}; {hint}") from error
    except SlurmRefused as error:
        raise AgentError(f"Slurm{where}: {error}") from error
    comment = f"detlab agent {setup.settings.marked_id}"
    return SlurmRuntime(client, options, directory, comment, queue, gpus=gpus)


def _size(client: SlurmClient, options: SlurmOptions, known: Path) -> tuple[QueueHello, bool]:
    """Return how large the cluster is; as it was at the last start, while Slurm is away: its jobs need their agent.

    Raises:
        SlurmAway: It does not answer, and never did.
        SlurmRefused: There is no such partition.
    """
    try:
        queue, gpus = client.size(options.partition)
    except SlurmAway:
        told = read_object(known)
        if told is None:
            raise
        return QueueHello.model_validate(told["queue"]), bool(told["gpus"])
    write_json(known, {"queue": queue.model_dump(), "gpus": gpus})
    return queue, gpus
