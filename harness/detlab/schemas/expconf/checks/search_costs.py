"""What a search costs before its first trial runs: rungs and brackets to plan, trials to make at once.

Refused here, like all else, it is refused alike by `det config check` and by the master.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.checks.search_spaces import finite_number, grid_points
from detlab.schemas.expconf.rungs import rungs_within

MAX_AT_ONCE = 10_000
"""Trials that a search may have at a time."""
MAX_FIRST_BYTES = 32 * 1024 * 1024
"""Hyperparameters, as JSON, of the trials that a search has at a time: the first ones are made in one transaction."""
MAX_RUNGS = 100
_DEFAULT_DIVISOR, _DEFAULT_PLACES = 4.0, 16


def rungs(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse a divisor just above 1: it makes a rung at every step, and a bracket for every rung."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict):
        return
    most, divisor = _count(searcher, "max_rungs"), finite_number(searcher.get("divisor")) or _DEFAULT_DIVISOR
    found = most or _count(searcher, "num_rungs") or 1
    if most and divisor > 1:
        found = min(found, rungs_within(max(_count(searcher, "max_time"), 1), divisor, MAX_RUNGS + 1))
    brackets = searcher.get("bracket_rungs")
    found = max(found, len(brackets) if isinstance(brackets, list) else 0)
    if found > MAX_RUNGS:
        message = f"has {found:,} rungs or brackets; at most {MAX_RUNGS}"
        yield Problem("searcher", message, "use a larger divisor")


def at_once(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse a search of ours whose first trials are too many or too large; of others the master knows how many."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict):
        return
    if searcher.get("name") == "grid":
        total = grid_points(raw.get("hyperparameters")) or 1
        total = min(total, _count(searcher, "max_trials") or total)
    else:
        total = _count(searcher, "max_trials") or 1
    total *= _count(searcher, "seeds") or 1
    yield from too_many_at_once(raw, total)


def too_many_at_once(config: dict[str, Any], total: int) -> Iterator[Problem]:
    """Refuse a search whose first trials are too many or too large.

    They are decided on and journaled in one transaction, which must neither run for ever nor fill the memory.

    Args:
        config: The config.
        total: Trials of the whole search.
    """
    places = finite_number(config["searcher"].get("max_concurrent_trials", _DEFAULT_PLACES))
    count = total if places == 0 else min(total, int(places or 1))
    if count <= 1:
        return
    each = _size(config.get("hyperparameters") or {})
    if count <= MAX_AT_ONCE and count * each <= MAX_FIRST_BYTES:
        return
    most = max(1, min(MAX_AT_ONCE, MAX_FIRST_BYTES // each))
    message = f"{count:,} trials at a time; at most {most:,}"
    if most < MAX_AT_ONCE:
        message += f" with hyperparameters of {each:,} bytes each"
    yield Problem("searcher.max_concurrent_trials", message, "the trials wait for slots anyway: say fewer")


def _count(searcher: dict[str, Any], key: str) -> int:
    return int(finite_number(searcher.get(key)) or 0)


def _size(hyperparameters: object) -> int:
    try:
        return len(json.dumps(hyperparameters))
    except (TypeError, ValueError):
        return 2  # what JSON cannot hold is refused by other rules
