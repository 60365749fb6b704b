"""The tasks of this agent and the master's messages about them. Every message may come twice.

One coroutine drives each task from its launch to its acknowledged exit. Everything that the master must know is
reported when it happens and again after every reconnection, so that nothing depends on one message getting through.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import signal
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from detlab.schemas import wire
from detlab_agent.runtimes.base import CanceledTask, RefusedTask, RunningTask, Runtime, SetupFailed, TaskExit

_log = logging.getLogger(__name__)

DELIVERY_GRACE = 15.0
"""Seconds that the launcher of a killed task may take to deliver before it is killed too."""
SLOT_PATIENCE = 60.0
"""Seconds that a launch waits for its slots while the previous task is still ending."""
FENCE_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for tasks that the master no longer wants."""
_REMEMBERED = 1000

Key = tuple[str, str]
"""An allocation, and the node that a part of it is on ("" for the agent's own)."""
Said = wire.TaskStarted | wire.TaskStage | wire.TaskExited
Send = Callable[[Said], None]


class Stage(enum.Enum):
    """How far a task is; it only moves forward."""

    PREPARING = "its slots, image, bundle and directory are being prepared"
    RUNNING = "its launcher runs"
    DELIVERING = "its launcher died; the agent ships the remaining records"
    EXITED = "it has ended; the master has not acknowledged it yet"


@dataclass
class TaskEntry:
    """A task in the table."""

    allocation_id: str
    run: int
    slots: Sequence[str]
    node: str = ""
    stage: Stage = Stage.PREPARING
    task: RunningTask | None = None
    exit: TaskExit | None = None
    told_now: bool = False
    """Whether its exit was told since the last heartbeat: the acknowledgement is under way."""
    kill_at: float | None = None
    """When SIGKILL is due, on the loop's clock; None while the task is not to end."""
    kill_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    progress: wire.TaskStage | None = None
    """The work of preparing it, while that is going on."""
    driver: asyncio.Task[None] | None = None

    @property
    def key(self) -> Key:
        """Under which the table has it."""
        return self.allocation_id, self.node

    @property
    def devices(self) -> set[Key]:
        """Its slots, each with its node; of those that a batch system chooses, only the number is known."""
        return {(slot, self.node) for slot in self.slots if self.node or not slot.startswith("any")}


