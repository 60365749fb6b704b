"""Python's tracebacks, read from lines of output: exceptions, their frames, causes and members of groups. Pure.

The forms are those of CPython's `traceback` module (chains, exception groups, notes), of `concurrent.futures`,
`multiprocessing` and `torch`, which print a worker's traceback inside of their own, and of a syntax error, which has no
header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from detlab_hub.services.failures.rank_faults import ERROR, TRACEBACK

FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})')
_HEADER = re.compile(r"^\s*(?:\+ )?(?:Original |Exception Group )?Traceback \(most recent call last\)")
_DIRECT = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"
_MARGIN = re.compile(r"^(?P<space> {2,80})(?P<mark>[|+])(?P<rest>.*)$")
"""Each level of groups has two columns more; Python itself prints ten."""
_MEMBER = re.compile(r"^(?:-\+)?-{3,} (?:\d+|\.\.\.) -{3,}$")
_UNHEARD = re.compile(r"^(?:Exception ignored |--- Logging error ---)")
"""Before tracebacks that end nothing: of destructors, and of the logging module."""
_ASIDE = re.compile(
    r"^(?:detlab: |\[rank|Exception ignored |Fatal Python error|terminate called|E\d{4} |W\d{4} |\^C|-- Process \d"
    r"|={5,}|-{5,}|\S{1,300}:\d+: \w*Warning: )"
)
"""Lines that are not part of a message, although they follow it."""
_WRAPPER = re.compile(r"^Caught [\w.]+ (?P<at>in .{1,200}?)\.?$")
_QUOTES = '"""'
OURS = "detlab."
"""Errors of detlab: they say themselves what is wrong, and what helps in a line of its own."""
MESSAGE_LINES = 12
MESSAGE_CHARS = 1000


@dataclass(slots=True)
class Raised:
    """An exception as it was printed.

    Attributes:
        name: Its class, as Python shows it.
        text: Its message in one line; "" if it has none.
        frames: Files and line numbers, the innermost last.
        source: The source line of the innermost frame, if it was printed.
        cause: The exception that it followed; None if there is none.
        direct: Whether it was raised from its cause, and not just while that was handled.
        members: Those of an exception group.
        worker: Where a library caught it, such as `in DataLoader worker process 0`.
    """

    name: str = ""
    text: str = ""
    frames: list[tuple[str, int]] = field(default_factory=list)
    source: str = ""
    cause: Raised | None = None
    direct: bool = False
    members: list[Raised] = field(default_factory=list)
    worker: str = ""

    @property
    def told(self) -> str:
        """The last line of its traceback."""
        return f"{self.name}: {self.text}" if self.text else self.name


def last_raised(texts: Sequence[str]) -> Raised | None:
    """Return the exception of the last traceback that ends a program, None if there is none.

    Args:
        texts: Lines of output of one rank, oldest first.
    """
    reader = _Reader()
    for at, text in enumerate(texts):
        reader.read(text, texts[at + 1] if at + 1 < len(texts) else "")
    found = [one for one in reader.ended() if one.name]
    return found[-1] if found else None


