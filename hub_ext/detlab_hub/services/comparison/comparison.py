"""Trials, experiments and runs from anywhere side by side: settings, metrics and curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_core import to_json
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, DetlabError, NotFound, Problem
from detlab.schemas.wire import encode_floats
from detlab.schemas.wire.comparison import (
    MOST_CURVE_TRIALS,
    MOST_RUNS,
    CodeComparison,
    ComparedRun,
    ComparedSeries,
    RunComparison,
    RunCurves,
    RunMetric,
)
from detlab.schemas.wire.registry import Difference
from detlab_hub.core.rights import Right
from detlab_hub.services.base.access import rights_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.comparison.code import CodeDifferences, CodeSource
from detlab_hub.services.comparison.differing import differences, flat
from detlab_hub.services.comparison.metrics import metric_rows
from detlab_hub.services.comparison.run_curves import curves_of_runs
from detlab_hub.services.comparison.sides import of_experiment, of_tracked, of_trial
from detlab_hub.services.tracking.access import TrackedRun, trial_of
from detlab_hub.services.tracking.run_views import found_run
from detlab_hub.services.views import pages
from detlab_hub.store.queries.finding import comparison
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import ExperimentRow, TrialRow

VALUE_BYTES = 1000
"""Of one setting in a table."""


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
        runs: Sequence[str] = (),
        *,
        metrics: Sequence[str] = (),
        skip: int = 0,
    ) -> RunComparison:
        """Return a part of a comparison.

        Args:
            caller: Who asks.
            trials: Trials.
            experiments: Experiments.
            runs: Runs from anywhere: ids, keys of the caller's own, or how one of these begins. One that is a trial is
                compared as the trial.
            metrics: Names of metrics; none: all.
            skip: Rows of the parts before.

        Raises:
            ConfigError: There are no runs, or too many.
            BadRequest: Several of the caller's own runs begin so.
        """
        trials, experiments, runs = _asked(trials, experiments, runs)

        def look(s: Session) -> _Compared:
            found = _readable(s, caller, trials, experiments)
            sides = [of_trial(_parent(found, one), found.trials[one]) for one in trials if one in found.trials]
            sides += [of_experiment(s, found.experiments[one]) for one in experiments if one in found.experiments]
            tracked, absent_runs = _readable_runs(s, caller, runs)
            sides += of_tracked(s, tracked, {side.view.metric for side in sides}, metrics or None)
            rows, left_out = metric_rows(s, sides, metrics)
            return _Compared(
                RunComparison(
                    absent_trials=found.absent_trials,
                    absent_experiments=found.absent_experiments,
                    absent_runs=absent_runs,
                    metrics_left_out=left_out,
                ),
                [side.view for side in sides],
                [side.config for side in sides],
                rows,
            )

        compared = await self._context.look(caller.name, look)
        return await self._context.workers.comparisons.run(caller.name, _part, compared, skip)

    async def curves(
        self,
        caller: Caller,
        trials: Sequence[int] = (),
        runs: Sequence[str] = (),
        *,
        group: str | None = None,
        names: Sequence[str] = (),
        max_points: int = 500,
        skip: int = 0,
    ) -> RunCurves:
        """Return a part of the curves of some trials, then of runs, down-sampled to `max_points` each.

        Raises:
            ConfigError: There is nothing of which to return them, or too much.
            BadRequest: Several of the caller's own runs begin so.
        """
        trials, _, runs = _unique(trials, (), runs)
        _check_count(len(trials) + len(runs), MOST_CURVE_TRIALS, "trials and runs", "trials")

        def look(s: Session) -> RunCurves:
            found = _readable(s, caller, trials, ())
            shown = [one for one in trials if one in found.trials]
            items, following = curves.series_part(
                s, shown, group, names or None, max_points, skip=skip, most_bytes=pages.PAGE_BYTES
            )
            tracked, absent_runs = _readable_runs(s, caller, runs)
            if following is None and tracked:
                before = curves.series_total(s, shown, group, names or None)
                searched = {_parent(found, one).metric for one in shown}
                # Parts that have curves of trials have none of runs: what is left of them is not measured.
                most = 0 if items else pages.PAGE_BYTES
                more, following = curves_of_runs(
                    s, [one.id for one in tracked], searched, group, names or None, max_points, skip - before, most
                )
                items, following = [*items, *more], None if following is None else before + following
            found_curves = [ComparedSeries.model_construct(**one.__dict__) for one in items]
            return RunCurves(
                items=found_curves, absent_trials=found.absent_trials, absent_runs=absent_runs, next=following
            )

        return await self._context.look(caller.name, look)

    async def code(
        self, caller: Caller, trials: Sequence[int] = (), experiments: Sequence[int] = (), *, skip: int = 0
    ) -> CodeComparison:
        """Return a part of how the code of runs differs; the lines are of the first two that differ in a file.

        Raises:
            ConfigError: There are no runs, or too many.
        """
        trials, experiments, _ = _asked(trials, experiments)

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


def _asked(
    trials: Sequence[int], experiments: Sequence[int], runs: Sequence[str] = ()
) -> tuple[list[int], list[int], list[str]]:
    unique = _unique(trials, experiments, runs)
    _check_count(len(unique[0]) + len(unique[1]) + len(unique[2]), MOST_RUNS, "trials, experiments and runs", "trials")
    return unique


def _unique(
    trials: Sequence[int], experiments: Sequence[int], runs: Sequence[str]
) -> tuple[list[int], list[int], list[str]]:
    """Return what is asked for, each once; a run that is a trial is asked for as the trial."""
    numbers = {one: trial_of(one) for one in runs}
    mine = [number for number in numbers.values() if number is not None]
    others = [one for one, number in numbers.items() if number is None]
    return list(dict.fromkeys([*trials, *mine])), list(dict.fromkeys(experiments)), others


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


def _readable_runs(s: Session, caller: Caller, runs: Collection[str]) -> tuple[list[TrackedRun], list[str]]:
    """Return those runs that are there for the caller, each once, and what stands for the others."""
    found: dict[str, TrackedRun] = {}
    absent = []
    for one in runs:
        try:
            run = found_run(s, caller, one)
            found[run.id] = run
        except NotFound:
            absent.append(one)
    return list(found.values()), absent


def _parent(found: _Readable, trial_id: int) -> ExperimentRow:
    return found.experiments[found.trials[trial_id].experiment_id]


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
