"""What an import leaves out, and why: counted, with a few examples."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

EXAMPLES = 3
_CHARS = 120


@dataclass
class Omission:
    """Things that were left out for one reason."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


class LeftOut:
    """What was left out, by reason. Threads may share it."""

    def __init__(self) -> None:
        self._found: dict[str, Omission] = {}
        self._lock = threading.Lock()

    def add(self, why: str, example: str = "", count: int = 1) -> None:
        """Count something.

        Args:
            why: What it is, in the plural, and why: `deleted runs`, `files over 10 GiB`.
            example: One of them.
            count: How many.
        """
        with self._lock:
            one = self._found.setdefault(why, Omission())
            one.count += count
            shown = example[:_CHARS]
            if shown and len(one.examples) < EXAMPLES and shown not in one.examples:
                one.examples.append(shown)

    def __bool__(self) -> bool:
        return bool(self._found)

    def items(self) -> list[tuple[str, Omission]]:
        """Return reasons with what they left out, those with most first."""
        with self._lock:
            return sorted(self._found.items(), key=lambda item: (-item[1].count, item[0]))
