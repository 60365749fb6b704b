"""Asynchronous successive halving in one bracket, by promotion or by stopping: `asha`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from detlab.schemas.expconf import ASHAConfig
from detlab_hub.core.searchers.events import Decision
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.halving.adaptive import DEFAULT_MAX_RUNGS, Tournament, bracket_rungs
from detlab_hub.core.searchers.halving.async_halving import AsyncHalving
from detlab_hub.core.searchers.halving.promoting import PromotingBracket
from detlab_hub.core.searchers.method import TrialFactory


class ASHA(Tournament):
    """A single bracket, of the variant that the config names."""

    name = "asha"
    Config = ASHAConfig

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        variant = fields.one_of("variant", ("promotion", "stopping"), "promotion")
        max_trials = fields.count("max_trials")
        limits = DEFAULT_MAX_RUNGS, fields.count("max_time"), max_trials
        fit = bracket_rungs("aggressive", *limits, fields.divisor, exact=fields.exact_rungs)
        rungs = fields.count("num_rungs", fit[0])
        bracket = PromotingBracket if variant == "promotion" else AsyncHalving
        return cls([bracket.bracket(fields, rungs, max_trials, fields.max_concurrent)])

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Pass on to the bracket."""
        return self._claim(0, self._brackets[0].resized(factory, limit))

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Pass on to the bracket."""
        return self._claim(0, self._brackets[0].extended(factory, trials, units))
