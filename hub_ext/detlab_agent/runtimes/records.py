"""A task as the agent notes it on disk, and what its directory says about its end: the same for every runtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from detlab.launch.delivery.sender import Source
from detlab.launch.delivery.shipping import StreamShipper
from detlab.launch.delivery.spool import Reader
from detlab.launch.host import procfs
from detlab.launch.taskdir import STREAMS, TaskDir, write_json
from detlab.trees import remove_tree
from detlab_agent.runtimes.base import TaskExit
from detlab_agent.runtimes.taskfiles import open_owned, read_owned_object, read_owned_tail

_log = logging.getLogger(__name__)


@dataclass
class NotedTask:
    """The part of a `RunningTask` that lies in its directory and its record.

    Attributes:
        directory: Its directory.
        record: What the agent noted about it, where the task's user cannot write.
        owner: uid it runs under.
        started: Start time of the launcher, with its pid a name that is never reused.
        life: The life of this machine in which it was started.
        address: Where its service is reached.
        port: Of its service.
    """

    runtime: ClassVar[str] = "process"

    allocation_id: str
    run: int
    slots: Sequence[str]
    directory: TaskDir
    record: Path
    owner: int
    pid: int | None = None
    started: int | None = None
    life: str = field(default_factory=procfs.machine_life)
    address: str | None = None
    port: int | None = None

    def note(self) -> None:
        """Write the record: it names the task for the next life of the agent."""
        write_json(self.record, self.values())

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        return {
            "runtime": self.runtime,
            "run": self.run,
            "slots": list(self.slots),
            "uid": self.owner,
            "pid": self.pid,
            "start_time": self.started,
            "life": self.life,
            "address": self.address,
            "port": self.port,
        }

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        return {
            "allocation_id": record.stem,
            "run": int(value["run"]),
            "slots": tuple(value["slots"]),
            "directory": TaskDir(record.with_suffix("")),
            "record": record,
            "owner": int(value["uid"]),
            "pid": value.get("pid"),
            "started": value.get("start_time"),
            "life": str(value.get("life") or procfs.machine_life()),
            "address": value.get("address"),
            "port": value.get("port"),
        }

    def leftovers(self) -> list[Source]:
        """See `RunningTask.leftovers`."""
        return [Source(self._reader(name), StreamShipper(name)) for name in STREAMS]

    def forget(self, *, clean: bool) -> None:
        """Remove the directory and the record, or note that they stay."""
        if clean:
            discard_tree(self.directory.root)
            self.record.unlink(missing_ok=True)
        else:
            write_json(self.record, {"kept": True})

    def written_exit(self) -> tuple[TaskExit, dict[str, Any]] | None:
        """Return how the launcher says the task ended, and its whole report; None if it could not say so."""
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

    def _reader(self, name: str) -> Reader:
        return Reader(lambda: open_owned(self.directory.root, f"spool/{name}.jsonl", self.owner))


def discard_tree(root: Path) -> None:
    """Remove a task's directory; what cannot be removed stays and is said in the log."""
    try:
        remove_tree(root)
    except OSError as error:
        _log.warning("%s stays: %s", root, error)
