"""From the output of several ranks to the one that failed first, or that the others waited for. Pure.

The texts are those of detlab's watchdog (`detlab.launch.ranks.watchdog`), of the Core API's messages between ranks, and
of torch: NCCL's watchdog, gloo's timeouts, monitored barriers and torchrun's summary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

TRACEBACK = "Traceback (most recent call last)"
_OURS = re.compile(r"^detlab: (?P<told>rank (?P<rank>\d{1,9}) \(.*\) hangs: .*?)\. This attempt ends")
"""The words of a watchdog, which any rank, or the launcher, may say of any rank."""
_LEFT = re.compile(
    r"^detlab: (?P<told>ranks? (?P<rank>\d{1,9})[\d, ]* ended with exit code 0 .{1,100}before rank \d+ failed)"
)
"""The launcher's words for ranks that ended before another one failed (`detlab.launch.taskdir`)."""
_NAMED = (
    re.compile(r"Rank (?P<ranks>\d{1,9}) failed to (?:pass|reach) (?:the )?monitoredBarrier"),
    re.compile(r"ranks? (?P<ranks>\d{1,9}(?:(?:, | and )\d{1,9})*) did not call (?P<what>\w+\(\)) within"),
    re.compile(r"ranks? (?P<ranks>\d{1,9}) did not (?:answer|take a message) in time \((?P<what>\w+)\)"),
    re.compile(r"ranks? (?P<ranks>\d{1,9}) did not (?:answer|take a message) \((?P<what>\w+)\) in time"),
)
"""Errors of a rank that waited, and that name whom it waited for."""
_WAITED = (
    re.compile(r"caught collective operation timeout: Work\w+\((?:SeqNum=\d+, )?(?:OpType=(?P<what>\w+))?"),
    re.compile(r"Timed out waiting \d+ ?ms for (?:recv|send) operation"),
    re.compile(r"Application timeout caused pair closure"),
)
"""Errors of a rank that waited, and that say no more than that."""
_PEER_LOST = re.compile(
    r"closed by (?:remote )?peer|reset by (?:remote )?peer|Broken pipe|^rank \d+ is gone|NCCL error|ncclRemoteError"
    r"|ncclSystemError|NCCL communicator was aborted|Connection refused|socket timeout|Socket Timeout"
    r"|failed to recv, got 0 bytes",
    re.IGNORECASE,
)
"""Errors of a rank that lost another one."""
_PEER_ERRORS = ("DistributedError", "DistNetworkError", "DistBackendError", "DistStoreError", "ChildFailedError")
_ROOT = "Root Cause (first observed failure)"
_ROOT_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,9})\b")
_ROOT_EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d{1,9})\b")
_ROOT_LINES = 10
_CHARS_READ = 1000
"""Characters of a line in which a hang is looked for: what users print must not cost the master time."""
ERROR = re.compile(r"^(?P<name>[^\W\d]\w*(?:\.(?:\w+|<locals>))*)(?:: (?P<text>.*)|:)?$")
"""The last line of a traceback: a class as Python shows it, and the first line of its message."""


@dataclass(frozen=True, slots=True)
class RankLine:
    """One line of output."""

    rank: int | None
    text: str
    stdtype: str = ""
    """`stdout` or `stderr`; "" if that is unknown."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Ranks that wait for one that does not come.

    Attributes:
        message: For people, in one line.
        rank: The one that does not come, None if that cannot be told.
    """

    message: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class RootFault:
    """Return torchrun's report of the process that failed first."""

    rank: int | None = None
    exit_code: int | None = None


def hang_of(lines: Sequence[RankLine], size: int | None) -> Hang | None:
    """Return the hanging rank by the ranks' output, None if no rank waited without success.

    Args:
        lines: The last lines of output, oldest first, all ranks.
        size: How many ranks the task has, None if that is unknown.
    """
    lines = [RankLine(line.rank, line.text[:_CHARS_READ]) for line in lines]
    for line in lines:
        told = _OURS.match(line.text)
        if told is not None:
            return Hang(told["told"], int(told["rank"]))
    if any(_is_own(error) for _, error in _errors(lines)):
        return None  # the others waited for one that had failed
    for line in lines:
        for pattern in _NAMED:
            found = pattern.search(line.text)
            if found is not None:
                return _named(line, found)
    waiting = {line.rank: what for line in reversed(lines) if (what := _waited(line.text)) is not None}
    return _unnamed(waiting, lines, size) if waiting else None


