"""`seeds: k`: each point is trained k times with different seeds, beside any method, which sees their mean.

The method inside makes one trial for each point, the first replica; the others are made beside it. It gets a report
once all replicas that still run have made theirs, the end of a trial once all have ended, and a stop of its trial stops
them all. Why one run is not enough to rank by: Bouthillier et al., "Accounting for variance in machine learning
benchmarks", MLSys 2021.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Self

from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    CreateTrial,
    Decision,
    ExitReason,
    ResumeTrial,
    SetPoint,
    Shutdown,
    StopTrial,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import SearchMethod, Standing, TrialFactory
from detlab_hub.core.searchers.objectives import Score


@dataclass
class _Point:
    """A point and its replicas.

    Attributes:
        replicas: Trials of this point; the method inside knows the first.
        running: Those that have not ended.
        reports: Of each replica: the reports that are not part of a mean yet, oldest first.
        counted: Of each replica: how many reports it made.
        reasons: Of each replica that ended early: why.
        saved: Of each replica: its newest checkpoint, with its steps.
        stopped: Those that were asked to stop.
        paused: Those that have left their slots.
        placed: Whether a replica was placed before they had a point.
    """

    replicas: list[str]
    running: list[str] = field(default_factory=list)
    reports: dict[str, list[tuple[Score, float | None]]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, ExitReason] = field(default_factory=dict)
    saved: dict[str, tuple[str, int]] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    placed: bool = False

    @property
    def first(self) -> str:
        """The replica that stands for the point."""
        return self.replicas[0]

    @property
    def saving(self) -> str:
        """The replica whose checkpoints are the point's: the first that runs, else the first that was not cut short."""
        left = [one for one in self.replicas if one not in self.reasons]
        return next((one for one in left if one in self.running), left[0] if left else self.first)


