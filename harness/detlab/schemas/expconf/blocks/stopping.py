"""The `stopping` list: policies that end trials which are not worth continuing, beside any search method."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, SerializeAsAny, Tag
from pydantic.json_schema import SkipJsonSchema

from detlab.plugins import Plugins
from detlab.schemas.expconf.blocks.members import BlockMembers
from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    NonNegativeNumber,
    Number,
    NumberAboveOne,
    PositiveInt,
    PositiveNumber,
)

POLICIES: Plugins[Any] = Plugins("detlab.stopping", "stopping policy")
"""Stopping policies: each is a class whose `Config` is its block."""


class StoppingBlock(Block):
    """What all policies have."""

    dry_run: Flag = Field(False, description="Only record what would have been stopped.")


class NoImprovementStopping(StoppingBlock):
    """Stop a trial whose reports do not improve any longer."""

    name: Literal["no_improvement"] = "no_improvement"
    patience: PositiveInt = Field(description="Reports in a row without an improvement.")
    min_delta: NonNegativeNumber = Field(0.0, description="How much better a report must be to count.")


class ThresholdStopping(StoppingBlock):
    """Stop a trial whose metric leaves a range: it has failed, or it has reached its goal."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"metric"})

    name: Literal["threshold"] = "threshold"
    metric: FilledText | None = Field(
        None, description="Another metric of the search, one of `searcher.constraints`; default: `searcher.metric`."
    )
    lower: Number | None = Field(None, description="Stop below this metric.")
    upper: Number | None = Field(None, description="Stop above this metric.")
    after: PositiveInt = Field(1, description="The first report that counts.")


class DivergenceStopping(StoppingBlock):
    """Stop a trial whose metric is not a finite number, or explodes."""

    name: Literal["divergence"] = "divergence"
    factor: NumberAboveOne | None = Field(None, description="Also stop at a metric so many times off the best one.")
    patience: PositiveInt = Field(1, description="Diverged reports in a row.")


class MedianStopping(StoppingBlock):
    """Stop a trial whose best metric is worse than the median of the trials that have trained as far."""

    name: Literal["median"] = "median"
    min_trials: PositiveInt = Field(5, description="Trials to compare with.")
    warmup: NonNegativeNumber = Field(0.0, description="Value of the time metric until which none is stopped.")


class PercentileStopping(StoppingBlock):
    """Stop a trial that is not among the best `percentile` percent of the trials that have trained as far."""

    name: Literal["percentile"] = "percentile"
    percentile: Annotated[PositiveNumber, Field(lt=100)] = Field(description="Percent that continue.")
    min_trials: PositiveInt = Field(5, description="Trials to compare with.")
    warmup: NonNegativeNumber = Field(0.0, description="Value of the time metric until which none is stopped.")


class CurveStopping(StoppingBlock):
    """Stop a trial whose curve, extrapolated, will not reach the best trial."""

    name: Literal["curve"] = "curve"
    end: PositiveNumber = Field(description="Value of the time metric at which a trial is done.")
    confidence: Annotated[PositiveNumber, Field(lt=1)] = Field(0.95, description="How sure the forecast must be.")
    min_reports: PositiveInt = Field(5, description="Reports before the first forecast; 4 at least.")


class WilcoxonStopping(StoppingBlock):
    """Stop a trial whose folds are worse than those of the best trial, by a signed-rank test."""

    name: Literal["wilcoxon"] = "wilcoxon"
    p_value: Annotated[PositiveNumber, Field(lt=1)] = Field(
        0.1, description="Stop if chance alone would show such a difference with a smaller probability than this."
    )
    min_folds: PositiveInt = Field(2, description="Folds before the first comparison.")
    running_mean: Flag = Field(False, description="Reports have the mean of all folds so far, not that of one fold.")


class WallClockStopping(StoppingBlock):
    """Stop a trial after so many seconds of running."""

    name: Literal["wall_clock"] = "wall_clock"
    seconds: PositiveNumber = Field(description="Seconds; time in the queue does not count.")


BUILT_IN: dict[str, type[StoppingBlock]] = {
    "no_improvement": NoImprovementStopping,
    "threshold": ThresholdStopping,
    "divergence": DivergenceStopping,
    "median": MedianStopping,
    "percentile": PercentileStopping,
    "curve": CurveStopping,
    "wilcoxon": WilcoxonStopping,
    "wall_clock": WallClockStopping,
}
"""The entries of detlab's own stopping policies, by name."""


MEMBERS = BlockMembers(BUILT_IN, POLICIES, StoppingBlock)


def member_of(value: Any) -> type[StoppingBlock] | None:
    """Return the model that judges a raw entry of `stopping`; None if it has no name that is known."""
    name = value.get("name") if isinstance(value, dict) else None
    return MEMBERS.get(name) if isinstance(name, str) else None


def _tag(value: Any) -> str | None:
    if isinstance(value, StoppingBlock):
        name = getattr(value, "name", None)
        return f"::{name}" if name in BUILT_IN else "::plugin"
    if member_of(value) is None:
        return None
    return f"::{value['name']}" if value["name"] in BUILT_IN else "::plugin"


def _judged_by_plugin(value: Any) -> Any:
    """Let the plug-in's own model judge its entry."""
    member = member_of(value)
    return value if member is None else member.model_validate(value)


StoppingPolicy = Annotated[
    Annotated[NoImprovementStopping, Tag("::no_improvement")]
    | Annotated[ThresholdStopping, Tag("::threshold")]
    | Annotated[DivergenceStopping, Tag("::divergence")]
    | Annotated[MedianStopping, Tag("::median")]
    | Annotated[PercentileStopping, Tag("::percentile")]
    | Annotated[CurveStopping, Tag("::curve")]
    | Annotated[WilcoxonStopping, Tag("::wilcoxon")]
    | Annotated[WallClockStopping, Tag("::wall_clock")]
    | Annotated[SkipJsonSchema[SerializeAsAny[StoppingBlock]], BeforeValidator(_judged_by_plugin), Tag("::plugin")],
    Discriminator(_tag),
]
