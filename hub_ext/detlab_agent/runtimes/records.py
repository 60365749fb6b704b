"""The agent's record of a task on disk, and the reports of its end in its directory or by its job."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from detlab.launch.delivery.sender import SpoolSource
from detlab.launch.delivery.shipping import StreamShipper
from detlab.launch.delivery.spool import SpoolReader
from detlab.launch.host import procfs
from detlab.launch.taskdir import STREAMS, TaskDir, write_json
from detlab.trees import remove_tree
from detlab_agent.runtimes.base import Say, TaskExit
from detlab_agent.runtimes.taskfiles import open_owned, read_owned_object, read_owned_tail

_log = logging.getLogger(__name__)


@dataclass
class NotedTask:
    """The part of a `RunningTask` that is stored in its record.

    Attributes:
        record: The agent's file about it, which the task's user cannot write.
        life: The boot of this machine in which it was started.
        address: Address of its service.
        port: Port of its service.
        secure: See `RunningTask.secure`.
        host: See `RunningTask.host`.
        node: Which of the agent's nodes it is on; "" for the agent's own.
    """

    runtime: ClassVar[str]

    allocation_id: str
    run: int
    slots: Sequence[str]
    record: Path
    pid: int | None = field(default=None, kw_only=True)
    life: str = field(default_factory=procfs.machine_life, kw_only=True)
    address: str | None = field(default=None, kw_only=True)
    port: int | None = field(default=None, kw_only=True)
    secure: bool = field(default=False, kw_only=True)
    host: str = field(default="", kw_only=True)
    node: str = field(default="", kw_only=True)

    @property
    def waits(self) -> bool:
        """See `RunningTask.waits`."""
        return False

    async def begun(self, say: Say) -> None:
        """See `RunningTask.begun`."""

    def note(self) -> None:
        """Write the record, by which a restarted agent finds the task."""
        write_json(self.record, self.values())

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        return {
            "runtime": self.runtime,
            "run": self.run,
            "slots": list(self.slots),
            "pid": self.pid,
            "life": self.life,
            "address": self.address,
            "port": self.port,
            **({"secure": True} if self.secure else {}),
            **({"allocation_id": self.allocation_id, "node": self.node} if self.node else {}),
        }

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        return {
            "allocation_id": str(value.get("allocation_id") or record.stem),
            "run": int(value["run"]),
            "slots": tuple(value["slots"]),
            "record": record,
            "pid": value.get("pid"),
            "life": str(value.get("life") or procfs.machine_life()),
            "address": value.get("address"),
            "port": value.get("port"),
            "secure": value.get("secure") is True,
            "node": str(value.get("node") or ""),
        }

    def forget(self, *, clean: bool) -> None:
        """Remove the record, or note that the rest of the task stays."""
        if clean:
            self.record.unlink(missing_ok=True)
        else:
            write_json(self.record, {"kept": True})


@dataclass
class TaskElsewhere(NotedTask):
    """A task that has no directory here; see `detlab.launch.elsewhere`.

    Attributes:
        waiting: Whether it has not begun yet, as far as this agent knows.
    """

    waiting: bool = field(default=True, kw_only=True)

    @property
    def waits(self) -> bool:
        """See `RunningTask.waits`."""
        return self.waiting

    async def begun(self, say: Say) -> None:
        """See `RunningTask.begun`; a runtime whose tasks may wait, or are reached, overrides this and calls it last."""
        if self.waiting:
            self.waiting = False
            await asyncio.to_thread(self.note)

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        return {**super().values(), "waiting": self.waiting}

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        return {**super().noted(record, value), "waiting": value.get("waiting") is True}

    def leftovers(self) -> list[SpoolSource]:
        """See `RunningTask.leftovers`: its spool was on another machine."""
        return []

    @staticmethod
    def exit_of(status: int | None, said: str) -> TaskExit:
        """Return how a task ended.

        Args:
            status: The exit status of its job, above 128 by a signal; None where the batch system does not know it.
            said: Content of the exit file of `detlab.launch.elsewhere`; "" if there is none.
        """
        try:
            report = json.loads(said or "null")
        except (ValueError, RecursionError):  # the latter: brackets in brackets, thousands deep
            report = None
        if isinstance(report, dict):
            code, rank, reason = report.get("exit_code"), report.get("rank"), str(report.get("reason") or "")
            message = str(report.get("message") or "")
            if report.get("port_taken"):
                reason, message = "setup", "the port of its service was taken there by another program"
            exit_ = TaskExit(
                exit_code=code if isinstance(code, int) else None,
                rank=rank if isinstance(rank, int) else None,
                reason="oom" if report.get("oom") is True and code else reason,
                message=message,
                delivered=report.get("delivered") is not False,
            )
        elif status is None or status > 128:
            # Who was killed so had no time to say how the entrypoint ended, nor to deliver what it had said.
            message = "the job of the task ended without a report"
            exit_ = TaskExit(reason="launcher_lost", message=message if status is None else f"{message}: {status}")
        else:
            exit_ = TaskExit(exit_code=status)
        return replace(exit_, delivered=exit_.delivered and exit_.reason != "launcher_lost")


@dataclass
class LocalTask(NotedTask):
    """A task that has a directory on this machine.

    Attributes:
        directory: Its directory.
        owner: The uid under which it runs.
        started: Start time of the launcher; together with its pid, an identity that is never reused.
    """

    directory: TaskDir = field(kw_only=True)
    owner: int = field(kw_only=True)
    started: int | None = field(default=None, kw_only=True)

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        return {**super().values(), "uid": self.owner, "start_time": self.started}

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        return {
            **super().noted(record, value),
            "directory": TaskDir(record.with_suffix("")),
            "owner": int(value["uid"]),
            "started": value.get("start_time"),
        }

    def leftovers(self) -> list[SpoolSource]:
        """See `RunningTask.leftovers`."""
        return [SpoolSource(self._reader(name), StreamShipper(name)) for name in STREAMS]

    def forget(self, *, clean: bool) -> None:
        """Remove the directory and the record, or note that they stay."""
        if clean:
            discard_tree(self.directory.root)
        super().forget(clean=clean)

    def written_exit(self) -> tuple[TaskExit, dict[str, Any]] | None:
        """Return how the task ended according to its launcher, and the whole report; None if there is no report."""
        report = read_owned_object(self.directory.root, "exit.json", self.owner)
        if report is None:
            return None
        code, rank, unserved = report.get("exit_code"), report.get("rank"), report.get("port_taken")
        exit_ = TaskExit(
            exit_code=code if isinstance(code, int) else None,
            rank=rank if isinstance(rank, int) else None,
            reason="setup" if unserved and self.port is not None else "",
            message=f"port {self.port} of {self.address} was taken by another program before the task could use it"
            if unserved and self.port is not None
            else "",
            delivered=report.get("delivered") is not False,
        )
        return exit_, report

    def unwritten_exit(self, said: str = "") -> TaskExit:
        """Return the exit of a task whose launcher left no report."""
        if self.life != procfs.machine_life():
            message = "the machine was started again while the task ran"
            return TaskExit(reason="machine_restarted", message=message, delivered=False)
        said = said or read_owned_tail(self.directory.root, "launcher.log", self.owner)
        message = "the launcher of the task ended without a report"
        full = f"{message}: {said}" if said else message
        return TaskExit(reason="launcher_lost", message=full, delivered=False)

    def _reader(self, name: str) -> SpoolReader:
        return SpoolReader(lambda: open_owned(self.directory.root, f"spool/{name}.jsonl", self.owner))


def discard_tree(root: Path) -> None:
    """Remove a task's directory; what cannot be removed stays and is logged."""
    try:
        remove_tree(root)
    except OSError as error:
        _log.warning("%s stays: %s", root, error)
