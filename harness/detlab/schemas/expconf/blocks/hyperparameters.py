"""Hyperparameters: constants, ranges, choices, and nested maps of them.

A mapping without a `type` key is a nested map; with one it must be a known type. Anything that is not a mapping
is a constant, lists included: a range inside a list is checked for spelling but never searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    Flag,
    Int,
    Number,
    PositiveInt,
    PositiveNumber,
    describe,
    refuse,
)
from detlab.schemas.space import is_condition

TAG = "::"
"""Prefix of union tags, so that they can be told from keys in the location of an error."""

TYPES = ("const", "int", "double", "log", "categorical", "ordinal")


class GroupCondition(dict[str, Any]):
    """The `when` of a nested group, so that it can be told from a hyperparameter."""


def _condition(value: object) -> object:
    """Accept names of hyperparameters with the value, or the values, that each must have."""
    if not isinstance(value, dict):
        refuse(f"must be a mapping of hyperparameters to values, not {describe(value)}", "when: {optimizer: sgd}")
    if not value:
        refuse("names no hyperparameter", "when: {optimizer: sgd}")
    for name, wanted in value.items():
        if not isinstance(name, str):
            refuse(f"names {describe(name)}, which is no hyperparameter")
        if isinstance(wanted, dict) or wanted == []:
            refuse(f"needs a value or a list of values for {name!r}", "name nested ones with dots: {net.depth: [2, 3]}")
    return value


When = Annotated[dict[str, Any], BeforeValidator(_condition)]


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        refuse(f"must be a number from 0 to 1, not {describe(value)}")
    return float(value)


class PriorConfig(Block):
    """Where good values are expected."""

    center: Any = Field(..., description="The value that is expected to be good; of a log the value, not its exponent.")
    confidence: Annotated[float, Field(ge=0, le=1), BeforeValidator(_share)] = Field(
        0.5, description="Share of random draws that are near `center`; the others are uniform."
    )


class _Conditional(Block):
    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"when"})

    when: When | None = Field(
        None,
        description="Trials have it only if other hyperparameters (dotted names) have these values: a value or a list"
        " for each. Nested groups have this key, too.",
    )


class _Ranged(_Conditional):
    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"when", "step", "prior", "count"})

    prior: PriorConfig | None = Field(None, description="Draw a share of the values near the one that is expected.")
    count: PositiveInt | None = Field(None, description="Points on this axis of a grid search.")


class ConstHyperparameter(_Conditional):
    """One value; written in full or as the bare value."""

    KEEPS_NULL: ClassVar[frozenset[str]] = frozenset({"val"})

    type: Literal["const"] = "const"
    val: Any = Field(..., description="Any JSON value.")


class IntHyperparameter(_Ranged):
    """An integer drawn uniformly from `minval` to `maxval`, both included; with `log` their logarithms."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"when", "step", "prior", "count", "log"})

    type: Literal["int"] = "int"
    minval: Int = Field(..., description="Smallest value.")
    maxval: Int = Field(..., description="Largest value; greater than `minval`.")
    step: PositiveInt | None = Field(None, description="Only `minval`, `minval + step`, and so on.")
    log: Flag | None = Field(
        None, description="Whether it is searched on a log scale: 1 to 10 as often as 10 to 100. `minval` is 1 or more."
    )


class DoubleHyperparameter(_Ranged):
    """A number drawn uniformly from `minval` to `maxval`."""

    type: Literal["double"] = "double"
    minval: Number = Field(..., description="Smallest value.")
    maxval: Number = Field(..., description="Largest value; greater than `minval`.")
    step: PositiveNumber | None = Field(None, description="Only `minval`, `minval + step`, and so on.")


class LogHyperparameter(_Ranged):
    """`base` to the power of a number drawn uniformly from `minval` to `maxval`."""

    type: Literal["log"] = "log"
    base: PositiveNumber = Field(..., description="Base of the power.")
    minval: Number = Field(..., description="Smallest exponent.")
    maxval: Number = Field(..., description="Largest exponent; greater than `minval`.")
    step: PositiveNumber | None = Field(None, description="Only the exponents `minval`, `minval + step`, and so on.")


class _Choice(_Conditional):
    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"when", "prior"})

    prior: PriorConfig | None = Field(None, description="Draw a share of the values near the one that is expected.")


class CategoricalHyperparameter(_Choice):
    """One of `vals`, drawn uniformly, or by their `weights`."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"when", "prior", "weights"})

    type: Literal["categorical"] = "categorical"
    vals: list[Any] = Field(..., min_length=1, description="The choices: any JSON values.")
    weights: list[PositiveNumber] | None = Field(
        None, description="How often each choice is drawn at random, in proportion; one number for each of `vals`."
    )


class OrdinalHyperparameter(_Choice):
    """One of `vals`, which have an order: model-based methods expect neighbours to do alike."""

    type: Literal["ordinal"] = "ordinal"
    vals: list[Any] = Field(..., min_length=1, description="The choices in their order: any JSON values.")


def kind_of(value: object) -> str | None:
    """Return the union tag of a raw or parsed hyperparameter; None for an unknown `type`."""
    if isinstance(value, GroupCondition):
        return f"{TAG}when"
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


def _apart(value: object) -> object:
    """Mark the condition of a group."""
    if isinstance(value, dict) and is_condition("when", value.get("when"), 1):
        return {**value, "when": GroupCondition(value["when"])}
    return value


if TYPE_CHECKING:
    Hyperparameter = (
        ConstHyperparameter
        | IntHyperparameter
        | DoubleHyperparameter
        | LogHyperparameter
        | CategoricalHyperparameter
        | OrdinalHyperparameter
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
            | Annotated[OrdinalHyperparameter, Tag(f"{TAG}ordinal")]
            | SkipJsonSchema[Annotated[When, AfterValidator(GroupCondition), Tag(f"{TAG}when")]]
            | Annotated[dict[str, "Hyperparameter"], BeforeValidator(_apart), Tag(f"{TAG}nested")],
            Discriminator(kind_of),
            BeforeValidator(_spell_out),
        ],
    )

Hyperparameters = dict[str, Hyperparameter]
