"""Several brackets of ASHA side by side: `adaptive_asha`.

How much early stopping is right is not known beforehand, so brackets with fewer and with more rungs share the
budget (the idea of Hyperband, Li et al., JMLR 2018, with asynchronous brackets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from detlab.schemas.expconf import AdaptiveASHAConfig, SearcherBlock
from detlab_hub.core.searchers.errors import SearcherConfigError, SteeringRefused
from detlab_hub.core.searchers.events import HONOURED_LIMIT, CreateTrial, Decision, ExitReason
from detlab_hub.core.searchers.fields import Fields, check_rungs
from detlab_hub.core.searchers.halving.async_halving import AsyncHalving
from detlab_hub.core.searchers.halving.rungs import Powers
from detlab_hub.core.searchers.method import SearchMethod, Standing, TrialFactory
from detlab_hub.core.searchers.objectives import Score

Mode = Literal["aggressive", "standard", "conservative"]
DEFAULT_MAX_RUNGS = 5


@dataclass(frozen=True)
class Bracket:
    """One bracket's share of the search."""

    num_rungs: int
    max_trials: int
    max_concurrent: int


def bracket_rungs(
    mode: Mode, max_rungs: int, max_time: int, max_trials: int, divisor: float, *, exact: bool = True
) -> list[int]:
    """Return the number of rungs of each bracket, most first.

    `max_rungs` is capped so that the first rung is at least one unit and the last one sees a trial.
    """
    powers = Powers(divisor, exact)
    most = powers.within(max_trials, powers.within(max_time, max_rungs))
    fewest = {"conservative": 1, "standard": (most - 1) // 2 + 1, "aggressive": most}[mode]
    return list(range(most, fewest - 1, -1))


def plan_brackets(
    rungs: Sequence[int], max_trials: int, max_concurrent: int, divisor: float, *, exact: bool = True
) -> list[Bracket]:
    """Divide the trials so that the brackets cost about the same, and the places evenly.

    Args:
        rungs: Number of rungs of each bracket, in any order.
        max_trials: Trials of the whole search; each bracket gets at least one.
        max_concurrent: Places of the whole search, 0 for a default; each bracket gets at least one.
        divisor: Each rung keeps the best 1/divisor.
        exact: Whether the shares are computed exactly, see `Powers`.
    """
    ordered = sorted(rungs, reverse=True)
    trials = [max(share, 1) for share in Powers(divisor, exact).shares(ordered, max_trials)]
    trials[0] += max(max_trials - sum(trials), 0)
    places = _places(trials[-1], len(ordered), max_concurrent, divisor)
    return [Bracket(*share) for share in zip(ordered, trials, places, strict=True)]


def limit_of(fields: Fields) -> int | None:
    """Trials at a time, of all brackets together; None under rules by which each bracket has one in any case."""
    return fields.max_concurrent if fields.rules >= HONOURED_LIMIT else None


def _places(last_trials: int, brackets: int, max_concurrent: int, divisor: float) -> list[int]:
    """Divide the places evenly; 0 gives each bracket a default by the trials of the last one."""
    if max_concurrent == 0:
        return [max(last_trials, int(divisor))] * brackets
    each, extra = divmod(max(max_concurrent, brackets), brackets)
    return [each + (1 if i < extra else 0) for i in range(brackets)]


class Tournament(SearchMethod):
    """Independent brackets on one stream of random numbers; a trial stays with the one that created it."""

    name = "adaptive_asha"
    draws_anew = True
    Config: ClassVar[type[SearcherBlock]] = AdaptiveASHAConfig
    needs_metric = True

    def __init__(self, brackets: Sequence[AsyncHalving], limit: int | None = None) -> None:
        self._brackets = list(brackets)
        self._bracket_of: dict[str, int] = {}
        self._limit = limit
        if limit is not None:
            for bracket in self._brackets:
                bracket.room = self._has_room

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method as `searcher` says: with its own `bracket_rungs`, or those of its mode.

        Raises:
            SearcherConfigError: A field is missing or out of range, or a bracket has no rung.
        """
        divisor, max_trials, exact = fields.divisor, fields.count("max_trials"), fields.exact_rungs
        rungs = fields.counts("bracket_rungs")
        if any(number < 1 for number in rungs):
            raise SearcherConfigError("searcher.bracket_rungs: each bracket needs at least 1 rung")
        for number in rungs:
            check_rungs("searcher.bracket_rungs", number, divisor)
        if not rungs:
            mode = cast(Mode, fields.one_of("mode", ("aggressive", "standard", "conservative"), "standard"))
            max_rungs = fields.count("max_rungs", DEFAULT_MAX_RUNGS)
            rungs = bracket_rungs(mode, max_rungs, fields.count("max_time"), max_trials, divisor, exact=exact)
        brackets = plan_brackets(rungs, max_trials, fields.max_concurrent, divisor, exact=exact)
        made = [AsyncHalving.bracket(fields, b.num_rungs, b.max_trials, b.max_concurrent) for b in brackets]
        return cls(made, limit_of(fields))

    @property
    def budget(self) -> int:
        """Sum over the brackets: `max_trials`, or one per bracket if that is more."""
        return sum(bracket.budget for bracket in self._brackets)

    @property
    def brackets(self) -> list[AsyncHalving]:
        """The brackets, most early stopping first."""
        return self._brackets

    def bracket_of(self, request_id: str) -> int:
        """Index of a trial's bracket."""
        return self._bracket_of[request_id]

    def _claim(self, bracket: int, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                self._bracket_of[decision.request_id] = bracket
        return decisions

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Start the brackets in order, as many as have a place."""
        decisions: list[Decision] = []
        for number, bracket in enumerate(self._brackets):
            if self._has_room():
                decisions += self._claim(number, bracket.start(factory))
        return decisions

    @property
    def _scarce(self) -> bool:
        """Whether there are fewer places than brackets: each has one, and some must wait for those of others."""
        return self._limit is not None and 0 < self._limit < len(self._brackets)

    def _has_room(self) -> bool:
        return not self._scarce or sum(bracket.holding for bracket in self._brackets) < (self._limit or 0)

    def _passed_on(self, number: int, decisions: list[Decision], factory: TrialFactory) -> list[Decision]:
        """Claim what a bracket decided; a place that it leaves empty goes to the first that can use it."""
        decisions = self._claim(number, decisions)
        if self._scarce and self._has_room():
            for other, bracket in enumerate(self._brackets):
                decisions += self._claim(other, bracket.fill(factory))
        return decisions

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].validated(factory, request_id, score, time), factory)

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].exited_early(factory, request_id, reason), factory)

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Pass on to the trial's bracket."""
        self._brackets[self._bracket_of[request_id]].count_stopped(request_id, score)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].stopped(factory, request_id), factory)

    def disqualified(self, factory: TrialFactory, request_id: str, score: Score) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].disqualified(factory, request_id, score), factory)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].exited(factory, request_id), factory)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Divide further trials as the first ones were, what remains to the first bracket; units go to all."""
        shares = self._brackets[0].powers.shares([len(bracket.rungs) for bracket in self._brackets], trials)
        shares[0] += trials - sum(shares)
        decisions: list[Decision] = []
        for number, (bracket, share) in enumerate(zip(self._brackets, shares, strict=True)):
            decisions += self._claim(number, bracket.extended(factory, share, units))
        return decisions

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Divide the places over the brackets; where there are fewer, brackets wait for each other.

        Raises:
            SteeringRefused: There are fewer places than brackets, and the search began when that was impossible.
        """
        self._limited(limit, least=len(self._brackets))
        places = _places(self._brackets[-1].budget, len(self._brackets), limit, self._brackets[0].powers.divisor)
        decisions: list[Decision] = []
        for number, (bracket, share) in enumerate(zip(self._brackets, places, strict=True)):
            decisions += self._claim(number, bracket.resized(factory, share))
        return decisions

    def _limited(self, limit: int, least: int) -> None:
        if self._limit is not None:
            self._limit = limit
        elif 0 < limit < least:
            raise SteeringRefused(f"each of the {least} brackets needs one trial at a time, {limit} are too few")

    def paused(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._passed_on(number, self._brackets[number].paused(factory, request_id), factory)

    def promoted(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Pass on to the trial's bracket."""
        number = self._bracket_of[request_id]
        return self._claim(number, self._brackets[number].promoted(factory, request_id))

    def promotes_to(self, request_id: str) -> int | None:
        """Return the units of the next rung of the trial's bracket."""
        return self._brackets[self._bracket_of[request_id]].promotes_to(request_id)

    def level_of(self, request_id: str) -> int:
        """Return the trial's level in its bracket."""
        return self._brackets[self._bracket_of[request_id]].level_of(request_id)

    def explain(self, request_id: str) -> str:
        """Pass on to the trial's bracket."""
        return self._brackets[self._bracket_of[request_id]].explain(request_id)

    def standing(self) -> list[Standing]:
        """Return the rungs of the brackets, one bracket after the other."""
        if len(self._brackets) == 1:
            return self._brackets[0].standing()
        return [
            Standing(f"bracket {number}, {one.where}", one.counts)
            for number, bracket in enumerate(self._brackets, 1)
            for one in bracket.standing()
        ]

    def units_of(self, request_id: str) -> list[int]:
        """Return the rungs of the trial's bracket."""
        return self._brackets[self._bracket_of[request_id]].units_of(request_id)

    @property
    def first_units(self) -> int | None:
        """Units of the first rung of the bracket that stops earliest."""
        return min(bracket.rungs[0].units_needed for bracket in self._brackets)

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the plain mean of the brackets."""
        return sum(bracket.progress(shares, closed) for bracket in self._brackets) / len(self._brackets)

    def state(self) -> dict[str, Any]:
        """Return the brackets' states and each trial's bracket."""
        return {
            "brackets": [bracket.state() for bracket in self._brackets],
            "bracket_of": self._bracket_of,
            "limit": self._limit,
        }
