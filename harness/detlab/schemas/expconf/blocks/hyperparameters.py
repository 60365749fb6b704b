"""Hyperparameters: constants, ranges, choices, and nested maps of them.

A mapping without a `type` key is a nested map; with one it must be a known type. Anything that is not a mapping
is a constant, lists included: a range inside a list is checked for spelling but never searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from detlab.schemas.expconf.blocks.scalars import Block, Int, Number, PositiveInt, PositiveNumber, describe, refuse

TAG = "::"
"""Prefix of union tags, so that they can be told from keys in the location of an error."""

TYPES = ("const", "int", "double", "log", "categorical")


class _Ranged(Block):
    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"count"})

    count: PositiveInt | None = Field(None, description="Points on this axis of a grid search.")


class ConstHyperparameter(Block):
    """One value; written in full or as the bare value."""

    KEEPS_NULL: ClassVar[frozenset[str]] = frozenset({"val"})

    type: Literal["const"] = "const"
    val: Any = Field(..., description="Any JSON value.")


class IntHyperparameter(_Ranged):
    """An integer drawn uniformly from `minval` to `maxval`, both included."""

    type: Literal["int"] = "int"
    minval: Int = Field(..., description="Smallest value.")
    maxval: Int = Field(..., description="Largest value; greater than `minval`.")


class DoubleHyperparameter(_Ranged):
    """A number drawn uniformly from `minval` to `maxval`."""

    type: Literal["double"] = "double"
    minval: Number = Field(..., description="Smallest value.")
    maxval: Number = Field(..., description="Largest value; greater than `minval`.")


class LogHyperparameter(_Ranged):
    """`base` to the power of a number drawn uniformly from `minval` to `maxval`."""

    type: Literal["log"] = "log"
    base: PositiveNumber = Field(..., description="Base of the power.")
    minval: Number = Field(..., description="Smallest exponent.")
    maxval: Number = Field(..., description="Largest exponent; greater than `minval`.")


class CategoricalHyperparameter(Block):
    """One of `vals`, drawn uniformly."""

    type: Literal["categorical"] = "categorical"
    vals: list[Any] = Field(..., min_length=1, description="The choices: any JSON values.")


def kind_of(value: object) -> str | None:
    """Return the union tag of a raw or parsed hyperparameter; None for an unknown `type`."""
    if isinstance(value, Block):
        return f"{TAG}{getattr(value, 'type', '')}"
    if isinstance(value, dict):
        if "type" not in value:
            return f"{TAG}nested"
        named = value["type"]
        return f"{TAG}{named}" if isinstance(named, str) and named in TYPES else None
    return f"{TAG}const"


def _spell_out(value: object) -> object:
    if isinstance(value, dict | Block):
        if isinstance(value, dict) and "type" in value and kind_of(value) is None:
            refuse(
                f"`type` must be one of {', '.join(TYPES)}, not {describe(value['type'])}",
                "a mapping without `type` is a nested group of hyperparameters",
            )
        return value
    return {"type": "const", "val": value}


if TYPE_CHECKING:
    Hyperparameter = (
        ConstHyperparameter
        | IntHyperparameter
        | DoubleHyperparameter
        | LogHyperparameter
        | CategoricalHyperparameter
        | dict[str, Any]
    )
    """One hyperparameter, or a nested map of them."""
else:
    Hyperparameter = TypeAliasType(
        "Hyperparameter",
        Annotated[
            Annotated[ConstHyperparameter, Tag(f"{TAG}const")]
            | Annotated[IntHyperparameter, Tag(f"{TAG}int")]
            | Annotated[DoubleHyperparameter, Tag(f"{TAG}double")]
            | Annotated[LogHyperparameter, Tag(f"{TAG}log")]
            | Annotated[CategoricalHyperparameter, Tag(f"{TAG}categorical")]
            | Annotated[dict[str, "Hyperparameter"], Tag(f"{TAG}nested")],
            Discriminator(kind_of),
            BeforeValidator(_spell_out),
        ],
    )

Hyperparameters = dict[str, Hyperparameter]
