"""The searcher blocks of the model-based methods, which learn from finished trials where to look next."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from detlab.schemas.expconf.blocks.scalars import Block, Flag, NonNegativeInt, Number, PositiveInt, needed
from detlab.schemas.expconf.blocks.searcher_base import REPEAT_POINTS, SearcherBlock


class KnownResult(Block):
    """What is known of a point before the search begins."""

    hparams: dict[str, Any] = Field(..., description="The point: hyperparameters as trials have them.")
    metric: Number = Field(..., description="Its value of the searcher's metric.")


class ModelBasedConfig(SearcherBlock):
    """What the model-based methods have."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"startup_trials", "population", "warm_start", "results"})

    max_trials: PositiveInt | None = needed("Number of trials.")
    max_concurrent_trials: NonNegativeInt = Field(
        16,
        description="Trials at a time: the fewer, the more each suggestion knows. 0 is unlimited: nothing is learned.",
    )
    repeat_points: Flag = Field(False, description=REPEAT_POINTS)
    startup_trials: PositiveInt | None = Field(
        None, description="Random trials before the first suggestion; by default a third of the trials, 10 at most."
    )
    warm_start: Annotated[list[PositiveInt], Field(max_length=20)] | None = Field(
        None,
        description="Experiments whose trials a model-based method learns from, as they are at the time of submission.",
    )
    results: list[KnownResult] | None = Field(
        None, description="Results from elsewhere that a model-based method learns from."
    )


class TPEConfig(ModelBasedConfig):
    """Tree-structured Parzen estimator (Optuna's): for any space and budget."""

    name: Literal["tpe"] = "tpe"


class GPConfig(ModelBasedConfig):
    """Gaussian process with log expected improvement (Optuna's): for small budgets; needs torch and scipy."""

    name: Literal["gp"] = "gp"


class CMAESConfig(ModelBasedConfig):
    """CMA evolution strategy: for numbers and some hundred trials; choices are drawn at random."""

    name: Literal["cmaes"] = "cmaes"
    population: PositiveInt | None = Field(None, description="Trials of a generation; by default 4 + 3 ln(numbers).")


class NSGA2Config(ModelBasedConfig):
    """Genetic algorithm with non-dominated sorting (Optuna's NSGA-II): for large budgets and several metrics."""

    name: Literal["nsga2"] = "nsga2"
    population: PositiveInt | None = Field(
        None, description="Trials of a generation; by default a fifth of the trials, 10 to 50."
    )


class BayesianConfig(ModelBasedConfig):
    """The model-based method that fits the space and the budget: gp, or tpe for many trials or choices."""

    name: Literal["bayesian"] = "bayesian"
