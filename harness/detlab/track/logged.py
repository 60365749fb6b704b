"""What a script logs, as records hold it: numbers by plain names, texts, and what cannot be logged. Pure.

Nothing here raises for a value: a training must not end because of what it logs. What cannot be kept is a problem, in
words, that is told once.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas.wire.logged_names import BadKey, check_key, near_key

MOST_VALUES = 20_000
"""Of one call."""
MOST_TEXT = 8000
_DEPTH = 20
_names: dict[str, str] = {}
"""Names that were looked at, and what is kept for each: a loop logs the same ones again and again."""


@dataclass
class Logged:
    """What one call logs."""

    numbers: dict[str, float] = field(default_factory=dict)
    texts: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    """Neither numbers nor texts: media, and what cannot be logged."""
    problems: list[str] = field(default_factory=list)


def sorted_values(data: Mapping[str, Any]) -> Logged:
    """Sort what a call of `log` was given; mappings within it are looked into, their names joined by dots."""
    found = Logged()
    for key, value in data.items():
        if type(value) is float and (name := _names.get(key)) is not None:  # as a rule, and a training loop waits
            found.numbers[name] = value
        else:
            _sort(found, key, value, 0)
    if len(found.numbers) > MOST_VALUES:
        found.problems.append(f"{len(found.numbers):,} values at once: the first {MOST_VALUES:,} are kept")
        found.numbers = dict(list(found.numbers.items())[:MOST_VALUES])
    return found


def _sort(found: Logged, key: Any, value: Any, depth: int) -> None:
    name = name_of(found, key)
    if isinstance(value, Mapping):
        if depth >= _DEPTH:
            found.problems.append(f"{name}: nested deeper than {_DEPTH}")
            return
        for inner, one in value.items():
            _sort(found, f"{key}.{inner}", one, depth + 1)
        return
    number = number_of(value)
    if number is not None:
        found.numbers[name] = number
    elif isinstance(value, str):
        found.texts[name] = value[:MOST_TEXT].encode(errors="replace").decode()
    elif value is not None:
        found.others[name] = value


def name_of(found: Logged, key: Any) -> str:
    """Return the name under which a value is kept; where it differs, that is a problem to tell."""
    text = key if isinstance(key, str) else str(key)
    kept = _names.get(text)
    if kept is None:
        try:
            kept = check_key(text, "metric")
        except BadKey as error:
            kept = near_key(text)
            found.problems.append(f"{error}: it is kept as {kept!r}")
        if len(_names) < MOST_VALUES:
            _names[text] = kept
    return kept


def number_of(value: Any) -> float | None:
    """Return the number that a value is: also of a boolean, and of an array or a tensor with one element."""
    if isinstance(value, int | float):  # bool is one
        return _float(value)
    item = getattr(value, "item", None)
    if callable(item) and all(length == 1 for length in getattr(value, "shape", ())):
        try:
            value = item()
        except Exception:  # of any library: then it is no number
            return None
    if isinstance(value, numbers.Real) and not isinstance(value, str):
        return _float(value)
    return None


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def plain_config(config: Any) -> dict[str, Any]:
    """Return a configuration as JSON: of a mapping, arguments of a command line, a dataclass or a pydantic model."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    elif callable(getattr(config, "model_dump", None)):
        config = config.model_dump()
    elif not isinstance(config, Mapping):
        if not hasattr(config, "__dict__") or isinstance(config, type):
            raise TypeError(
                f"config={config!r:.80} is no configuration: give a mapping of names to values, arguments of a command"
                " line, a dataclass or a pydantic model"
            )
        config = vars(config)
    return {str(key): plain(value) for key, value in config.items()}


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it; what it cannot is its text."""
    if value is None or isinstance(value, bool | str):
        return value.encode(errors="replace").decode() if isinstance(value, str) else value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if depth >= _DEPTH:
        return str(value)[:MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key).encode(errors="replace").decode(): plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one, depth + 1) for one in value]
    number = number_of(value)
    if number is not None:
        return number
    tolist = getattr(value, "tolist", None)
    if callable(tolist) and getattr(value, "size", 0) in range(1000):
        return plain(tolist(), depth + 1)
    return str(value)[:MOST_TEXT].encode(errors="replace").decode()
