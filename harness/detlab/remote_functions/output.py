r"""What a borrowed cell prints, into the notebook's cell: in order, in batches, within limits.

Jupyter drops a cell's output beyond about a megabyte a second, and a notebook with a hundred of them opens no more. So
lines are printed a few times a second, and of a flood the first and the last are. A progress bar's updates, which
arrive as lines, take each other's place again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from detlab.visible import visible

BATCH_SECONDS = 0.15
"""Between two messages to the front end at least."""
BATCH_CHARS = 20_000
"""Of one message: 0.13 MB/s at most, a seventh of Jupyter's limit."""
MOST_CHARS = 2_000_000
"""Of a whole cell; then only the last lines are shown, at its end."""
LAST_LINES = 20
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,20}m)")
_PROGRESS = re.compile(r"^(.{0,200}?)\s*\d{1,3}(?:\.\d+)?\s?%")


def shown(text: str) -> str:
    """Return a line fit for a cell: colours stay, other control characters become visible."""
    text = text.rstrip("\r").rsplit("\r", 1)[-1].expandtabs()
    return "".join(part if index % 2 else visible(part, keep="") for index, part in enumerate(_COLOUR.split(text)))


class CellOutput:
    """Prints lines as they come.

    Args:
        write: Takes text; `print(…, end="")`.
        whole: Where all of the output can be read, for the note about omitted lines.
        clock: Seconds, any origin.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        whole: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._whole = whole
        self._clock = clock
        self._waiting: list[str] = []
        self._written_at = float("-inf")
        self._chars = 0
        self._hidden = 0
        self._last: list[str] = []
        self._bar: str | None = None
        """What stands before the percentage of the progress bar whose line is open."""
        self._silenced = False

    def add(self, text: str) -> None:
        """Take a line."""
        self._waiting.append(shown(text))

    @property
    def due(self) -> bool:
        """Whether it is time to `flush`."""
        return bool(self._waiting) and self._clock() - self._written_at >= BATCH_SECONDS

    def flush(self) -> None:
        """Print the lines collected so far."""
        lines, self._waiting = self._waiting, []
        self._written_at = self._clock()
        if lines and self._chars >= MOST_CHARS:
            self._hide(lines)
        elif lines:
            text = self._text(_without_middle(_merged(lines), self._whole))
            self._chars += len(text)
            self._write(text)

    def close(self) -> None:
        """Print what is left, and the last lines of what exceeded the limit."""
        self.flush()
        if self._bar is not None:
            self._write("\n")
            self._bar = None
        if self._hidden:
            left = self._hidden - len(self._last)
            self._write(f"… {left:,} lines left out: {self._whole}\n" + "".join(f"{line}\n" for line in self._last))

    def _hide(self, lines: list[str]) -> None:
        if not self._silenced:
            self._silenced = True
            self._write(
                f"… too much output for a notebook; the last lines follow at the end. All output: {self._whole}\n"
            )
        self._hidden += len(lines)
        self._last = [*self._last, *(line[:2000] for line in lines[-LAST_LINES:])][-LAST_LINES:]

    def _text(self, lines: list[str]) -> str:
        """Join lines; the last one stays open if it is a progress bar, for the next update to overwrite."""
        parts = []
        for index, line in enumerate(lines):
            bar = _bar_of(line)
            if self._bar is not None:
                parts.append("\r" if bar == self._bar else "\n")
            self._bar = bar if index == len(lines) - 1 else None
            parts.append(line if self._bar is not None else line + "\n")
        return "".join(parts)


def _bar_of(line: str) -> str | None:
    found = _PROGRESS.match(line)
    return found.group(1) if found else None


def _merged(lines: list[str]) -> list[str]:
    """Return lines with only the last of consecutive updates of one progress bar."""
    kept: list[str] = []
    for line in lines:
        bar = _bar_of(line)
        if kept and bar is not None and _bar_of(kept[-1]) == bar:
            kept[-1] = line
        else:
            kept.append(line)
    return kept


def _without_middle(lines: list[str], whole: str) -> list[str]:
    """Return at most a batch's worth: the first and the last lines, and how many are left out between."""
    if sum(len(line) + 1 for line in lines) <= BATCH_CHARS:
        return lines
    first = _fitting(lines, BATCH_CHARS // 4)
    last = _fitting(lines[len(first) :][::-1], 3 * BATCH_CHARS // 4)[::-1]
    left = len(lines) - len(first) - len(last)
    word = [f"… {left:,} line{'' if left == 1 else 's'} left out: {whole}"] if left > 0 else []
    return [*first, *word, *last]


def _fitting(lines: list[str], room: int) -> list[str]:
    """Return the first lines that fit, the first of them cut if it alone does not."""
    kept: list[str] = []
    for line in lines:
        if len(line) + 1 > room:
            return kept or [line[: room - 2] + "…"]
        room -= len(line) + 1
        kept.append(line)
    return kept
