"""A control group for each task: its limits, and a list of its processes that none of them can leave.

A daemon that hides its task (a separate session, an empty environment) is found by its group, even by an agent that
was started after both agent and launcher had died.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from detlab.launch.host import procfs
from detlab.launch.host.cgroup import oom_kills_in

_log = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
PIDS_SHARE = 0.8
"""Share of all processes and threads that the kernel allows, for all tasks of an agent together."""
_ABANDONED = 60.0
"""Seconds after which a group without a process is unused: a task joins its own immediately."""
_ROUNDS = 200
_PAUSE = 0.02


class NoGroups(Exception):
    """Control groups are not available here; the message says why."""


@dataclass(frozen=True)
class TaskControlGroups:
    """The control groups of one task; empty if there are none.

    Attributes:
        paths: Their directories; each holds all processes of the task.
    """

    paths: tuple[Path, ...] = ()

    def processes(self) -> list[procfs.Process]:
        """Return the live processes."""
        found: dict[int, procfs.Process] = {}
        for path in self.paths:
            with contextlib.suppress(OSError):
                for word in (path / "cgroup.procs").read_text(encoding="ascii").split():
                    process = procfs.read_process(int(word))
                    if process is not None and process.alive:
                        found[process.pid] = process
        return list(found.values())

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process because of the group's memory limit."""
        return any(oom_kills_in(path / name) for path in self.paths for name in ("memory.events", "memory.oom_control"))

    def end(self) -> None:
        """SIGKILL every process, and remove the groups."""
        for path in self.paths:
            with contextlib.suppress(OSError):
                (path / "pids.max").write_text("0", encoding="ascii")  # nothing is born any more
            with contextlib.suppress(OSError):
                (path / "cgroup.kill").write_text("1", encoding="ascii")
        for _ in range(_ROUNDS):
            if not self._removed():
                procfs.send_signal(self.processes(), signal.SIGKILL)
                time.sleep(_PAUSE)
                continue
            return
        _log.warning("%s stays: its processes do not end", ", ".join(map(str, self.paths)))

    def _removed(self) -> bool:
        for path in self.paths:
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # a process is still in it
                return False
        return True


