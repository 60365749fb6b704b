"""From the `searcher` block of the experiment config to a search method."""

import math
import sys
from collections.abc import Mapping
from typing import Any

from detlab_hub.core.searchers.adaptive import Tournament, bracket_rungs, plan_brackets
from detlab_hub.core.searchers.async_halving import AsyncHalving, HalvingConfig
from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.hyperparameters import Grid, check_space
from detlab_hub.core.searchers.method import SearchMethod
from detlab_hub.core.searchers.sweep import GridSearch, RandomSearch

DEFAULT_MAX_CONCURRENT_TRIALS = 16
DEFAULT_DIVISOR = 4
DEFAULT_MAX_RUNGS = 5
_LARGEST_LOG = math.log(sys.float_info.max) - 1
SEARCHERS = ("single", "random", "grid", "async_halving", "adaptive_asha")


def make_method(searcher: Mapping[str, Any], space: Mapping[str, Any]) -> SearchMethod:
    """Make the method that a resolved `searcher` block names.

    Raises:
        SearcherConfigError: If the name is none of `SEARCHERS`, a field is missing or out of range, or the
            space cannot be drawn from.
    """
    check_space(space)
    match searcher.get("name"):
        case "single":
            return RandomSearch(max_trials=1, max_concurrent=1, replace_invalid=False)
        case "random":
            return RandomSearch(_count(searcher, "max_trials"), _concurrent(searcher))
        case "grid":
            return GridSearch(Grid(space), _concurrent(searcher))
        case "async_halving":
            return _halving(
                searcher,
                _count(searcher, "num_rungs"),
                _count(searcher, "max_trials"),
                _concurrent(searcher),
            )
        case "adaptive_asha":
            return _adaptive(searcher)
        case name:
            raise SearcherConfigError(f"searcher.name: {name!r} is none of {', '.join(SEARCHERS)}")


def _field(searcher: Mapping[str, Any], key: str, default: Any = None) -> Any:
    value = searcher.get(key)
    if value is None:
        value = default
    if value is None:
        raise SearcherConfigError(f"searcher.{key}: {searcher['name']} needs it")
    return value


def _count(searcher: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = int(_field(searcher, key, default))
    if value < 1:
        raise SearcherConfigError(f"searcher.{key}: must be at least 1, is {value}")
    return value


def _concurrent(searcher: Mapping[str, Any]) -> int:
    value = int(_field(searcher, "max_concurrent_trials", DEFAULT_MAX_CONCURRENT_TRIALS))
    if value < 0:
        raise SearcherConfigError(f"searcher.max_concurrent_trials: must not be negative, is {value}")
    return value


def _divisor(searcher: Mapping[str, Any]) -> float:
    value = float(_field(searcher, "divisor", DEFAULT_DIVISOR))
    if not value > 1:
        raise SearcherConfigError(f"searcher.divisor: must be above 1, is {value}")
    return value


def _check_rungs(path: str, num_rungs: int, divisor: float) -> None:
    if (num_rungs - 1) * math.log(divisor) > _LARGEST_LOG:
        raise SearcherConfigError(f"{path}: {num_rungs} rungs are too many for divisor {divisor:g}")


def _halving(searcher: Mapping[str, Any], num_rungs: int, max_trials: int, max_concurrent: int) -> AsyncHalving:
    divisor = _divisor(searcher)
    _check_rungs("searcher.num_rungs", num_rungs, divisor)
    smaller_is_better = searcher.get("smaller_is_better")
    return AsyncHalving(
        HalvingConfig(
            num_rungs=num_rungs,
            max_trials=max_trials,
            divisor=divisor,
            max_concurrent=max_concurrent,
            time_metric=str(_field(searcher, "time_metric")),
            max_time=_count(searcher, "max_time"),
            smaller_is_better=True if smaller_is_better is None else bool(smaller_is_better),
        )
    )


def _adaptive(searcher: Mapping[str, Any]) -> Tournament:
    divisor, max_trials = _divisor(searcher), _count(searcher, "max_trials")
    rungs = [int(number) for number in searcher.get("bracket_rungs") or ()]
    if any(number < 1 for number in rungs):
        raise SearcherConfigError("searcher.bracket_rungs: each bracket needs at least 1 rung")
    for number in rungs:
        _check_rungs("searcher.bracket_rungs", number, divisor)
    if not rungs:
        mode = _field(searcher, "mode", "standard")
        if mode not in ("aggressive", "standard", "conservative"):
            raise SearcherConfigError(f"searcher.mode: {mode!r} is none of aggressive, standard, conservative")
        max_rungs = _count(searcher, "max_rungs", DEFAULT_MAX_RUNGS)
        rungs = bracket_rungs(mode, max_rungs, _count(searcher, "max_time"), max_trials, divisor)
    brackets = plan_brackets(rungs, max_trials, _concurrent(searcher), divisor)
    return Tournament([_halving(searcher, b.num_rungs, b.max_trials, b.max_concurrent) for b in brackets])
