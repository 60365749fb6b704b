"""Whether an agent's directory is a copy of another agent's (`cp -a`), whose containers, pods and jobs are not its own.

A copy is told from the original as the master tells its database: the files have other inodes. What a copy starts
elsewhere has a mark of its own, so that neither of the two takes what is the other's for its own, or ends it.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from detlab.launch.taskdir import read_object, write_json
from detlab.schemas.runtimes import PROCESS
from detlab_agent.runtimes.records import discard_tree

_log = logging.getLogger(__name__)

NOTE = "directory.json"
TAKE_OVER_NOTE = "take_over"
"""File in the agent's directory by which a copy is told that the original is stopped for good."""


def settle(directory: Path, lock: Path) -> str:
    """Return what is added to the agent's name wherever it marks what is its own; "" unless this is a copy.

    A copy that was not told to take over forgets the original's tasks in containers, pods and jobs: they run on. Those
    of processes are told apart by their launchers (`ProcessRuntime.recover`).

    Args:
        directory: Of the agent.
        lock: A file in it that is never replaced.

    Raises:
        OSError: The disk is full or failing.
    """
    place = f"inodes {directory.stat().st_ino} {lock.stat().st_ino}"
    noted = read_object(directory / NOTE) or {}
    mark, there = str(noted.get("mark") or ""), noted.get("place")
    told = directory / TAKE_OVER_NOTE
    if told.exists():
        mark = mark if _elsewhere(directory / "tasks") else ""
    elif there is not None and there != place:
        mark = f"copy-{secrets.token_hex(4)}"
        for record in _elsewhere(directory / "tasks"):
            _log.warning("task %s is of the agent whose directory %s is a copy of: left alone", record.stem, directory)
            discard_tree(record.with_suffix(""))
            record.unlink()
        _log.warning(
            "%s is a copy of another agent's directory: what that has started is left alone. If it is stopped for good,"
            " touch %s (or det up --take-over) and start this agent again",
            directory,
            told,
        )
    write_json(directory / NOTE, {"place": place, "mark": mark})
    told.unlink(missing_ok=True)
    return mark


def _elsewhere(tasks: Path) -> list[Path]:
    """Return the records of tasks that are no processes of this machine."""
    found = ((record, read_object(record) or {}) for record in sorted(tasks.glob("*.json")))
    return [record for record, noted in found if noted.get("runtime", PROCESS) != PROCESS and not noted.get("kept")]
