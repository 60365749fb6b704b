"""Rules for the labels of agents: which a trial or task must have, and which it had better have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from detlab.schemas.expconf.blocks.scalars import Block, FilledText, Flag, Text, as_int, refuse

MOST_RULES = 20
"""Of each list: every pass of the scheduler looks at them."""
MOST_VALUES = 100
"""Of one rule."""
_TESTS = ("one_of", "none_of", "exists")


class LabelRuleConfig(Block):
    """What one label of an agent must be: exactly one of `one_of`, `none_of` and `exists`. Only in detlab."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(_TESTS)

    label: FilledText = Field(..., description="Name of the label.")
    one_of: Annotated[list[Text], Field(min_length=1, max_length=MOST_VALUES)] | None = Field(
        None, description="It has one of these values."
    )
    none_of: Annotated[list[Text], Field(min_length=1, max_length=MOST_VALUES)] | None = Field(
        None, description="It has none of these values; so have agents without the label."
    )
    exists: Flag | None = Field(
        None, validate_default=True, description="Whether the agent has it at all, with whatever value."
    )

    @field_validator("none_of", "exists")
    @classmethod
    def _one_test(cls, given: Any, info: ValidationInfo) -> Any:
        before = [test for test in _TESTS[: _TESTS.index(info.field_name or "")] if info.data.get(test) is not None]
        if given is not None and before:
            refuse(f"does not go with {before[0]}", "write a rule for each: all of them count")
        wrong = any(test not in info.data for test in _TESTS[:2])
        if info.field_name == "exists" and given is None and not before and not wrong:
            refuse("is required where there is neither one_of nor none_of", "one_of: [VALUE, ...] or exists: true")
        return given


class PreferenceConfig(LabelRuleConfig):
    """A rule for a label, and how much it counts. Only in detlab."""

    weight: Annotated[int, Field(ge=1, le=100), BeforeValidator(as_int)] = Field(
        1, description="1 to 100; those of all rules that hold of an agent are added up."
    )


class AffinityConfig(Block):
    """Rules for the labels of the agent (`det agent run --label NAME=VALUE`). Only in detlab."""

    required: Annotated[list[LabelRuleConfig], Field(max_length=MOST_RULES)] = Field(
        [], description="All of them must hold of the agent."
    )
    preferred: Annotated[list[PreferenceConfig], Field(max_length=MOST_RULES)] = Field(
        [], description="Of the agents that have room the one with the most weight is taken; nothing waits for it."
    )
