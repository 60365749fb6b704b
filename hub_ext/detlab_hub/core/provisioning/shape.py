"""The expected shape of a new instance's agent, where the operator does not configure it.

Without `cpus` and `memory` in the provider's settings any request for them would seem to fit on one more instance, and
a pool would grow to its limit for a task that no instance can hold. The first agent that connects reports its shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from detlab_hub.core.scheduling import UNBOUNDED, Agent
from detlab_hub.core.scheduling.limits import count_bytes, count_cpus, count_slots


class InstanceShape(NamedTuple):
    """CPUs and memory of an instance, as its agent counts them."""

    millicpus: int = UNBOUNDED
    memory: int = UNBOUNDED


def measured(agents: Iterable[Agent]) -> InstanceShape | None:
    """Return the shape of a pool's instances, from the largest of their agents; None: there is none.

    They should be alike. One that counts less is broken, or bounded by something else than its machine: by it the pool
    would launch nothing for what all others have.

    Args:
        agents: Those of instances that were launched with the present settings.
    """
    return largest(InstanceShape(agent.millicpus, agent.host_memory) for agent in agents)


def largest(shapes: Iterable[InstanceShape]) -> InstanceShape | None:
    """Return the largest CPUs and the largest memory seen, each on its own; None if no shape was seen."""
    found = list(shapes)
    return InstanceShape(max(one.millicpus for one in found), max(one.memory for one in found)) if found else None


def with_shape(template: Agent, known: InstanceShape | None) -> Agent:
    """Fill in a template with what is known of an instance, where the operator has not set it."""
    if known is None:
        return template
    return replace(
        template,
        millicpus=known.millicpus if template.millicpus == UNBOUNDED else template.millicpus,
        host_memory=known.memory if template.host_memory == UNBOUNDED else template.host_memory,
    )


def described(template: Agent) -> str:
    """`4 slots, 8 CPUs and 30 GiB of memory`: what an instance has, as far as that is known."""
    parts = [count_slots(template.slots)]
    if template.millicpus != UNBOUNDED:
        parts.append(count_cpus(template.millicpus))
    if template.host_memory != UNBOUNDED:
        parts.append(f"{count_bytes(template.host_memory)} of memory")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
