"""How long to wait before a part is started again."""

from __future__ import annotations

from dataclasses import dataclass

_DOUBLINGS = 20
"""Far above any cap; the bound keeps the power small after a week of failures."""


@dataclass
class Backoff:
    """Exponential delays: each quick exit doubles the wait, a healthy while forgets them.

    Attributes:
        base: First delay, seconds.
        cap: Longest delay, seconds.
        healthy: A run of at least this many seconds starts from `base` again.
    """

    base: float = 0.5
    cap: float = 30.0
    healthy: float = 60.0
    quick_exits: int = 0

    def after(self, ran_for: float) -> float:
        """Return the delay after a run that lasted `ran_for` seconds."""
        if ran_for >= self.healthy:
            self.quick_exits = 0
        delay = min(self.cap, self.base * 2.0 ** min(self.quick_exits, _DOUBLINGS))
        self.quick_exits += 1
        return delay
