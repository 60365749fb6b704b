"""Printing the instances of an elastic pool."""

from __future__ import annotations

from detlab.cli.output.printing import clean, counted, moment, say
from detlab.schemas.elasticwire import ElasticPoolView


def say_instances(pool: ElasticPoolView) -> None:
    """Print how many instances a pool has and wants, why it does not get them, and its provider's last errors."""
    bounds = f"{pool.min_instances} to {pool.max_instances}"
    there = counted(len(pool.instances), "instance")
    more = "1 more is wanted" if pool.wanted == 1 else f"{pool.wanted or 'no'} more are wanted"
    say(clean(f"Pool {pool.name}: {there} ({bounds}), {more}"))
    if pool.held_back:
        say(clean(f"  waits: {pool.held_back}"))
    for error in pool.errors:
        times = f" ({error.times} times)" if error.times > 1 else ""
        say(clean(f"  {moment(error.time)} {error.doing}{times}: {error.message}"))
        if error.hint:
            say(clean(f"    → {error.hint}"))
