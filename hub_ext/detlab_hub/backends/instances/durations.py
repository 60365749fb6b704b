"""Periods in the operator's configuration: seconds, or as Determined writes them (`90s`, `5m`, `1h30m`)."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def as_seconds(value: object) -> object:
    """Return the seconds that a text such as `5m` means; any other value as it is, for who checks it.

    Raises:
        ValueError: It is a text that means no period.
    """
    if not isinstance(value, str):
        return value
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError(f"{value[:40]!r} is no period: write seconds, or for example 90s, 5m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
