"""What the blocks of all search methods have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    PositiveInt,
    Shorthand,
    Text,
    as_int,
    needed,
)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class SearcherBlock(Block):
    """What all searchers have."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"require", "starting_points", "seeds"})

    metric: FilledText | None = needed("Validation metric that ranks the trials.")
    smaller_is_better: Flag = Field(True, description="Whether a smaller metric is better.")
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
    seeds: Annotated[int, Field(ge=1, le=100), BeforeValidator(as_int)] | None = Field(
        None, description="Train each point this many times, with different seeds, and rank it by the mean."
    )
