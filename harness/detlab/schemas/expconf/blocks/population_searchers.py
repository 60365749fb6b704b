"""The searcher blocks whose trials are populations that learn from each other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    NonNegativeInt,
    NumberAboveOne,
    PositiveInt,
    needed,
)
from detlab.schemas.expconf.blocks.searcher_base import TIME_METRIC, SearcherBlock


class ReplaceFunction(Block):
    """Which trials of a population are replaced after each round."""

    truncate_fraction: float = Field(
        0.2, ge=0, le=0.5, description="Share of the trials that is replaced by clones of as many of the best."
    )


class ExploreFunction(Block):
    """How the hyperparameters of a clone differ from its parent's."""

    resample_probability: float = Field(
        0.2, ge=0, le=1, description="Probability that a hyperparameter is drawn again at random."
    )
    perturb_factor: float = Field(
        0.2, ge=0, le=1, description="A number that is not drawn again is multiplied by 1 - this or 1 + this."
    )


class PopulationConfig(SearcherBlock):
    """What the searchers with a population that trains in rounds have."""

    population_size: PositiveInt | None = needed("Trials that train at the same time.")
    num_rounds: PositiveInt | None = needed("Rounds that a trial trains if it is never replaced.")
    length_per_round: PositiveInt | None = needed("Units of `time_metric` of a round.")
    time_metric: FilledText | None = needed(TIME_METRIC)
    replace_function: ReplaceFunction = Field(default_factory=ReplaceFunction, description="Which trials are replaced.")


class PBTConfig(PopulationConfig):
    """Population based training: after each round the worst trials are replaced by changed clones of the best."""

    name: Literal["pbt"] = "pbt"
    explore_function: ExploreFunction = Field(default_factory=ExploreFunction, description="How clones differ.")


class PB2Config(PopulationConfig):
    """Population based bandits: PBT whose clones get numbers that a Gaussian process suggests."""

    name: Literal["pb2"] = "pb2"


class DEHBConfig(SearcherBlock):
    """Differential evolution on the rungs of Hyperband; each trial trains from scratch to the units of its rung."""

    name: Literal["dehb"] = "dehb"
    max_trials: PositiveInt | None = needed("Number of trials.")
    time_metric: FilledText | None = needed(TIME_METRIC)
    max_time: PositiveInt | None = needed("Value of `time_metric` at the top rung.")
    divisor: NumberAboveOne = Field(3.0, description="Each rung trains `divisor` times as long as the one before.")
    max_rungs: PositiveInt = Field(5, description="Most rungs.")
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: no limit.")
    mutation_factor: float = Field(0.5, ge=0, le=1, description="By how much of a difference points are moved.")
    crossover_probability: float = Field(0.5, ge=0, le=1, description="Share of the numbers that a mutant passes on.")
