"""Asynchronous successive halving, stopping variant: `async_halving`.

Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020), section 3, but without
promotion: a trial that is not among the best 1/divisor of those that reached its rung so far is stopped for
good, the others continue. Decisions use only what is known so far and are never revisited.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from detlab.schemas.expconf import AsyncHalvingConfig
from detlab_hub.core.searchers.errors import SteeringRefused
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    CreateTrial,
    Decision,
    ExitReason,
    StopTrial,
)
from detlab_hub.core.searchers.fields import Fields, check_rungs
from detlab_hub.core.searchers.halving.rungs import Powers, Rung, rung_units
from detlab_hub.core.searchers.method import SearchMethod, Standing, TrialFactory, create_many
from detlab_hub.core.searchers.objectives import Score, time_of

EXITED_METRIC = sys.float_info.max
"""The loss of a trial that ended early in its rung: worse than all except infinity and NaN."""

FAILED = "failed or killed"
"""What their number is called where trials are counted."""

OVERHEAD = 1.2
"""Divides the progress of rung 0: a full one is not the end, trials still run to the upper rungs."""


@dataclass(frozen=True)
class BracketConfig:
    """One bracket: the resolved `async_halving` block.

    Attributes:
        num_rungs: Levels, at least 1.
        max_trials: Trials whose hyperparameters turned out valid.
        powers: Of the divisor, which is above 1: each rung keeps the best 1/divisor.
        max_concurrent: Trials at a time; 0 for enough to fill the top rung once.
        time_metric: Name of the metric that counts a trial's training.
        max_time: Value of the time metric at the top rung.
        worst: Score of a trial that ended early in its rung.
    """

    num_rungs: int
    max_trials: int
    powers: Powers
    max_concurrent: int
    time_metric: str
    max_time: int
    worst: Score

    @property
    def divisor(self) -> float:
        """One in this many trials continues beyond a rung."""
        return self.powers.divisor

    @cached_property
    def concurrency(self) -> int:
        """Trials at a time, resolved."""
        if self.max_concurrent > 0:
            return min(self.max_concurrent, self.max_trials)
        return max(1, min(int(self.powers.power(self.num_rungs - 1)), self.max_trials))


class AsyncHalving(SearchMethod):
    """One bracket of stopping ASHA.

    A trial holds a place from its creation until it is stopped or exits early. Reports between
    the decision to stop a trial and its arrival there no longer count.
    """

    name = "async_halving"
    draws_anew = True
    Config = AsyncHalvingConfig
    needs_metric = True

    def __init__(self, config: BracketConfig) -> None:
        self._config = config
        units = rung_units(config.num_rungs, config.divisor, config.max_time, exact=config.powers.exact)
        self._rungs = [Rung(needed) for needed in units]
        self._level: dict[str, int] = {}
        self._active: set[str] = set()
        self._exited = 0
        self._invalid = 0
        self._beyond = 0
        """Trials by which users have extended the search."""
        self._lifted: dict[str, int] = {}
        """Level to which users have promoted a trial."""
        self.room: Callable[[], bool] = lambda: True
        """Whether the search that this is a bracket of has a place for one trial more."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes."""
        return cls.bracket(fields, fields.count("num_rungs"), fields.count("max_trials"), fields.max_concurrent)

    @classmethod
    def bracket(
        cls, fields: Fields, num_rungs: int, max_trials: int, max_concurrent: int, divisor: float | None = None
    ) -> Self:
        """Make a bracket of the given size; everything else comes from `searcher`.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        divisor = fields.divisor if divisor is None else divisor
        check_rungs("searcher.num_rungs", num_rungs, divisor)
        return cls(
            BracketConfig(
                num_rungs=num_rungs,
                max_trials=max_trials,
                powers=Powers(divisor, fields.exact_rungs),
                max_concurrent=max_concurrent,
                time_metric=str(fields.get("time_metric")),
                max_time=fields.count("max_time"),
                worst=fields.objectives.worst(EXITED_METRIC),
            )
        )

    @property
    def budget(self) -> int:
        """`max_trials`; fewer are made where trials end by themselves below the top rung."""
        return self._config.max_trials

    @property
    def powers(self) -> Powers:
        """The powers of its divisor."""
        return self._config.powers

    @property
    def holding(self) -> int:
        """Places that are taken."""
        return len(self._active)

    @property
    def rungs(self) -> list[Rung]:
        """The levels, first to last."""
        return self._rungs

    @property
    def active(self) -> Set[str]:
        """The trials that hold a place."""
        return self._active

    def level_of(self, request_id: str) -> int:
        """Index of the highest rung at which a trial was or will be evaluated."""
        return self._level[request_id]

    def explain(self, request_id: str) -> str:
        """Return the trial's place in the highest rung that it has reached, and how many continue from there."""
        for rung in reversed(self._rungs):
            names = [name for _, name in rung.entries]
            if request_id in names:
                return (
                    f"at {self._config.time_metric} {rung.units_needed}: place {names.index(request_id) + 1} of"
                    f" {len(names)}, {self._rule(request_id, len(names))}"
                )
        return ""

    def _rule(self, request_id: str, results: int) -> str:
        """Return how many of the results of a rung continue."""
        return f"the best {max(int(results / self._config.divisor), 1)} continue"

    def standing(self) -> list[Standing]:
        """Count the trials of each rung: who trains to it, and who went beyond it or not."""
        return [Standing(self._where(level), self._counts(level)) for level in range(len(self._rungs))]

    def _where(self, level: int) -> str:
        return (
            f"rung {level + 1} of {len(self._rungs)}, at {self._config.time_metric} {self._rungs[level].units_needed}"
        )

    def _counts(self, level: int) -> dict[str, int]:
        failed = self._failed(level)
        reached = [name for _, name in self._rungs[level].entries if name not in failed]
        passed = sum(self._level[name] > level for name in reached)
        left = sum(self._level[name] == level and name not in self._active for name in reached)
        end = "finished" if level == len(self._rungs) - 1 else "stopped"
        return {"running": self._running(level), "promoted": passed, end: left, FAILED: len(failed)}

    def _failed(self, level: int) -> set[str]:
        """Return the trials of a rung that failed or were killed on their way to it, and count as the worst there."""
        return {name for score, name in self._rungs[level].entries if score == self._config.worst}

    def _running(self, level: int) -> int:
        return sum(self._level[name] == level for name in self._active)

    def units_of(self, request_id: str) -> list[int]:
        """Return the rungs' units."""
        return [rung.units_needed for rung in self._rungs]

    @property
    def first_units(self) -> int | None:
        """Units of the first rung."""
        return self._rungs[0].units_needed

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create as many trials as may run at a time."""
        return create_many(self._config.concurrency, lambda: self._create(factory))

    def _create(self, factory: TrialFactory) -> CreateTrial:
        return self._admit(factory.draw())

    def _admit(self, trial: CreateTrial) -> CreateTrial:
        """Give a place to a trial."""
        self._level[trial.request_id] = 0
        self._active.add(trial.request_id)
        return trial

    def _fill_place(self, factory: TrialFactory) -> list[Decision]:
        budget_left = len(self._level) - self._invalid < self._config.max_trials
        if budget_left and self.holding < self._config.concurrency and self.room():
            return [self._create(factory)]
        return []

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Evaluate a trial at every rung that it has reached; stop it at the first where it falls behind.

        Raises:
            SearcherInputError: The report has no finite value of the time metric.
        """
        if request_id not in self._active:
            return []
        reached = self._units_reached(request_id, time)
        if not self._falls_behind(request_id, score, reached):
            return []
        self._active.discard(request_id)
        finished = self._level[request_id] == len(self._rungs) - 1
        return [StopTrial(request_id, finished), *self._fill_place(factory)]

    def _units_reached(self, request_id: str, time: float | None) -> int:
        return int(time_of(self._config.time_metric, time, request_id))

    def _falls_behind(self, request_id: str, score: Score, time: int) -> bool:
        top = len(self._rungs) - 1
        for level in range(self._level[request_id], top + 1):
            self._level[request_id] = level
            rung = self._rungs[level]
            if time < rung.units_needed:
                return False
            place = rung.insert(request_id, score)
            keep = max(int(len(rung.entries) / self._config.divisor), 1)
            if level == top or (place >= keep and not self._passes(request_id)):
                return True
        return False

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Count an early end as the worst result, an invalid point as if it had never been."""
        held_slot = request_id in self._active
        self._active.discard(request_id)
        level = self._level[request_id]
        decisions: list[Decision] = []
        if reason in INVALID_REASONS:
            self._invalid += 1
            for rung in self._rungs[: level + 1]:
                rung.remove(request_id)
            if held_slot:
                decisions.append(StopTrial(request_id))
        elif held_slot:
            self._rungs[level].insert(request_id, self._config.worst)
        return decisions + self._fill_place(factory)

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Count a trial that a policy or a user stops on its way to a rung there: the others are not to wait for it."""
        if request_id in self._active:
            self._rungs[self._level[request_id]].insert(request_id, score or self._config.worst)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Free the place of a trial that a stopping policy ended; its scores stay."""
        self._active.discard(request_id)
        return self._fill_place(factory)

    def disqualified(self, factory: TrialFactory, request_id: str, score: Score) -> list[Decision]:
        """Free its place, and let it count at no rung as better than a feasible trial."""
        for rung in self._rungs:
            if any(name == request_id for _, name in rung.entries):
                rung.remove(request_id)
                rung.insert(request_id, score)
        return self.stopped(factory, request_id)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Count an end.

        A trial that ends by itself below the top rung is not replaced (as in Determined), unless a user has extended
        the search: the trials asked for are made in any case.
        """
        self._active.discard(request_id)
        self._exited += 1
        return self.fill(factory) if self._beyond else []

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Make further trials; let those that reach the top rung train longer.

        Only the top rung moves: nothing is compared there, so results of different lengths never decide.
        """
        self._config = replace(self._config, max_trials=self._config.max_trials + trials)
        self._beyond += trials
        self._rungs[-1].units_needed += units
        return self.fill(factory)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Fill new places; with a lower limit, leave places empty as trials end."""
        self._config = replace(self._config, max_concurrent=limit)
        return self.fill(factory)

    def promoted(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Let a running trial pass its next rung, however it compares.

        Raises:
            SteeringRefused: It was stopped, has ended, is on its way to the top rung, or was promoted already.
        """
        if request_id not in self._active:
            raise SteeringRefused(
                f"the trial was stopped or has ended, and {self.name} resumes none; add its point to train it again"
            )
        if self._level[request_id] == len(self._rungs) - 1:
            raise SteeringRefused(
                "the trial trains to the top rung already; extend the search by units to make it longer"
            )
        self._lift(request_id)
        return []

    def _passes(self, request_id: str) -> bool:
        """Return whether a user has promoted a trial beyond the rung of its level."""
        return self._lifted.get(request_id, -1) > self._level[request_id]

    def _lift(self, request_id: str) -> None:
        """Note that a trial that trains is promoted beyond the rung of its level.

        Raises:
            SteeringRefused: A user has promoted it, and it has not come there yet.
        """
        to = self._lifted.get(request_id, -1)
        if to >= self._level[request_id]:
            there = f"{self._rungs[to].units_needed} {self._config.time_metric}"
            raise SteeringRefused(
                f"the trial is promoted to {there} already; it can be promoted again once it has reached them"
            )
        self._lifted[request_id] = self._level[request_id] + 1

    def promotes_to(self, request_id: str) -> int | None:
        """Return the units of the rung after the trial's."""
        beyond = self._level[request_id] + 1
        return self._rungs[beyond].units_needed if beyond < len(self._rungs) else None

    def fill(self, factory: TrialFactory) -> list[Decision]:
        """Use the places that are free."""
        decisions: list[Decision] = []
        while made := self._fill_place(factory):
            decisions += made
        return decisions

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the filled part of rung 0, a sixth held back for the upper rungs; once it is full, the ended part."""
        budget = self._config.max_trials
        reached = len(self._rungs[0].entries)
        progress = reached / (OVERHEAD * budget)
        if reached == budget:
            progress = max(progress, (self._exited - self._invalid) / budget)
        return progress

    def state(self) -> dict[str, Any]:
        """Return the rungs, levels and counters."""
        return {
            "rungs": [rung.state() for rung in self._rungs],
            "level": self._level,
            "active": sorted(self._active),
            "exited": self._exited,
            "invalid": self._invalid,
            "max_trials": self._config.max_trials,
            "max_concurrent": self._config.max_concurrent,
            "beyond": self._beyond,
            "lifted": self._lifted,
        }
