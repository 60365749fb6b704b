"""Ranges as hyperparameters: what the formats have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from detlab.schemas.space.values import at_step, log_ends, steps_of
from detlab.schemas.space.values import whole as nearest

GRID_POINTS = 10
"""Points on a grid's axis where the file names no number of them."""
STEPS = ("step", "q")
"""What the formats call a step."""
HUGE_EXPONENT = 700.0
"""Beyond it a power of e is no number."""
WIDTH = 3.0
"""Standard deviations on each side of the mean that a range for a normal distribution covers."""


@dataclass(frozen=True)
class ImportedAxis:
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


def const(value: Any) -> ImportedAxis:
    """Return a constant; a mapping is written in full, since without `type` it would be a group."""
    return ImportedAxis({"type": "const", "val": value} if isinstance(value, dict) or value is None else value)


def choice(values: list[Any], differs: str = "", *, ordered: bool = False) -> ImportedAxis:
    """Return a categorical, or an ordinal: its neighbours are expected to do alike."""
    return ImportedAxis({"type": "ordinal" if ordered else "categorical", "vals": list(values)}, differs)


def whole(low: int, high: int, step: int | None, *, grid: bool) -> ImportedAxis:
    """Return the integers from `low` to `high`, every `step`th."""
    step = step or 1
    count = (high - low) // step + 1
    if count == 1:
        return const(low)
    spec: dict[str, Any] = {"type": "int", "minval": low, "maxval": low + (count - 1) * step}
    if grid:
        return ImportedAxis({**spec, "count": count})
    return ImportedAxis({**spec, "step": step} if step > 1 else spec)


def real(low: float, high: float, step: float | None, *, grid: bool) -> ImportedAxis:
    """Return the numbers from `low` to `high`, evenly drawn; with a step, those of a lattice from `low` on."""
    if low == high:
        return const(as_float(low))
    if not step:
        return on_grid({"type": "double", "minval": as_float(low), "maxval": as_float(high)}, grid=grid)
    steps = (high - low) / step
    if not math.isfinite(steps):
        return without_step(real(low, high, None, grid=grid), "drawn without its step, which is too small")
    count = math.floor(steps + 1e-9) + 1
    if count == 1:
        return const(as_float(low))
    spec = {"type": "double", "minval": as_float(low), "maxval": as_float(low + (count - 1) * step)}
    return ImportedAxis({**spec, "count": count} if grid else {**spec, "step": as_float(step)})


def logarithmic(low: float, high: float, step: float | None, *, grid: bool) -> ImportedAxis:
    """Return the numbers from `low` to `high` (values, above 0), evenly drawn on a logarithmic scale."""
    if low == high:
        return const(as_float(low))
    axis = on_grid(powers(10.0, math.log10(low), math.log10(high)), grid=grid)
    return without_step(axis, "drawn without its step") if step else axis


def powers(base: float, low: float, high: float) -> dict[str, Any]:
    """Return the `log` hyperparameter with these exponents."""
    shown = int(base) if float(base).is_integer() else base
    return {"type": "log", "base": shown, "minval": as_float(low), "maxval": as_float(high)}


def normal(mean: float, deviation: float, step: float | None, *, logarithm: bool, grid: bool) -> ImportedAxis:
    """Return a normal distribution (of the natural logarithm), cut off where nearly no draw is."""
    center = _power_of_e(mean) if logarithm else mean
    if deviation == 0:
        return const(as_float(center))
    low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
    if grid:
        why = f"evenly from {WIDTH:g} standard deviations around the mean: a grid draws nothing"
        spec = powers(math.e, low, high) if logarithm else _double(low, high)
        return on_grid(spec, grid=True, differs=why)
    why = f"cut off at {WIDTH:g} standard deviations"
    if step == 1 and logarithm and _from_one_on(low, high):
        least, middle, most = (round(math.exp(value)) for value in (low, mean, high))
        prior = {"center": middle, "confidence": 1}
        return ImportedAxis({"type": "int", "minval": least, "maxval": most, "log": True, "prior": prior}, why)
    if step and not logarithm and math.isfinite(high / step) and math.isfinite(low / step):
        return _normal_in_steps(low, mean, high, step, why)
    spec = powers(math.e, low, high) if logarithm else _double(low, high)
    axis = ImportedAxis({**spec, "prior": {"center": as_float(center), "confidence": 1}}, why)
    return without_step(axis, "drawn without its q") if step else axis


