"""Plans of searches that are right as they are written and would not do what they are meant to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.checks.search_spaces import finite_number
from detlab.schemas.expconf.rungs import rungs_within, shares_within

RESUMING = {
    "pbt": "clones start from their parents' checkpoints",
    "pb2": "clones start from their parents' checkpoints",
    "asha": "a promoted trial resumes from its checkpoint",
    "hyperband": "a promoted trial resumes from its checkpoint",
    "bohb": "a promoted trial resumes from its checkpoint",
}
"""Methods that cannot do without checkpoints, and why."""
LEARNING = ("tpe", "gp", "cmaes", "nsga2", "bayesian", "bohb", "dehb")
"""Built-in methods whose points depend on the results of earlier trials."""
_DIVISOR = 4.0
_HYPERBAND_DIVISOR = 3.0
_BRACKETS = {"bohb": 2}
"""Most brackets, if the config does not say how many."""
_MOST_RUNGS = 5
"""Of methods with rungs, if the config does not say how many."""
_MOST_TRIALS = 10**6
_TRUNCATED = 0.2
_PLACES = 16.0
"""Trials at a time, if the config does not say how many."""
_WITHOUT_LIMIT = ("pbt", "pb2")
"""Methods whose population trains together."""


def plans(raw: dict[str, Any]) -> Iterator[Problem]:
    """Warn of rungs that do not fit, populations in which no trial is replaced, missing checkpoints and limits."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict):
        return
    yield from list(_rungs(searcher)) or _promotions(searcher)
    yield from _brackets_too_small(searcher)
    yield from _truncation(searcher)
    yield from _blind(searcher)
    yield from _seeds(searcher)
    yield from _checkpoints(raw, searcher)
    budget = searcher.get("budget")
    if isinstance(budget, dict) and all(budget.get(key) is None for key in ("slot_hours", "wall_clock")):
        yield Problem("searcher.budget", "limits nothing", "give it `slot_hours` or `wall_clock`", "warning")


