"""Hyperband: brackets from the one that stops most to one that stops nothing.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization" (JMLR 2018), algorithm 1. Its
brackets run side by side here, and promote asynchronously inside: no slot waits for the slowest trial of a rung.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from detlab.schemas.expconf import HyperbandConfig
from detlab_hub.core.searchers.events import Decision
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.halving.adaptive import (
    DEFAULT_MAX_RUNGS,
    Bracket,
    Tournament,
    limit_of,
    plan_brackets,
)
from detlab_hub.core.searchers.halving.promoting import PromotingBracket
from detlab_hub.core.searchers.halving.rungs import Powers
from detlab_hub.core.searchers.method import TrialFactory

_Kind = TypeVar("_Kind", bound=PromotingBracket)
DIVISOR = 3
"""The paper's."""
LOG_SLACK = 1e-9
"""What rules before `EXACT_RUNGS` raise a logarithm by."""


def bracket_sizes(rungs: int, divisor: float, *, exact: bool = True) -> list[int]:
    """Return the trials of each bracket of one round, most rungs first: line 3 of the algorithm."""
    powers = Powers(divisor, exact)
    return [math.ceil(rungs * powers.power(level) / (level + 1)) for level in range(rungs - 1, -1, -1)]


class Hyperband(Tournament):
    """Promoting brackets of every depth."""

    name = "hyperband"
    Config = HyperbandConfig

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        return cls(cls.made(PromotingBracket, fields), limit_of(fields))

    @classmethod
    def made(cls, kind: type[_Kind], fields: Fields) -> list[_Kind]:
        """Return the brackets."""
        divisor = fields.divisor_or(DIVISOR)
        return [kind.bracket(fields, b.num_rungs, b.max_trials, b.max_concurrent, divisor) for b in cls.plan(fields)]

    @staticmethod
    def plan(fields: Fields) -> Sequence[Bracket]:
        """Return the brackets, most rungs first."""
        divisor, exact = fields.divisor_or(DIVISOR), fields.exact_rungs
        most = fields.count("max_rungs", DEFAULT_MAX_RUNGS)
        rungs = Powers(divisor, exact).within(fields.count("max_time"), most, LOG_SLACK)
        depths = list(range(rungs, 0, -1))[: fields.optional_count("max_brackets")]
        given = fields.optional_count("max_trials")
        if given is not None:
            return plan_brackets(depths, given, fields.max_concurrent, divisor, exact=exact)
        sizes = bracket_sizes(rungs, divisor, exact=exact)[: len(depths)]
        shared = plan_brackets(depths, sum(sizes), fields.max_concurrent, divisor, exact=exact)
        return [Bracket(b.num_rungs, size, b.max_concurrent) for b, size in zip(shared, sizes, strict=True)]

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Divide the places evenly, one for each bracket; where there are fewer, brackets wait for each other."""
        self._limited(limit, least=0)
        each, extra = divmod(max(limit, len(self._brackets)) if limit else 0, len(self._brackets))
        decisions: list[Decision] = []
        for number, bracket in enumerate(self._brackets):
            decisions += self._claim(number, bracket.resized(factory, each + (number < extra)))
        return decisions

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Give further trials to the first bracket, which stops most, and further units to the top rung of all."""
        decisions: list[Decision] = []
        for number, bracket in enumerate(self._brackets):
            decisions += self._claim(number, bracket.extended(factory, trials if number == 0 else 0, units))
        return decisions
