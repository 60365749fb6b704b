"""Sorting checkpoints and trials for people: Determined's names for the keys and directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from detlab.schemas.wire import CheckpointView


class OrderBy(StrEnum):
    """Direction of a list."""

    ASCENDING = "asc"
    DESCENDING = "desc"
    ASC = ASCENDING
    DESC = DESCENDING


class CheckpointSortBy(StrEnum):
    """Key of a list of checkpoints."""

    UUID = "uuid"
    TRIAL_ID = "trial_id"
    BATCH_NUMBER = "steps_completed"
    END_TIME = "created_at"
    STATE = "state"
    SEARCHER_METRIC = "validation"


def sort_checkpoints(
    checkpoints: Sequence[CheckpointView],
    *,
    sort_by: CheckpointSortBy | str | None,
    order_by: OrderBy | str | None,
    metric: str,
    smaller_is_better: bool,
    max_results: int | None = None,
) -> list[CheckpointView]:
    """Return checkpoints in order; those without the key come last, whatever the direction.

    Args:
        checkpoints: In any order.
        sort_by: Key, or the searcher metric's name; None means the searcher metric.
        order_by: Direction; None means best first for the searcher metric and ascending for other keys.
        metric: Name of the searcher metric.
        smaller_is_better: Which end of the searcher metric is best.
        max_results: Keep that many.

    Raises:
        ValueError: Checkpoints cannot be sorted by that.
    """
    named = CheckpointSortBy.SEARCHER_METRIC if sort_by is None or sort_by == metric else sort_by
    try:
        key = CheckpointSortBy(named)
    except ValueError:
        known = ", ".join(item.value for item in CheckpointSortBy)
        message = f"checkpoints cannot be sorted by {sort_by!r}, only by {known} or the searcher metric {metric!r}"
        raise ValueError(message) from None
    by_metric = key is CheckpointSortBy.SEARCHER_METRIC
    if order_by is None:
        descending = by_metric and not smaller_is_better
    else:
        descending = OrderBy(order_by) is OrderBy.DESCENDING
    ranked = sorted(checkpoints, key=lambda item: (item.created_at, item.uuid))
    diverged = (-math.inf if smaller_is_better else math.inf) if by_metric else None
    present = [item for item in ranked if _ordered(getattr(item, key.value), diverged)]
    missing = [item for item in ranked if not _ordered(getattr(item, key.value), diverged)]
    present.sort(key=lambda item: getattr(item, key.value), reverse=descending)
    return (present + missing)[:max_results]


def newest_checkpoint(checkpoints: Sequence[CheckpointView]) -> CheckpointView | None:
    """Return the one with files of the most steps, then the youngest: what its trial would resume from."""
    present = [item for item in checkpoints if item.state != "DELETED"]
    return max(present, key=lambda item: (item.steps_completed, item.created_at, item.uuid), default=None)


def _ordered(value: object, diverged: float | None) -> bool:
    """Whether a value has a place in an order: NaN, None and an infinitely good score have none."""
    return value not in (None, diverged) and not (isinstance(value, float) and math.isnan(value))
