"""The diagnosis of a failure, from the last lines of a task's output and what else is known of its end. Pure.

Tracebacks of captured notebook cells name `cell 14 (train.py)` or a module that the experiment's `source` maps
to its cell: `{"cells": {"train.py": {"cell": 14, "line_offset": 0}}}`.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detlab.schemas.runtimes import SLURM_REFUSES
from detlab_hub.services.failures.rank_faults import TRACEBACK, Hang, Line, failing_rank, hang_of, root_of

TAIL = 20
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ERROR = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_CELL = re.compile(r"^<?cell (?P<cell>\d+)\b")
_MEMORY = re.compile(
    r"out[ -]of[ -](?:shared )?memory|OutOfMemoryError|MemoryError\b|oom-kill|cannot allocate memory|bad_alloc"
    r"|_ALLOC_FAILED|insufficient shared memory",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_IMPORTS = ("ModuleNotFoundError", "ImportError")
_REFUSED = "StorageRefused"
_LASTING = (*_IMPORTS, "SyntaxError", "IndentationError", "TabError", _REFUSED)
"""Exceptions that unchanged code and config raise at each start."""
_CHARS_READ = 2000
"""Characters of a line."""
_NO_FILE = re.compile(r"can't open file '(?P<file>[^']+)'|(?<!\S)(?P<command>\S{1,300}): (?:command )?not found")
_REPORTS_LOST = re.compile(r"^detlab: (?P<why>\d+ reports? of this task w.*)")
"""Likewise."""
_CANNOT_START = re.compile(r"^detlab: cannot start (?P<why>.+)")
"""The launcher's own words (`detlab.launch.task`)."""
_NAN = re.compile(
    r"(?<![\w./-])-?(?:nans?|infs?|infinity|infinite|non-?finite|not finite)(?!\w|[./-]\w)", re.IGNORECASE
)
_NAN_NAMES = re.compile(r"nan(?:[A-Z_]|$)|NaN|NonFinite|FloatingPointError|Diverge")
_OF_NUMBERS = ("ValueError", "RuntimeError", "AssertionError", "ArithmeticError", "OverflowError", "Exception")
"""Exceptions about a NaN or an infinity; others mention one by chance, as a name of a file."""
_HANG_PLACE = re.compile(r"\((?P<file>[^()]+), line (?P<line>\d+), in ")
_TORCH_RANK = re.compile(r"^\[rank(?P<rank>\d+)\]: ?")
"""The prefix of torch before each line of a traceback once a process group exists."""
_NOT_OURS = ("site-packages", "dist-packages", "/lib/python", "<frozen")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis: fields of `FailureView`."""

    kind: str
    message: str
    rank: int | None = None
    signal: str | None = None
    where: str | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of a task's end besides its output.

    Attributes:
        exit_code: Of the entrypoint; negative or above 128: a signal; None: unknown.
        rank: First failing rank, if the launcher knows it.
        size: How many ranks it has, None if that is unknown.
        metric: Name of the searcher's metric.
        value: What it reported last, None before the first report.
        out_of_memory: Whether the kernel or the container engine reports that it ran out of memory.
    """

    exit_code: int | None
    rank: int | None = None
    size: int | None = None
    metric: str = ""
    value: float | None = None
    out_of_memory: bool = False


