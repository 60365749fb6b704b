"""What stands on one side of a comparison: a trial, the best trials of an experiment, or a run from anywhere."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from detlab.schemas.wire import SummaryView
from detlab.schemas.wire.comparison import ComparedRun
from detlab.schemas.wire.logged_names import place_of
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.tracking.access import TrackedRun
from detlab_hub.services.tracking.facts import NAME_TAG, NOTES_TAG, USER_TAG, RunFacts, run_facts
from detlab_hub.store.queries.finding import comparison
from detlab_hub.store.tables import ExperimentRow, TrialRow

MetricKey = tuple[str, str]
"""Group, name."""
_SAID_ELSEWHERE = frozenset({NAME_TAG, NOTES_TAG, USER_TAG})


@dataclass
class Measured:
    """The metrics of one trial or run."""

    summaries: Mapping[str, Mapping[str, SummaryView]]
    at_best: Mapping[MetricKey, float]


@dataclass(frozen=True)
class Side:
    """A run with the rows that it stands for.

    Attributes:
        view: As it is sent.
        config: What its settings are, as they may be shown.
        trials: Whose metrics are its own.
        measured: Its metrics, if it is a run from anywhere, which has no trials.
    """

    view: ComparedRun
    config: Mapping[str, Any]
    trials: Sequence[TrialRow] = ()
    measured: Measured | None = None


def of_trial(experiment: ExperimentRow, row: TrialRow) -> Side:
    """Return the side of a trial."""
    return _side(experiment, [row], "trial", row.id, row.state)


def of_experiment(s: Session, row: ExperimentRow) -> Side:
    """Return the side of an experiment: its best trial or, of a search with seeds, those of the best point."""
    trials: Sequence[TrialRow] = []
    if _seeds(row) > 1:
        trials = comparison.best_point(s, row.id, smaller_is_better=row.smaller_is_better)
    if not trials:
        best = None if row.best_trial_id is None else s.get(TrialRow, row.best_trial_id)
        best = best or comparison.first_trial(s, row.id)
        trials = [] if best is None else [best]
    return _side(row, trials, "experiment", row.id, row.state)


def _seeds(row: ExperimentRow) -> int:
    return int((row.config.get("searcher") or {}).get("seeds") or 1)


def _side(
    row: ExperimentRow, trials: Sequence[TrialRow], kind: Literal["trial", "experiment"], key: int, state: str
) -> Side:
    bests = [one.best_validation for one in trials if one.best_validation is not None]
    first = trials[0] if trials else None
    view = ComparedRun(
        kind=kind,
        id=key,
        experiment_id=row.id,
        name=row.name,
        owner=row.owner,
        labels=row.labels,
        state=state,
        trial_ids=[one.id for one in trials],
        index=None if first is None else first.idx,
        seed=None if first is None else first.seed,
        seeds=_seeds(row),
        metric=row.metric,
        smaller_is_better=row.smaller_is_better,
        best=mean_of(bests),
        deviation=deviation_of(bests),
        hparams={} if first is None else first.hparams,
        steps_completed=max((one.steps_completed for one in trials), default=0),
        created_at=row.created_at,
        started_at=min((one.started_at for one in trials if one.started_at is not None), default=None),
        ended_at=_end([one.ended_at for one in trials]),
        bundle=row.bundle,
    )
    return Side(view, masked_config(row.config), trials)


def _end(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean, or None of nothing."""
    return sum(values) / len(values) if values else None


def deviation_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the sample, or None of less than two finite values."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.stdev(finite) if len(finite) > 1 else None


# --- runs from anywhere


def of_tracked(
    s: Session, found: Sequence[TrackedRun], searched: Collection[str], names: Collection[str] | None
) -> list[Side]:
    """Return the sides of runs that are no trials.

    Args:
        s: A session.
        found: The runs.
        searched: The metrics of the searches beside them: one of the same name is compared with those.
        names: Only metrics of these names, if there are any.
    """
    return [_of_tracked(one, facts, searched, names) for one, facts in zip(found, run_facts(s, found), strict=True)]


def _of_tracked(found: TrackedRun, facts: RunFacts, searched: Collection[str], names: Collection[str] | None) -> Side:
    summaries: dict[str, dict[str, SummaryView]] = {}
    last: dict[MetricKey, float] = {}
    for point in facts.metrics:
        group, name = placed(point.key, searched)
        if names is None or name in names:
            summaries.setdefault(group, {}).setdefault(name, SummaryView(last=point.value, last_step=point.step))
    last = {
        (group, name): one.last
        for group, some in summaries.items()
        for name, one in some.items()
        if one.last is not None
    }
    view = ComparedRun(
        kind="run",
        id=0,
        run_id=found.id,
        experiment_id=0 if found.experiment is None else found.experiment.id,
        name=facts.name,
        owner=found.owner,
        state=facts.status,
        hparams={name: setting(text) for name, text in facts.params.items()},
        steps_completed=max((point.step for point in facts.metrics), default=0),
        created_at=facts.started_ms / 1000,
        started_at=facts.started_ms / 1000,
        ended_at=None if facts.ended_ms is None else facts.ended_ms / 1000,
    )
    tags = {key: value for key, value in facts.tags.items() if key not in _SAID_ELSEWHERE}
    return Side(view, {"tags": tags} if tags else {}, measured=Measured(summaries, last))


def placed(key: str, searched: Collection[str]) -> MetricKey:
    """Return the group and name by which a metric of a run is compared with those of trials."""
    return place_of(key, key if key in searched else "")


def setting(text: str) -> Any:
    """Return what a parameter was before a client made a text of it: a number, true, false, nothing, else a text."""
    if text in {"True", "False"}:
        return text == "True"
    if text == "None":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, float) and not math.isfinite(value):
        return text
    return text if isinstance(value, str | list | dict) else value
