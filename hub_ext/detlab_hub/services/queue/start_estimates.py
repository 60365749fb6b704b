"""Estimated starts of pending tasks, cached for a moment: computing them takes many passes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from detlab_hub.core.scheduling import Snapshot, schedule
from detlab_hub.core.scheduling.estimates import estimated_starts

FRESH_SECONDS = 5.0
"""Seconds for which an estimate is valid while no task is submitted, starts, ends or is moved."""


class _Known(NamedTuple):
    key: Hashable
    at: float
    starts: Mapping[str, float | None]


class Forecasts:
    """The newest answer for each pool."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def starts(
        self, pool: str, snapshot: Snapshot, now: float, observed: Mapping[str, float] | None = None
    ) -> Mapping[str, float | None]:
        """Return in how many seconds each pending task of a pool is expected to start; None where that is not known.

        Args:
            pool: Its name.
            snapshot: The pool now.
            now: The time, in seconds since the epoch.
            observed: How many seconds tasks of a job took that have ended, by job.
        """
        key = _key_of(snapshot)
        known = self._known.get(pool)
        if known is None or known.key != key or not 0 <= now - known.at < FRESH_SECONDS:
            known = self._known[pool] = _Known(key, now, estimated_starts(snapshot, schedule, observed, now))
        gone = now - known.at
        return {name: None if left is None else max(0.0, left - gone) for name, left in known.starts.items()}


def _key_of(snapshot: Snapshot) -> Hashable:
    """Return the parts of a pool that the estimate depends on, except the passing of time."""
    tasks = [
        (task.id, task.job, task.slots, task.millicpus, task.memory, task.state, task.leaving, task.preemptible,
         task.blocked_nodes, task.aged)
        for task in snapshot.tasks
    ]  # fmt: skip
    jobs = [snapshot.jobs[name] for name in sorted(snapshot.jobs)]
    labels = [sorted(agent.labels.items()) for agent in snapshot.agents]
    return snapshot.pool, str(labels), snapshot.agents, snapshot.quotas, tuple(jobs), tuple(tasks)
