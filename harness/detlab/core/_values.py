"""What may be reported as a metric, checked when it is reported.

A scalar is anything with `.item()` of one element (NumPy scalars, 0-d arrays and tensors of any library,
recognised without importing it) or a Python number. Dicts, lists and strings are kept as structured values.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

MAX_NAME = 255
_MAX_DEPTH = 20


def check_steps(steps_completed: Any) -> int:
    """Return `steps_completed` as an int.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is negative.
    """
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, numbers.Integral):
        steps_completed = _unwrap(steps_completed)
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, numbers.Integral):
        raise TypeError(f"steps_completed must be an integer, not {steps_completed!r}")
    if steps_completed < 0:
        raise ValueError(f"steps_completed must be 0 or more, not {steps_completed}")
    return int(steps_completed)


def check_group(group: Any) -> str:
    """Return a metric group's name.

    Raises:
        TypeError: It is not a string.
        ValueError: It is empty, too long, or contains a dot.
    """
    name = _check_name("metric group", group)
    if "." in name:
        raise ValueError(f"a metric group must not contain '.': {name!r}")
    return name


def check_progress(progress: Any) -> float:
    """Return a progress between 0 and 1.

    Raises:
        TypeError: It is not a number.
        ValueError: It is outside of 0..1 or not finite.
    """
    value = _unwrap(progress)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"progress must be a number, not {progress!r}")
    number = float(value)
    if not (math.isfinite(number) and 0 <= number <= 1):
        raise ValueError(f"progress must be between 0 and 1, not {progress}")
    return number


def check_metrics(metrics: Any, *, what: str = "metrics") -> dict[str, Any]:
    """Return a copy of a metrics dict as plain Python values.

    Raises:
        TypeError: Not a dict, a name that is no string, or a value that is neither number nor structured.
        ValueError: A bad name, or nesting deeper than 20.
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"{what} must be a dict of name to value, not {type(metrics).__name__}")
    return {_check_name("metric name", name): _plain(value, f"{what}[{name!r}]", 0) for name, value in metrics.items()}


def _check_name(what: str, name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a {what} must be a string, not {name!r}")
    if not name or len(name) > MAX_NAME:
        raise ValueError(f"a {what} must have 1 to {MAX_NAME} characters, not {len(name)}")
    if "\0" in name:
        raise ValueError(f"a {what} must not contain a NUL character: {name!r}")
    return str(name)


def _unwrap(value: Any) -> Any:
    """Return the one element of a 0-d array or tensor, anything else unchanged."""
    if isinstance(value, str | bytes | bytearray | bool | int | float):
        return value
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "ndim", 0) != 0:
        return value
    return item()


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested deeper than {_MAX_DEPTH}")
    value = _unwrap(value)
    if value is None:
        raise TypeError(f"{where} is None: report a number, a string, or a dict or list of them")
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _check_name("metric name", str(key)): _plain(item, f"{where}[{key!r}]", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    tolist = getattr(value, "tolist", None)
    if callable(tolist):  # arrays and tensors of one or more dimensions
        return _plain(tolist(), where, depth + 1)
    raise TypeError(f"{where} is a {type(value).__name__}: report a number, a string, or a dict, list or array of them")
