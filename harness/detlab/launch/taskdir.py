"""The layout of a task's directory (docs/explanation/architecture.md, section 4) and atomic writes into it."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from detlab.files import Below, write_atomic

RUN_TOKEN = "run_token"  # noqa: S105  (a file name)
"""In the directory of a notebook run: the token with which its cells ask the master."""
STREAMS: tuple[Literal["metrics", "logs"], ...] = ("metrics", "logs")


@dataclass(frozen=True)
class TaskDir:
    """Paths inside `tasks/<allocation>/`."""

    root: Path

    launch = Below("launch.json")
    """The Launch message without its token."""
    info = Below("info.json")
    """ClusterInfoWire as JSON."""
    token = Below("token")
    """The task token, 0600."""
    work = Below("work")
    """The unpacked bundle, the task's working directory."""
    home = Below("home")
    """HOME of a user who has none."""
    tmp = Below("tmp")
    """TMPDIR."""
    spool = Below("spool")
    """Records that wait for the master."""
    ranks = Below("spool/ranks.jsonl")
    """How each rank ended, one JSON object per line, appended by `wrap_rank`."""
    media = Below("spool/media")
    """Images and other media that wait for the master."""
    refused = Below("spool/refused.jsonl")
    """RefusedRecord lines for the trial's next call."""
    launcher = Below("launcher.json")
    """Who the launcher is: pid, start_time, pgid."""
    launcher_log = Below("launcher.log")
    """What the launcher itself said; read when it dies early."""
    exit = Below("exit.json")
    """How the entrypoint ended: written last."""

    def stream(self, name: str) -> Path:
        """Return the spool file of a stream, `metrics` or `logs`."""
        return self.spool / f"{name}.jsonl"

    def acked(self, name: str) -> Path:
        """Where the launcher notes the highest committed seq of a stream."""
        return self.spool / f"{name}.acked"


def write_json(path: Path, value: Any, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace `path` by `value` as JSON; see `detlab.files.write_atomic`."""
    write_atomic(path, json.dumps(value).encode(), mode=mode, durable=durable)


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None when there is no file or no object in it."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_NAMED = 8
"""Ranks that are named."""


def note_failing_rank(path: Path, rank: int, status: int) -> None:
    """Note that a rank failed, for `first_failing_rank`.

    Args:
        path: `TaskDir.ranks`.
        rank: The rank that failed.
        status: Its exit status.
    """
    line = json.dumps({"rank": rank, "exit_code": status, "time": time.time()}) + "\n"
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(line)


def first_failing_rank(path: Path) -> int | None:
    """Return the rank that failed first by `ranks.jsonl`: the others failed because of it.

    Args:
        path: `TaskDir.ranks`; absent for a task of one process.
    """
    failures = failed_ranks(path)
    return failures[0][0] if failures else None


def failed_ranks(path: Path) -> list[tuple[int, int]]:
    """Return the ranks that failed by `ranks.jsonl`, each with its exit code, the first one first."""
    return [(rank, code) for _, rank, code in _ended_ranks(path) if code != 0]


def ranks_that_left(path: Path) -> str | None:
    """Say which ranks had ended well before the first one failed; None if none had.

    The master reads these words, too (`services.failures.rank_faults`).

    Args:
        path: `TaskDir.ranks`; absent for a task of one process.
    """
    ended = _ended_ranks(path)
    failed = next(((at, rank) for at, rank, code in ended if code != 0), None)
    if failed is None:
        return None
    left = list(dict.fromkeys(rank for at, rank, code in ended if code == 0 and at < failed[0] and rank != failed[1]))
    if not left:
        return None
    first = next(at for at, rank, code in ended if rank == left[0])
    names = ", ".join(map(str, left[:_NAMED])) + (", …" if left[_NAMED:] else "")
    before = f"{failed[0] - first:.1f} s before rank {failed[1]} failed"
    return f"rank{'s' if left[1:] else ''} {names} ended with exit code 0 {before}"


def _ended_ranks(path: Path) -> list[tuple[float, int, int]]:
    """Return when each rank ended, its number and its exit code, in the order of the ends."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    ended = []
    for line in lines:
        try:
            entry = json.loads(line)
            ended.append((float(entry["time"]), int(entry["rank"]), int(entry["exit_code"])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # a torn line of a rank that was killed while writing
    return sorted(ended)