class TaskGroups:
    """Make and find the control groups of an agent's tasks.

    Args:
        directory: The agent's directory, after which its groups are named.
        memory: Bytes for a task that does not set its own; None for no limit.
        pids: Processes and threads that a task may have; None for no limit.
        root: Where the kernel mounts control groups.
        proc: Where it shows processes, and their limits.
    """

    def __init__(
        self, directory: Path, memory: int | None, pids: int | None, root: Path = ROOT, proc: Path = PROC
    ) -> None:
        self._name = f"detlab-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"
        self._memory = memory
        self._pids = pids
        self._root = root
        self._proc = proc
        self._parents: list[Path] = []

    def open(self) -> None:
        """Find the available controllers, and make the parents of the groups.

        Raises:
            NoGroups: None can be used.
        """
        try:
            if (self._root / "cgroup.controllers").exists():
                self._parents = [self._unified()]
            else:
                self._parents = [
                    self._made(above) for name in ("pids", "memory") if (above := self._above(name)).is_dir()
                ]
            for parent in self._parents:
                self._limit_all(parent)
        except OSError as error:
            raise NoGroups(str(error)) from error
        if not self._parents:
            raise NoGroups(f"{self._root} has neither the controller pids nor memory")

    def _above(self, controller: str) -> Path:
        """Return the parent's location under version 1.

        Memory stays below the agent's own limit. Processes are found in the same place after each start of the agent.
        """
        at = self._root / controller
        own = own_group(controller, self._own) if controller == "memory" else ""
        return below if own and (below := at / own).is_dir() else at

    @property
    def _own(self) -> Path:
        return self._proc / "self/cgroup"

    def _limit_all(self, parent: Path) -> None:
        """Limit all tasks together, so that the agent can still start processes.

        The parent is not below the agent's own group (except for memory under version 1), so that that group's limits,
        such as MemoryMax and TasksMax of its unit, are written to it as well.
        """
        unified = (self._root / "cgroup.controllers").exists()
        top = self._root if unified else self._root / "pids"
        own = top / own_group("" if unified else "pids", self._own)
        kernel = [_number(self._proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")]
        shares = [int(value * PIDS_SHARE) for value in kernel if value is not None]
        _limit(parent, ("pids.max",), _least([*shares, _effective(own, top, "pids.max")]), or_max=True)
        for name in ("memory.max", "memory.swap.max") if unified else ():
            _limit(parent, (name,), _effective(own, top, name), or_max=True)

    def _made(self, above: Path) -> Path:
        for left in (*above.glob("detlab-*/*/"), *above.glob("detlab-*/")):  # of agents that were killed
            with contextlib.suppress(OSError):  # processes are in it
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    left.rmdir()
        parent = above / self._name
        parent.mkdir(exist_ok=True)
        return parent

    def _unified(self) -> Path:
        """Make the parent under cgroup version 2, with the controllers that can be delegated."""
        parent = self._made(self._root)
        for directory in (self._root, parent):
            for name in ("memory", "pids"):
                try:
                    (directory / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")
                except OSError as error:  # without limits, groups still say what belongs to a task
                    _log.info("no %s limits for tasks: %s: %s", name, directory, error)
        return parent

    def make(self, allocation_id: str, memory: int | None) -> TaskControlGroups:
        """Make the groups of a task.

        Args:
            allocation_id: The task's allocation.
            memory: Bytes that it may have; None for the agent's limit.

        Raises:
            OSError: The kernel refuses.
            NoGroups: They are no longer available.
        """
        try:
            return self._made_for(allocation_id, memory)
        except FileNotFoundError:
            self.open()  # another agent that started has removed what was empty
            return self._made_for(allocation_id, memory)

    def _made_for(self, allocation_id: str, memory: int | None) -> TaskControlGroups:
        paths = []
        limit = memory or self._memory
        for parent in self._parents:
            path = parent / allocation_id
            TaskControlGroups((path,)).end()  # of an attempt of an earlier life that never began
            path.mkdir()
            paths.append(path)
            _limit(path, ("pids.max",), self._pids)
            _limit(path, ("memory.max", "memory.limit_in_bytes"), limit)
            # What may go to swap is not memory that one has: the limit counts both, as a container's does.
            if limit and (path / "memory.memsw.limit_in_bytes").exists():
                _limit(path, ("memory.memsw.limit_in_bytes",), limit)
            elif limit:
                _limit(path, ("memory.swap.max",), 0)
        return TaskControlGroups(tuple(paths))

    def sweep(self, kept: Iterable[str]) -> None:
        """End the groups of tasks that are no longer known."""
        known = set(kept)
        for parent in self._parents:
            for path in [entry for entry in parent.iterdir() if entry.is_dir() and entry.name not in known]:
                _log.info("processes of %s are left from an earlier life: ended", path.name)
                TaskControlGroups((path,)).end()

    def close(self) -> None:
        """Remove the parents, unless tasks still run in them."""
        for parent in self._parents:
            with contextlib.suppress(OSError):
                parent.rmdir()


def own_group(controller: str, path: Path = PROC / "self/cgroup") -> str:
    """Return the group that this process is in, without a slash before it.

    Args:
        controller: Under version 1; empty for version 2.
        path: File of the kernel that names it.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group.strip("/")
    return ""


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no file, or no limit."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _effective(group: Path, top: Path, name: str) -> int | None:
    """Return the smallest limit of a group and of those above it."""
    above = [path for path in (group, *group.parents) if path.is_relative_to(top)]
    return _least(_number(path / name) for path in above)


def _limit(path: Path, names: Iterable[str], value: int | None, *, or_max: bool = False) -> None:
    """Write a limit to the first file that exists; none does without the controller.

    Args:
        path: The group.
        names: Names of the files.
        value: The limit; None: leave it unchanged.
        or_max: Remove the limit if the value is None.
    """
    if value is None and not or_max:
        return
    for name in names:
        if (path / name).exists():
            (path / name).write_text("max" if value is None else str(value), encoding="ascii")
            return
