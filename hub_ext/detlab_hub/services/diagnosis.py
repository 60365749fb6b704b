"""From the last lines of a task's output to what went wrong and where. Pure.

Tracebacks of captured notebook cells name `cell 14 (train.py)` or a module that the experiment's `source` maps
to its cell: `{"cells": {"train.py": {"cell": 14, "line_offset": 0}}}`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TAIL = 20
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ERROR = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_CELL = re.compile(r"^<?cell (?P<cell>\d+)\b")
_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|\bMemoryError\b|oom-kill|cannot allocate memory|bad_alloc", re.IGNORECASE
)
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_IMPORTS = ("ModuleNotFoundError", "ImportError")
_LASTING = (*_IMPORTS, "SyntaxError", "IndentationError", "TabError")
"""What code that does not change raises each time it starts."""
_NO_FILE = re.compile(r"can't open file '(?P<file>[^']+)'|(?P<command>\S+): (?:command )?not found")
_CANNOT_START = re.compile(r"^detlab: cannot start (?P<why>.+)")
"""The launcher's own words (`detlab.launch.task`)."""
_HANG = re.compile(r"^detlab: (?P<told>rank (?P<rank>\d+) \(.*\) hangs: .*?)\. This attempt ends")
"""The words of the trainer's watchdog (`detlab.pytorch._watchdog`), which any rank may say of any other."""
_HANG_PLACE = re.compile(r"\((?P<file>[^()]+), line (?P<line>\d+), in ")
_TORCH_RANK = re.compile(r"^\[rank(?P<rank>\d+)\]: ?")
"""What torch puts before each line of a traceback once a process group exists."""
_NOT_OURS = ("site-packages", "dist-packages", "/lib/python", "<frozen")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output."""

    rank: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What happened: fields of `FailureView`."""

    kind: str
    message: str
    rank: int | None = None
    signal: str | None = None
    where: str | None = None
    log_tail: tuple[str, ...] = ()