class Repeated(SearchMethod):
    """A method whose points are trained several times each.

    Args:
        inner: The method.
        seeds: Trials of a point.
    """

    name = "repeated"

    def __init__(self, inner: SearchMethod, seeds: int) -> None:
        self._inner = inner
        self._seeds = seeds
        self._means: list[tuple[str, Score]] = []
        """Results of points that nobody has taken yet."""
        self._points: dict[str, _Point] = {}
        """By replica."""
        self.wants_checkpoints = inner.wants_checkpoints  # type: ignore[misc]  # of this one, not of all
        self.draws_late = inner.draws_late  # type: ignore[misc]  # of this one, not of all
        self.suggests = inner.suggests  # type: ignore[misc]  # of this one, not of all
        self.needs_metric = inner.needs_metric  # type: ignore[misc]  # of this one, not of all

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Refuse: `make_method` makes it around the method that the config names."""
        raise SearcherConfigError("searcher.name: 'repeated' is not a method; add `seeds` to another one")

    @property
    def budget(self) -> int:
        """Trials of all points."""
        return self._inner.budget * self._seeds

    @property
    def most_invalid(self) -> int:
        """As many points as the method inside allows, each of which is as many trials."""
        return self._inner.most_invalid * self._seeds

    @property
    def points(self) -> int:
        """Those of the method inside."""
        return self._inner.points

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Start the method inside."""
        return self._repeated(factory, self._inner.start(factory))

    def _repeated(self, factory: TrialFactory, decisions: Sequence[Decision]) -> list[Decision]:
        """Carry out decisions of the method inside on all replicas."""
        kept: list[Decision] = []
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                others = [_another(factory, decision) for _ in range(self._seeds - 1)]
                replicas = [decision.request_id, *(one.request_id for one in others)]
                point = _Point(replicas, list(replicas), {one: [] for one in replicas}, dict.fromkeys(replicas, 0))
                self._points.update(dict.fromkeys(replicas, point))
                kept += [decision, *others]
            elif isinstance(decision, SetPoint):
                point = self._points[decision.request_id]
                kept += [SetPoint(one, copy.deepcopy(decision.hparams)) for one in point.replicas]
            elif isinstance(decision, ResumeTrial):
                point = self._points[decision.request_id]
                point.paused.clear()
                kept += [ResumeTrial(one) for one in point.running]
            elif isinstance(decision, StopTrial):
                kept += self._stop(self._points[decision.request_id], decision)
            elif hasattr(decision, "request_id"):
                point = self._points[decision.request_id]
                left = [one for one in point.running if one not in point.stopped and one not in point.reasons]
                kept += [_for(decision, one) for one in left]
            else:
                kept.append(decision)
        return _numbered(kept)

    @staticmethod
    def _stop(point: _Point, decision: StopTrial) -> list[Decision]:
        left = [one for one in point.running if one not in point.stopped]
        point.stopped += left
        return [replace(decision, request_id=one) for one in left]

    def placed(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Tell the method inside when the first replica of a point is placed: all get their point with it."""
        point = self._points[request_id]
        if point.placed:
            return []
        point.placed = True
        return self._repeated(factory, self._inner.placed(factory, point.first))

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Keep a report until all replicas that run have made theirs."""
        point = self._points[request_id]
        point.reports[request_id].append((score, time))
        point.counted[request_id] += 1
        return self._complete(factory, point)

    def _complete(self, factory: TrialFactory, point: _Point) -> list[Decision]:
        """Give the method inside the means of all reports that no running replica lacks."""
        decisions: list[Decision] = []
        while any(point.reports.values()) and all(point.reports[one] for one in point.running):
            told = [reports.pop(0) for reports in point.reports.values() if reports]
            times = [time for _, time in told if time is not None]
            mean = _mean([score for score, _ in told])
            self._means.append((point.first, mean))
            made = self._inner.validated(factory, point.first, mean, max(times) if times else None)
            decisions += self._repeated(factory, made)
        return decisions

    def take_means(self) -> list[tuple[str, Score]]:
        """Return the means since the last call."""
        taken, self._means = self._means, []
        return taken

    def ended_point(self, request_id: str) -> str | None:
        """Return the first replica once all have ended."""
        point = self._points[request_id]
        return None if point.running else point.first

    def point_of(self, request_id: str) -> str:
        """Return the first replica."""
        return self._points[request_id].first

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Note why a replica ended; the others continue, and the next one's checkpoints count if its own did."""
        point = self._points[request_id]
        before = point.saving
        point.reasons[request_id] = reason
        return self._handed_over(factory, point, before)

    def _handed_over(self, factory: TrialFactory, point: _Point, before: str) -> list[Decision]:
        """Tell the method inside of the checkpoint of the replica that saves from now on, if it is newer."""
        known = point.saved.get(before, ("", -1))
        newest = point.saved.get(point.saving, known)
        if newest[1] <= known[1]:  # the method inside knows one as good
            return []
        return self._repeated(factory, self._inner.checkpointed(factory, point.first, *newest))

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Count without the replica; the point has ended with its last one, early if all have ended early.

        It is invalid only if all replicas were.
        """
        point = self._points[request_id]
        before = point.saving
        point.running.remove(request_id)
        decisions = self._complete(factory, point)
        if point.running:
            decisions += self._handed_over(factory, point, before)
        if point.running:
            return decisions + self._left(factory, point)
        if len(point.reasons) == len(point.replicas):
            reasons = [point.reasons[one] for one in point.replicas]
            reason = next((one for one in reasons if one not in INVALID_REASONS), reasons[0])
            decisions += self._repeated(factory, self._inner.exited_early(factory, point.first, reason))
        return decisions + self._repeated(factory, self._inner.exited(factory, point.first))

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Count the point with the first of its replicas that is stopped: the others are stopped with it."""
        point = self._points[request_id]
        if not point.stopped:
            self._inner.count_stopped(point.first, score)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Stop the other replicas, too."""
        return self._ended_by_policy(factory, request_id, None)

    def disqualified(self, factory: TrialFactory, request_id: str, score: Score) -> list[Decision]:
        """Stop the other replicas, too: one that breaks a constraint breaks it for the point."""
        return self._ended_by_policy(factory, request_id, score)

    def _ended_by_policy(self, factory: TrialFactory, request_id: str, broken: Score | None) -> list[Decision]:
        point = self._points[request_id]
        if request_id in point.stopped:
            return []
        before = bool(point.stopped)
        point.stopped.append(request_id)
        others = self._stop(point, StopTrial(point.first, evidence="another seed of the same point was stopped"))
        told: list[Decision] = []
        if not before and broken is not None:
            told = self._inner.disqualified(factory, point.first, broken)
        elif not before:
            told = self._inner.stopped(factory, point.first)
        return [*others, *self._repeated(factory, told)]

    def paused(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Tell the method inside once all replicas have left their slots."""
        point = self._points[request_id]
        if request_id in point.paused:
            return []
        point.paused.append(request_id)
        return self._left(factory, point)

    def _left(self, factory: TrialFactory, point: _Point) -> list[Decision]:
        if not point.paused or set(point.running) - set(point.paused):
            return []
        return self._repeated(factory, self._inner.paused(factory, point.first))

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Extend the method inside by so many points."""
        return self._repeated(factory, self._inner.extended(factory, trials, units))

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Let as many points run at a time as there are places for their trials."""
        return self._repeated(factory, self._inner.resized(factory, max(1, limit // self._seeds) if limit else 0))

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Tell the method inside."""
        return self._repeated(factory, self._inner.respaced(factory, space))

    def promoted(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Promote all replicas."""
        return self._repeated(factory, self._inner.promoted(factory, self._points[request_id].first))

    def promotes_to(self, request_id: str) -> int | None:
        """Ask the method inside."""
        return self._inner.promotes_to(self._points[request_id].first)

    def continued(self, factory: TrialFactory) -> list[Decision]:
        """Tell the method inside."""
        return self._repeated(factory, self._inner.continued(factory))

    def checkpointed(self, factory: TrialFactory, request_id: str, uuid: str, steps_completed: int) -> list[Decision]:
        """Tell the method inside of one replica's checkpoints: the first that runs."""
        point = self._points[request_id]
        point.saved[request_id] = (uuid, steps_completed)
        if request_id != point.saving:
            return []
        return self._repeated(factory, self._inner.checkpointed(factory, point.first, uuid, steps_completed))

    def needs_checkpoints(self) -> Set[str]:
        """Ask the method inside."""
        return self._inner.needs_checkpoints()

    def notes(self) -> list[str]:
        """Ask the method inside."""
        return self._inner.notes()

    def known(self, ticket: int) -> Any:
        """Ask the method inside."""
        return self._inner.known(ticket)

    @property
    def waits_for(self) -> int | None:
        """Ask the method inside."""
        return self._inner.waits_for

    @property
    def verdict(self) -> Shutdown | None:
        """Ask the method inside."""
        return self._inner.verdict

    def feed(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Ask the method inside."""
        return self._inner.feed(after, limit)

    def answered(
        self, factory: TrialFactory, number: int, operations: Sequence[Mapping[str, Any]], failure: str
    ) -> list[Decision]:
        """Tell the method inside."""
        return self._repeated(factory, self._inner.answered(factory, number, operations, failure))

    def suggested(self, factory: TrialFactory, ticket: int, points: Sequence[dict[str, Any]]) -> list[Decision]:
        """Tell the method inside."""
        return self._repeated(factory, self._inner.suggested(factory, ticket, points))

    def level_of(self, request_id: str) -> int:
        """Return how many reports the trial made: each of them may change the mean."""
        return self._points[request_id].counted[request_id]

    def explain(self, request_id: str) -> str:
        """Ask the method inside."""
        return self._inner.explain(self._points[request_id].first)

    def standing(self) -> list[Standing]:
        """Return that of the method inside, which counts points."""
        return self._inner.standing()

    def units_of(self, request_id: str) -> list[int]:
        """Ask the method inside."""
        return self._inner.units_of(self._points[request_id].first)

    @property
    def first_units(self) -> int | None:
        """As the method inside says."""
        return self._inner.first_units

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the progress of the method inside, whose trials are done as far as their replicas are on average."""
        mean: dict[str, float] = {}
        ended: set[str] = set()
        for point in {id(one): one for one in self._points.values()}.values():
            known = [1.0 if one in closed else shares[one] for one in point.replicas if one in shares]
            if known:
                mean[point.first] = sum(known) / len(known)
            if all(one in closed for one in point.replicas):
                ended.add(point.first)
        return self._inner.progress(mean, ended)

    def state(self) -> dict[str, Any]:
        """Return the points and the state of the method inside."""
        points = {id(one): one for one in self._points.values()}.values()
        return {"points": [_shown(one) for one in points], "inner": self._inner.state()}


def _numbered(decisions: Sequence[Decision]) -> list[Decision]:
    """Give new trials their places in creation order: replicas are made after their point, and are to run beside it."""
    places = iter(sorted(one.index for one in decisions if isinstance(one, CreateTrial)))
    return [replace(one, index=next(places)) if isinstance(one, CreateTrial) else one for one in decisions]


def _another(factory: TrialFactory, decision: CreateTrial) -> CreateTrial:
    """Return another trial of the same point."""
    return factory.at(copy.deepcopy(decision.hparams), decision.parent, later=decision.later)


def _for(decision: Any, request_id: str) -> Decision:
    """Return a decision about a trial as one about another trial."""
    made: Decision = replace(decision, request_id=request_id)
    return made


def _mean(scores: Sequence[Score]) -> Score:
    """Return the mean of each number; NaN where one of them is not finite, as of a training that diverged."""
    violations, losses = [score.violation for score in scores], zip(*(score.losses for score in scores), strict=True)
    return Score(max(violations) if max(violations) == math.inf else _of(violations), tuple(map(_of, losses)))


def _of(values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is no number, the mean is
        return math.fsum(value / len(values) for value in values)


def _shown(point: _Point) -> dict[str, Any]:
    reports = {name: [[repr(score), time] for score, time in kept] for name, kept in point.reports.items()}
    return vars(point) | {"reports": reports}
