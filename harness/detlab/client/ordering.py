"""Sort and choose experiments, trials, checkpoints and lines of output: Determined's names for keys and filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from operator import index
from os import PathLike
from typing import Any, TypeVar

from detlab.schemas.wire import Archived, CheckpointView, ExperimentState, ExperimentView, LogLine, TrialView

_View = TypeVar("_View", ExperimentView, TrialView)


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


class ExperimentSortBy(StrEnum):
    """Key of a list of experiments."""

    ID = "id"
    DESCRIPTION = "description"
    START_TIME = "started_at"
    END_TIME = "ended_at"
    STATE = "state"
    NUM_TRIALS = "num_trials"
    PROGRESS = "progress"
    USER = "owner"
    NAME = "name"
    SEARCHER_METRIC_VAL = "best"


class TrialSortBy(StrEnum):
    """Key of a list of trials."""

    ID = "id"
    START_TIME = "started_at"
    END_TIME = "ended_at"
    STATE = "state"
    BEST_VALIDATION_METRIC = "best_validation"
    LATEST_VALIDATION_METRIC = "latest_validation"
    BATCHES_PROCESSED = "steps_completed"
    DURATION = "duration"
    RESTARTS = "restarts"


class CheckpointState(StrEnum):
    """What has become of a checkpoint."""

    COMPLETED = "COMPLETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"
    DELETED = "DELETED"


class LogLevel(StrEnum):
    """How severe a line of output is, in order."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


def several(given: Iterable[Any] | None) -> list[Any] | None:
    """Return the items of an argument that takes several: of a text or a path, which has letters or none, itself."""
    if given is None:
        return None
    return [given] if isinstance(given, str | bytes | PathLike | int) else list(given)


def known_state(state: str | None, states: type[StrEnum]) -> str | None:
    """Return the name of a state, None for no filter.

    Args:
        state: As it was given; case does not matter.
        states: The states that there are.

    Raises:
        ValueError: There is no such state; the message says which there are.
    """
    if state is None:
        return None
    names = [member.value for member in states]
    name = str(state).upper()
    if name not in names:
        raise ValueError(f"no state {str(state)[:_SHOWN]!r}: it is one of {', '.join(names)}")
    return name


def known_limit(limit: int | None) -> int | None:
    """Return how many items a list may have, None for all.

    Raises:
        ValueError: It is not a whole number from 1 on.
    """
    if limit is None:
        return None
    whole = index(limit) if hasattr(limit, "__index__") and not isinstance(limit, bool) else 0
    if whole < 1:
        raise ValueError(f"limit must be a whole number from 1 on, or None for all, not {str(limit)[:_SHOWN]}")
    return whole


_SHOWN = 60
"""Characters of what was given, in an error."""
_COMPUTED: dict[str, Callable[[Any], Any]] = {
    "best": lambda view: view.best.value if view.best is not None else None,
    "num_trials": lambda view: sum(view.trials.values()),
    "duration": lambda view: view.ended_at - view.started_at if view.ended_at and view.started_at else None,
}


def sort_views(views: Iterable[_View], sort_by: StrEnum, order_by: OrderBy | str) -> list[_View]:
    """Return experiments or trials in order; those without the key come last, whatever the direction.

    Args:
        views: In any order; equal ones stay in theirs.
        sort_by: `ExperimentSortBy` for experiments, `TrialSortBy` for trials.
        order_by: Direction.
    """
    key = _COMPUTED.get(sort_by.value) or (lambda view: getattr(view, sort_by.value))
    keyed = [(key(view), view) for view in views]
    present = [item for item in keyed if _ordered(item[0])]
    present.sort(key=lambda item: item[0], reverse=OrderBy(order_by) is OrderBy.DESCENDING)
    return [view for _, view in present] + [view for value, view in keyed if not _ordered(value)]


def choose_experiments(
    views: Iterable[ExperimentView],
    *,
    experiment_ids: Collection[int] | None = None,
    labels: Collection[str] | None = None,
    users: Collection[str] | None = None,
    states: Collection[ExperimentState | str] | None = None,
) -> list[ExperimentView]:
    """Return the experiments that pass all filters; None lets everything pass.

    Args:
        views: Experiments.
        experiment_ids: One of these.
        labels: With all of these labels.
        users: Of one of these users.
        states: In one of these states.

    Raises:
        ValueError: There is no such state.
    """
    experiment_ids, labels, users = several(experiment_ids), several(labels), several(users)
    wanted_states = None if states is None else {known_state(state, ExperimentState) for state in several(states) or ()}
    return [
        view
        for view in views
        if (experiment_ids is None or view.id in experiment_ids)
        and (labels is None or set(labels) <= set(view.labels))
        and (users is None or view.owner in users)
        and (wanted_states is None or view.state in wanted_states)
    ]


