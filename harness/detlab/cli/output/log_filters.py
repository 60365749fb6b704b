"""Filters for lines of output: level, stream, time, regular expression. Pure.

The master filters stored lines; `Picking` filters followed lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from detlab.schemas.wire import LogLine

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""From the least severe to the most."""
STREAMS = ("stdout", "stderr", "launcher")
SOURCES = ("task", "launcher")
"""Who wrote a line: the program, or what starts and ends it."""
_AGO = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Picking:
    """The conditions that lines must meet; None: no condition.

    Attributes:
        level: At least as severe; a line without a level is left out.
        stream: Where it was written.
        since: Seconds since the epoch, the first moment.
        until: Seconds since the epoch, the first moment that is too late.
        regex: Found somewhere in its text.
        source: Who wrote it.
    """

    level: str | None = None
    stream: str | None = None
    since: float | None = None
    until: float | None = None
    regex: re.Pattern[str] | None = None
    source: str | None = None

    @property
    def picky(self) -> bool:
        """Whether lines are left out."""
        return self != Picking()

    def asked(self) -> dict[str, Any]:
        """Return the same as `search_logs` takes it, as far as it can."""
        regex = None if self.regex is None else self.regex.pattern
        stream = self.stream or ("launcher" if self.source == "launcher" else None)
        return {
            "level": self.level, "stream": stream, "since": self.since, "until": self.until, "regex": regex
        }  # fmt: skip

    def wants(self, line: LogLine) -> bool:
        """Return whether a line meets the conditions."""
        if self.level is not None and line.level not in LEVELS[LEVELS.index(self.level) :]:
            return False
        if self.stream is not None and line.stdtype != self.stream:
            return False
        if self.source is not None and (line.stdtype == "launcher") != (self.source == "launcher"):
            return False
        if (self.since is not None and line.time < self.since) or (self.until is not None and line.time >= self.until):
            return False
        return self.regex is None or self.regex.search(line.text) is not None

    def of(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines that are wanted."""
        return (line for line in lines if self.wants(line))


def moment_of(text: str, now: float) -> float:
    """Return a moment in seconds since the epoch.

    Args:
        text: `90s`, `10m`, `2h` or `3d` ago, or a date and time such as `2026-03-01T12:30`, local unless it says more.
        now: The time.

    Raises:
        ValueError: The text is neither.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago["number"]) * _SECONDS[ago["unit"]]
    return datetime.fromisoformat(text.strip()).timestamp()


def picking(
    level: str | None,
    stream: str | None,
    since: str | None,
    until: str | None,
    regex: str | None,
    now: float,
    source: str | None = None,
) -> Picking:
    """Return the filter that the options of a command describe.

    Raises:
        click.BadParameter: A time or the regular expression is invalid.
    """
    times = []
    for option, text in (("--since", since), ("--until", until)):
        try:
            times.append(None if text is None else moment_of(text, now))
        except (ValueError, OverflowError) as error:
            hint = "write 10m, 2h, 3d (ago) or a date and time such as 2026-03-01T12:30"
            raise click.BadParameter(f"{text!r} is no time: {hint}", param_hint=option) from error
    try:
        pattern = None if regex is None else re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.BadParameter(f"is not a regular expression: {error}", param_hint="--regex") from error
    return Picking(level, stream, times[0], times[1], pattern, source)
