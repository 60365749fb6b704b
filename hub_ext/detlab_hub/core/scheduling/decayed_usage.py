"""Use that fades: slot time of each user, halved with every half-life, and the weights that follow from it.

The value is kept with the time that it is of. Adding a span that has ended is closed form, so that it does not matter
how often a value is brought up to date. A clock that is set back adds and fades nothing; one that jumps ahead fades
more than it should, which makes shares equal and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

LEAST_PART = 0.25
"""Of the weight that a user would have without any use: nobody's share falls below this part of it."""
_LN2 = math.log(2.0)
_Name = TypeVar("_Name", str, tuple[str, str])


def faded(value: float, seconds: float, half_life: float) -> float:
    """Return what is left of a value of slot-seconds after some seconds; a half-life of 0 forgets at once."""
    if not math.isfinite(value) or value <= 0.0:
        return 0.0
    if seconds <= 0.0:
        return value
    return value * 2.0 ** -(seconds / half_life) if half_life > 0.0 else 0.0


def span(slots: int, begin: float, end: float, now: float, half_life: float) -> float:
    """Return what a span of use counts now, in slot-seconds: each moment of it has faded since.

    Args:
        slots: Slots that were held.
        begin: Seconds since the epoch.
        end: Seconds since the epoch; what is later than now does not count.
        now: The time, in seconds since the epoch.
        half_life: Seconds.
    """
    end = min(end, now)
    if slots <= 0 or end <= begin or half_life <= 0.0:
        return 0.0
    # -expm1(-x) is 1 - exp(-x) without the loss of digits where a span is short beside the half-life.
    whole = half_life / _LN2 * -math.expm1(-_LN2 * (end - begin) / half_life)
    return faded(slots * whole, now - end, half_life)


def adjusted_weights(
    weights: Mapping[str, float], usage: Mapping[str, float], capacity: int, half_life: float
) -> dict[str, float]:
    """Return the weight of each user's share: less for who used more than their part of late, more for who used less.

    A pool that is always in use holds `capacity * half_life / ln 2` slot-seconds. What a user has of that, less the
    part of all use that the user's own weight stands for, is taken from the weight.

    Args:
        weights: Of the users who want slots now; above 0.
        usage: Slot-seconds by user, faded to now.
        capacity: Slots of the pool.
        half_life: Seconds; 0: use does not count.

    Returns:
        Weights that add up to 1, but for those that stand at the least part.
    """
    total = sum(weights.values())
    full = capacity * half_life / _LN2
    parts = {name: weight / total for name, weight in weights.items()}
    if full <= 0.0:
        return parts
    used = {name: max(0.0, usage.get(name, 0.0)) / full for name in weights}
    of_all = sum(used.values())
    if of_all > 1.0:  # the pool was larger, or the half-life longer
        used, of_all = {name: part / of_all for name, part in used.items()}, 1.0
    return {name: max(LEAST_PART * part, part + part * of_all - used[name]) for name, part in parts.items()}


def shares_of(
    demands: Mapping[str, int], weights: Mapping[str, float], capacity: float, groups: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Divide slots by weight among users; what one cannot use goes to the others, by their weights.

    Args:
        demands: Slots that each could use.
        weights: Of each of them; above 0.
        capacity: Slots to divide.
        groups: The group of each user who is in one. A group has the weights of its members who are here together, and
            what one of them cannot use goes to the others of the group first.

    Returns:
        Slots by user, in fractions: nobody has more than the demand, all together have the capacity or all demands.
    """
    if not groups:
        return _poured(demands, weights, capacity)
    members: dict[tuple[str, str], list[str]] = {}
    for name in demands:
        group = groups.get(name)
        members.setdefault(("user", name) if group is None else ("group", group), []).append(name)
    wanted = {one: sum(demands[name] for name in names) for one, names in members.items()}
    heavy = {one: sum(weights[name] for name in names) for one, names in members.items()}
    shares: dict[str, float] = {}
    for one, share in _poured(wanted, heavy, capacity).items():
        shares |= _poured({name: demands[name] for name in members[one]}, weights, share)
    return shares


def _poured(demands: Mapping[_Name, int], weights: Mapping[_Name, float], capacity: float) -> dict[_Name, float]:
    shares: dict[_Name, float] = {}
    left, total = max(0.0, float(capacity)), sum(weights[name] for name in demands)
    for name in sorted(demands, key=lambda name: (demands[name] / weights[name], name)):
        part = left * weights[name] / total if total > 0.0 else 0.0
        shares[name] = min(float(demands[name]), part)
        left = max(0.0, left - shares[name])
        total -= weights[name]
    return shares
