"""The diagnosis of a failure, from the last lines of a task's output and what else is known of its end. Pure.

Tracebacks of captured notebook cells name `cell 14 (train.py)` or a module that the experiment's `source` maps
to its cell: `{"cells": {"train.py": {"cell": 14, "line_offset": 0}}}`.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detlab.schemas.runtimes import SLURM_REFUSES
from detlab_hub.services.failures import advice
from detlab_hub.services.failures.rank_faults import Hang, RankLine, failing_rank, hang_of, left_early, root_of
from detlab_hub.services.failures.root_cause import RootCause, root_cause
from detlab_hub.services.failures.tracebacks import FRAME, last_raised

TAIL = 20
_CELL = re.compile(r"^<?cell (?P<cell>\d+)\b")
_MEMORY = re.compile(
    r"out[ -]of[ -](?:shared )?memory|OutOfMemoryError|MemoryError\b|oom-kill|cannot allocate memory|bad_alloc"
    r"|_ALLOC_FAILED|insufficient shared memory",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_VERSION = "FrameworkVersionError"
"""An integration with another framework, whose package is missing, or of a version that was not tested."""
_IMPORTS = ("ModuleNotFoundError", "ImportError", _VERSION)
_REFUSED = "StorageRefused"
_LASTING = (*_IMPORTS, "SyntaxError", "IndentationError", "TabError", "FrameworkError", "WorldSizeError", _REFUSED)
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
_HANG_PLACE = re.compile(r"\((?P<file>[^()]+), line (?P<line>\d{1,9}), in ")
_TORCH_RANK = re.compile(r"^\[rank(?P<rank>\d{1,9})\]: ?")
"""The prefix of torch before each line of a traceback once a process group exists."""
_NUL = "\x00\ufffd␀"
"""What stands before a line after the words of torch's signal handlers, which end in a NUL."""
_NATIVE = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
_FATAL_STACK = re.compile(r"^(?:Current thread|Stack) .{0,60}\(most recent call first\):")
_ENDED_EARLY = (
    "all ranks must end at the same step: look for sys.exit, return, break, fewer batches, or a step without backward()"
    " on rank {0}"
)
_LAST_WORDS = 5
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
    helps: str = ""
    """What to do, where more is known than the class says."""


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


