"""Shares of users without closed forms and heaps: use by small steps, shares by pouring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detlab_hub.core.scheduling import AgentState, Snapshot, TaskState
from detlab_hub.core.scheduling.decayed_usage import LEAST_PART


def usage_by_steps(spans: Sequence[tuple[int, float, float]], now: float, half_life: float, steps: int) -> float:
    """Slot-seconds of (slots, begin, end), each small step of a span faded on its own."""
    total = 0.0
    for slots, begin, end in spans:
        width = (min(end, now) - begin) / steps
        for number in range(steps if width > 0 else 0):
            middle = begin + (number + 0.5) * width
            total += slots * width * 0.5 ** ((now - middle) / half_life)
    return total


def weights_by_the_book(
    weights: Mapping[str, float], usage: Mapping[str, float], capacity: int, half_life: float
) -> dict[str, float]:
    """The formula of the documentation, in the order in which it is told."""
    always = capacity * half_life * 1.4426950408889634
    used = {name: usage.get(name, 0.0) / always if always else 0.0 for name in weights}
    scale = max(1.0, sum(used.values()))
    of_all = sum(used.values()) / scale
    made = {}
    for name, weight in weights.items():
        fair = weight / sum(weights.values())
        made[name] = max(LEAST_PART * fair, fair - (used[name] / scale - fair * of_all if always else 0.0))
    return made


def poured(
    demands: Mapping[str, int], weights: Mapping[str, float], capacity: float, drops: int = 4000
) -> dict[str, float]:
    """Shares by pouring small drops, each to who has least for the weight and is not full."""
    given = dict.fromkeys(demands, 0.0)
    drop = capacity / drops
    for _ in range(drops):
        thirsty = [name for name in given if given[name] < demands[name] - 1e-12]
        if not thirsty:
            break
        lowest = min(thirsty, key=lambda name: (given[name] / weights[name], name))
        given[lowest] = min(float(demands[lowest]), given[lowest] + drop)
    return given


def plain_shares_of(snapshot: Snapshot) -> dict[str, float]:
    """The shares in a pool without limits, where every task could run alone."""
    held: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for task in snapshot.tasks:
        if task.slots and not task.leaving:
            runs = task.state is TaskState.RUNNING
            held[task.user] = held.get(task.user, 0) + (task.slots if runs else 0)
            wanted[task.user] = wanted.get(task.user, 0) + task.slots
    capacity = sum(agent.slots for agent in snapshot.agents if agent.state is AgentState.ENABLED)
    pool = snapshot.pool
    weights = {name: pool.weights.get(name, 1.0) for name in wanted}
    return poured(wanted, weights_by_the_book(weights, snapshot.usage, capacity, pool.half_life), capacity)
