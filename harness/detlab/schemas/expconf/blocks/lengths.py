"""Training lengths in batches, records or epochs: the deprecated units of Determined's Trial classes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from detlab.schemas.expconf.blocks.scalars import Block, NonNegativeInt, refuse

UNITS = ("batches", "records", "epochs")


class Length(Block):
    """An amount of training in exactly one unit."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(UNITS)

    batches: NonNegativeInt | None = Field(None, description="In batches.")
    records: NonNegativeInt | None = Field(None, description="In records (samples).")
    epochs: NonNegativeInt | None = Field(None, description="In passes over the training data.")

    @model_validator(mode="before")
    @classmethod
    def _one_unit(cls, raw: object) -> object:
        if isinstance(raw, dict) and sum(raw.get(unit) is not None for unit in UNITS) != 1:
            refuse("must have exactly one of batches, records or epochs")
        return raw

    @property
    def unit(self) -> str:
        """`batches`, `records` or `epochs`."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def units(self) -> int:
        """The amount, in `unit`."""
        return int(getattr(self, self.unit))


def _form(value: object) -> str:
    return "::length" if isinstance(value, dict | Length) else "::units"


def _not_zero(value: object) -> object:
    if isinstance(value, dict):
        for unit in UNITS:
            if isinstance(value.get(unit), int | float) and value[unit] == 0:
                refuse(f"{unit} must be at least 1, not 0")
    return value


SearchLength = Annotated[
    Annotated[Length, Tag("::length")] | Annotated[NonNegativeInt, Tag("::units")],
    Discriminator(_form),
    BeforeValidator(_not_zero),
]
"""`searcher.max_length`: a plain number of units, or a `Length` of at least one unit."""
