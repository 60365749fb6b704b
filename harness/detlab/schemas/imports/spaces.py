"""Ranges as hyperparameters: what the formats have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from detlab.schemas.imports import present

MOST_CHOICES = 64
"""Points of a stepped range that become choices, where ranges have no `step`."""
GRID_POINTS = 10
"""Points on a grid's axis where the file names no number of them."""
STEPS = ("step", "q")
"""What the formats call a step."""
WIDTH = 3.0
"""Standard deviations on each side of the mean that a range for a normal distribution covers."""


@dataclass(frozen=True)
class Axis:
    """A hyperparameter, what differs from the file's, and the keys of the file that have no part in it."""

    spec: Any
    differs: str = ""
    unused: tuple[str, ...] = ()


def rounded(value: float) -> float | int:
    """Return a number without the noise of the last digits; whole ones of a moderate size as integers."""
    short = float(f"{value:.12g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def as_float(value: float) -> float:
    """Return a number without the noise of the last digits, as a float."""
    return float(f"{value:.12g}")


def joined(*texts: str) -> str:
    """Return the texts that are not empty as one."""
    return "; ".join(text for text in texts if text)


def const(value: Any) -> Axis:
    """Return a constant; a mapping is written in full, since without `type` it would be a group."""
    return Axis({"type": "const", "val": value} if isinstance(value, dict) or value is None else value)


def choice(values: list[Any], differs: str = "") -> Axis:
    """Return a categorical."""
    return Axis({"type": "categorical", "vals": list(values)}, differs)


def whole(low: int, high: int, step: int | None, *, grid: bool) -> Axis:
    """Return the integers from `low` to `high`, every `step`th."""
    step = step or 1
    count = (high - low) // step + 1
    if count == 1:
        return const(low)
    spec: dict[str, Any] = {"type": "int", "minval": low, "maxval": low + (count - 1) * step}
    if grid:
        return Axis({**spec, "count": count})
    return _stepped(spec, step, count) if step > 1 else Axis(spec)


def real(low: float, high: float, step: float | None, *, grid: bool) -> Axis:
    """Return the numbers from `low` to `high`, evenly drawn; with a step, those of a lattice from `low` on."""
    if low == high:
        return const(as_float(low))
    if not step:
        return on_grid({"type": "double", "minval": as_float(low), "maxval": as_float(high)}, grid=grid)
    count = math.floor((high - low) / step + 1e-9) + 1
    if count == 1:
        return const(as_float(low))
    spec = {"type": "double", "minval": as_float(low), "maxval": as_float(low + (count - 1) * step)}
    return Axis({**spec, "count": count}) if grid else _stepped(spec, step, count)


def logarithmic(low: float, high: float, step: float | None, *, grid: bool) -> Axis:
    """Return the numbers from `low` to `high` (values, above 0), evenly drawn on a logarithmic scale."""
    if low == high:
        return const(as_float(low))
    axis = on_grid(powers(10.0, math.log10(low), math.log10(high)), grid=grid)
    return without_step(axis, "drawn without its step") if step else axis


def powers(base: float, low: float, high: float) -> dict[str, Any]:
    """Return the `log` hyperparameter with these exponents."""
    shown = int(base) if float(base).is_integer() else base
    return {"type": "log", "base": shown, "minval": as_float(low), "maxval": as_float(high)}


def normal(mean: float, deviation: float, *, logarithm: bool, grid: bool) -> Axis:
    """Return the range that covers a normal distribution (of the natural logarithm) nearly always."""
    if deviation == 0:
        return const(as_float(math.exp(mean) if logarithm else mean))
    low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
    why = f"drawn evenly from {WIDTH:g} standard deviations around the mean: there is no normal distribution"
    if logarithm:
        return on_grid(powers(math.e, low, high), grid=grid, differs=why)
    spec = {"type": "double", "minval": as_float(low), "maxval": as_float(high)}
    return on_grid(spec, grid=grid, differs=why)


def without_step(axis: Axis, why: str) -> Axis:
    """Return an axis as one that lost its step."""
    return Axis(axis.spec, joined(axis.differs, why), (*axis.unused, *STEPS))


def on_grid(spec: dict[str, Any], *, grid: bool, differs: str = "") -> Axis:
    """Return a range; in a grid with a number of points."""
    if not grid:
        return Axis(spec, differs)
    return Axis({**spec, "count": GRID_POINTS}, joined(differs, f"a grid needs a number of points: {GRID_POINTS}"))


def _stepped(spec: dict[str, Any], step: float, count: int) -> Axis:
    if present.STEP:
        return Axis({**spec, "step": rounded(step) if spec["type"] == "int" else as_float(step)})
    if count > MOST_CHOICES:
        return without_step(Axis(spec), "drawn without its step: this version has no `step`")
    if spec["type"] == "int":
        return choice([spec["minval"] + index * int(step) for index in range(count)], "choices instead of steps")
    return choice([as_float(spec["minval"] + index * step) for index in range(count)], "choices instead of steps")


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
