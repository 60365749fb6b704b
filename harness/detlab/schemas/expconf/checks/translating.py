"""What pydantic found wrong, in our words."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.scalars import describe, describe_type
from detlab.schemas.expconf.checks import suggestions
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.expconf.raw.secret_keys import holds_secret

SHORT = 60
"""Characters of a value that a hint repeats at most."""

_SAID_ELSEWHERE = {"extra_forbidden", "union_tag_not_found", "union_tag_invalid"}
"""Errors of pydantic that `rules` and the walk over the blocks say better."""


def _translate(error: ErrorDetails) -> tuple[str, str | None]:
    given = describe(error["input"])
    context = error.get("ctx", {})
    match error["type"]:
        case "detlab":
            return str(context["message"]), context["hint"]
        case "missing":
            return "is required", None
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}, not {error['input']}", None
        case "greater_than":
            return f"must be greater than {context['gt']:g}, not {error['input']}", None
        case "less_than_equal":
            return f"must be at most {context['le']:g}, not {error['input']}", None
        case "less_than":
            return f"must be less than {context['lt']:g}, not {error['input']}", None
        case "too_short" | "string_too_short":
            return "must not be empty", None
        case "too_long":
            return f"has {context['actual_length']} entries; there may be {context['max_length']}", None
        case "literal_error":
            return f"must be {context['expected']}, not {given}", _near_literal(error["input"], context["expected"])
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {given}", None
        case "list_type":
            scalar = isinstance(error["input"], str | int | float) and len(str(error["input"])) <= SHORT
            return f"must be a list, not {given}", f"write [{error['input']}]" if scalar else None
        case _:
            text = error["msg"].removeprefix("Value error, ")
            return text[:1].lower() + text[1:], None


def _near_literal(given: object, expected: str) -> str | None:
    near = suggestions.closest(given, [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")])
    return f"did you mean `{near}`?" if near else None


def _unquoted(error: ErrorDetails, message: str, hint: str | None) -> tuple[str, str | None]:
    """Leave a secret's value out: errors are read by others, in terminals, logs and tickets."""
    given = error["input"]
    message = message.replace(describe(given), describe_type(given))
    return message, None if hint and str(given) in hint else hint


def from_pydantic(error: ValidationError, prefix: Path = ()) -> Iterator[Problem]:
    """Say in our words what pydantic found wrong with the block at `prefix`."""
    for detail in error.errors(include_url=False):
        if detail["type"] in _SAID_ELSEWHERE or detail["loc"][-1:] == ("[key]",):
            continue
        path = (*prefix, *detail["loc"])
        message, hint = _translate(detail)
        yield Problem(render(path), *(_unquoted(detail, message, hint) if holds_secret(path) else (message, hint)))
