"""Validation of reported metrics.

A scalar is a Python number or anything with `.item()` and one element (NumPy scalars, and arrays and tensors of any
library, recognised without importing it; a loss of shape (1,) is a number). Dicts, lists and strings are kept as
structured values.
"""

from __future__ import annotations

import json
import logging
import math
import numbers
from collections.abc import Mapping
from typing import Any

from detlab.schemas.wire import encode_floats

logger = logging.getLogger("detlab.core")

# What the master takes; checked here too, so that the line of code that is wrong raises, not a later one.
MAX_GROUP = 128
MAX_NAME = 512
MAX_STEPS = 2**53
MAX_METRICS = 20_000
MAX_STRUCTURED_BYTES = 256_000
MAX_DIGITS = 4300
"""Of an integer: Python reads no longer ones."""
_TOO_LONG = 10**MAX_DIGITS
_SHORT = 2**63
_MAX_DEPTH = 20


def check_steps(steps_completed: Any) -> int:
    """Return `steps_completed` as an int.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is negative or beyond 2**53.
    """
    steps = steps_completed if type(steps_completed) is int else _integer(steps_completed)
    if not 0 <= steps <= MAX_STEPS:
        raise ValueError(f"steps_completed must be between 0 and 2**53, not {steps}")
    return steps


def metric_steps(steps_completed: Any) -> int:
    """Return `steps_completed` of a report of metrics as an int, at least 0.

    What is less becomes 0, with a warning: Determined takes it (a tutorial of its own counts its first epoch from
    minus one), and a wrong place on an axis is no reason to end a training.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is beyond 2**53.
    """
    steps = steps_completed if type(steps_completed) is int else _integer(steps_completed)
    if -MAX_STEPS <= steps < 0:
        logger.warning("steps_completed is %d: these metrics are reported at step 0", steps)
        return 0
    return check_steps(steps)


def _integer(steps_completed: Any) -> int:
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, numbers.Integral):
        steps_completed = _unwrap(steps_completed)
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, numbers.Integral):
        raise TypeError(f"steps_completed must be an integer, not {steps_completed!r}")
    return int(steps_completed)


def check_group(group: Any) -> str:
    """Return a metric group's name.

    Raises:
        TypeError: It is not a string.
        ValueError: It is empty, too long, or contains a dot.
    """
    name = _check_name("metric group", group, MAX_GROUP)
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
        TypeError: It is not a dict, a name is not a string, or a value is neither a number nor structured.
        ValueError: A name is invalid, values are nested deeper than 20, or it is more than the master takes in one
            report.
    """
    if type(metrics) is not dict and not isinstance(metrics, Mapping):
        raise TypeError(f"{what} must be a dict of name to value, not {type(metrics).__name__}")
    if len(metrics) > MAX_METRICS:
        raise ValueError(f"{what} has {len(metrics)} entries; at most {MAX_METRICS} in one report")
    checked = {}
    for name, value in metrics.items():
        plain = value
        # As a rule it is a plain number, and a training loop waits.
        if type(value) is not float and (type(value) is not int or not -_SHORT < value < _SHORT):
            where = f"{what}[{name!r}]"
            plain = _plain(value, where, 0)
            _check_size(plain, where)
        checked[_metric_name(name)] = plain
    return checked


_good_names: dict[str, str] = {}
"""Metric names that were found to be good: a loop reports the same ones again and again."""


def _metric_name(name: Any) -> str:
    good = _good_names.get(name) if type(name) is str else None
    if good is None:
        good = _check_name("metric name", name)
        if len(_good_names) < MAX_METRICS:
            _good_names[good] = good
    return good


def _check_name(what: str, name: Any, longest: int = MAX_NAME) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a {what} must be a string, not {name!r}")
    if not name or len(name) > longest:
        raise ValueError(f"a {what} must have 1 to {longest} characters, not {len(name)}")
    return _check_text(what, name)


def _check_text(what: str, text: str) -> str:
    if "\0" in text:
        raise ValueError(f"a {what} must not contain a NUL character: {text[:80]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a {what} is not valid Unicode: {text[:80]!r}") from error
    return str(text)


def _check_size(value: Any, where: str) -> None:
    if isinstance(value, bool | int | float):
        return
    size = len(json.dumps(encode_floats(value), separators=(",", ":")))
    if size > MAX_STRUCTURED_BYTES:
        raise ValueError(f"{where} has {size} bytes as JSON; at most {MAX_STRUCTURED_BYTES} in one value")


def _unwrap(value: Any) -> Any:
    """Return the one element of an array or tensor that has one, anything else unchanged."""
    if isinstance(value, str | bytes | bytearray | bool | int | float):
        return value
    item = getattr(value, "item", None)
    if not callable(item) or any(length != 1 for length in getattr(value, "shape", ())):
        return value
    return item()


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested deeper than {_MAX_DEPTH}")
    value = _unwrap(value)
    if value is None:
        raise TypeError(f"{where} is None: report a number, a string, or a dict or list of them")
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _check_text(f"value of {where}", value)
    if isinstance(value, numbers.Integral):
        number = int(value)
        if not -_TOO_LONG < number < _TOO_LONG:
            raise ValueError(f"{where} is an integer of more than {MAX_DIGITS} digits: report a float or its logarithm")
        return number
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
