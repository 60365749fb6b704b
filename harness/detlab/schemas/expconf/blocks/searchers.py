"""The searcher block: a union on `name`.

A field that a submission needs may still be absent here, because a template or the cluster can supply it;
`detlab.schemas.expconf.checks.completeness` asks for it when the config is submitted.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, SerializeAsAny, Tag
from pydantic.json_schema import SkipJsonSchema

from detlab.plugins import Plugins
from detlab.schemas.expconf.blocks.halving_searchers import (
    AdaptiveASHAConfig,
    ASHAConfig,
    AsyncHalvingConfig,
    BOHBConfig,
    HyperbandConfig,
)
from detlab.schemas.expconf.blocks.lengths import SearchLength
from detlab.schemas.expconf.blocks.members import BlockMembers
from detlab.schemas.expconf.blocks.model_searchers import (
    BayesianConfig,
    CMAESConfig,
    GPConfig,
    NSGA2Config,
    TPEConfig,
)
from detlab.schemas.expconf.blocks.population_searchers import DEHBConfig, PB2Config, PBTConfig
from detlab.schemas.expconf.blocks.scalars import (
    SECONDS_SHORTHAND,
    FilledText,
    Flag,
    NonNegativeInt,
    NumberAboveOne,
    PositiveInt,
    as_seconds,
    ignored,
    needed,
    old,
    refuse,
)
from detlab.schemas.expconf.blocks.searcher_base import REPEAT_POINTS, SearcherBlock

_UNITS_OLD = "training code decides its own length since Determined 0.38"

REMOVED: dict[str, str] = {
    "sync_halving": (
        "the 'sync_halving' searcher was removed long before Determined 0.38: it waits for whole rungs and"
        " stalls on stragglers"
    ),
    "adaptive": "the 'adaptive' searcher was removed: it was built on synchronous halving",
    "adaptive_simple": "the 'adaptive_simple' searcher was removed: it was built on synchronous halving",
}
"""Searchers that Determined once had, with the reason why a config that names them is refused."""

REMOVED_HINTS: dict[str, str] = {
    "sync_halving": "use async_halving",
    "adaptive": "use adaptive_asha",
    "adaptive_simple": "use adaptive_asha",
}

SEARCHERS: Plugins[Any] = Plugins("detlab.searchers", "search method")
"""Search methods: each is a class whose `Config` is its block."""

COMMON = tuple(SearcherBlock.model_fields)
"""Keys that every searcher has; a merge keeps them across different searchers."""


_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def _as_search_class(value: object) -> object:
    if isinstance(value, str) and _CLASS.fullmatch(value) is None:
        refuse(f"must be module:Class, not {value[:80]!r}", "such as my_search:MyMethod for a class in my_search.py")
    return value


SearchClass = Annotated[FilledText, BeforeValidator(_as_search_class), Field(max_length=300, pattern=_CLASS.pattern)]
AnswerTimeout = Annotated[float, Field(gt=0, le=86400.0), BeforeValidator(as_seconds), SECONDS_SHORTHAND]


class SingleConfig(SearcherBlock):
    """One trial; every hyperparameter is drawn once."""

    name: Literal["single"] = "single"
    max_length: SearchLength | None = old(None, "Length of training.", _UNITS_OLD)


class RandomConfig(SearcherBlock):
    """Independent random trials."""

    name: Literal["random"] = "random"
    max_trials: PositiveInt | None = needed("Number of trials.")
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: no limit.")
    repeat_points: Flag = Field(False, description=REPEAT_POINTS)
    max_length: SearchLength | None = old(None, "Length of training.", _UNITS_OLD)


class SobolConfig(SearcherBlock):
    """Points of a Sobol sequence, which fill the space more evenly than random ones."""

    name: Literal["sobol"] = "sobol"
    max_trials: PositiveInt | None = needed("Number of trials; a power of 2 fills the space most evenly.")
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: no limit.")
    repeat_points: Flag = Field(False, description=REPEAT_POINTS)


class GridConfig(SearcherBlock):
    """Every point of the grid once, at most 100,000; int, double and log hyperparameters need a `count`."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"max_trials"})

    name: Literal["grid"] = "grid"
    max_trials: PositiveInt | None = Field(
        None, description="Points of the grid to try at most: those of a larger grid are chosen at random, by the seed."
    )
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: no limit.")
    max_length: SearchLength | None = old(None, "Length of training.", _UNITS_OLD)