class TaskTable:
    """All tasks of this agent.

    Args:
        runtime: Runs them.
        deliver_leftovers: Ships the spool of a dead launcher.
    """

    def __init__(self, runtime: Runtime, deliver_leftovers: Callable[[RunningTask], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._deliver_leftovers = deliver_leftovers
        self._entries: dict[Key, TaskEntry] = {}
        self._acknowledged: OrderedDict[Key, None] = OrderedDict()
        self._send: Send | None = None
        self._moved = asyncio.Condition()

    def recover(self) -> None:
        """Take over the tasks from before the agent's restart."""
        for task in self._runtime.recover():
            stage = Stage.PREPARING if task.waits else Stage.RUNNING
            entry = TaskEntry(task.allocation_id, task.run, tuple(task.slots), task.node, stage, task)
            self._entries[entry.key] = entry
            entry.driver = asyncio.create_task(self._drive(entry, None))
            _log.info("task %s reattached (pid %s)", task.allocation_id, task.pid)

    def listing(self) -> list[wire.HeldTask]:
        """Return the tasks for a Hello."""
        return [
            wire.HeldTask(
                allocation_id=entry.allocation_id,
                run=entry.run,
                exited=entry.stage is Stage.EXITED,
                exit_code=entry.exit.exit_code if entry.exit else None,
                node=entry.node,
                begun=entry.stage is not Stage.PREPARING,
            )
            for entry in self._entries.values()
        ]

    def holder(self, slot: str) -> str | None:
        """Return the allocation that uses a slot of this machine."""
        for entry in self._entries.values():
            if (slot, "") in entry.devices and entry.stage is not Stage.EXITED:
                return entry.allocation_id
        return None

    # --- the connection -------------------------------------------------------------------------------------

    def attach(self, send: Send) -> None:
        """Report the state of all tasks on a connection that was authenticated and welcomed."""
        self._send = send
        for entry in self._entries.values():
            entry.told_now = True
            self._announce(entry)

    def detach(self) -> None:
        """Forget the connection; what happens until the next one is reported there."""
        self._send = None

    def repeat_exits(self) -> None:
        """Say again which exits are not acknowledged, though the master has had since the last call to do so."""
        for entry in self._entries.values():
            if entry.stage is Stage.EXITED and not entry.told_now:
                self._announce(entry)
            entry.told_now = False

    # --- what the master says ---------------------------------------------------------------------------------

    def launch(self, message: wire.Launch) -> None:
        """Start a task once, however often the master sends the launch."""
        entry = TaskEntry(message.allocation_id, message.run, tuple(message.slots), message.node)
        known = self._entries.get(entry.key)
        if known is not None:
            self._announce(known)
            return
        if entry.key in self._acknowledged:
            return
        self._entries[entry.key] = entry
        entry.driver = asyncio.create_task(self._drive(entry, message))

    def kill(self, allocation_id: str, run: int, grace: float, node: str = "") -> None:
        """Send SIGTERM now, SIGKILL after `grace` seconds; a later call can shorten the grace, but not extend it."""
        entry = self._entries.get((allocation_id, node))
        if entry is None:
            if (allocation_id, node) not in self._acknowledged:
                self._say(
                    wire.TaskExited(
                        allocation_id=allocation_id,
                        run=run,
                        reason="launcher_lost",
                        message="this agent has no such task",
                        node=node,
                    )
                )
            return
        at = asyncio.get_running_loop().time() + max(0.0, grace)
        entry.kill_at = at if entry.kill_at is None else min(at, entry.kill_at)
        entry.kill_wanted.set()

    def welcome(self, message: wire.Welcome) -> None:
        """End the tasks that the master no longer wants; all others continue to run."""
        for allocation_id in message.kill:
            entry = self._entries.get((allocation_id, message.node))
            if entry is not None:
                self.kill(allocation_id, entry.run, FENCE_GRACE, message.node)

    async def acknowledged(self, message: wire.ExitAck) -> None:
        """Forget the task, whose exit the master has committed."""
        key = message.allocation_id, message.node
        entry = self._entries.get(key)
        if entry is None or entry.stage is not Stage.EXITED:
            return
        del self._entries[key]
        self._acknowledged[key] = None
        while len(self._acknowledged) > _REMEMBERED:
            self._acknowledged.popitem(last=False)
        if entry.task is not None:
            await entry.task.remove(clean=message.clean)

    async def close(self) -> None:
        """Stop watching; the tasks themselves continue to run."""
        drivers = [entry.driver for entry in self._entries.values() if entry.driver is not None]
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)

    # --- one task ----------------------------------------------------------------------------------------------

    async def _drive(self, entry: TaskEntry, launch: wire.Launch | None) -> None:
        """Bring a task from its launch (or its rediscovery) to its exit."""
        try:
            if launch is not None:
                await self._wait_for_slots(entry)
                entry.task = await self._runtime.start(launch, partial(self._progress, entry), entry.kill_wanted)
            exit_ = await self._watch(entry)
        except RefusedTask as error:
            exit_ = TaskExit(reason="refused", message=str(error))
        except SetupFailed as error:
            exit_ = TaskExit(reason="setup", message=str(error))
        except CanceledTask:
            exit_ = TaskExit(exit_code=-signal.SIGTERM, message="ended before it started")
        except Exception as error:
            # The last door: without an exit the slots of this task would never be free again.
            _log.exception("task %s: the agent failed", entry.allocation_id)
            exit_ = await self._give_up(entry, error)
        entry.exit, entry.told_now = exit_, True
        await self._move(entry, Stage.EXITED)
        _log.info("task %s exited: %s", entry.allocation_id, exit_)

    def _progress(self, entry: TaskEntry, stage: Literal["queued", "pulling", "starting"], message: str) -> None:
        """Report how far a launch is."""
        entry.progress = wire.TaskStage(
            allocation_id=entry.allocation_id, run=entry.run, stage=stage, message=message, node=entry.node
        )
        self._announce(entry)

    async def _give_up(self, entry: TaskEntry, error: Exception) -> TaskExit:
        """End a task that can no longer be watched."""
        message = f"the agent failed: {type(error).__name__}: {error}"
        if entry.task is None:
            return TaskExit(reason="setup", message=message)
        await entry.task.kill(0.0)
        return TaskExit(reason="launcher_lost", message=message)

    async def _watch(self, entry: TaskEntry) -> TaskExit:
        task = entry.task
        assert task is not None
        killer = asyncio.create_task(self._kill_when_wanted(entry, task))
        try:
            await task.begun(partial(self._progress, entry))
            await self._move(entry, Stage.RUNNING)
            exit_ = await task.finished()
        finally:
            killer.cancel()
        if exit_.delivered:
            return exit_
        await self._move(entry, Stage.DELIVERING)
        await self._deliver_leftovers(task)
        if exit_.reason == "launcher_lost" and entry.kill_at is not None:
            return TaskExit(exit_code=-signal.SIGKILL, message="killed together with its launcher")
        return exit_

    async def _kill_when_wanted(self, entry: TaskEntry, task: RunningTask) -> None:
        await entry.kill_wanted.wait()
        loop = asyncio.get_running_loop()
        task.interrupt(0.0 if entry.kill_at is None else max(0.0, entry.kill_at - loop.time()))
        while entry.kill_at is not None and loop.time() < entry.kill_at:
            entry.kill_wanted.clear()
            try:
                async with asyncio.timeout_at(entry.kill_at):
                    await entry.kill_wanted.wait()  # perhaps with a shorter grace
            except TimeoutError:
                break
        await task.kill(DELIVERY_GRACE)

    async def _wait_for_slots(self, entry: TaskEntry) -> None:
        """Wait until no other task holds the slots: a slot has at most one live owner.

        Raises:
            RefusedTask: The other task does not end.
        """

        def taken() -> list[str]:
            return sorted(
                other.allocation_id
                for other in self._entries.values()
                if other is not entry and other.stage is not Stage.EXITED and other.devices & entry.devices
            )

        try:
            async with asyncio.timeout(SLOT_PATIENCE), self._moved:
                await self._moved.wait_for(lambda: not taken())
        except TimeoutError:
            raise RefusedTask(f"its slots are still used by {', '.join(taken())}") from None

    async def _move(self, entry: TaskEntry, stage: Stage) -> None:
        entry.stage = stage
        self._announce(entry)
        async with self._moved:
            self._moved.notify_all()

    def _announce(self, entry: TaskEntry) -> None:
        task = entry.task
        if entry.stage is Stage.PREPARING and entry.progress is not None:
            self._say(entry.progress)
        elif entry.stage is Stage.RUNNING and task is not None:
            self._say(
                wire.TaskStarted(
                    allocation_id=entry.allocation_id,
                    run=entry.run,
                    pid=task.pid,
                    address=task.address,
                    port=task.port,
                    secure=task.secure,
                    machine=task.host,
                    node=entry.node,
                )
            )
        elif entry.stage is Stage.EXITED and entry.exit is not None:
            self._say(
                wire.TaskExited(
                    allocation_id=entry.allocation_id,
                    run=entry.run,
                    exit_code=entry.exit.exit_code,
                    rank=entry.exit.rank,
                    reason=entry.exit.reason,
                    message=entry.exit.message,
                    node=entry.node,
                )
            )

    def _say(self, message: Said) -> None:
        if self._send is not None:
            self._send(message)
