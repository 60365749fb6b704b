"""What a pass over a pool with shares of users goes by: use that fades, and minimum runs.

A clock that was set back protects nobody and holds nobody back: a time that is still to come counts as long ago.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from detlab_hub.core.scheduling import PoolConfig, decayed_usage
from detlab_hub.services.placement.active_rows import PlacedRow, WaitingRow
from detlab_hub.store.queries.usage import Faded


def used_now(pool: PoolConfig, faded: Iterable[Faded], runs: Iterable[PlacedRow], now: float) -> dict[str, float]:
    """Return the slot-seconds that users have used of a pool, faded to now.

    Args:
        pool: The pool.
        faded: What was written down when allocations ended.
        runs: The allocations that have slots there.
        now: The time, in seconds since the epoch.
    """
    half_life, used = pool.rules.half_life, defaultdict[str, float](float)
    for row in faded:
        used[row.owner] += decayed_usage.faded(row.slot_seconds, now - row.at, half_life)
    for one in runs:
        if one.assigned_at is not None:
            used[one.owner] += decayed_usage.span(len(one.slots), one.assigned_at, now, now, half_life)
    return dict(used)


def may_evict(pool: PoolConfig, row: WaitingRow, now: float) -> bool:
    """Whether a pending task has waited long enough to take slots from others."""
    return not (pool.by_users and 0.0 <= now - row.requested_at < pool.evict_after)


def in_minimum_run(pool: PoolConfig, began: float, now: float) -> bool:
    """Whether the slots of a running task may not be taken yet."""
    return pool.by_users and 0.0 <= now - began < pool.min_run