def diagnose(
    lines: Sequence[Line],
    *,
    exit_code: int | None,
    rank: int | None = None,
    allocation_id: str = "",
    cells: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Say what went wrong.

    Args:
        lines: The last lines of output, oldest first, all ranks.
        exit_code: Of the entrypoint; negative or above 128: a signal; None: unknown.
        rank: First failing rank, if the launcher knows it.
        allocation_id: Names the task's directory in tracebacks.
        cells: Line map of captured cells: file name -> {"cell", "line_offset"}.
    """
    lines = [_without_torch_rank(line) for line in lines]
    hang = next((found for line in lines if (found := _HANG.match(line.text))), None)
    if hang is not None:
        return _of_hang(hang, lines, allocation_id, cells or {})
    failing = _failing_rank(lines, rank)
    texts = [line.text for line in lines if failing is None or line.rank == failing]
    tail = tuple(texts[-TAIL:])
    trace = _last_trace(texts)
    error = _error_line(trace)
    name = signal_name(exit_code)
    where = _where(trace, allocation_id, cells or {})
    kind, message = _judge(texts, error, exit_code, name)
    return Diagnosis(kind=kind, message=message, rank=failing, signal=name, where=where, log_tail=tail)


def _of_hang(hang: re.Match[str], lines: Sequence[Line], allocation_id: str, cells: Mapping[str, Any]) -> Diagnosis:
    rank = int(hang["rank"])
    own = [line.text for line in lines if line.rank == rank] or [line.text for line in lines]
    place = _HANG_PLACE.search(hang["told"])
    where = None if place is None else _place(place["file"], int(place["line"]), allocation_id, cells)
    return Diagnosis(kind="hang", message=hang["told"], rank=rank, where=where, log_tail=tuple(own[-TAIL:]))


def _without_torch_rank(line: Line) -> Line:
    found = _TORCH_RANK.match(line.text)
    if found is None:
        return line
    return Line(int(found["rank"]) if line.rank is None else line.rank, line.text[found.end() :])


def _judge(
    texts: Sequence[str], error: tuple[str, str] | None, exit_code: int | None, name: str | None
) -> tuple[str, str]:
    told = None if error is None else (f"{error[0]}: {error[1]}" if error[1] else error[0])
    # No exception ends in SIGKILL: a traceback before one is an older, handled error.
    if told is not None and error is not None and name != "SIGKILL":
        short = error[0].rpartition(".")[2]
        if short in _IMPORTS:
            return "import", told
        if _NO_ROOM.search(told):
            return "disk_full", told
        return ("oom" if _MEMORY.search(told) else "exception"), told
    if exit_code in (126, 127) or exit_code == 2:
        missing = _missing_file(texts)
        if missing is not None:
            return "config", missing
    if exit_code in (126, 127):
        verb = "was not found" if exit_code == 127 else "cannot be executed"
        return "config", f"the entrypoint's command {verb} (exit code {exit_code})"
    if any(_MEMORY.search(text) for text in texts[-TAIL:]):
        return "oom", "the task ran out of memory"
    if name is not None:
        return "killed", f"killed by {name}"
    if exit_code is None:
        return "killed", "the task's launcher died, so its exit code is not known"
    return "unknown", f"exited with code {exit_code}"


def is_lasting(message: str) -> bool:
    """Whether a failure's message is that of code which cannot be imported, and so fails however often it starts."""
    return message.partition(":")[0].rpartition(".")[2] in _LASTING


def _missing_file(texts: Sequence[str]) -> str | None:
    for text in reversed(texts[-TAIL:]):
        started = _CANNOT_START.match(text)
        if started is not None:
            return f"the entrypoint cannot be started: {started['why']}"
        found = _NO_FILE.search(text)
        if found is not None:
            return f"the entrypoint needs {found['file'] or found['command']!r}, which does not exist"
    return None


def signal_name(exit_code: int | None) -> str | None:
    """`SIGKILL` for -9 and 137, None for an exit that is no signal's."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _failing_rank(lines: Sequence[Line], rank: int | None) -> int | None:
    if rank is not None and any(line.rank == rank for line in lines):
        return rank
    for line in lines:
        if line.rank is not None and line.text.startswith("Traceback (most recent call last)"):
            return line.rank
    return None


def _last_trace(texts: Sequence[str]) -> Sequence[str]:
    for start in range(len(texts) - 1, -1, -1):
        if texts[start].lstrip().startswith("Traceback (most recent call last)"):
            return texts[start:]
    # A syntax error in the entrypoint itself comes without a header.
    if any(text.startswith(("SyntaxError", "IndentationError", "TabError")) for text in texts):
        return texts
    return []


def _error_line(trace: Sequence[str]) -> tuple[str, str] | None:
    after_frame = False
    for text in trace:
        if _FRAME.match(text):
            after_frame = True
        elif after_frame and text and not text[0].isspace():
            found = _ERROR.match(text)
            if found is not None:
                return found["name"], (found["text"] or "").strip()
    return None


def _where(trace: Sequence[str], allocation_id: str, cells: Mapping[str, Any]) -> str | None:
    for text in reversed(trace):
        frame = _FRAME.match(text)
        if frame is None:
            continue
        place = _place(frame["file"], int(frame["line"]), allocation_id, cells)
        if place is not None:
            return place
    return None


def _place(file: str, line: int, allocation_id: str, cells: Mapping[str, Any]) -> str | None:
    cell = _CELL.match(file)
    if cell is not None:
        return f"cell {cell['cell']}, line {line}"
    own = _own_path(file, allocation_id)
    if own is None:
        return None
    mapped = cells.get(own)
    if isinstance(mapped, Mapping) and "cell" in mapped:
        offset = mapped.get("line_offset", 0)
        return f"cell {mapped['cell']}, line {line - (offset if isinstance(offset, int) else 0)}"
    return f"{own}, line {line}"


def _own_path(file: str, allocation_id: str) -> str | None:
    """The path inside the task's working directory; None for a file that is not the user's."""
    if any(part in file for part in _NOT_OURS) or file.startswith("<"):
        return None
    marker = f"/{allocation_id}/work/"
    if allocation_id and marker in file:
        return file.partition(marker)[2]
    return None if file.startswith("/") else file.removeprefix("./")
