"""The distribution of a task's slots over several agents, if no single one has room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TypeAlias

from detlab_hub.core.scheduling.fit.free_index import Size, Sizes, nearest
from detlab_hub.core.scheduling.model import Fitting, Pool

Placement: TypeAlias = dict[str, int]
"""Slots by agent; {agent: 0} for a task without slots."""
_Placed: TypeAlias = dict[int, int]
"""Slots by the rank of the agent."""


def score(pool: Pool, size: Size) -> float:
    """Return the score of agents of a size: a task goes where it is highest."""
    if pool.fitting is Fitting.BEST:
        return 1 / (1 + size.free)
    return size.free / size.slots if size.slots else 0.0


def on_several(pool: Pool, end: int, slots: int, sizes: Sizes) -> _Placed | None:
    """Place a task on idle agents of one size; on idle ones of any size; on parts of any.

    Args:
        pool: Sets the scores, and whether agents may give different numbers of slots.
        end: Where the search for near agents begins, see `AgentOrder.end`.
        slots: Slots that it needs.
        sizes: The agents that it may use.
    """
    idle: dict[int, list[int]] = {}
    for size, ranks in sizes.items():
        if size.free and size.free == size.slots:
            idle[size.free] = ranks
    for each in sorted(idle, reverse=True):
        if slots % each == 0 and len(idle[each]) * each >= slots:
            return dict.fromkeys(nearest(end, idle[each], slots // each), each)
    if pool.heterogeneous and (whole := _whole_nodes(end, slots, idle)) is not None:
        return whole
    return _parts(pool, end, slots, sizes)


def _whole_nodes(end: int, slots: int, idle: Mapping[int, list[int]]) -> _Placed | None:
    """Take all slots of idle agents, from the largest to the smallest, if the sum is exact."""
    found: _Placed = {}
    left = slots
    for each in sorted(idle, reverse=True):
        for rank in nearest(end, idle[each], left // each):
            found[rank] = each
            left -= each
    return None if left else found


def _parts(pool: Pool, end: int, slots: int, sizes: Sizes) -> _Placed | None:
    """Take the same number of slots on each of as few agents as possible; else different ones if allowed."""
    largest = max((size.free for size in sizes), default=0)
    for each in range(min(largest, slots // 2), 0, -1):
        if slots % each:
            continue
        roomy = [size for size in sizes if size.free >= each]
        if sum(len(sizes[size]) for size in roomy) * each >= slots:
            return dict.fromkeys(_take(pool, end, slots // each, roomy, sizes), each)
    if not pool.heterogeneous:
        return None
    found: _Placed = {}
    left = slots
    for best, ranks in _merged({size: ranks for size, ranks in sizes.items() if size.free}, lambda size: -size.free):
        each = round(-best)
        for rank in nearest(end, ranks, -(-left // each)):
            found[rank] = min(left, each)
            left -= found[rank]
        if left == 0:
            return found
    return None


def _take(pool: Pool, end: int, count: int, roomy: Sequence[Size], sizes: Sizes) -> list[int]:
    """Take `count` agents, those with the best scores first."""
    taken: list[int] = []
    for _, ranks in _merged({size: sizes[size] for size in roomy}, lambda size: -score(pool, size)):
        taken += nearest(end, ranks, count - len(taken))
        if len(taken) == count:
            break
    return taken


def _merged(sizes: Sizes, rank: Callable[[Size], float]) -> Iterator[tuple[float, Sequence[int]]]:
    """Yield the agents of all sizes of equal rank together, in the order of hashes; the lowest rank first."""
    for least, group in groupby(sorted(sizes, key=rank), rank):
        lists = [sizes[size] for size in group]
        yield least, lists[0] if len(lists) == 1 else sorted(chain.from_iterable(lists))
