"""The parameters of a W&B sweep as hyperparameters: every distribution, and nested ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.imports import spaces
from detlab.schemas.imports.ledger import Ledger
from detlab.schemas.imports.spaces import ImportedAxis

Spec = dict[str, Any]

MEANT = ("value", "values", "probabilities", "min", "max", "q", "mu", "sigma", "a", "b", "distribution")
"""The keys of a parameter that go into a hyperparameter."""
MOST_LEVELS = 20
_NUMBERS = ("min", "max", "q", "mu", "sigma", "a", "b")
_POWER_OF_TEN = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+|[-+]?\.[0-9]+[eE][-+]?[0-9]+")
"""What looks like a number, and is a text in the YAML 1.1 that W&B reads: `1e-5`."""


def _uniform(spec: Spec, grid: bool) -> ImportedAxis:
    return spaces.real(spec["min"], spec["max"], None, grid=grid)


def _whole(spec: Spec, grid: bool) -> ImportedAxis:
    return spaces.whole(int(spec["min"]), int(spec["max"]), None, grid=grid)


def _steps(spec: Spec, grid: bool) -> ImportedAxis:
    step = spec.get("q", 1)
    if all(float(value).is_integer() for value in (spec["min"], spec["max"], step)):
        return spaces.whole(int(spec["min"]), int(spec["max"]), int(step), grid=grid)
    return spaces.real(spec["min"], spec["max"], step, grid=grid)


def _exponents(spec: Spec, grid: bool) -> ImportedAxis:
    return _powers(spec["min"], spec["max"], grid)


def _inverse_exponents(spec: Spec, grid: bool) -> ImportedAxis:
    return _powers(-spec["max"], -spec["min"], grid)


def _powers(low: float, high: float, grid: bool) -> ImportedAxis:
    if low == high:
        return spaces.const(spaces.as_float(math.exp(low)))
    found = spaces.powers(math.e, low, high)
    return spaces.on_grid(found, grid=grid)


def _values(spec: Spec, grid: bool) -> ImportedAxis:
    return spaces.logarithmic(spec["min"], spec["max"], None, grid=grid)


def _stepped_values(spec: Spec, grid: bool) -> ImportedAxis:
    return _stepped_between(spec["min"], spec["max"], spec.get("q", 1), grid)


def _stepped_exponents(spec: Spec, grid: bool) -> ImportedAxis:
    return _stepped_between(math.exp(spec["min"]), math.exp(spec["max"]), spec.get("q", 1), grid)


def _stepped_between(low: float, high: float, step: float, grid: bool) -> ImportedAxis:
    """Return an integer range for whole steps, since code that asks for integers would fail on a fraction."""
    if not float(step).is_integer():
        return spaces.without_step(spaces.logarithmic(low, high, None, grid=grid), "drawn without its q")
    least, most = (int(step * round(value / step)) for value in (low, high))
    return spaces.on_log_scale(spaces.whole(least, most, int(step), grid=grid))


def _normal(spec: Spec, grid: bool) -> ImportedAxis:
    return _around_mean(spec, grid, logarithm=False)


def _log_normal(spec: Spec, grid: bool) -> ImportedAxis:
    return _around_mean(spec, grid, logarithm=True)


def _around_mean(spec: Spec, grid: bool, *, logarithm: bool) -> ImportedAxis:
    step = spec.get("q", 1) if spec["distribution"].startswith("q_") else None
    axis = spaces.normal(spec.get("mu", 0), spec.get("sigma", 1), step, logarithm=logarithm, grid=grid)
    return spaces.without_step(axis, "without its q") if step and grid else axis


def _beta(spec: Spec, grid: bool) -> ImportedAxis:
    axis = spaces.real(0.0, 1.0, spec.get("q"), grid=grid)
    why = "drawn evenly between 0 and 1: there is no beta distribution"
    return ImportedAxis(axis.spec, spaces.joined(axis.differs, why), (*axis.unused, "a", "b"))


def _weighted(spec: Spec, grid: bool) -> ImportedAxis:
    axis = spaces.choice(spec["values"])
    weights = spec.get("probabilities")
    if grid or weights is None:
        return ImportedAxis(axis.spec, axis.differs, ("probabilities",))
    return ImportedAxis({**axis.spec, "weights": list(weights)})


Convert = Callable[[Spec, bool], ImportedAxis]

_ON_LOG_SCALE = "int with `log`, if `q` is 1; with a step, drawn evenly, if it is another whole number"

DISTRIBUTIONS: dict[str, tuple[Convert, tuple[str, ...], str]] = {
    "uniform": (_uniform, ("min", "max"), "double"),
    "int_uniform": (_whole, ("min", "max"), "int"),
    "q_uniform": (_steps, ("min", "max"), "int or double with a step"),
    "log_uniform": (_exponents, ("min", "max"), "log with base e: the ends are exponents there, too"),
    "log_uniform_values": (_values, ("min", "max"), "log"),
    "q_log_uniform": (_stepped_exponents, ("min", "max"), f"{_ON_LOG_SCALE}; log, if it is a fraction"),
    "q_log_uniform_values": (_stepped_values, ("min", "max"), f"{_ON_LOG_SCALE}; log, if it is a fraction"),
    "inv_log_uniform": (_inverse_exponents, ("min", "max"), "log with base e"),
    "inv_log_uniform_values": (_values, ("min", "max"), "log"),
    "normal": (_normal, (), "double with a `prior` of confidence 1, cut off at 3 standard deviations"),
    "q_normal": (_normal, (), "the same with a step; int, if `q` is whole"),
    "log_normal": (_log_normal, (), "log with base e and such a `prior`"),
    "q_log_normal": (_log_normal, (), "the same, without `q`; int with `log`, if `q` is 1 and no draw is 0"),
    "beta": (_beta, (), "double, evenly from 0 to 1"),
    "q_beta": (_beta, (), "double with a step, evenly from 0 to 1"),
    "constant": (lambda spec, grid: spaces.const(spec["value"]), ("value",), "const"),
    "categorical": (lambda spec, grid: spaces.choice(spec["values"]), ("values",), "categorical"),
    "categorical_w_probabilities": (_weighted, ("values",), "categorical with `weights`"),
}
"""W&B's distributions: how each is converted, the keys it needs, and what it becomes."""

