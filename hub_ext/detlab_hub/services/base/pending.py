"""The result of the scheduler's last pass for all pending tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeAlias


class PendingReasons(dict[str, str]):
    """Why each allocation without a place waits, by its id, in the order of the queue.

    Args:
        texts: The reasons.
        pools: Where each waits; by default all wait in one pool.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, pools: Mapping[str, str] | None = None) -> None:
        super().__init__(texts or {})
        self._pools = pools or {}

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each in its pool's queue, from 1; pools do not block each other."""
        lines, places = Counter[str](), dict[str, int]()
        for allocation_id in self:
            pool = self._pools.get(allocation_id, "")
            lines[pool] += 1
            places[allocation_id] = lines[pool]
        return places

    @cached_property
    def of_experiments(self) -> dict[int, str]:
        """The most frequent pending reason of its trials, by experiment: counted once for a pass, for all readers."""
        most: dict[str, tuple[int, str]] = {}
        votes = Counter(zip((allocation_id.partition(".")[0] for allocation_id in self), self.values(), strict=True))
        for (number, text), count in votes.items():
            if count > most.get(number, (0, ""))[0]:
                most[number] = count, text
        return {int(number): text for number, (_, text) in most.items() if number.isdigit()}

    @cached_property
    def of_tasks(self) -> dict[str, str]:
        """The pending reason of each user task that waits, by the task's id."""
        named = ((allocation_id.rpartition(".")[0], text) for allocation_id, text in self.items())
        return {name: text for name, text in named if "." not in name}


class HeldBack(NamedTuple):
    """A preemption victim that was not notified yet.

    Attributes:
        since: When the first of the victims that leave with it was held back.
        waiting: For whom it was chosen.
    """

    since: float
    waiting: frozenset[str]


Saving: TypeAlias = Mapping[str, HeldBack]
NONE_HELD_BACK: Saving = MappingProxyType({})