def _rungs(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of rungs below one unit of the time metric: they fall onto the first unit, where trials are stopped."""
    length, divisor = finite_number(searcher.get("max_time")), finite_number(searcher.get("divisor", _DIVISOR))
    if searcher.get("name") not in ("async_halving", "asha", "adaptive_asha") or not length or not divisor:
        return
    if length < 1 or divisor <= 1:
        return  # refused by their fields
    fitting = rungs_within(length, divisor, 100)
    brackets = searcher.get("bracket_rungs")
    given = {"num_rungs": searcher.get("num_rungs"), **dict(_brackets(brackets))}
    for key, value in given.items():
        count = finite_number(value)
        if count is not None and count > fitting:
            message = (
                f"is {count:g}, but {fitting} fit: rung {fitting + 1} from the top would be below 1 of `time_metric`"
            )
            hint = f"say {fitting} or fewer, or a larger max_time than {length:g}"
            yield Problem(f"searcher.{key}", message, hint, "warning")


def _blind(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of so many trials at a time that, where there are slots for them, all begin before there is a result."""
    if searcher.get("name") not in LEARNING or "max_concurrent_trials" not in searcher:
        return
    trials, places = finite_number(searcher.get("max_trials")), finite_number(searcher["max_concurrent_trials"])
    if trials is None or places is None or trials <= 1 or 0 < places < trials:
        return
    message = f"lets all {trials:g} trials run at a time: with as many free slots, {searcher['name']} learns nothing"
    yield Problem("searcher.max_concurrent_trials", message, f"say {max(1, int(trials) // 5)} or fewer", "warning")


def _seeds(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a point with more trials than may run at a time: they begin together, beyond the limit."""
    seeds = finite_number(searcher.get("seeds"))
    places = finite_number(searcher.get("max_concurrent_trials", _PLACES))
    if not seeds or not places or seeds <= places or searcher.get("name") in ("single", *_WITHOUT_LIMIT):
        return
    limit = f"max_concurrent_trials ({places:g})" if "max_concurrent_trials" in searcher else f"{places:g} at a time"
    message = f"is {seeds:g}, more than {limit}: the trials of a point begin together, and so {seeds:g} do"
    hint = f"say max_concurrent_trials: {seeds:g}, or {places:g} seeds or fewer"
    yield Problem("searcher.seeds", message, hint, "warning")


def blind(searcher: dict[str, Any], slots: int | None, slots_per_trial: int) -> Iterator[Problem]:
    """Warn of a method that learns where all of its trials begin at once on the slots that there are.

    Args:
        searcher: The complete `searcher` block.
        slots: Of the pool; None where points are drawn when trials are handed to a batch system, all of them at once.
        slots_per_trial: Of a trial.
    """
    if searcher.get("name") not in LEARNING:
        return
    trials = finite_number(searcher.get("max_trials")) or 0
    places = int(trials) if slots is None else slots // max(1, slots_per_trial)
    if limit := finite_number(searcher.get("max_concurrent_trials")):
        places = min(places, int(limit))
    if trials <= 1 or places < trials:
        return
    handed = "the agent of its batch system, an earlier version, gets them together"
    why = handed if slots is None else f"the pool has {slots} slots"
    message = f"all {trials:g} trials may begin at once, as {why}: {searcher['name']} learns nothing"
    hint = f"say {max(1, int(trials) // 5)} or fewer, or use more trials"
    yield Problem("searcher.max_concurrent_trials", message, hint, "warning")


def _brackets(brackets: object) -> Iterator[tuple[str, Any]]:
    for place, count in enumerate(brackets if isinstance(brackets, list) else ()):
        yield f"bracket_rungs[{place}]", count


def _promotions(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of so few trials that none is promoted to the last rung: the search would end without a trained model."""
    trials, rungs = finite_number(searcher.get("max_trials")), finite_number(searcher.get("num_rungs"))
    divisor = finite_number(searcher.get("divisor", _DIVISOR))
    if searcher.get("name") != "asha" or searcher.get("variant", "promotion") != "promotion":
        return
    if not trials or not divisor or trials < 1 or divisor <= 1:
        return
    if rungs is None:
        length = finite_number(searcher.get("max_time")) or 1
        rungs = rungs_within(max(min(length, trials), 1), divisor, _MOST_RUNGS)
    if not 1 < rungs <= 100:
        return
    if (rung := _passed(trials, divisor, int(rungs) - 1) + 1) < int(rungs):
        message = f"is {rungs:g}, but of {trials:g} trials none is promoted beyond rung {rung}: none reaches max_time"
        needed = _needed(int(rungs), divisor)
        more = f", or {needed:,} or more max_trials" if needed <= _MOST_TRIALS else ""
        hint = f"say {rung} or fewer{more}; {divisor:g} trials of a rung promote one"
        yield Problem("searcher.num_rungs", message, hint, "warning")


def _brackets_too_small(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of so few trials that no bracket of Hyperband promotes one."""
    trials, length = finite_number(searcher.get("max_trials")), finite_number(searcher.get("max_time"))
    divisor = finite_number(searcher.get("divisor", _HYPERBAND_DIVISOR))
    most, kept = (
        finite_number(searcher.get("max_rungs", _MOST_RUNGS)),
        finite_number(searcher.get("max_brackets", _BRACKETS.get(str(searcher.get("name"))))),
    )
    if searcher.get("name") not in ("hyperband", "bohb") or not trials or not length or not divisor or not most:
        return
    if min(trials, length, most) < 1 or divisor <= 1 or (kept is not None and kept < 1):
        return  # refused by their fields
    rungs = rungs_within(length, divisor, int(min(most, 100)))
    depths = list(range(rungs, 0, -1))[: None if kept is None else int(kept)]
    sizes = [max(one, 1) for one in shares_within(depths, int(trials), divisor)]
    sizes[0] += max(int(trials) - sum(sizes), 0)
    of = f"is {trials:g} for {len(depths)} bracket{'' if len(depths) == 1 else 's'}"
    hint = "say more, or fewer max_rungs; without max_trials it is a whole round of Hyperband"
    if not any(_passed(size, divisor, depth - 1) == depth - 1 for size, depth in zip(sizes, depths, strict=True)):
        message = f"{of}: too few for one that is promoted to the last rung, none reaches max_time"
        yield Problem("searcher.max_trials", message, hint, "warning")
    elif rungs > 1 and not any(_passed(size, divisor, depth - 1) for size, depth in zip(sizes, depths, strict=True)):
        message = f"{of}: no trial is promoted, only those that begin with all of max_time reach it"
        yield Problem("searcher.max_trials", message, hint, "warning")


def _passed(trials: float, divisor: float, rungs: int) -> int:
    """Return how many of the rungs below the last the best trial passes."""
    for rung in range(rungs):
        if (trials := trials // divisor) < 1:
            return rung
    return rungs


def _needed(rungs: int, divisor: float) -> int:
    """Return the fewest trials of which one comes to the last rung; above the most that are named, any larger one."""
    needed = 1
    for _ in range(rungs - 1):
        results = math.ceil(needed * divisor)
        needed = results if int(results / divisor) >= needed else results + 1
        if needed > _MOST_TRIALS:
            break
    return needed


def _truncation(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a share of the population that is less than one trial."""
    size, block = finite_number(searcher.get("population_size")), searcher.get("replace_function")
    share = finite_number(block.get("truncate_fraction", _TRUNCATED) if isinstance(block, dict) else _TRUNCATED)
    if searcher.get("name") not in ("pbt", "pb2") or not size or size < 1 or not share or not 0 < share <= 0.5:
        return
    if int(share * size) == 0:
        where = "searcher.replace_function.truncate_fraction"
        message = f"replaces no trial: {share:g} of {size:g} is less than one"
        least = f"{1 / size:.3g}" if size >= 2 else ""
        hint = f"say at least {least}, or a larger population_size" if least else "say a larger population_size"
        yield Problem(where, message, hint, "warning")


def _checkpoints(raw: dict[str, Any], searcher: dict[str, Any]) -> Iterator[Problem]:
    name = searcher.get("name")
    why = RESUMING.get(name) if isinstance(name, str) else None
    if why is None or raw.get("checkpoint_policy") != "none" or searcher.get("variant") == "stopping":
        return
    message = f"is none, but {name} needs checkpoints: {why}"
    yield Problem("checkpoint_policy", message, "remove it, unless the code itself saves checkpoints", "warning")
