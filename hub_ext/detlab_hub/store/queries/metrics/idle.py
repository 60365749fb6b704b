"""GPUs that trials hold and do not use, by the profiler's `gpu_util_*`, where trials report it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.store.tables import AllocationRow, MetricName, MetricPoint, MetricSeries

GROUP, NAME = "gpu", "gpu_util_%"
_LOOKED_AT = 500
"""Newest points of a GPU that are looked at."""
_LEAST = 3
"""Points within the time, for one to be sure."""


class IdleTrial(NamedTuple):
    """A running trial whose GPUs all were at 0 % for a time."""

    trial_id: int
    since: float
    """Since when all points are 0, as far as it was looked."""


def idle_trials(s: Session, now: float, seconds: float, trial_ids: Collection[int]) -> list[IdleTrial]:
    """Return those of some trials whose GPUs were all at 0 % for so many seconds, until their last report.

    Left out are a trial that has reported nothing for as long, whose numbers say nothing about now, and one that does
    not report all of its GPUs.
    """
    columns = (AllocationRow.trial_id, AllocationRow.run, AllocationRow.slots_needed)
    query = select(*columns).where(
        AllocationRow.state == AllocationState.RUNNING,
        AllocationRow.slots_needed > 0,
        AllocationRow.started_at <= now - seconds,
    )
    found = []
    wanted = set(trial_ids)
    for trial_id, run, slots in s.execute(query.order_by(AllocationRow.trial_id)):
        if trial_id not in wanted:
            continue
        series = _gpus(s, trial_id)
        if len(series) < slots or any(last != 0 for _, last in series):
            continue
        idle = [_since(s, key, run, now, seconds) for key, _ in series]
        known = [at for at in idle if at is not None]
        if len(known) == len(idle) and now - max(known) >= seconds:
            found.append(IdleTrial(trial_id, max(known)))
    return found


def _gpus(s: Session, trial_id: int) -> list[tuple[int, float | None]]:
    query = select(MetricSeries.id, MetricSeries.last).join(MetricName, MetricName.id == MetricSeries.name_id)
    query = query.where(MetricSeries.trial_id == trial_id, MetricSeries.group_name == GROUP, MetricName.name.like(NAME))
    return [(key, last) for key, last in s.execute(query)]


def _since(s: Session, series_id: int, run: int, now: float, seconds: float) -> float | None:
    """Return since when a GPU is at 0 % in this attempt; None if that is not sure."""
    query = select(MetricPoint.time, MetricPoint.value).where(
        MetricPoint.series_id == series_id, MetricPoint.run == run
    )
    points = s.execute(query.order_by(MetricPoint.step.desc()).limit(_LOOKED_AT)).all()
    if not points or now - points[0][0] >= seconds:
        return None
    zeros = []
    for at, value in points:
        if value != 0:
            break
        zeros.append(at)
    return zeros[-1] if len(zeros) >= _LEAST else None
