"""Output of a remote terminal, on the local screen or into a pipe, across lost connections.

After each connection a Jupyter server first sends, in one piece, the recent output of the terminal (its last thousand
pieces), then new output. A screen is cleared and shows the recent output again. A pipe or a file already has it: only
new output is written there. The server sends no positions, so the end of the known output is searched in the repeated
output. If that is ambiguous (the same line many times over), the longest overlap counts: nothing is written twice.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from collections.abc import Iterator

CLEAR = "\x1b[H\x1b[2J"
"""Sent before the other end repeats what was on the screen."""
KEPT_PIECES = 1000
"""As many as the server repeats; each of ours was one of its own."""


class TerminalOutput:
    """Where the text of one terminal goes: standard output."""

    def __init__(self) -> None:
        self._target = sys.stdout.fileno()
        self._screen = os.isatty(self._target)
        self._seen = SeenOutput()
        self._repeats = False

    def reconnected(self) -> None:
        """Expect the recent output to be repeated."""
        if self._screen:
            write(self._target, CLEAR)
        else:
            self._repeats = True

    def take(self, text: str) -> None:
        """Write a piece of the terminal's text, or only the new part of it."""
        if self._screen:
            write(self._target, text)
        elif self._repeats:
            self._repeats = False
            fresh = self._seen.fresh_of(text)
            if fresh is None:
                self.note("the server kept only part of the output of the interruption: some is missing here")
            write(self._target, text if fresh is None else fresh)
        else:
            self._seen.add(text)
            write(self._target, text)

    def note(self, text: str) -> None:
        """Print a message of our own: on the screen, or on standard error if the output is piped."""
        target = self._target if self._screen else sys.stderr.fileno()
        end = "\r\n" if os.isatty(target) else "\n"
        write(target, f"{end}[{text}]{end}")


class SeenOutput:
    """The output of a terminal, as far back as its server may repeat it."""

    def __init__(self) -> None:
        self._first: str | None = None  # what came after connecting: many of the server's pieces in one
        self._pieces: deque[str] = deque(maxlen=KEPT_PIECES)

    def add(self, piece: str) -> None:
        """Record a piece of output."""
        if self._first is None:
            self._first = piece
            return
        if len(self._pieces) == KEPT_PIECES:
            self._first = ""  # the server has dropped all of it, too
        self._pieces.append(piece)

    def fresh_of(self, said: str) -> str | None:
        """Return the new part of the output repeated after reconnecting; None if none of it is known."""
        first = self._first or ""
        known = first + "".join(self._pieces)
        # The server drops whole pieces. Where they begin is known, but for those that came in one at first.
        begins = {*itertools.accumulate(map(len, self._pieces), initial=len(first))}
        fits = ((length, len(known) - length) for length in overlaps(known, said))
        had = next((length for length, begin in fits if begin < len(first) or begin in begins), 0)
        self._first = said
        self._pieces.clear()
        return None if known and not had else said[had:]


def overlaps(known: str, said: str) -> Iterator[int]:
    """Yield the lengths of the ends of `known` with which `said` begins, the longest first; none is 0.

    The method of Knuth, Morris and Pratt (SIAM J. Comput. 6, 1977): it takes no longer where a text repeats itself.
    """
    if known and said.startswith(known):
        yield len(known)  # nothing was dropped yet: the usual case, and no other is better
        return
    known = known[max(0, len(known) - len(said)) :]
    borders, length = [0] * len(known), 0
    for index in range(1, len(known)):
        while length and said[index] != said[length]:
            length = borders[length - 1]
        length += said[index] == said[length]
        borders[index] = length
    length = 0
    for character in known:
        while length and (length == len(known) or character != said[length]):
            length = borders[length - 1]
        length += character == said[length]
    while length:
        yield length
        length = borders[length - 1]


def write(target: int, text: str) -> None:
    """Write a text to a descriptor, all of it."""
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(target, data) :]