def classify(
    lines: Sequence[RankLine],
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
    lines = [replace(line, text=line.text[:_CHARS_READ].lstrip(_NUL)) for line in whole]
    hang = None if evidence.out_of_memory else hang_of(lines, evidence.size)
    if hang is not None:
        return _of_hang(hang, whole, allocation_id, cells or {})
    failing = failing_rank(lines, evidence.rank)
    left = None if evidence.out_of_memory else left_early(lines, failing)
    if left is not None:
        found = _of_hang(left, whole, allocation_id, cells or {})
        return replace(found, kind="exception", helps=_ENDED_EARLY.format(left.rank))
    own = [line for line in lines if failing is None or line.rank == failing]
    ours = [line.text for line in lines if line.rank is None and line.text.startswith("detlab: ")]
    tail = tuple([line.text for line in whole if failing is None or line.rank == failing][-TAIL:])
    code = _exit_of(lines, failing, evidence.exit_code)
    name = signal_name(code)
    told = _told(own, ours, replace(evidence, exit_code=code), name)
    where = _where(told.frames, allocation_id, cells or {})
    return Diagnosis(told.kind, told.message, failing, name, where, tail, told.helps)


@dataclass(frozen=True, slots=True)
class _Told:
    kind: str
    message: str
    frames: Sequence[tuple[str, int]] = ()
    helps: str = ""


def _told(own: Sequence[RankLine], ours: Sequence[str], evidence: Evidence, name: str | None) -> _Told:
    """Return what the output of the failing rank says."""
    texts = [line.text for line in own]
    raised = last_raised(texts)
    stack = _fatal_stack(texts)
    # No exception ends in SIGKILL, or in a crash with a stack: a traceback before one is an older, handled error.
    handled = name == "SIGKILL" or (name in _NATIVE and bool(stack))
    cause = None if raised is None or handled else root_cause(raised)
    if cause is not None:
        kind, message, frames = _kind_of_cause(cause, evidence), cause.message, cause.frames
    else:
        kind, message = _without_error(own, ours, evidence, name)
        frames = tuple(stack)
    row = advice.known(message, texts[-TAIL:])
    if row is not None and kind not in {"nan", "import", "config"} and not (cause is not None and row.of_output):
        return _Told(row.kind or kind, f"{row.means}: {message}" if row.means else message, frames, row.helps)
    return _Told(kind, message, frames, advice.helps_after(name) if cause is None and kind == "killed" else "")


def _fatal_stack(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the frames that the interpreter shows when it crashes, the innermost first."""
    at = next((n for n in range(len(texts) - 1, -1, -1) if _FATAL_STACK.match(texts[n])), None)
    frames: list[tuple[str, int]] = []
    for text in () if at is None else texts[at + 1 :]:
        frame = FRAME.match(text)
        if frame is None:
            break
        frames.append((frame["file"], int(frame["line"])))
    return frames


def _exit_of(lines: Sequence[RankLine], failing: int | None, exit_code: int | None) -> int | None:
    """Return the exit code of the failing rank, where torchrun names it; its own would hide the rank's signal."""
    root = root_of(lines)
    if root.exit_code is None or failing not in {None, root.rank}:
        return exit_code
    return root.exit_code


def _of_hang(hang: Hang, lines: Sequence[RankLine], allocation_id: str, cells: Mapping[str, Any]) -> Diagnosis:
    own = [line.text for line in lines if line.rank == hang.rank] or [line.text for line in lines]
    place = _HANG_PLACE.search(hang.message)
    where = None if place is None else _place(place["file"], int(place["line"]), allocation_id, cells)
    return Diagnosis(kind="hang", message=hang.message, rank=hang.rank, where=where, log_tail=tuple(own[-TAIL:]))


def _without_torch_rank(line: RankLine) -> RankLine:
    found = _TORCH_RANK.match(line.text)
    if found is None:
        return line
    return RankLine(int(found["rank"]) if line.rank is None else line.rank, line.text[found.end() :], line.stdtype)


def _without_error(
    own: Sequence[RankLine], ours: Sequence[str], evidence: Evidence, name: str | None
) -> tuple[str, str]:
    """Return class and message of an end without an exception."""
    texts, exit_code = [line.text for line in own], evidence.exit_code
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
        return "killed", ": ".join(
            filter(None, (f"killed by {name}", advice.of_signal(name), advice.native_reason(texts)))
        )
    if exit_code is None:
        return "killed", "the task's launcher died, so its exit code is not known"
    return _after_metric(f"exited with code {exit_code}", _last_words(own), evidence)


def _last_words(own: Sequence[RankLine]) -> str:
    """Return the last line of the errors, or of the output, and those above that belong to it: sys.exit("reason")."""
    told = [line for line in own if line.text.strip() and not line.text.startswith("detlab: ")]
    errors = [line.text for line in told if line.stdtype == "stderr"]
    words = errors or [line.text for line in told]
    if not words:
        return ""
    first = len(words) - 1
    while first and len(words) - first < _LAST_WORDS and (words[first][0].isspace() or words[first - 1].endswith(":")):
        first -= 1
    said = " ".join(text.strip() for text in words[first:])
    return f"; last line of its {'errors' if errors else 'output'}: {said[:_CHARS_READ]}"


def _kind_of_cause(cause: RootCause, evidence: Evidence) -> str:
    """Return the class of the root cause, or of the first that belongs to it whose class says more."""
    kind = _kind_of_error((cause.name, cause.text), f"{cause.name}: {cause.text}", evidence)
    for other in cause.others if kind == "exception" else ():
        name, _, text = other.partition(": ")
        its = _kind_of_error((name, text), other, evidence)
        if its not in {"exception", "import"}:  # what could not be imported is often done without
            return its
    return kind


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


def _after_metric(told: str, words: str, evidence: Evidence) -> tuple[str, str]:
    if not _is_nan(evidence):
        return "unknown", f"{told}{words}"
    return "nan", f"{told}, after the searcher metric {evidence.metric!r} had become {evidence.value}"


def is_lasting(message: str) -> bool:
    """Whether a failure's message is that of code or a storage that fails however often the trial starts."""
    return message.partition(":")[0].rpartition(".")[2] in _LASTING


def is_missing_command(message: str) -> bool:
    """Whether a failure's message is that of an entrypoint whose program or script is not where the task ran."""
    return (message.startswith(_NEEDS) and message.endswith(_MISSING)) or message.startswith(_NOT_STARTED)


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


def is_untested_framework(message: str) -> bool:
    """Whether a failure's message is that of a framework that is missing, or of a version that was not tested."""
    return message.partition(":")[0].rpartition(".")[2] == _VERSION


def is_governance(message: str) -> bool:
    """Whether a failure's message is that of training that its policy refuses: again, it would be refused again."""
    return message.partition(":")[0].rpartition(".")[2] == "GovernanceError" or REFUSED_COMMIT in message[:200]


REFUSED_COMMIT = "the policy does not allow this checkpoint"


def is_missing_checkpoint(message: str) -> bool:
    """Whether a failure's message is that of a checkpoint whose files are not where they were stored."""
    return message.partition(":")[0].rpartition(".")[2] == "CheckpointMissing"


_NEEDS, _MISSING = "the entrypoint needs ", ", which does not exist"
_NOT_STARTED = "the entrypoint cannot be started: "


def _missing_file(texts: Sequence[str]) -> str | None:
    for text in reversed(texts[-TAIL:]):
        started = _CANNOT_START.match(text)
        if started is not None:
            return f"{_NOT_STARTED}{started['why']}"
        found = _NO_FILE.search(text)
        if found is not None:
            return f"{_NEEDS}{found['file'] or found['command']!r}{_MISSING}"
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


def _where(frames: Sequence[tuple[str, int]], allocation_id: str, cells: Mapping[str, Any]) -> str | None:
    """Return the first frame that is in the user's code."""
    return next(filter(None, (_place(file, line, allocation_id, cells) for file, line in frames)), None)


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
