"""What the blocks of all search methods have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from detlab.schemas.expconf.blocks.scalars import (
    SECONDS_SHORTHAND,
    Block,
    FilledText,
    Flag,
    NonNegativeNumber,
    Number,
    PositiveInt,
    PositiveNumber,
    Shorthand,
    Text,
    as_int,
    as_seconds,
    needed,
    refuse,
)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_goal(value: object) -> object:
    if isinstance(value, str) and value.lower() in ("min", "max", "minimize", "maximize"):
        better = "false" if value.lower().startswith("max") else "true"
        refuse(f"must be the value that ends the search, not {value!r}", f"write `smaller_is_better: {better}`")
    return value


class ObjectiveConfig(Block):
    """A metric that the search is to make small, or large."""

    name: FilledText = Field(description="Validation metric.")
    smaller_is_better: Flag = Field(True, description="Whether a smaller value is better.")


class ConstraintConfig(Block):
    """The range that a validation metric must keep; a trial outside of it is worse than any inside."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"min", "max"})

    min: Number | None = Field(None, description="Smallest value that is allowed.")
    max: Number | None = Field(None, description="Largest value that is allowed.")


WallClock = Annotated[float, Field(gt=0, le=366 * 86400.0), BeforeValidator(as_seconds), SECONDS_SHORTHAND]


class BudgetConfig(Block):
    """What a whole search may use; what runs when it is used up is stopped, and no trial is created any more."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"slot_hours", "wall_clock"})

    slot_hours: PositiveNumber | None = Field(None, description="Hours of slots, of all trials together.")
    wall_clock: WallClock | None = Field(
        None, description="Time from the start of the first trial, without pauses: seconds, or 30m, 2h, 1d."
    )


STEP_TIMES = frozenset({"batches", "steps", "steps_completed"})
"""Time metrics that a report's own steps_completed stands for when they are not in it."""
TIME_METRIC = (
    "Validation metric that measures how far a trial has trained; for `batches`, `steps` and `steps_completed` the step"
    " of a report counts if the metric is not in it."
)


class SearcherBlock(Block):
    """What all searchers have."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {
            "require",
            "starting_points",
            "seeds",
            "metrics",
            "constraints",
            "time_metric",
            "budget",
            "goal",
            "patience",
            "min_improvement",
            "confirm",
        }
    )

    metric: FilledText | None = needed("Validation metric that ranks the trials.")
    smaller_is_better: Flag = Field(True, description="Whether a smaller metric is better.")
    metrics: Annotated[list[ObjectiveConfig], Field(min_length=1)] | None = Field(
        None, description="Several objectives; the first one is `metric`, which may then be left out."
    )
    constraints: dict[FilledText, ConstraintConfig] | None = Field(
        None, description="Range that each of these validation metrics must keep."
    )
    confirm: Flag | None = Field(
        None,
        description="Train the best trial's point once more, as a trial from new weights, when all others have ended:"
        " the best of many results is better by chance, too.",
    )
    time_metric: FilledText | None = Field(None, description=f"For stopping policies. {TIME_METRIC}")
    source_trial_id: PositiveInt | None = Field(
        None, description="Start from the checkpoint that is this trial's latest at the time of submission."
    )
    source_checkpoint_uuid: Text | None = Field(None, description="Start from this checkpoint.")
    require: Annotated[
        list[FilledText] | None, BeforeValidator(_listed), Shorthand({"type": "string", "minLength": 1})
    ] = Field(None, description='Relations that every point must meet, such as "width % heads == 0".')
    starting_points: list[dict[str, Any]] | None = Field(
        None, description="Points that are tried first; hyperparameters that one lacks are drawn."
    )
    budget: BudgetConfig | None = Field(None, description="What the whole search may use.")
    goal: Annotated[Number | None, BeforeValidator(_as_goal)] = Field(
        None, description="End the whole search once a trial's `metric` reaches this value; what runs then is stopped."
    )
    patience: PositiveInt | None = Field(
        None,
        description="End the whole search once so many trials in a row have ended without a better `metric` than the"
        " best before them.",
    )
    min_improvement: NonNegativeNumber | None = Field(
        None, description="How much better than the best before a trial must be to count, for `patience`."
    )
    seeds: Annotated[int, Field(ge=1, le=100), BeforeValidator(as_int)] | None = Field(
        None, description="Train each point this many times, with different seeds, and rank it by the mean."
    )

    @model_validator(mode="before")
    @classmethod
    def _first_of_metrics(cls, raw: object) -> object:
        return first_of_metrics(raw)


REPEAT_POINTS = (
    "Whether a point may be tried again. If not, each trial of a space without continuous ranges has a point of its"
    " own, and the search ends when there is none left."
)


def first_of_metrics(raw: Any) -> Any:
    """Return a raw block in which the first of `metrics` is also `metric` and `smaller_is_better`."""
    metrics = raw.get("metrics") if isinstance(raw, dict) else None
    if not isinstance(metrics, list) or not metrics or not isinstance(metrics[0], dict):
        return raw
    first = {"metric": metrics[0].get("name"), "smaller_is_better": metrics[0].get("smaller_is_better", True)}
    return {**raw, **{key: value for key, value in first.items() if raw.get(key) is None}}