def _double(low: float, high: float) -> dict[str, Any]:
    return {"type": "double", "minval": as_float(low), "maxval": as_float(high)}


def _from_one_on(low: float, high: float) -> bool:
    """Whether the whole numbers between two exponents of e are 1 or more, and differ."""
    return high < HUGE_EXPONENT and 1 <= round(math.exp(low)) < round(math.exp(high))


def _power_of_e(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:  # the check refuses the range
        return exponent


def _normal_in_steps(low: float, mean: float, high: float, step: float, why: str) -> ImportedAxis:
    number = (lambda value: int(value * step)) if float(step).is_integer() else (lambda value: as_float(value * step))
    least, middle, most = (number(round(value / step)) for value in (low, mean, high))
    if least == most:
        return const(middle)
    kind = "int" if isinstance(least, int) else "double"
    spec = {"type": kind, "minval": least, "maxval": most, "prior": {"center": middle, "confidence": 1}}
    return ImportedAxis(spec if kind == "int" and step == 1 else {**spec, "step": rounded(step)}, why)


def around_middle(axis: ImportedAxis) -> ImportedAxis:
    """Return a range as Katib's normal distribution: around its middle, a sixth of it as the standard deviation."""
    spec = axis.spec
    if not isinstance(spec, dict) or spec.get("type") not in ("int", "double", "log") or "count" in spec:
        return ImportedAxis(spec, joined(axis.differs, "evenly between min and max: a grid draws nothing"), axis.unused)
    steps = steps_of({"step": 1, **spec}) if spec["type"] == "int" else steps_of(spec)
    center: float
    if spec.get("log"):
        center = nearest(spec, sum(log_ends(spec)) / 2)
    elif steps is not None:
        center = at_step({"step": 1, **spec}, (steps - 1) // 2)
    else:
        middle = (spec["minval"] + spec["maxval"]) / 2
        center = as_float(math.pow(spec["base"], middle) if spec["type"] == "log" else middle)
    prior = {"center": center, "confidence": 1}
    return ImportedAxis({**spec, "prior": prior}, joined(axis.differs, "cut off at min and max"), axis.unused)


def without_step(axis: ImportedAxis, why: str) -> ImportedAxis:
    """Return an axis as one that lost its step."""
    return ImportedAxis(axis.spec, joined(axis.differs, why), (*axis.unused, *STEPS))


def on_grid(spec: dict[str, Any], *, grid: bool, differs: str = "") -> ImportedAxis:
    """Return a range; in a grid with a number of points."""
    if not grid:
        return ImportedAxis(spec, differs)
    return ImportedAxis(
        {**spec, "count": GRID_POINTS}, joined(differs, f"a grid needs a number of points: {GRID_POINTS}")
    )


def on_log_scale(axis: ImportedAxis) -> ImportedAxis:
    """Return integers as drawn on a logarithmic scale, where they can be; a grid has all of them anyway."""
    spec = axis.spec
    if not isinstance(spec, dict) or "count" in spec:
        return axis
    if "step" in spec:
        return ImportedAxis(spec, "drawn evenly: integers have a step or a logarithmic scale, not both", axis.unused)
    if spec["minval"] < 1:
        return ImportedAxis(spec, "drawn evenly: a logarithmic scale of integers begins at 1", axis.unused)
    return ImportedAxis({**spec, "log": True}, axis.differs, axis.unused)


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond floats
        return False
