"""The searcher blocks with rungs: trials are compared at them, and the best continue."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from detlab.schemas.expconf.blocks.lengths import SearchLength
from detlab.schemas.expconf.blocks.scalars import (
    FilledText,
    Flag,
    NonNegativeInt,
    NumberAboveOne,
    PositiveInt,
    ignored,
    needed,
)
from detlab.schemas.expconf.blocks.searcher_base import REPEAT_POINTS, TIME_METRIC, SearcherBlock

UNITS_GONE = "use `time_metric` and `max_time`; Determined 0.38 ignores it too"


class HalvingConfig(SearcherBlock):
    """What the searchers with rungs have."""

    max_trials: PositiveInt | None = needed("Number of trials.")
    time_metric: FilledText | None = needed(TIME_METRIC)
    max_time: PositiveInt | None = needed("Value of `time_metric` at which a trial is done.")
    divisor: NumberAboveOne = Field(4.0, description="One trial in `divisor` continues beyond each rung.")
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: the searcher decides.")
    repeat_points: Flag = Field(False, description=REPEAT_POINTS)
    max_length: SearchLength | None = ignored(None, "Length of training.", UNITS_GONE)
    stop_once: Flag | None = ignored(
        None,
        "Selected stopping instead of promotion.",
        "`asha` has `variant: stopping` and `variant: promotion`; this one always stops",
    )


class AsyncHalvingConfig(HalvingConfig):
    """One bracket of asynchronous successive halving."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"max_length", "stop_once"})

    name: Literal["async_halving"] = "async_halving"
    num_rungs: PositiveInt | None = needed("Number of rungs.")


class AdaptiveASHAConfig(HalvingConfig):
    """Several brackets of asynchronous successive halving, from cautious to aggressive."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"max_length", "stop_once"})

    name: Literal["adaptive_asha"] = "adaptive_asha"
    mode: Literal["aggressive", "standard", "conservative"] = Field(
        "standard", description="How early bad trials are stopped."
    )
    max_rungs: PositiveInt = Field(5, description="Most rungs of a bracket.")
    bracket_rungs: list[PositiveInt] = Field([], description="Rungs of each bracket; empty chooses by mode.")


class ASHAConfig(SearcherBlock):
    """One bracket of asynchronous successive halving whose trials wait at their rung, off their slots."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"num_rungs"})

    name: Literal["asha"] = "asha"
    variant: Literal["promotion", "stopping"] = Field(
        "promotion",
        description="`promotion`: a trial pauses at its rung and continues from its checkpoint when it is among"
        " the best of it. `stopping`: it is stopped for good unless it is among the best so far (`async_halving`).",
    )
    max_trials: PositiveInt | None = needed("Number of trials.")
    time_metric: FilledText | None = needed(TIME_METRIC)
    max_time: PositiveInt | None = needed("Value of `time_metric` at which a trial is done.")
    divisor: NumberAboveOne = Field(4.0, description="One trial in `divisor` continues beyond each rung.")
    num_rungs: PositiveInt | None = Field(
        None, description="Number of rungs; by default as many as `max_trials` and `max_time` fill, 5 at most."
    )
    max_concurrent_trials: NonNegativeInt = Field(
        16, description="Trials that train at a time, paused ones not counted; 0: the searcher decides."
    )
    repeat_points: Flag = Field(False, description=REPEAT_POINTS)


class HyperbandConfig(SearcherBlock):
    """Brackets of successive halving side by side, from the one that stops most to one that stops nothing."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"max_trials", "max_brackets"})

    name: Literal["hyperband"] = "hyperband"
    max_trials: PositiveInt | None = Field(
        None, description="Number of trials of all brackets; by default those of one round of Hyperband."
    )
    time_metric: FilledText | None = needed(TIME_METRIC)
    max_time: PositiveInt | None = needed("Value of `time_metric` at which a trial is done.")
    divisor: NumberAboveOne = Field(3.0, description="One trial in `divisor` continues beyond each rung.")
    max_rungs: PositiveInt = Field(5, description="Most rungs of a bracket, and so most brackets.")
    max_brackets: PositiveInt | None = Field(
        None, description="Most brackets; those that stop trials earliest are kept. By default all."
    )
    max_concurrent_trials: NonNegativeInt = Field(
        16, description="Trials that train at a time, paused ones not counted; 0: the searcher decides."
    )


class BOHBConfig(HyperbandConfig):
    """Hyperband whose new trials are suggested by TPE, from the highest rung that has enough results."""

    name: Literal["bohb"] = "bohb"  # type: ignore[assignment]  # narrower than the base's name, on purpose
    max_brackets: PositiveInt = Field(
        2, description="Most brackets; those that stop trials earliest are kept. A number as large as `max_rungs`: all."
    )
    random_fraction: float = Field(1 / 3, ge=0, le=1, description="Share of the new trials that is drawn at random.")
