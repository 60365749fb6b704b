"""Trials and experiments side by side: settings, metrics and curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic_core import to_json
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, DetlabError, Problem
from detlab.schemas.wire import SummaryView, encode_floats
from detlab.schemas.wire.comparison import (
    MOST_CURVE_TRIALS,
    MOST_RUNS,
    CodeComparison,
    ComparedRun,
    RunComparison,
    RunCurves,
    RunMetric,
    RunSummary,
)
from detlab.schemas.wire.registry import Difference
from detlab_hub.core.rights import Right
from detlab_hub.services.base.access import rights_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.comparison.code import CodeDifferences, CodeSource
from detlab_hub.services.comparison.differing import differences, flat
from detlab_hub.services.views import pages
from detlab_hub.store.queries.finding import comparison
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import ExperimentRow, TrialRow

MOST_METRICS = 2000
"""Rows of the table of metrics."""
MOST_SUMMARIES = 20_000
"""Summaries that one comparison reads, of all its trials."""
VALUE_BYTES = 1000
"""Of one setting in a table."""


@dataclass(frozen=True)
class _Side:
    """A run with the rows that it stands for."""

    view: ComparedRun
    config: dict[str, Any]
    trials: Sequence[TrialRow]


@dataclass(frozen=True)
class _Compared:
    """What the database says of the runs."""

    head: RunComparison
    views: Sequence[ComparedRun]
    configs: Sequence[Mapping[str, Any]]
    metrics: Sequence[RunMetric]


@dataclass
class _Readable:
    """What a caller may read of what they have asked for."""

    trials: dict[int, TrialRow]
    experiments: dict[int, ExperimentRow]
    """By their ids, those of the trials among them."""
    absent_trials: list[int] = field(default_factory=list)
    absent_experiments: list[int] = field(default_factory=list)


class RunComparisons(Service):
    """Compares runs. What a caller may not read is absent, like what there is not: they cannot tell.

    Args:
        context: Reads.
        code: Compares code.
    """

    def __init__(self, context: ServiceContext, code: CodeDifferences) -> None:
        super().__init__(context)
        self._code = code

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[CodeDifferences])

    async def compare(
        self,
        caller: Caller,
        trials: Sequence[int] = (),
        experiments: Sequence[int] = (),
        *,
        metrics: Sequence[str] = (),
        skip: int = 0,
    ) -> RunComparison:
        """Return a part of a comparison.

        Args:
            caller: Who asks.
            trials: Trials.
            experiments: Experiments.
            metrics: Names of metrics; none: all.
            skip: Rows of the parts before.

        Raises:
            ConfigError: There are no runs, or too many.
        """
        trials, experiments = _asked(trials, experiments)

        def look(s: Session) -> _Compared:
            found = _readable(s, caller, trials, experiments)
            sides = [_of_trial(found, one) for one in trials if one in found.trials]
            sides += [_of_experiment(s, found.experiments[one]) for one in experiments if one in found.experiments]
            rows, left_out = _metrics(s, sides, metrics)
            return _Compared(
                RunComparison(
                    absent_trials=found.absent_trials,
                    absent_experiments=found.absent_experiments,
                    metrics_left_out=left_out,
                ),
                [side.view for side in sides],
                [masked_config(side.config) for side in sides],
                rows,
            )

        compared = await self._context.look(caller.name, look)
        return await self._context.workers.comparisons.run(caller.name, _part, compared, skip)

    async def curves(
        self,
        caller: Caller,
        trials: Sequence[int],
        *,
        group: str | None = None,
        names: Sequence[str] = (),
        max_points: int = 500,
        skip: int = 0,
    ) -> RunCurves:
        """Return a part of the curves of some trials, down-sampled to `max_points` each.

        Raises:
            ConfigError: There are no trials, or too many.
        """
        trials = list(dict.fromkeys(trials))
        _check_count(len(trials), MOST_CURVE_TRIALS, "trials", "trials")

        def look(s: Session) -> RunCurves:
            found = _readable(s, caller, trials, ())
            shown = [one for one in trials if one in found.trials]
            items, following = curves.series_part(
                s, shown, group, names or None, max_points, skip=skip, most_bytes=pages.PAGE_BYTES
            )
            return RunCurves(items=items, absent_trials=found.absent_trials, next=following)

        return await self._context.look(caller.name, look)

    async def code(
        self, caller: Caller, trials: Sequence[int] = (), experiments: Sequence[int] = (), *, skip: int = 0
    ) -> CodeComparison:
        """Return a part of how the code of runs differs; the lines are of the first two that differ in a file.

        Raises:
            ConfigError: There are no runs, or too many.
        """
        trials, experiments = _asked(trials, experiments)

        def look(s: Session) -> tuple[CodeComparison, list[CodeSource]]:
            found = _readable(s, caller, trials, experiments)
            ids = [found.trials[one].experiment_id for one in trials if one in found.trials]
            ids += [one for one in experiments if one in found.experiments]
            rows = [found.experiments[one] for one in dict.fromkeys(ids)]
            head = CodeComparison(
                experiments=[row.id for row in rows],
                absent_trials=found.absent_trials,
                absent_experiments=found.absent_experiments,
            )
            bundles = {row.bundle for row in rows}
            head.note = _why_no_code(bundles)
            return head, [] if head.note else [CodeSource(row.id, None, f"experiment {row.id}") for row in rows]

        head, sources = await self._context.look(caller.name, look)
        if not sources:
            return head
        try:
            items = await self._code.between(caller, sources)
        except DetlabError as error:
            return head.model_copy(update={"note": f"the code cannot be compared: {error}"})
        return pages.in_part(head.model_copy(update={"items": items}), skip)


def _why_no_code(bundles: set[str | None]) -> str:
    if len(bundles) > 1:
        return ""
    return "no code was recorded" if bundles <= {None} else "the code is the same"


# --- what is asked for


def _asked(trials: Sequence[int], experiments: Sequence[int]) -> tuple[list[int], list[int]]:
    unique = list(dict.fromkeys(trials)), list(dict.fromkeys(experiments))
    _check_count(len(unique[0]) + len(unique[1]), MOST_RUNS, "trials and experiments", "trials")
    return unique


def _check_count(count: int, most: int, what: str, where: str) -> None:
    if not 1 <= count <= most:
        problem = f"name 1 to {most} {what}, not {count}"
        raise ConfigError([Problem(where, problem)], f"nothing to compare: {problem}")


def _readable(s: Session, caller: Caller, trials: Sequence[int], experiments: Sequence[int]) -> _Readable:
    rows = comparison.trials_by_id(s, trials)
    parents = comparison.experiments_by_id(s, {*experiments, *(row.experiment_id for row in rows.values())})
    rights = rights_to(s, caller, list(parents.values()))
    mine = {key: row for key, row in parents.items() if rights[key] >= Right.READ}
    shown = {key: row for key, row in rows.items() if row.experiment_id in mine}
    return _Readable(
        shown,
        mine,
        [one for one in trials if one not in shown],
        [one for one in experiments if one not in mine],
    )


def _of_trial(found: _Readable, trial_id: int) -> _Side:
    row = found.trials[trial_id]
    return _side(found.experiments[row.experiment_id], [row], "trial", trial_id, row.state)


def _of_experiment(s: Session, row: ExperimentRow) -> _Side:
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
) -> _Side:
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
        best=_mean(bests),
        deviation=_deviation(bests),
        hparams={} if first is None else first.hparams,
        steps_completed=max((one.steps_completed for one in trials), default=0),
        created_at=row.created_at,
        started_at=min((one.started_at for one in trials if one.started_at is not None), default=None),
        ended_at=_end([one.ended_at for one in trials]),
        bundle=row.bundle,
    )
    return _Side(view, row.config, trials)


def _end(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


# --- metrics

_Key = tuple[str, str]
"""Group, name."""


@dataclass
class _OfTrial:
    """The metrics of one trial."""

    summaries: Mapping[str, Mapping[str, SummaryView]]
    at_best: Mapping[_Key, float]


def _metrics(s: Session, sides: Sequence[_Side], names: Sequence[str]) -> tuple[list[RunMetric], int]:
    """Return the rows of metrics, those of the searches first, and how many are left out."""
    ids = list(dict.fromkeys(row.id for side in sides for row in side.trials))
    counts = comparison.series_counts(s, ids, names or None)
    found = _of_trials(s, ids, names or None, few=sum(counts.values()) <= MOST_SUMMARIES)
    keys = {(group, name) for one in found.values() for group, some in one.summaries.items() for name in some}
    searched = {side.view.metric for side in sides}
    order = {"validation": 0, "training": 1}

    def rank(key: _Key) -> tuple[bool, int, _Key]:
        return not (key[0] == "validation" and key[1] in searched), order.get(key[0], 2), key

    shown = sorted(keys, key=rank)[:MOST_METRICS]
    left_out = max([len(keys), *counts.values()]) - len(shown)
    return [_metric(sides, found, key) for key in shown], left_out


def _of_trials(s: Session, ids: Sequence[int], names: Sequence[str] | None, *, few: bool) -> dict[int, _OfTrial]:
    """Return the metrics of trials; of each as many as fit, if they are not few."""
    if few:
        whole = curves.summaries_of(s, ids, None, names)
        best = comparison.values_at_best(s, ids, MOST_SUMMARIES)
        return {key: _OfTrial(whole.get(key, {}), best.get(key, {})) for key in ids}
    most = max(20, MOST_SUMMARIES // len(ids))
    found = {}
    for key in ids:
        # Those of the validation first: a trial may have thousands of others.
        first = curves.summaries_of(s, [key], "validation", names, most).get(key, {})
        others = curves.summaries_of(s, [key], None, names, most).get(key, {})
        found[key] = _OfTrial({**others, **first}, comparison.values_at_best(s, [key], most).get(key, {}))
    return found


def _metric(sides: Sequence[_Side], found: Mapping[int, _OfTrial], key: _Key) -> RunMetric:
    group, name = key
    ways = {side.view.smaller_is_better for side in sides if side.view.metric == name and group == "validation"}
    values = [_summary([found[row.id] for row in side.trials], side.trials, side.view, key) for side in sides]
    return RunMetric(group=group, name=name, values=values, smaller_is_better=ways.pop() if len(ways) == 1 else None)


def _summary(found: Sequence[_OfTrial], rows: Sequence[TrialRow], view: ComparedRun, key: _Key) -> RunSummary | None:
    group, name = key
    summaries = [one.summaries[group][name] for one in found if name in one.summaries.get(group, {})]
    if not summaries:
        return None
    searched = group == "validation" and name == view.metric
    bests = (
        [row.best_validation for row in rows if row.best_validation is not None]
        if searched
        else [one.at_best[key] for one in found if key in one.at_best]
    )
    return RunSummary(
        best=_mean(bests),
        last=_mean([one.last for one in summaries if one.last is not None]),
        min=_mean([one.min for one in summaries if one.min is not None]),
        max=_mean([one.max for one in summaries if one.max is not None]),
        deviation=_deviation(bests),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.stdev(finite) if len(finite) > 1 else None


# --- parts


def _part(compared: _Compared, skip: int) -> RunComparison:
    """Return the part of a comparison that begins after so many rows."""
    hyperparameters = differences([flat(view.hparams) for view in compared.views])
    settings = differences([flat(config) for config in compared.configs])
    rows: list[tuple[str, ComparedRun | Difference | RunMetric]] = [
        *(("runs", view) for view in compared.views),
        *(("hyperparameters", row) for row in hyperparameters),
        *(("metrics", row) for row in compared.metrics),
        *(("config", row) for row in settings),
    ]
    parts: dict[str, list[Any]] = {"runs": [], "hyperparameters": [], "metrics": [], "config": []}
    left, at = pages.PAGE_BYTES, skip
    for place, row in rows[skip:]:
        shown = _short(row) if isinstance(row, Difference) else pages.brief(row)
        left -= pages.size_of(shown) + 1
        if left < 0 and at > skip:
            break
        parts[place].append(shown)
        at += 1
    return compared.head.model_copy(update={**parts, "next": at if at < len(rows) else None})


def _short(row: Difference) -> Difference:
    return row.model_copy(update={"values": [_short_value(value) for value in row.values]})


def _short_value(value: Any) -> Any:
    """Return a setting as a table has it: what is long becomes the beginning of its text."""
    if value is None or isinstance(value, bool | int | float) or pages.size_of(value) <= VALUE_BYTES:
        return encode_floats(value)
    text = value if isinstance(value, str) else to_json(encode_floats(value), fallback=str).decode(errors="replace")
    return text[:VALUE_BYTES] + pages.ENDS
