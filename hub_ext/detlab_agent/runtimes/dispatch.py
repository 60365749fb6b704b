"""The runtimes of this node behind one interface: the one that runs a task, and the tasks from before a restart."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol

from detlab.launch.taskdir import TaskDir, read_object
from detlab.schemas.runtimes import KNOWN
from detlab.schemas.wire import Launch, NodeHello, QueueHello, SlotView
from detlab_agent.runtimes.base import CanceledTask, RefusedTask, RunningTask, Say, SetupFailed
from detlab_agent.runtimes.preparation import Order, TaskMaker
from detlab_agent.runtimes.records import discard_tree
from detlab_agent.settings import AgentError

_log = logging.getLogger(__name__)
_TELLING = 0.25
"""Seconds that a start may take until the master is told that it is under way."""
_MAKES = 16
"""Tasks that are made at the same time."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class NodeRuntime(Protocol):
    """The part of a runtime that is its own; the rest is the same for all."""

    name: str
    tasks_are: Literal["here", "elsewhere"]
    """Whether a task has its directory on this machine. One elsewhere gets all it needs by `Order.parcel` and from the
    master; nothing of it but its record is made, fetched or looked for here."""
    reached: bool
    """Whether others reach its tasks, as notebooks, shells, TensorBoards and trials over several nodes must be.
    Elsewhere: whether `RunningTask.begun` finds out where, and the job has its own address in DET_NODE_ADDRESS."""

    asks_point: bool
    """Whether all of its tasks are started by `Order.program`, by which a trial asks for its hyperparameters when it
    runs. A runtime that does not say so gets its trials with them."""

    def nodes(self) -> Sequence[NodeHello]:
        """Return the nodes that it speaks for beside this machine."""
        ...

    def queue(self) -> QueueHello | None:
        """Return the batch system that places the tasks of this agent's pool; None: the master places them."""
        ...

    def available(self) -> bool:
        """Whether it could start a task now."""
        ...

    async def begin(self, on_change: Callable[[], None]) -> None:
        """Start what runs beside the tasks; called once, after earlier tasks were recovered.

        Args:
            on_change: To be called, in the event loop, when `available` has changed.
        """
        ...

    async def close(self) -> None:
        """End what runs beside the tasks, when the agent ends; the tasks continue to run."""
        ...

    async def ready(self, order: Order, say: Say) -> None:
        """Do what may take long and can be interrupted: get the image.

        Raises:
            RefusedTask: The task may not run here.
            SetupFailed: The image cannot be pulled.
        """
        ...

    def make(self, order: Order) -> RunningTask:
        """Record, prepare and start a task in one go, in a thread: the agent cannot end in between.

        Raises:
            RefusedTask: The task may not run here.
            SetupFailed: It could not be started.
            OSError: The disk is full or failing.
        """
        ...

    def recover(self, record: Path, noted: dict[str, Any]) -> RunningTask | None:
        """Return the task of a record, or None if it never started."""
        ...

    def sweep(self, kept: set[str]) -> None:
        """Remove what is left of earlier tasks whose allocation is not in `kept`."""
        ...