def archived_filter(archived: bool | None) -> Archived | None:
    """Return what the master is asked for; None: what it does by itself, without archived experiments."""
    return "any" if archived is None else "only" if archived else None


def line_filter(
    *,
    rank_ids: Collection[int] | None = None,
    stdtypes: Collection[str] | None = None,
    min_level: LogLevel | str | None = None,
    timestamp_before: datetime | float | str | None = None,
    timestamp_after: datetime | float | str | None = None,
) -> Callable[[LogLine], bool]:
    """Return the test for lines of output that pass all filters; None lets everything pass.

    Args:
        rank_ids: Lines of these ranks.
        stdtypes: Lines written to these: `stdout`, `stderr`, `launcher`.
        min_level: Lines at least this severe; those without a level count as INFO.
        timestamp_before: Lines written before: a time, seconds since the epoch, or text in ISO 8601.
        timestamp_after: Lines written at or after.

    Raises:
        ValueError: There is no such level, or a time cannot be read.
    """
    severity = {level.value: at for at, level in enumerate(LogLevel)}
    least, info = None if min_level is None else severity[LogLevel(min_level)], severity[LogLevel.INFO]
    before, after = _seconds(timestamp_before), _seconds(timestamp_after)

    def passes(line: LogLine) -> bool:
        return (
            (rank_ids is None or line.rank in rank_ids)
            and (stdtypes is None or line.stdtype in stdtypes)
            and (least is None or severity.get(line.level or "", info) >= least)
            and (before is None or line.time < before)
            and (after is None or line.time >= after)
        )

    return passes


def _seconds(moment: datetime | float | str | None) -> float | None:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return moment.timestamp() if isinstance(moment, datetime) else moment


def other_metric(sort_by: CheckpointSortBy | str | None, metric: str) -> str | None:
    """Return the metric to sort checkpoints by if it is not the searcher's; None: by that one, or by a key."""
    if sort_by is None or sort_by == metric or sort_by in {item.value for item in CheckpointSortBy}:
        return None
    return str(sort_by)


def check_metric(checkpoints: Sequence[CheckpointView], other: str | None, metric: str) -> None:
    """Check that a metric to sort by was reported at the step of some checkpoint: else its name is misspelt.

    Raises:
        ValueError: There are checkpoints, and it was not.
    """
    if other is not None and checkpoints and not any(other in item.metrics for item in checkpoints):
        known = ", ".join(item.value for item in CheckpointSortBy)
        raise ValueError(
            f"checkpoints cannot be sorted by {other!r}: no validation reported it at the step of one;"
            f" other keys are {known} and the searcher metric {metric!r}"
        )


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
        sort_by: Key, or the name of a validation metric; None means the searcher metric.
        order_by: Direction; None means best first for the searcher metric and ascending for other keys.
        metric: Name of the searcher metric.
        smaller_is_better: Which end of the searcher metric is best.
        max_results: Keep that many.

    Raises:
        ValueError: There are checkpoints, and none has a value of that metric.
    """
    other = other_metric(sort_by, metric)
    check_metric(checkpoints, other, metric)
    named = CheckpointSortBy.SEARCHER_METRIC if sort_by is None or sort_by == metric else sort_by
    key = None if other is not None else CheckpointSortBy(named)
    by_metric = key in (None, CheckpointSortBy.SEARCHER_METRIC)

    def value(item: CheckpointView) -> Any:
        return item.metrics.get(other or "") if key is None else getattr(item, key.value)

    if order_by is None:
        descending = by_metric and not smaller_is_better
    else:
        descending = OrderBy(order_by) is OrderBy.DESCENDING
    ranked = sorted(checkpoints, key=lambda item: (item.created_at, item.uuid))
    diverged = (-math.inf if smaller_is_better else math.inf) if by_metric else None
    present = [item for item in ranked if _ordered(value(item), diverged)]
    missing = [item for item in ranked if not _ordered(value(item), diverged)]
    present.sort(key=value, reverse=descending)
    return (present + missing)[:max_results]


def newest_checkpoint(checkpoints: Sequence[CheckpointView]) -> CheckpointView | None:
    """Return the one with files of the most steps, then the youngest: what its trial would resume from."""
    present = [item for item in checkpoints if item.state == "COMPLETED"]
    return max(present, key=lambda item: (item.steps_completed, item.created_at, item.uuid), default=None)


def _ordered(value: object, diverged: float | None = None) -> bool:
    """Whether a value has a place in an order: NaN, None and an infinitely good score have none."""
    return value not in (None, diverged) and not (isinstance(value, float) and math.isnan(value))