class _Reader:
    """Reads line by line; members of groups are kept and read by a reader of their own."""

    def __init__(self, column: int | None = None) -> None:
        self._found: list[Raised] = []
        self._now: Raised | None = None
        self._link: tuple[Raised, bool] | None = None
        self._unheard = False
        self._ends = False
        self._lines = 0
        self._worker = ""
        self._column = column
        self._nested = column is not None
        self._sections: list[list[str]] = []

    def ended(self) -> list[Raised]:
        """Return what was found, once all lines were read."""
        self._finish()
        return self._found

    def read(self, text: str, following: str) -> None:
        """Read the next line.

        Args:
            text: The line.
            following: The line after it.
        """
        if self._column is not None:
            inner = self._inside_group(text)
            if inner is None:
                return
            text = inner
        if _UNHEARD.match(text):
            self._finish()
            self._unheard = True
        elif _HEADER.match(text):
            self._begin(text)
        elif text.strip() in (_DIRECT, _DURING):
            self._follow(text.strip() == _DIRECT)
        elif self._now is None:
            self._headless(text, following)
        elif not self._now.name:
            self._inside(text)
        else:
            self._message(text)

    def _inside_group(self, text: str) -> str | None:
        """Return a group's own line without its margin, None for a line of its members."""
        found, column = _MARGIN.match(text), self._column or 0
        if found is None:
            if self._sections:
                self._sections[-1].append(text)  # of a member's message: Python puts no margin before its further lines
                return None
            self._column = column if self._nested else None
            return text
        at, mark, rest = len(found["space"]), found["mark"], found["rest"]
        if at == column and mark == "|":
            return rest.removeprefix(" ")
        begins = at == (column if rest.startswith("-+") else column + 2)
        if begins and mark == "+" and _MEMBER.match(rest):
            self._sections.append([])
        elif at == column + 2 and mark == "+" and not rest.strip("-"):
            self._column = column if self._nested else None  # the end of the group
        elif self._sections:
            self._sections[-1].append(text)
        return None

    def _begin(self, text: str) -> None:
        if self._now is not None and self._now.name:
            if (caught := _WRAPPER.match(self._now.text)) is not None:
                self._worker = caught["at"]
            elif self._now.text.endswith("with the following error:"):
                self._worker = f"in process {self._now.text.split()[2]}"
            if self._worker:
                self._now = None  # the worker's own traceback says it all
        self._finish()
        self._now, self._ends = Raised(), False
        if text.lstrip().startswith("+"):
            self._column = len(text) - len(text.lstrip())

    def _follow(self, direct: bool) -> None:
        before = self._now
        self._finish()
        if before is not None and before.name and self._found and self._found[-1] is before:
            self._found.pop()
            self._link = (before, direct)

    def _headless(self, text: str, following: str) -> None:
        """Read a line outside of tracebacks: a syntax error begins with its place."""
        if FRAME.match(text) and ", in " not in text and following[:1] == " ":
            self._now, self._ends = Raised(), False
            self._inside(text)

    def _inside(self, text: str) -> None:
        now = self._now
        assert now is not None
        frame = FRAME.match(text)
        if frame is not None:
            now.frames.append((frame["file"], int(frame["line"])))
            now.source = ""
        elif text[:1].isspace():
            if now.frames and not now.source and text.strip(" ~^"):
                now.source = text.strip()
        elif (found := ERROR.match(text)) is not None:
            now.name, now.text = found["name"], (found["text"] or "").strip()
            self._lines, self._ends = 1, False
        elif text:
            self._now = None  # cut short: what follows is not its message

    def _message(self, text: str) -> None:
        """Read what follows the line of an error: more of its message, or something else."""
        now = self._now
        assert now is not None
        if text.strip() == _QUOTES or self._ends:
            self._ends = self._ends or text.strip() == _QUOTES
            return
        begun = not now.text or now.text.endswith(":")
        listed = text[:1].isspace()
        if text.startswith("-- Process ") and text.endswith("following error:"):
            now.text = text
        elif (not text.strip() and not begun) or self._lines >= MESSAGE_LINES or _ASIDE.match(text):
            self._ends = True
        elif text.strip() and now.name.startswith(OURS) and not (begun or listed):
            self._ends = True  # the line below an error of detlab says what helps: it is the card's hint
        elif text.strip():
            self._lines += 1
            between = " " if begun or listed or now.text[-1] in ".,:;!?" else "; "
            now.text = f"{now.text}{between}{text.strip()}".strip()[:MESSAGE_CHARS]

    def _finish(self) -> None:
        now, self._now = self._now, None
        sections, self._sections = self._sections, []
        self._column = self._column if self._nested else None
        if now is None or not now.name:
            return
        now.members = [one for section in sections if (one := _member(section)) is not None]
        now.worker, self._worker = self._worker, ""
        if self._link is not None:
            now.cause, now.direct = self._link
            self._link = None
        if self._unheard:
            self._unheard = False
        else:
            self._found.append(now)


def _member(lines: Sequence[str]) -> Raised | None:
    """Return the exception in one section of a group: its own lines have the first line's margin."""
    first = _MARGIN.match(lines[0]) if lines else None
    if first is None:
        return None
    reader = _Reader(len(first["space"]))
    if not _HEADER.match(first["rest"].removeprefix(" ")):
        reader.read(f"{' ' * len(first['space'])}| {TRACEBACK}:", "")  # one that was never raised has no frames
    for line in lines:
        reader.read(line, "")
    found = reader.ended()
    return found[-1] if found else None
