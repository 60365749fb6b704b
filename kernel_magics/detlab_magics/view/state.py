"""The live view's state: a function of (experiment, cursor) and nothing else.

`ViewState.start(snapshot)` and then `apply(event)` for each event after `snapshot.cursor` gives the same state
wherever and whenever it is computed: a reopened tab, a restarted kernel and another browser show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.client.facts import settled
from detlab.schemas.wire import (
    CurvesView,
    EndReason,
    Event,
    ExperimentView,
    SeriesView,
    TrialState,
    TrialView,
    decode_float,
)

MAX_POINTS = 120
"""Points kept per curve; a longer one is thinned (extremes and the last point stay exact)."""
MAX_CURVES = 48
"""Curves drawn: all while there are few, else running, best and newest first."""
MAX_TRIALS = 400
"""Trials kept."""
_ENDED = frozenset(state.value for state in TrialState if state.terminal)


def front_metrics(config: Mapping[str, Any]) -> list[str]:
    """Return the metrics that decide which trials are on the Pareto front; none of a search by one metric."""
    from detlab.viz.fronts import constraints, shown_names

    names = shown_names(config)
    return [*names, *(bound.name for bound in constraints(config))] if names else []


@dataclass
class Curve:
    """One trial's curve of the searcher metric, oldest step first."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    run: int | None = None
    """The run that reported last; None where a snapshot gave the points, which does not say."""
    resumed_at: list[int] = field(default_factory=list)
    """Steps after which a later run of the trial continued: a gap is drawn there."""

    def add(self, step: int, value: float, run: int) -> None:
        """Add one report. A later run replaces what an earlier one said beyond the step that it resumed from."""
        if self.run is not None and run < self.run:
            return
        later = self.run is not None and run > self.run
        behind = bool(self.steps) and step <= self.steps[-1]
        if later or (self.run is None and behind):
            self._resume(step)
        self.run = run
        if self.steps and step <= self.steps[-1]:
            if step == self.steps[-1]:
                self.values[-1] = value
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > 2 * MAX_POINTS:
            self.steps, self.values = thin(self.steps, self.values, MAX_POINTS)

    def _resume(self, step: int) -> None:
        """Forget what was said from `step` on."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()
        self.resumed_at = [at for at in self.resumed_at if self.steps and at < self.steps[-1]]
        if self.steps:
            self.resumed_at.append(self.steps[-1])


@dataclass
class ViewState:
    """Everything the view needs, bounded in size however large the search is."""

    experiment: ExperimentView
    trials: dict[int, TrialView]
    curves: dict[int, Curve]
    cursor: int
    metrics: tuple[str, ...] = ()
    """Validation metrics that have columns of their own in the table."""
    latest: dict[int, dict[str, float]] = field(default_factory=dict)
    """Trial -> metric -> its last value, of those."""
    config: dict[str, Any] = field(default_factory=dict)
    """The experiment's, where its views have none."""
    silent_since: float | None = None
    """When the cluster last failed to answer the follower; not part of the events."""

    @classmethod
    def start(
        cls, snapshot: CurvesView, metrics: Sequence[str] = (), config: Mapping[str, Any] | None = None
    ) -> ViewState:
        """Build the state from a snapshot (GET experiments/{id}/curves)."""
        trials = {trial.id: trial for trial in snapshot.trials}
        curves = {
            series.trial_id: _from_series(series)
            for series in snapshot.curves
            if series.group == "validation" and series.name == snapshot.experiment.metric
        }
        state = cls(snapshot.experiment, trials, curves, snapshot.cursor, tuple(metrics), config=dict(config or {}))
        for series in snapshot.curves:
            if series.group == "validation" and series.name in state.tracked and series.values:
                state.latest.setdefault(series.trial_id, {})[series.name] = series.values[-1]
        return state

    @property
    def tracked(self) -> set[str]:
        """The metrics whose last values are kept: those with columns, and those that decide who is on the front."""
        return {*self.metrics, *front_metrics(self.config)}

    def apply(self, events: Iterable[Event]) -> bool:
        """Fold events in; return whether anything visible changed. Events at or before the cursor are ignored.

        A `resync` never comes here: the follower starts again from a new snapshot.
        """
        changed = False
        for event in events:
            if event.id <= self.cursor:
                continue
            self.cursor = event.id
            changed |= self._apply_one(event)
        return changed

    def _apply_one(self, event: Event) -> bool:
        if event.kind == "experiment":
            self.experiment = ExperimentView.model_validate(event.data)
        elif event.kind == "trial":
            trial = TrialView.model_validate(event.data)
            self.trials[trial.id] = trial
            self._forget_surplus()
        elif event.kind == "metrics" and event.trial_id is not None:
            return self._add_metrics(event.trial_id, event)
        else:
            return False
        return True

    def _add_metrics(self, trial_id: int, event: Event) -> bool:
        if event.data.get("group") != "validation":
            return False
        reported = event.data.get("metrics", {})
        found = {name: value for name in self.tracked if (value := decode_float(reported.get(name))) is not None}
        if found:
            self.latest.setdefault(trial_id, {}).update(found)
        value = decode_float(reported.get(self.experiment.metric))
        if value is None:
            return bool(found)
        curve = self.curves.setdefault(trial_id, Curve())
        curve.add(int(event.data["steps_completed"]), value, int(event.data.get("run", 0)))
        return True

    def _forget_surplus(self) -> None:
        """Of a very large search keep the best, the newest and those that still run."""
        if len(self.trials) <= MAX_TRIALS:
            return
        newest = sorted(self.trials.values(), key=lambda t: -t.index)
        kept = {t.id for t in [*self.ordered_trials()[: MAX_TRIALS // 4], *newest[: MAX_TRIALS // 4]]}
        kept |= {t.id for t in newest if not t.state.terminal} | {self.best_trial() or 0}
        self.trials = {i: t for i, t in self.trials.items() if i in kept}
        self.curves = {i: c for i, c in self.curves.items() if i in kept}
        self.latest = {i: v for i, v in self.latest.items() if i in kept}

    def front(self) -> frozenset[int]:
        """Return the trials on the Pareto front of a search by several metrics, as of their last values."""
        from detlab.viz.fronts import marked

        return marked(self.config, self.latest, self.trials.values())

    def counted(self) -> tuple[int, int, int]:
        """Return how many trials have ended, run now, and are known to exist."""
        counts = {k: v for k, v in self.experiment.trials.items() if k != "RUNNING"}
        if sum(counts.values()) > len(self.trials):  # a very large search: not all of them are here
            done = sum(v for k, v in counts.items() if k in _ENDED)
            return done, self.experiment.trials.get("RUNNING", 0), sum(counts.values())
        done = sum(t.state.terminal for t in self.trials.values())
        return done, sum(t.display_state == "RUNNING" for t in self.trials.values()), len(self.trials)

    @property
    def ended(self) -> bool:
        """Whether the experiment has reached its end."""
        return self.experiment.state.terminal

    @property
    def settled(self) -> bool:
        """Whether nothing more happens until a user acts: it has ended, or the master paused it after a failure."""
        return settled(self.experiment)

    def best_trial(self) -> int | None:
        """Return the id of the trial with the best validation so far."""
        return self.experiment.best.trial_id if self.experiment.best else None

    def ordered_trials(self) -> list[TrialView]:
        """Return the trials, best metric first; those without a metric last, in creation order."""
        sign = 1.0 if self.experiment.smaller_is_better else -1.0

        def key(trial: TrialView) -> tuple[bool, float, int]:
            value = trial.best_validation
            unranked = value is None or math.isnan(value)
            return (unranked, 0.0 if unranked or value is None else sign * value, trial.index)

        return sorted(self.trials.values(), key=key)

    def drawn_curves(self) -> list[tuple[TrialView, Curve]]:
        """Return the curves to draw, the most interesting ones last (they are painted on top)."""
        best = self.best_trial()
        pairs = [(self.trials[i], c) for i, c in self.curves.items() if c.steps and i in self.trials]
        pairs.sort(key=lambda p: (p[0].id == best, p[0].state is TrialState.ACTIVE, p[0].index))
        return pairs[-MAX_CURVES:]


def stopped_early(trial: TrialView) -> bool:
    """Tell whether the searcher stopped a trial before its time (at the top rung it stops those that are through)."""
    return trial.end_reason is EndReason.STOPPED and trial.progress < 1.0


def greyed(trial: TrialView) -> bool:
    """Tell whether a trial's curve is out of the race: it was stopped early, canceled, or failed."""
    return stopped_early(trial) or trial.state in (TrialState.ERROR, TrialState.CANCELED)


def first_failed(state: ViewState) -> TrialView | None:
    """Return the trial that failed first."""
    failed = [trial for trial in state.trials.values() if trial.state is TrialState.ERROR]
    return min(failed, key=lambda trial: (trial.ended_at or 0.0, trial.id), default=None)


def _from_series(series: SeriesView) -> Curve:
    steps, values = thin(series.steps, series.values, MAX_POINTS)
    return Curve(list(steps), list(values))


def thin(steps: list[int], values: list[float], limit: int) -> tuple[list[int], list[float]]:
    """Thin a curve to at most `limit` points: first and last stay, and each bucket's lowest and highest."""
    if len(steps) <= limit:
        return steps, values
    keep = {0, len(steps) - 1}
    buckets = max((limit - 2) // 2, 1)
    inner = len(steps) - 2
    for b in range(buckets):
        span = range(1 + b * inner // buckets, 1 + (b + 1) * inner // buckets)
        finite = [i for i in span if math.isfinite(values[i])]
        if finite:
            keep.add(min(finite, key=values.__getitem__))
            keep.add(max(finite, key=values.__getitem__))
        elif span:
            keep.add(span[0])
    order = sorted(keep)
    return [steps[i] for i in order], [values[i] for i in order]
