"""What the last pass of the scheduler said of everything that waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property


class Pending(dict[str, str]):
    """Why each allocation without a place waits, by its id, in the order of the queue.

    Attributes:
        places: Its place in the line of its pool, from 1: what waits in other pools is in nobody's way.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, pools: Mapping[str, str] | None = None) -> None:
        super().__init__(texts or {})
        lines, pools = Counter[str](), pools or {}
        self.places: dict[str, int] = {}
        for allocation_id in self:
            pool = pools.get(allocation_id, "")
            lines[pool] += 1
            self.places[allocation_id] = lines[pool]

    @cached_property
    def of_experiments(self) -> dict[int, str]:
        """Why most of its trials wait, by experiment: counted once for a pass, however many look."""
        votes: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for allocation_id, text in self.items():
            number = allocation_id.partition(".")[0]
            if number.isdigit():
                votes[int(number)][text] += 1
        return {experiment: count.most_common(1)[0][0] for experiment, count in votes.items()}
