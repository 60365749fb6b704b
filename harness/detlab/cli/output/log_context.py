"""What stands around lines of output, and the first line that tells of an error. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from detlab.schemas.wire import LogLine

MOST_CONTEXT = 20
FIRST_ERROR = (
    r"^(Traceback \(most recent call last\)|(\w+\.)*\w*(Error|Exception)(:|$)"
    r"|(FATAL|fatal|panic|Segmentation fault|Fatal Python error)\b)"
)
"""What tells of an error in a line without a level; the pages look for the same."""


def around(lines: Iterable[LogLine], wanted: Callable[[LogLine], bool], count: int) -> Iterator[LogLine | None]:
    """Yield the lines that are wanted with so many before and after each, in order; None where lines are left out."""
    before: deque[LogLine] = deque(maxlen=count)
    left, skipped, begun = 0, False, False
    for line in lines:
        if wanted(line):
            if skipped and begun:
                yield None
            yield from before
            before.clear()
            yield line
            left, skipped, begun = count, False, True
        elif left > 0:
            yield line
            left -= 1
        else:
            skipped = skipped or len(before) == count
            before.append(line)
