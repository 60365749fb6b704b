"""One task as a process group: wait for its end, end it, and clean up everything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from detlab.launch.host import procfs
from detlab.schemas.runtimes import PROCESS
from detlab_agent.runtimes.base import TaskExit
from detlab_agent.runtimes.ports import HeldPorts
from detlab_agent.runtimes.process.control_groups import TaskControlGroups
from detlab_agent.runtimes.records import LocalTask

_LOOK = 0.2
"""Seconds between two checks of a process if the kernel has no pidfd."""
_SECOND_LOOK = 0.05
"""Seconds after which a live child that shows no task is checked again: it may have been in the middle of exec."""
_orphans_lock = threading.Lock()
_spared: set[int] = set()


class Launched(Protocol):
    """The launcher's process, a child of this agent."""

    @property
    def pid(self) -> int:
        """Its pid."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and reap it."""
        ...


@dataclass
class ProcessTask(LocalTask):
    """A task of this runtime; see `RunningTask`."""

    runtime: ClassVar[str] = PROCESS

    child: Launched | None = field(default=None, repr=False)
    ports: HeldPorts | None = field(default=None, repr=False)
    group: TaskControlGroups = field(default_factory=TaskControlGroups)

    def values(self) -> dict[str, Any]:
        """Return the values of the record, including those that identify the task's processes."""
        return {**super().values(), "groups": [str(path) for path in self.group.paths]}

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        await self._gone()
        killed_for_memory = await asyncio.to_thread(self._end_rest)
        if self.ports is not None:
            self.ports.retire(self.record, self.address, self.port)
        written = self.written_exit()
        exit_ = written[0] if written is not None else self.unwritten_exit()
        if killed_for_memory and exit_.exit_code != 0 and exit_.reason != "machine_restarted":
            message = "the task reached its memory limit and the kernel ended a process of it"
            return replace(exit_, reason="oom", message=f"{message} (resources.memory, or the agent's --task-memory)")
        return exit_

    def interrupt(self, grace: float) -> None:
        """See `RunningTask.interrupt`: the launcher passes the signal on to the entrypoint's group."""
        self._signal_launcher(signal.SIGTERM)

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`."""
        await asyncio.to_thread(self._kill_all, spare_launcher=True)
        try:
            await asyncio.wait_for(self._gone(), delivery_grace)
        except TimeoutError:
            await asyncio.to_thread(self._kill_all, spare_launcher=False)

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        await asyncio.to_thread(self.forget, clean=clean)

    def is_over(self) -> bool:
        """Whether the launcher has ended, and not by a shutdown of the machine, which may have lost files."""
        return self.life == procfs.machine_life() and not self._alive()

    def _alive(self) -> bool:
        if self.pid is None or self.life != procfs.machine_life():
            return False
        return procfs.is_alive(self.pid, self.started)

    async def _gone(self) -> None:
        """Wait for the end of the launcher, which may be a child of the agent before its restart."""
        if self.pid is not None and self._alive():
            await _wait_for_end(self.pid, self._alive)
        if self.child is not None:
            await asyncio.to_thread(self.child.wait)

    def _signal_launcher(self, number: signal.Signals) -> None:
        process = procfs.read_process(self.pid) if self.pid is not None else None
        if process is not None and process.alive and process.start_time == self.started:
            procfs.send_signal([process], number)

    def _end_rest(self) -> bool:
        """End the processes that the launcher could not end because it was itself killed.

        Returns:
            Whether the kernel had ended a process because of the task's memory limit.
        """
        self._kill_all(spare_launcher=False)
        killed_for_memory = self.group.out_of_memory()
        self.group.end()
        kill_orphans()
        return killed_for_memory

    def _kill_all(self, *, spare_launcher: bool) -> None:
        """Kill every process of the task (SIGKILL) until none is left; they may be forking meanwhile."""
        for _ in range(200):
            victims = [
                process
                for process in procfs.task_processes(self.directory.root, self.pid, self.started)
                if not (spare_launcher and process.pid == self.pid)
            ]
            if not victims:
                return
            procfs.send_signal(victims, signal.SIGKILL)
            _wait_until_dead(victims)


def noted_group(value: dict[str, Any]) -> TaskControlGroups:
    """Return the control group that a record names."""
    return TaskControlGroups(tuple(Path(path) for path in value.get("groups") or ()))


@contextlib.contextmanager
def sparing() -> Iterator[set[int]]:
    """Suspend `kill_orphans` while the children that it spares (neither launchers nor orphans) are changed."""
    with _orphans_lock:
        yield _spared


def kill_orphans() -> None:
    """End and reap the orphans that dead launchers left to this agent: daemons that hid their task.

    A launcher is the reaper of its task, and the agent the reaper of its launchers; so a child of the agent that is not
    a launcher was left by a killed one. It is recognized by what it lacks: the directory of a task. (A child that the
    agent is about to start still shows the agent's own uid and command line; one that the kernel is just putting a
    program into shows nothing at all for a moment, and is looked at again.)
    """
    me, own_command = os.getpid(), procfs.read_command(os.getpid())
    with _orphans_lock:
        children = [p for p in procfs.processes() if p.ppid == me and p.pid not in _spared]
        found = [p for p in children if _is_orphan(p, own_command)]
        living = [p for p in found if p.alive]
        if living:
            time.sleep(_SECOND_LOOK)
        again = [_same(p) for p in living]
        orphans = [p for p in found if not p.alive] + [p for p in again if p and _is_orphan(p, own_command)]
        for process in orphans:
            if process.alive:
                family = [process, *procfs.descendants(process.pid)]
                procfs.send_signal(family, signal.SIGKILL)
                _wait_until_dead(family)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def _is_orphan(child: procfs.Process, own_command: Sequence[str]) -> bool:
    """Whether a child of this agent has no task and is not about to get one."""
    if child.alive and (
        procfs.is_in_exec(child.pid)
        or (procfs.real_uid(child.pid) == os.getuid() and procfs.read_command(child.pid) == own_command)
    ):
        return False
    return "DET_TASK_DIR" not in procfs.read_environment(child.pid)


def _same(process: procfs.Process) -> procfs.Process | None:
    """Return the present state of a process, or None if it has ended and its pid may have been reused."""
    now = procfs.read_process(process.pid)
    return now if now is not None and now.start_time == process.start_time else None


def _wait_until_dead(victims: Sequence[procfs.Process]) -> None:
    """Wait up to a second until the kernel has ended these processes."""
    for victim in victims:
        try:
            descriptor = os.pidfd_open(victim.pid)
        except OSError:
            continue
        try:
            if procfs.start_time(victim.pid) == victim.start_time:
                select.select([descriptor], [], [], 1.0)
        finally:
            os.close(descriptor)


async def _wait_for_end(pid: int, alive: Callable[[], bool]) -> None:
    """Wait until a process has ended, without being its parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without pidfd_open (before 5.3)
        while alive():
            await asyncio.sleep(_LOOK)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        # The pid may have been reused before pidfd_open: then it is not alive any more by its start time.
        if alive():
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
