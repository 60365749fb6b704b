"""Differential evolution on rungs: `dehb`.

Awad et al., "DEHB: Evolutionary Hyperband for Scalable, Robust and Efficient Hyperparameter Optimization" (IJCAI 2021):
each rung has a population; trials of a rung descend from the best of the rung below, and replace the individual of
their own population that they were crossed with if they are not worse. Trials are given out in the order of
Hyperband's brackets; only to fill a rung for the first time they wait for those of the rung below. Each trial trains
from scratch to the units of its rung.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Self

from detlab.schemas.expconf import DEHBConfig
from detlab.schemas.space import Space
from detlab_hub.core.searchers.errors import SearcherConfigError, SteeringRefused
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    CreateTrial,
    Decision,
    ExitReason,
    SetPoint,
    StopTrial,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.halving.adaptive import DEFAULT_MAX_RUNGS
from detlab_hub.core.searchers.halving.hyperband import DIVISOR, LOG_SLACK, bracket_sizes
from detlab_hub.core.searchers.halving.rungs import Powers, rung_units
from detlab_hub.core.searchers.method import SearchMethod, Standing, TrialFactory
from detlab_hub.core.searchers.model_based.axes import Coordinate, Points, SearchAxis, axes_of, coordinates
from detlab_hub.core.searchers.objectives import Score, time_of
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.scores import order

Vector = tuple[float, ...]
"""A point: one number from 0 to 1 for each axis."""


@dataclass(frozen=True)
class DEHBPlan:
    """The resolved block."""

    max_trials: int
    places: int
    time_metric: str
    units: Sequence[int]
    jobs: Sequence[tuple[int, int]]
    sizes: Sequence[int]
    factor: float
    crossover: float
    worst: Score


@dataclass
class DEHBRun:
    """A trial, and the individual that it challenges.

    Attributes:
        level: Its rung.
        slot: Its place in the rung's population.
        vector: Its point; None until it has one.
        active: Whether its result is still to come.
    """

    level: int
    slot: int
    vector: Vector | None
    active: bool = True


@dataclass
class Population:
    """The individuals of a rung, by their places."""

    size: int
    members: dict[int, tuple[Vector, Score]] = field(default_factory=dict)
    risen: set[Vector] = field(default_factory=set)
    """Points that have been given to the rung above as they are."""

    def best(self) -> list[Vector]:
        """Return the points, the best first."""
        found = [self.members[slot] for slot in sorted(self.members)]
        return [found[place][0] for place in order([score for _, score in found])]

    def challenge(self, slot: int, vector: Vector, score: Score) -> None:
        """Replace an individual by one that is not worse; of equals the later one comes first in the order."""
        held = self.members.get(slot)
        if held is None or order([held[1], score])[0] == 1:
            self.members[slot] = (vector, score)


def jobs_of(rungs: int, divisor: float, *, exact: bool = True) -> list[tuple[int, int]]:
    """Return the rung and the place of each trial of one round of Hyperband, in order."""
    found: list[tuple[int, int]] = []
    powers = Powers(divisor, exact)
    for first, size in enumerate(bracket_sizes(rungs, divisor, exact=exact)):
        for level in range(first, rungs):
            found += [(level, slot) for slot in range(max(1, int(size / powers.power(level - first))))]
    return found


class DEHB(SearchMethod):
    """Populations that evolve, one for each rung."""

    name = "dehb"
    Config = DEHBConfig
    needs_metric = True
    draws_late = True

    def __init__(self, plan: DEHBPlan, axes: Sequence[SearchAxis]) -> None:
        self._plan = plan
        self._axes = axes
        self._budget = plan.max_trials
        self._places = plan.places
        self._populations = [Population(size) for size in plan.sizes]
        self._runs: dict[str, DEHBRun] = {}
        self._given = 0
        self._invalid = 0

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        divisor, exact = fields.divisor_or(DIVISOR), fields.exact_rungs
        max_time, most = fields.count("max_time"), fields.count("max_trials")
        rungs = Powers(divisor, exact).within(max_time, fields.count("max_rungs", DEFAULT_MAX_RUNGS), LOG_SLACK)
        plan = DEHBPlan(
            max_trials=most,
            places=min(fields.max_concurrent or most, most),
            time_metric=str(fields.get("time_metric")),
            units=rung_units(rungs, divisor, max_time, exact=exact),
            jobs=jobs_of(rungs, divisor, exact=exact),
            sizes=bracket_sizes(rungs, divisor, exact=exact),
            factor=_part(fields, "mutation_factor"),
            crossover=_part(fields, "crossover_probability"),
            worst=fields.objectives.worst(sys.float_info.max),
        )
        return cls(plan, axes_of(space))

    @property
    def budget(self) -> int:
        """`max_trials`, and what users added."""
        return self._budget

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create as many trials as may run at a time."""
        return self._fill(factory)

    def _fill(self, factory: TrialFactory) -> list[Decision]:
        decisions: list[Decision] = []
        active = sum(run.active for run in self._runs.values())
        while active < self._places and len(self._runs) - self._invalid < self._budget:
            level, slot = self._plan.jobs[self._given % len(self._plan.jobs)]
            if self._waits(level, slot):
                break
            self._given += 1
            decisions.append(self._create(factory, level, slot))
            active += 1
        return decisions

    def _waits(self, level: int, slot: int) -> bool:
        """Whether a place of a rung is to be filled from the rung below while trials still train there."""
        if level == 0 or slot in self._populations[level].members:
            return False
        return any(run.active and run.level == level - 1 for run in self._runs.values())

    def _create(self, factory: TrialFactory, level: int, slot: int) -> CreateTrial:
        if factory.late and not factory.enqueued:
            trial, vector = factory.later(), None
        else:
            hparams, vector = self._descend(factory, level, slot)
            trial = factory.at(hparams)
        self._runs[trial.request_id] = DEHBRun(level, slot, vector)
        return trial

    def placed(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Let it descend from the populations as they are now."""
        run = self._runs[request_id]
        hparams, run.vector = self._descend(factory, run.level, run.slot)
        return [SetPoint(request_id, hparams)]

    def _descend(self, factory: TrialFactory, level: int, slot: int) -> tuple[dict[str, Any], Vector]:
        """Return the next point of a place of a rung: one that users added, a descendant's or a random one."""
        vector = None if factory.enqueued else self._vector(level, slot, factory.rng)
        if vector is not None:
            return factory.allowed(self._point(factory, vector)), vector
        hparams = factory.due()
        return hparams, tuple(map(_share_of, self._axes, coordinates(self._axes, hparams)))

    def _vector(self, level: int, slot: int, rng: SearchRandom) -> Vector | None:
        """Return the point of the next trial of a rung; None to draw one at random."""
        own = self._populations[level]
        below = self._populations[level - 1] if level > 0 else own
        if not self._axes:
            return None
        if slot not in own.members:  # the population is not complete: it gets the best from below, as they are
            rising = [vector for vector in below.best() if vector not in below.risen] if level > 0 else []
            if rising:
                below.risen.add(rising[0])
            return rising[0] if rising else None
        parents = below.best()[: max(own.size, 3)]
        while len(parents) < 3:
            parents.append(tuple(rng.uniform(0.0, 1.0) for _ in self._axes))
        return self._crossed(own.members[slot][0], self._mutant(parents, rng), rng)

    def _mutant(self, parents: list[Vector], rng: SearchRandom) -> Vector:
        """DE/rand/1: one parent, moved by the difference of two others; out of range it is drawn at random."""
        left = list(parents)
        one, two, three = (left.pop(rng.below(len(left))) for _ in range(3))
        moved = [a + self._plan.factor * (b - c) for a, b, c in zip(one, two, three, strict=True)]
        return tuple(part if 0 <= part <= 1 else rng.uniform(0.0, 1.0) for part in moved)

    def _crossed(self, target: Vector, mutant: Vector, rng: SearchRandom) -> Vector:
        """Binomial crossover: at least one number is the mutant's."""
        always = rng.below(len(target))
        drawn = [rng.uniform(0.0, 1.0) < self._plan.crossover for _ in target]
        return tuple(mutant[at] if take or at == always else target[at] for at, take in enumerate(drawn))

    def _point(self, factory: TrialFactory, vector: Vector) -> dict[str, Any]:
        parts = {axis.name: part for axis, part in zip(self._axes, vector, strict=True)}
        return Points(Space(factory.space)).build(lambda axis: _coordinate(axis, parts.get(axis.name, 0.5)))

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Stop a trial at its rung, where it challenges an individual.

        Raises:
            SearcherInputError: The report has no finite value of the time metric.
        """
        run = self._runs[request_id]
        if not run.active:
            return []
        time = time_of(self._plan.time_metric, time, request_id)
        if time < self._plan.units[run.level]:
            return []
        self._challenge(run, score)
        run.active = False
        return [StopTrial(request_id, run.level == len(self._plan.units) - 1), *self._fill(factory)]

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Count an early end as the worst result, an invalid point as if it had never been."""
        run = self._runs[request_id]
        held, run.active = run.active, False
        decisions: list[Decision] = []
        if reason in INVALID_REASONS:
            self._invalid += 1
            decisions += [StopTrial(request_id)] if held else []
        elif held:
            self._challenge(run, self._plan.worst)
        return decisions + self._fill(factory)

    def _challenge(self, run: DEHBRun, score: Score) -> None:
        if run.vector is not None:  # else it ended before it had a point
            self._populations[run.level].challenge(run.slot, run.vector, score)

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Let a trial that a policy or a user stops on its way to a rung challenge there with what it scored."""
        run = self._runs[request_id]
        if run.active:
            self._challenge(run, score or self._plan.worst)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Fill the place of a trial that a stopping policy or a user ended."""
        self._runs[request_id].active = False
        return self._fill(factory)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Fill the place of a trial that ended by itself."""
        self._runs[request_id].active = False
        return self._fill(factory)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Add trials.

        Raises:
            SteeringRefused: Further units are asked for.
        """
        if units:
            raise SteeringRefused(f"the rungs of {self.name} are fixed: trials can be added, units cannot")
        self._budget += trials
        return self._fill(factory)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Change how many trials train at a time."""
        self._places = limit or self._budget
        return self._fill(factory)

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Refuse: the populations are points of the space that they began with.

        Raises:
            SteeringRefused: Always.
        """
        raise SteeringRefused(f"the space of {self.name} cannot be changed during the search")

    def level_of(self, request_id: str) -> int:
        """Return the rung of a trial."""
        return self._runs[request_id].level

    def standing(self) -> list[Standing]:
        """Count the trials of each rung, below how far the round of Hyperband has come."""
        rounds, begun = divmod(max(0, self._given - 1), len(self._plan.jobs))
        first = Standing(
            f"round {rounds + 1} of Hyperband, of {len(self._plan.jobs)} trials", {"begun": begun + bool(self._given)}
        )
        return [first, *(Standing(self._where(level), self._counts(level)) for level in range(len(self._plan.units)))]

    def _where(self, level: int) -> str:
        return f"rung {level + 1} of {len(self._plan.units)}, at {self._plan.time_metric} {self._plan.units[level]}"

    def _counts(self, level: int) -> dict[str, int]:
        here = [run.active for run in self._runs.values() if run.level == level]
        return {
            "running": sum(here),
            "ended": len(here) - sum(here),
            "in the population": len(self._populations[level].members),
        }

    def units_of(self, request_id: str) -> list[int]:
        """Return the units of the rungs, up to the trial's."""
        return list(self._plan.units)

    @property
    def first_units(self) -> int | None:
        """Units of the first rung."""
        return self._plan.units[0]

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the budget that is done."""
        return sum(1.0 for request_id in shares if request_id in closed) / self._budget

    def state(self) -> dict[str, Any]:
        """Return the populations and the trials."""
        return {
            "populations": [
                [[slot, vector, [*score]] for slot, (vector, score) in sorted(one.members.items())]
                for one in self._populations
            ],
            "risen": [sorted(one.risen) for one in self._populations],
            "runs": {name: [run.level, run.slot, run.vector, run.active] for name, run in self._runs.items()},
            "given": self._given,
            "places": self._places,
            "budget": self._budget,
            "invalid": self._invalid,
        }


def _part(fields: Fields, key: str) -> float:
    value = float(fields.get(key, 0.5))
    if not 0 <= value <= 1:
        raise SearcherConfigError(f"searcher.{key}: must be from 0 to 1, is {value:g}")
    return value


def _share_of(axis: SearchAxis, coordinate: Coordinate | None) -> float:
    """Return where a coordinate is on its axis, 0 to 1; the middle if the point does not have it."""
    if coordinate is None:
        return 0.5
    low, width = _span(axis)
    return min(max((axis.along(float(coordinate)) - low) / width, 0.0), 1.0) if width > 0 else 0.5


def _coordinate(axis: SearchAxis, part: float) -> Coordinate:
    low, width = _span(axis)
    found = axis.back(low + part * width)
    if axis.kind in ("double", "log"):
        return found
    return min(max(round(found), int(axis.low)), int(axis.high))


def _span(axis: SearchAxis) -> tuple[float, float]:
    """Return where an axis begins and how wide it is; whole numbers and choices own half a unit on both sides."""
    return axis.span(0.0 if axis.kind in ("double", "log") else 0.5)