class CustomConfig(SearcherBlock):
    """A class of your own decides: a `detlab.searcher.SearchMethod` in the experiment's code, run on the cluster."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"options"})

    name: Literal["custom"] = "custom"
    entrypoint: SearchClass | None = needed("The class, as `module:Class`; the module is in the experiment's code.")
    options: dict[FilledText, Any] | None = Field(None, description="Keyword arguments of the class.")
    max_trials: PositiveInt = Field(1000, description="Trials that the class may create at most.")
    max_concurrent_trials: NonNegativeInt = Field(16, description="Most trials at a time; 0: no limit.")
    answer_timeout: AnswerTimeout = Field(
        600.0, description="Time that the class may take for one answer: seconds, or 30s, 10m, 1h."
    )


class UnnamedSearcher(SearcherBlock):
    """A searcher block without a `name`, which a template supplies: any searcher's keys are fine."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "max_trials",
            "max_concurrent_trials",
            "max_length",
            "num_rungs",
            "time_metric",
            "max_time",
            "divisor",
            "stop_once",
            "mode",
            "max_rungs",
            "bracket_rungs",
            "repeat_points",
            "entrypoint",
            "options",
            "answer_timeout",
        }
    )

    name: None = needed("Which searcher, such as random, adaptive_asha or bayesian.")
    max_trials: PositiveInt | None = Field(None, description="Number of trials.")
    max_concurrent_trials: NonNegativeInt | None = Field(None, description="Trials at a time.")
    max_length: SearchLength | None = old(None, "Length of training.", _UNITS_OLD)
    num_rungs: PositiveInt | None = Field(None, description="Number of rungs.")
    time_metric: FilledText | None = Field(None, description="Metric that measures training.")
    max_time: PositiveInt | None = Field(None, description="Value of `time_metric` at the end.")
    divisor: NumberAboveOne | None = Field(None, description="Share that is stopped.")
    stop_once: Flag | None = ignored(None, "Selected stopping instead of promotion.", "always stops once")
    mode: Literal["aggressive", "standard", "conservative"] | None = Field(None, description="How early.")
    max_rungs: PositiveInt | None = Field(None, description="Most rungs of a bracket.")
    bracket_rungs: list[PositiveInt] | None = Field(None, description="Rungs of each bracket.")
    repeat_points: Flag | None = Field(None, description="Whether a point may be tried again.")
    entrypoint: SearchClass | None = Field(None, description="Class of a custom search.")
    options: dict[FilledText, Any] | None = Field(None, description="Keyword arguments of that class.")
    answer_timeout: AnswerTimeout | None = Field(None, description="Time that the class may take for one answer.")


BUILT_IN: dict[str, type[SearcherBlock]] = {
    "single": SingleConfig,
    "random": RandomConfig,
    "sobol": SobolConfig,
    "grid": GridConfig,
    "async_halving": AsyncHalvingConfig,
    "adaptive_asha": AdaptiveASHAConfig,
    "asha": ASHAConfig,
    "hyperband": HyperbandConfig,
    "bohb": BOHBConfig,
    "dehb": DEHBConfig,
    "pbt": PBTConfig,
    "pb2": PB2Config,
    "tpe": TPEConfig,
    "gp": GPConfig,
    "cmaes": CMAESConfig,
    "nsga2": NSGA2Config,
    "bayesian": BayesianConfig,
    "custom": CustomConfig,
}
"""The blocks of detlab's own search methods, by name."""


MEMBERS = BlockMembers(BUILT_IN, SEARCHERS, SearcherBlock)


def member_of(value: Any) -> type[SearcherBlock] | None:
    """Return the model that judges a raw searcher block; None if its name is unknown or removed."""
    if not isinstance(value, dict) or value.get("name") is None:
        return UnnamedSearcher
    name = value["name"]
    return MEMBERS.get(name) if isinstance(name, str) else None


def _tag(value: Any) -> str | None:
    if isinstance(value, SearcherBlock):
        name = getattr(value, "name", None) or ""
        return f"::{name}" if not name or name in BUILT_IN else "::plugin"
    member = member_of(value)
    if member is None:
        return None
    if member is UnnamedSearcher:
        return "::"
    return f"::{value['name']}" if value["name"] in BUILT_IN else "::plugin"


def _judged_by_plugin(value: Any) -> Any:
    """Let the plug-in's own model judge its block."""
    member = member_of(value)
    return value if member is None else member.model_validate(value)


SearcherConfig = Annotated[
    Annotated[SingleConfig, Tag("::single")]
    | Annotated[RandomConfig, Tag("::random")]
    | Annotated[SobolConfig, Tag("::sobol")]
    | Annotated[GridConfig, Tag("::grid")]
    | Annotated[AsyncHalvingConfig, Tag("::async_halving")]
    | Annotated[AdaptiveASHAConfig, Tag("::adaptive_asha")]
    | Annotated[ASHAConfig, Tag("::asha")]
    | Annotated[HyperbandConfig, Tag("::hyperband")]
    | Annotated[BOHBConfig, Tag("::bohb")]
    | Annotated[DEHBConfig, Tag("::dehb")]
    | Annotated[PBTConfig, Tag("::pbt")]
    | Annotated[PB2Config, Tag("::pb2")]
    | Annotated[TPEConfig, Tag("::tpe")]
    | Annotated[GPConfig, Tag("::gp")]
    | Annotated[CMAESConfig, Tag("::cmaes")]
    | Annotated[NSGA2Config, Tag("::nsga2")]
    | Annotated[BayesianConfig, Tag("::bayesian")]
    | Annotated[CustomConfig, Tag("::custom")]
    | Annotated[UnnamedSearcher, Tag("::")]
    | Annotated[SkipJsonSchema[SerializeAsAny[SearcherBlock]], BeforeValidator(_judged_by_plugin), Tag("::plugin")],
    Discriminator(_tag),
]