def diagnose(
    lines: Sequence[Line],
    *,
    exit_code: int | None,
    rank: int | None = None,
    allocation_id: str = "",
    cells: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Say what went wrong, from no more than output and exit code; see `classify`."""
    return classify(lines, Evidence(exit_code, rank), allocation_id=allocation_id, cells=cells)


def classify(
    lines: Sequence[Line],
    evidence: Evidence,
    *,
    allocation_id: str = "",
    cells: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Say what went wrong.

    Args:
        lines: The last lines of output, oldest first, all ranks.
        evidence: What else is known.
        allocation_id: Names the task's directory in tracebacks.
        cells: Line map of captured cells: file name -> {"cell", "line_offset"}.
    """
    # What anybody has printed: the time of a pattern may grow with the square of a line's length.
    whole = [_without_torch_rank(line) for line in lines]
    lines = [Line(line.rank, line.text[:_CHARS_READ]) for line in whole]
    hang = None if evidence.out_of_memory else hang_of(lines, evidence.size)
    if hang is not None:
        return _of_hang(hang, whole, allocation_id, cells or {})
    failing = failing_rank(lines, evidence.rank)
    texts = [line.text for line in lines if failing is None or line.rank == failing]
    ours = [line.text for line in lines if line.rank is None and line.text.startswith("detlab: ")]
    tail = tuple([line.text for line in whole if failing is None or line.rank == failing][-TAIL:])
    trace = _last_trace(texts)
    name = signal_name(_exit_of(lines, failing, evidence.exit_code))
    where = _where(trace, allocation_id, cells or {})
    kind, message = _kind_and_message(texts, ours, _error_line(trace), evidence, name)
    return Diagnosis(kind=kind, message=message, rank=failing, signal=name, where=where, log_tail=tail)


def _exit_of(lines: Sequence[Line], failing: int | None, exit_code: int | None) -> int | None:
    """Return the exit code of the failing rank, where torchrun names it; its own would hide the rank's signal."""
    root = root_of(lines)
    if root.exit_code is None or failing not in {None, root.rank}:
        return exit_code
    return root.exit_code if root.exit_code < 0 else exit_code


def _of_hang(hang: Hang, lines: Sequence[Line], allocation_id: str, cells: Mapping[str, Any]) -> Diagnosis:
    own = [line.text for line in lines if line.rank == hang.rank] or [line.text for line in lines]
    place = _HANG_PLACE.search(hang.message)
    where = None if place is None else _place(place["file"], int(place["line"]), allocation_id, cells)
    return Diagnosis(kind="hang", message=hang.message, rank=hang.rank, where=where, log_tail=tuple(own[-TAIL:]))


def _without_torch_rank(line: Line) -> Line:
    found = _TORCH_RANK.match(line.text)
    if found is None:
        return line
    return Line(int(found["rank"]) if line.rank is None else line.rank, line.text[found.end() :])


def _kind_and_message(
    texts: Sequence[str],
    ours: Sequence[str],
    error: tuple[str, str] | None,
    evidence: Evidence,
    name: str | None,
) -> tuple[str, str]:
    exit_code = evidence.exit_code
    # No exception ends in SIGKILL: a traceback before one is an older, handled error.
    if error is not None and name != "SIGKILL":
        told = f"{error[0]}: {error[1]}" if error[1] else error[0]
        return _kind_of_error(error, told, evidence), told
    if exit_code in (126, 127) or exit_code == 2:
        missing = _missing_file(texts)
        if missing is not None:
            return "config", missing
    if exit_code in (126, 127):
        verb = "was not found" if exit_code == 127 else "cannot be executed"
        return "config", f"the entrypoint's command {verb} (exit code {exit_code})"
    if (lost := next(filter(None, map(_REPORTS_LOST.match, ours)), None)) is not None and exit_code == 1:
        return "exception", lost["why"]
    if evidence.out_of_memory or any(_MEMORY.search(text) for text in (*ours, *texts[-TAIL:])):
        return "oom", "the task ran out of memory"
    if name is not None:
        return "killed", f"killed by {name}"
    if exit_code is None:
        return "killed", "the task's launcher died, so its exit code is not known"
    return _after_metric(f"exited with code {exit_code}", evidence)


def _kind_of_error(error: tuple[str, str], told: str, evidence: Evidence) -> str:
    short = error[0].rpartition(".")[2]
    if short in _IMPORTS:
        return "import"
    if _NO_ROOM.search(told):
        return "disk_full"
    if evidence.out_of_memory or _MEMORY.search(told):
        return "oom"
    if _NAN_NAMES.search(short):
        return "nan"
    about = short in _OF_NUMBERS and (_NAN.search(error[1]) is not None or _is_nan(evidence))
    return "nan" if about else "exception"


def _is_nan(evidence: Evidence) -> bool:
    return evidence.value is not None and not math.isfinite(evidence.value)


def _after_metric(told: str, evidence: Evidence) -> tuple[str, str]:
    if not _is_nan(evidence):
        return "unknown", told
    return "nan", f"{told}, after the searcher metric {evidence.metric!r} had become {evidence.value}"


def is_lasting(message: str) -> bool:
    """Whether a failure's message is that of code or a storage that fails however often the trial starts."""
    return message.partition(":")[0].rpartition(".")[2] in _LASTING


def is_refused_job(message: str) -> bool:
    """Whether a failure's message is that of a job that its batch system does not take as it was asked for."""
    return f": {SLURM_REFUSES}: " in message[:100]


def is_denied(message: str) -> bool:
    """Whether a failure's message is that of a file or folder which the task's user may not open."""
    return message.startswith("PermissionError: ") and "Permission denied" in message


def is_denied_storage(message: str) -> bool:
    """Whether a failure's message is that of a checkpoint storage in which the task's user may not write."""
    return message.partition(":")[0].rpartition(".")[2] == "StorageDenied"


def is_refused_storage(message: str) -> bool:
    """Whether a failure's message is that of a store that says no: a wrong bucket, wrong credentials."""
    return message.partition(":")[0].rpartition(".")[2] == _REFUSED


def is_missing_checkpoint(message: str) -> bool:
    """Whether a failure's message is that of a checkpoint whose files are not where they were stored."""
    return message.partition(":")[0].rpartition(".")[2] == "CheckpointMissing"


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
    """Return `SIGKILL` for -9 and 137, None for an exit code that stands for no signal."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _last_trace(texts: Sequence[str]) -> Sequence[str]:
    for start in range(len(texts) - 1, -1, -1):
        if texts[start].lstrip().startswith(TRACEBACK):
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
    """Return the path inside the task's working directory; None for a file that is not the user's."""
    if any(part in file for part in _NOT_OURS) or file.startswith("<"):
        return None
    marker = f"/{allocation_id}/work/"
    if allocation_id and marker in file:
        return file.partition(marker)[2]
    return None if file.startswith("/") else file.removeprefix("./")
