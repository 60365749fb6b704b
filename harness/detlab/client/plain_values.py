"""Values of Python programs as configurations can hold them: NumPy and torch scalars, Decimal, paths, tuples, enums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from os import PathLike
from typing import Any

from detlab.errors import ConfigError, Problem

_DEEPEST = 100
_NAME = 60
"""Characters of a class's name in a message."""


def plain(value: Any, name: str = "config") -> Any:
    """Return a value of mappings, lists, texts, numbers, booleans and None, as JSON has them.

    Args:
        value: A config, or a part of one.
        name: What messages call it.

    Raises:
        ConfigError: It holds what no configuration can; all of it is listed.
    """
    problems: list[Problem] = []
    found = _plain(value, (), problems)
    if problems:
        raise ConfigError(problems, f"{name} cannot be sent")
    return found


def _plain(value: Any, path: tuple[object, ...], problems: list[Problem]) -> Any:
    if len(path) > _DEEPEST:
        problems.append(Problem(_shown(path[:5]), f"is nested deeper than {_DEEPEST} levels, or contains itself"))
        return None
    if isinstance(value, Enum):
        return _plain(value.value, path, problems)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {_key(key, path, problems): _plain(item, (*path, key), problems) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, index), problems) for index, item in enumerate(value)]
    if isinstance(value, Set):
        return [_plain(item, (*path, index), problems) for index, item in enumerate(sorted(value, key=str))]
    return _scalar(value, path, problems)


def _scalar(value: Any, path: tuple[object, ...], problems: list[Problem]) -> Any:
    if isinstance(value, Decimal | Fraction):
        return _number(value)
    if isinstance(value, bool | int | float | str) and not hasattr(value, "tolist"):  # classes derived from them
        return str(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)
    if isinstance(value, PathLike):
        return str(value)
    if callable(getattr(value, "tolist", None)):  # arrays and scalars of NumPy, torch, JAX
        try:
            given = value.tolist()
        except Exception as error:  # a tensor without data, or of a device that is gone
            problems.append(Problem(_shown(path), f"is a {_kind(value)} without a value: {type(error).__name__}"))
            return None
        if type(given) is not type(value):
            return _plain(given, path, problems)
    hint = "give numbers, texts, booleans, lists and mappings; of other objects their name"
    problems.append(Problem(_shown(path), f"is a {_kind(value)}, which a configuration cannot hold", hint))
    return None


def _number(value: Decimal | Fraction) -> int | float:
    if isinstance(value, Decimal) and not value.is_finite():
        return float(value)
    whole = value.as_tuple().exponent == 0 if isinstance(value, Decimal) else value.denominator == 1
    try:
        return int(value) if whole else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _key(key: object, path: tuple[object, ...], problems: list[Problem]) -> Any:
    if isinstance(key, Enum):
        key = key.value
    if key is None or isinstance(key, bool | int | float | str):
        return key
    tolist = getattr(key, "tolist", None)
    if callable(tolist):
        return tolist()
    problems.append(Problem(_shown(path), f"has a {_kind(key)} as a key; keys are texts"))
    return str(key)


def _kind(value: object) -> str:
    kind = type(value)
    return (kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}")[:_NAME]


def _shown(path: tuple[object, ...]) -> str:
    shown = ""
    for part in path:
        shown += f"[{part}]" if isinstance(part, int) else f".{str(part)[:_NAME]}" if shown else str(part)[:_NAME]
    return shown