def _named(line: RankLine, found: re.Match[str]) -> Hang:
    ranks = [int(number) for number in re.findall(r"\d+", found["ranks"])]
    names = ", ".join(map(str, ranks))
    what = found.groupdict().get("what") or "monitored_barrier()"
    waiter = "the others" if line.rank is None else f"rank {line.rank}"
    word = "rank" if len(ranks) == 1 else "ranks"
    return Hang(f"{word} {names} did not reach {what}, in which {waiter} waited", ranks[0])


def _waited(text: str) -> str | None:
    """Name the collective that a line says was waited in, None for any other line."""
    for pattern in _WAITED:
        found = pattern.search(text)
        if found is not None:
            what = found.groupdict().get("what")
            return f"a collective ({what.lower()})" if what else "a collective"
    return None


def _unnamed(waiting: dict[int | None, str], lines: Sequence[RankLine], size: int | None) -> Hang:
    what = next(iter(waiting.values()))
    inside = sorted(rank for rank in waiting if rank is not None)
    known = set(range(size)) if size else {line.rank for line in lines if line.rank is not None}
    outside = sorted(known.difference(inside))
    waiter = ", ".join(f"rank {rank}" for rank in inside) or "a rank"
    if len(outside) == 1:
        return Hang(f"rank {outside[0]} did not reach {what}, in which {waiter} waited", outside[0])
    if outside:
        names = ", ".join(map(str, outside))
        return Hang(f"none of the ranks {names} reached {what}, in which {waiter} waited", outside[0])
    return Hang(f"{what} did not end within its limit on {waiter}: its ranks did not all call the same one", None)


def is_peer_loss(error: str) -> bool:
    """Whether an error's last line is that of a rank which fails for want of another one.

    Args:
        error: `Name: text`, as a traceback ends.
    """
    name, _, text = error.partition(": ")
    return name.rpartition(".")[2] in _PEER_ERRORS or _PEER_LOST.search(text) is not None


def _is_own(error: str) -> bool:
    return not is_peer_loss(error) and _waited(error) is None and not any(named.search(error) for named in _NAMED)


def failing_rank(lines: Sequence[RankLine], told: int | None) -> int | None:
    """Return the rank that failed by itself, and first.

    Args:
        lines: The last lines of output, oldest first, all ranks.
        told: The rank that the launcher saw fail first. Another one is named only if that one fell with its peer.
    """
    errors = list(_errors(lines))
    own = [rank for rank, error in errors if _is_own(error)]
    spoke = any(line.rank == told for line in lines)
    # One that ended without a word (os._exit) has failed as well, where the output of ranks is told apart at all.
    if told is not None and (spoke or (not own and any(line.rank is not None for line in lines))):
        fell = [rank for rank, error in errors if not _is_own(error)]
        return own[0] if own and told in fell and told not in own else told
    if own:
        return own[0]
    traced = (line.rank for line in lines if line.rank is not None and line.text.startswith(TRACEBACK))
    root = root_of(lines).rank
    return root if root is not None else next(traced, None)


def left_early(lines: Sequence[RankLine], failing: int | None) -> Hang | None:
    """Return the rank that had ended well before another one failed for want of it; None if none had.

    Args:
        lines: The last lines of output, oldest first, all ranks.
        failing: The rank that failed first.
    """
    told = next((found for line in lines if line.rank is None and (found := _LEFT.match(line.text))), None)
    if told is None or any(_is_own(error) for _, error in _errors(lines)):
        return None
    lost = next((error for rank, error in _errors(lines) if rank == failing), None)
    if lost is None:
        return None
    return Hang(f"{told['told']}, for want of it: {lost}", int(told["rank"]))


def _errors(lines: Sequence[RankLine]) -> Iterator[tuple[int, str]]:
    """Yield the rank and the last line of each rank's tracebacks, in the order in which they ended."""
    inside: dict[int, bool] = {}
    for line in lines:
        if line.rank is None:
            continue
        if line.text.startswith(TRACEBACK):
            inside[line.rank] = True
        elif inside.get(line.rank) and line.text and not line.text[0].isspace() and ERROR.match(line.text):
            inside[line.rank] = False
            yield line.rank, line.text


def root_of(lines: Sequence[RankLine]) -> RootFault:
    """Return what torchrun's summary says of the process that failed first."""
    at = next((n for n, line in enumerate(lines) if _ROOT in line.text), None)
    if at is None:
        return RootFault()
    told = [line.text for line in lines[at + 1 : at + 1 + _ROOT_LINES]]
    return RootFault(_first(_ROOT_RANK, told), _first(_ROOT_EXIT, told))


def _first(pattern: re.Pattern[str], texts: Collection[str]) -> int | None:
    return next((int(found[1]) for text in texts if (found := pattern.match(text))), None)
