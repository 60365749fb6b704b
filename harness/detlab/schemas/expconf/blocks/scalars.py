"""The scalar types of the experiment config and the base class of its blocks.

YAML is written by people, so the rules are strict about meaning and lenient about spelling: `1e3` is the
integer 1000, but `true` is never an integer and `"10"` is never a number; `null` always means "not set".
Every rejection says what was found and, where it can be guessed, what to write instead.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from detlab.schemas import runtimes
from detlab.schemas.building import ON_FIRST_USE

NOTE_OLD = "x-deprecated-because"
NOTE_IGNORED = "x-ignored-because"
NOTE_NEEDED = "x-needed-to-submit"


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Raise the validation error that becomes a `Problem` with this message and hint.

    Raises:
        PydanticCustomError: Always.
    """
    raise PydanticCustomError("detlab", "{message}", {"message": message, "hint": hint})


def describe(value: object) -> str:
    """Return a short name of a raw value for messages, such as `the text 'ten'` or `a list`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            shown = value if len(value) <= 40 else value[:37] + "..."
            return f"the text {shown!r}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def describe_type(value: object) -> str:
    """Describe a value by its type alone, for values that may be secret: `a text`, `a number`."""
    match value:
        case str():
            return "a text"
        case int() | float() if not isinstance(value, bool):
            return "a number"
        case _:
            return describe(value)


def _looks_numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def as_int(value: object) -> int:
    """Accept integers and whole floats; refuse booleans, texts and everything else."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            refuse("is too large for a 64-bit integer")
        return value
    if isinstance(value, float):
        refuse(f"must be a whole number, not {value}")
    hint = None
    if isinstance(value, str) and _looks_numeric(value):
        hint = "remove the quotes"
    refuse(f"must be a whole number, not {describe(value)}", hint)


def as_number(value: object) -> object:
    """Accept finite numbers; refuse booleans, NaN, infinities and texts."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(as_int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            refuse(f"must be a finite number, not {value}")
        return value
    hint = None
    if isinstance(value, str) and _looks_numeric(value):
        hint = "remove the quotes"
    refuse(f"must be a number, not {describe(value)}", hint)


def as_flag(value: object) -> object:
    """Accept `true` and `false` only."""
    if isinstance(value, bool):
        return value
    refuse(f"must be true or false, not {describe(value)}")


def as_text(value: object) -> object:
    """Accept texts only; a bare number or boolean needs quotes to be a text."""
    if isinstance(value, str):
        return value
    quotable = isinstance(value, bool | int | float)
    refuse(f"must be a text, not {describe(value)}", "put it in quotes" if quotable else None)


def as_filled_text(value: object) -> object:
    """Accept texts with at least one visible character."""
    text = as_text(value)
    if isinstance(text, str) and not text.strip():
        refuse("must not be empty")
    return text


def as_runtime(value: object) -> object:
    """Accept what may name a runtime; whether an agent has it is judged by the master."""
    text = as_text(value)
    if isinstance(text, str) and not re.fullmatch(runtimes.PATTERN, text):
        known = " or ".join(runtimes.KNOWN)
        refuse(f"must be the name of a runtime, such as {known}, not {describe(value)}", "see `det agent list`")
    return text


# constraints stand before the validator, so that pydantic knows them for the type and publishes them
Int = Annotated[int, BeforeValidator(as_int)]
NonNegativeInt = Annotated[int, Field(ge=0), BeforeValidator(as_int)]
PositiveInt = Annotated[int, Field(ge=1), BeforeValidator(as_int)]
PortNumber = Annotated[int, Field(ge=1, le=65535), BeforeValidator(as_int)]
Number = Annotated[float, BeforeValidator(as_number)]
NonNegativeNumber = Annotated[float, Field(ge=0), BeforeValidator(as_number)]
PositiveNumber = Annotated[float, Field(gt=0), BeforeValidator(as_number)]
NumberAboveOne = Annotated[float, Field(gt=1), BeforeValidator(as_number)]
Flag = Annotated[bool, BeforeValidator(as_flag)]
Text = Annotated[str, BeforeValidator(as_text)]
RuntimeName = Annotated[
    str, Field(pattern=runtimes.PATTERN, examples=list(runtimes.KNOWN)), BeforeValidator(as_runtime)
]
FilledText = Annotated[str, Field(min_length=1), BeforeValidator(as_filled_text)]


class Shorthand:
    """Marks in the JSON Schema that a field also accepts a shorter spelling than its model."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return `anyOf` the full form and the shorthand."""
        return {"anyOf": [handler(core), self.schema]}


def _noted(default: Any, description: str, note: str, reason: str | bool, **more: Any) -> Any:
    extra: dict[str, Any] = {note: reason}
    if note != NOTE_NEEDED:
        extra["deprecated"] = True
    return Field(default, description=description, json_schema_extra=extra, **more)


def old(default: Any, description: str, reason: str) -> Any:
    """Declare a field that Determined deprecated: it keeps its meaning and earns a warning."""
    return _noted(default, description, NOTE_OLD, reason)


def ignored(default: Any, description: str, reason: str) -> Any:
    """Declare a field that is accepted for old files' sake and has no effect."""
    return _noted(default, description, NOTE_IGNORED, reason)


def needed(description: str) -> Any:
    """Declare a field that may be absent from a file, but not from what is submitted."""
    return _noted(None, description, NOTE_NEEDED, True)


def note(field: FieldInfo, kind: str) -> Any:
    """Return the reason that `old`, `ignored` or `needed` left on a field, or None."""
    extra = field.json_schema_extra
    return extra.get(kind) if isinstance(extra, dict) else None


class Block(BaseModel):
    """A mapping of the config: unknown keys are refused, null means not set, instances are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=ON_FIRST_USE)

    KEEPS_NULL: ClassVar[frozenset[str]] = frozenset()
    """Keys for which null is a value of its own."""
    OMITS_NULL: ClassVar[frozenset[str]] = frozenset()
    """Keys left out of the resolved config while they are not set, beside those of the base classes."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        return {key: value for key, value in raw.items() if value is not None or key in cls.KEEPS_NULL}

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        full: dict[str, Any] = handler(self)
        omitted = _omitted(type(self))
        return {key: value for key, value in full.items() if value is not None or key not in omitted}


@cache
def _omitted(model: type[Block]) -> frozenset[str]:
    return frozenset().union(*(getattr(base, "OMITS_NULL", ()) for base in model.__mro__))


_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)?\s*")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def as_seconds(value: object) -> object:
    """Accept seconds, or a text such as `30m`, `1.5h`, `2d`; `never` is 0."""
    if value is None:
        return None
    if value == "never":
        return 0.0
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        refuse(f"must be seconds or a duration, not {describe(value)}", 'write 1800, "30m" or "never"')
    match = _DURATION.fullmatch(str(value))
    if match is None:
        refuse(f"must be seconds or a duration, not {describe(value)}", 'write 1800, "30m" or "never"')
    return float(match.group(1)) * _SECONDS[match.group(2)]


SECONDS_SHORTHAND = Shorthand({"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[smhd]?\s*$|^never$"})