_POSITIVE = ("log_uniform_values", "q_log_uniform_values", "inv_log_uniform_values")
_TAKEN = ("type", "when")
"""Keys that mean something else in a group of hyperparameters."""


def hyperparameters(ledger: Ledger, *, grid: bool) -> dict[str, Any]:
    """Return the hyperparameters of a sweep; every mistake in them is noted."""
    if not ledger.mapping(("parameters",)):
        if not any(problem.path == "parameters" for problem in ledger.problems):
            ledger.mistake(("parameters",), "is missing or empty: there is nothing to search")
        return {}
    return _group(ledger, ("parameters",), "hyperparameters", grid, MOST_LEVELS)


def _group(ledger: Ledger, at: Path, to: str, grid: bool, levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ledger.mapping(at):
        place, target = (*at, name), f"{to}.{name}"
        spec = ledger.at(place)
        if not isinstance(spec, dict):
            ledger.mistake(place, "must be a mapping such as {value: 1} or {min: 0, max: 1}")
            continue
        if name in _TAKEN and len(at) > 1:
            ledger.mistake(place, f"a nested parameter cannot be called `{name}` here", "rename it in file and code")
            continue
        if "parameters" in spec:
            if levels == 0:
                ledger.mistake(place, f"is nested more than {MOST_LEVELS} levels deep")
                continue
            found[name] = _group(ledger, (*place, "parameters"), target, grid, levels - 1)
            continue
        axis = _axis(ledger, place, _with_numbers(spec), grid)
        if axis is not None:
            found[name] = axis.spec
            _note(ledger, place, spec, axis, target)
            _say_texts(ledger, spec, target)
    return found


def _is_power(value: Any) -> bool:
    return isinstance(value, str) and _POWER_OF_TEN.fullmatch(value) is not None


def _with_numbers(spec: Spec) -> Spec:
    """Return a parameter whose ends are numbers, where YAML 1.1 made a text of them and W&B would refuse them."""
    return {key: float(value) if key in _NUMBERS and _is_power(value) else value for key, value in spec.items()}


def _say_texts(ledger: Ledger, spec: Spec, target: str) -> None:
    """Say which values are texts, though they look like numbers."""
    values = spec.get("values") if isinstance(spec.get("values"), list) else [spec.get("value")]
    texts = [str(value) for value in values or [] if _is_power(value)]
    if texts:
        ledger.to_do.append(
            f"{target}: {', '.join(texts)} is a text to W&B, whose YAML is 1.1, and is here; as a number write"
            f" {', '.join(_with_point(text) for text in texts)}"
        )


def _with_point(text: str) -> str:
    """Return a number as YAML 1.1 knows it: 1.0e-05."""
    number = repr(float(text))
    digits, e, power = number.partition("e")
    return f"{digits if '.' in digits else digits + '.0'}{e}{power}"


def _note(ledger: Ledger, place: Path, spec: Spec, axis: ImportedAxis, to: str) -> None:
    for key in MEANT:
        if key not in spec:
            continue
        text = f"{spec[key]} is a text in YAML 1.1; the number is meant" if _is_power(spec[key]) else ""
        differs = spaces.joined(axis.differs, text if key in _NUMBERS else "")
        if key in axis.unused:
            ledger.left_out((*place, key), axis.differs or None)
        elif differs:
            ledger.changed((*place, key), differs, to)
        else:
            ledger.kept((*place, key), to)


def _distribution(spec: Spec) -> str | None:
    """Return the distribution that W&B takes for a parameter that names none."""
    if "value" in spec:
        return "constant"
    if "values" in spec:
        return "categorical_w_probabilities" if "probabilities" in spec else "categorical"
    if "min" in spec or "max" in spec:
        whole = all(isinstance(spec.get(key), int) for key in ("min", "max"))
        return "int_uniform" if whole else "uniform"
    return None


def _axis(ledger: Ledger, place: Path, spec: Spec, grid: bool) -> ImportedAxis | None:
    name = spec.get("distribution") or _distribution(spec)
    if name is None:
        ledger.mistake(place, "has no value, values, or min and max")
        return None
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        near = closest(name, DISTRIBUTIONS)
        hint = f"did you mean `{near}`?" if near else f"known are {', '.join(DISTRIBUTIONS)}"
        ledger.mistake((*place, "distribution"), f"{name!r} is no distribution of W&B", hint)
        return None
    convert, needed, _ = DISTRIBUTIONS[name]
    full = {**spec, "distribution": name}
    return convert(full, grid) if _sound(ledger, place, full, needed) else None


def _sound(ledger: Ledger, place: Path, spec: Spec, needed: tuple[str, ...]) -> bool:
    """Whether a parameter can be converted; what is wrong is noted."""
    before = len(ledger.problems)
    for key in needed:
        if key not in spec:
            ledger.mistake((*place, key), f"is missing; {spec['distribution']} needs it")
    if "values" in needed and "values" in spec and (not isinstance(spec["values"], list) or not spec["values"]):
        ledger.mistake((*place, "values"), "must be a list with values")
    for key in _NUMBERS:
        if key in spec and not spaces.is_number(spec[key]):
            ledger.mistake((*place, key), "must be a number")
    if len(ledger.problems) > before:
        return False
    if spec.get("q", 1) <= 0:
        ledger.mistake((*place, "q"), "must be above 0")
    if spec.get("sigma", 1) < 0:
        ledger.mistake((*place, "sigma"), "must not be negative")
    if "probabilities" in spec and not _are_weights(spec):
        ledger.mistake((*place, "probabilities"), "must be a list with a number above 0 for each of `values`")
    if "min" in needed:
        _judge_ends(ledger, place, spec)
    return len(ledger.problems) == before


def _are_weights(spec: Spec) -> bool:
    given, values = spec["probabilities"], spec.get("values")
    if not isinstance(given, list) or not isinstance(values, list) or len(given) != len(values):
        return False
    return all(spaces.is_number(value) and value > 0 for value in given)


def _judge_ends(ledger: Ledger, place: Path, spec: Spec) -> None:
    name, low, high = spec["distribution"], spec["min"], spec["max"]
    if low > high:
        ledger.mistake(place, f"min {low} is above max {high}")
    elif name in _POSITIVE and low <= 0:
        ledger.mistake((*place, "min"), "must be above 0 on a logarithmic scale")
    elif name == "int_uniform" and not all(float(value).is_integer() for value in (low, high)):
        ledger.mistake(place, "int_uniform needs whole numbers")
    elif (
        name in ("log_uniform", "q_log_uniform", "inv_log_uniform") and max(abs(low), abs(high)) > spaces.HUGE_EXPONENT
    ):
        ledger.mistake(place, f"min and max of {name} are exponents: e to the power of {high:g} is no number")