class RuntimeTable:
    """All runtimes of this node; see `Runtime`.

    Args:
        maker: Makes tasks ready.
        runtimes: The runtimes; the first one is for launches that do not name one.
        before: Called, in a thread, before each start of a task here; what it raises of `AgentError` refuses that.
    """

    def __init__(
        self, maker: TaskMaker, runtimes: Sequence[NodeRuntime], before: Callable[[], None] = lambda: None
    ) -> None:
        self._maker, self._before = maker, before
        self._runtimes = {runtime.name: runtime for runtime in runtimes}
        # Their own: one that waits for the loop must not hold a thread that the loop itself may need.
        self._threads = ThreadPoolExecutor(_MAKES, thread_name_prefix="make")

    def names(self) -> list[str]:
        """Return the runtimes that could start a task now."""
        return [name for name, runtime in self._runtimes.items() if runtime.available()]

    def nodes(self) -> list[NodeHello]:
        """See `NodeRuntime.nodes`."""
        return [node for runtime in self._runtimes.values() for node in runtime.nodes()]

    def queue(self) -> QueueHello | None:
        """See `NodeRuntime.queue`."""
        return next((queue for runtime in self._runtimes.values() if (queue := runtime.queue()) is not None), None)

    def warm_code(self) -> list[str]:
        """Return digests of the code that processes have loaded which tasks are forked from."""
        return [digest for one in self._runtimes.values() for digest in getattr(one, "warm_code", tuple)()]

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`."""
        for runtime in self._runtimes.values():
            await runtime.begin(on_change)

    async def close(self) -> None:
        """See `NodeRuntime.close`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for runtime in self._runtimes.values():
            await runtime.close()

    async def start(self, launch: Launch, say: Say, cancelled: asyncio.Event) -> RunningTask:
        """See `Runtime.start`."""
        runtime = self._runtimes.get(launch.runtime)
        if runtime is None:
            raise RefusedTask(
                f"this agent does not run tasks with the {launch.runtime} runtime: start it with "
                f"--runtime {','.join([*self._runtimes, launch.runtime])}"
            )
        if not runtime.reached:
            _check_reach(runtime.name, launch)
        try:
            order = self._maker.admit(launch, _slots_of(runtime, launch))
            await _unless(cancelled, self._ready(runtime, order, say))
        except OSError as error:
            raise _of_disk(self._maker.directory, error) from error
        # As a rule it has started before anybody could read that it starts.
        telling = asyncio.get_running_loop().call_later(_TELLING, say, "starting", "")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._make, runtime, order)
        finally:
            telling.cancel()

    async def _ready(self, runtime: NodeRuntime, order: Order, say: Say) -> None:
        await runtime.ready(order, say)
        if runtime.tasks_are == "here":
            await self._maker.fetch(order)

    def _make(self, runtime: NodeRuntime, order: Order) -> RunningTask:
        try:
            if runtime.tasks_are == "here":
                self._check_node()
                self._maker.choose_service(order)
            return runtime.make(order)
        except (RefusedTask, SetupFailed, OSError) as error:
            if order.service is not None:
                self._maker.ports.hand_back(order.record)
            discard_tree(order.task.root)
            order.record.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _of_disk(order.task.root, error) from error
            raise

    def _check_node(self) -> None:
        try:
            self._before()
        except AgentError as error:
            raise RefusedTask(str(error)) from error

    def recover(self) -> list[RunningTask]:
        """See `Runtime.recover`. A directory without a record, or one whose task never started, is removed."""
        found: list[RunningTask] = []
        kept = set()
        for record in sorted(self._maker.directory.glob("*.json")):
            noted = read_object(record)
            if noted is not None and noted.get("kept"):
                kept.add(record.stem)
                continue
            if noted is not None and str(noted.get("runtime", "process")) not in self._runtimes:
                _log.warning("task %s runs with a runtime that this agent was started without", record.stem)
                kept.add(record.stem)
                continue
            task = self._recover_one(record, noted)
            if task is None:
                record.unlink()
                continue
            found.append(task)
            kept.add(record.stem)
            self._maker.ports.know(record, task.port)
        for path in self._maker.directory.iterdir():
            if path.is_dir() and path.name not in kept:
                discard_tree(path)
        for runtime in self._runtimes.values():
            runtime.sweep(kept)
        return found

    def _recover_one(self, record: Path, noted: dict[str, Any] | None) -> RunningTask | None:
        if noted is None:
            return None
        runtime = self._runtimes[str(noted.get("runtime", "process"))]
        if runtime.tasks_are == "here" and not TaskDir(record.with_suffix("")).root.is_dir():
            return None
        return runtime.recover(record, noted)


def _slots_of(runtime: NodeRuntime, launch: Launch) -> Sequence[SlotView] | None:
    """Return the slots of a node that the runtime speaks for; None for this machine.

    Raises:
        RefusedTask: It has no such node (any more).
    """
    node = launch.node
    if not node:
        # Of what a batch system chooses, only the number is known.
        return None if runtime.queue() is None else [SlotView(id=f"any{n}") for n in range(len(launch.slots))]
    for told in runtime.nodes():
        if told.name == node:
            return [*told.slots, *(SlotView(id=f"any{number}") for number in range(told.slot_count))]
    raise RefusedTask(f"the runtime {runtime.name} of this agent has no node {node}")


def _check_reach(name: str, launch: Launch) -> None:
    """Refuse a task that others must be able to reach at this machine's address.

    Raises:
        RefusedTask: It serves, or its ranks must connect to those of other nodes.
    """
    serves, several = launch.service is not None, len(launch.info.container_addrs or ()) > 1
    if serves or several:
        what = "a notebook, shell or TensorBoard" if serves else "a trial over several nodes"
        raise RefusedTask(
            f"the runtime {name} runs tasks on other machines, whose addresses this agent does not know: {what} needs "
            f"an agent with --runtime {', '.join(KNOWN[:-1])} or {KNOWN[-1]}"
        )


def _of_disk(where: Path, error: OSError) -> Exception:
    """Return the error for a failed write to disk.

    A full disk is the node's problem, not the task's: another node may have room, or this one later.
    """
    message = f"the task's directory {where}: {error}"
    return RefusedTask(f"no room for {message} (df -h)") if error.errno in _NO_ROOM else SetupFailed(message)


async def _unless(cancelled: asyncio.Event, work: Any) -> None:
    """Do the work unless `cancelled` is set first.

    Raises:
        CanceledTask: `cancelled` was set.
    """
    job = asyncio.create_task(work)
    waiting = asyncio.create_task(cancelled.wait())
    try:
        await asyncio.wait({job, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise CanceledTask
        job.result()
    finally:
        for task in (job, waiting):
            task.cancel()
        await asyncio.gather(job, waiting, return_exceptions=True)
