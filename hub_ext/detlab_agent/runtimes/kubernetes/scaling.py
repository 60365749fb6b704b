"""Nodes to come: what a cluster autoscaler would add if pods waited for it, offered as if it were there.

An autoscaler acts on pods that no node takes, and this agent's pods are bound to the nodes that the master chose. So
the master may also choose a node to come: its pod waits, bound to no node but to the labels of its group, until the
autoscaler has made one. From then on the pod counts where it really is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from detlab_agent.runtimes.kubernetes.api import Object
from detlab_agent.runtimes.kubernetes.nodes import TO_COME, gpu_resource, gpu_slots
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, NodeGroup

OTHERS = "used by others on the cluster"


@dataclass(frozen=True)
class PlacedPod:
    """A pod of ours.

    Attributes:
        named: The node that the master chose.
        slots: What it has of it.
        actual: The node that it is on; "": none yet.
    """

    named: str
    slots: tuple[str, ...]
    actual: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether it has got a node with another name: it was for one to come."""
        return bool(self.actual) and self.actual != self.named


def nodes_to_come(
    options: KubernetesOptions, there: Mapping[str, Object], placed: Collection[PlacedPod]
) -> dict[str, Object]:
    """Return the nodes that may still come, and those whose pods are here already, by name.

    Args:
        options: The operator's.
        there: The nodes of the cluster.
        placed: Our pods.
    """
    found: dict[str, Object] = {}
    for group in options.autoscaled:
        used = {one.named for one in placed if _is_of(group, one.named)}
        waiting = used - {one.named for one in placed if one.elsewhere}
        present = sum(group.node_labels.items() <= node["labels"].items() for node in there.values())
        free = max(0, group.most - present - len(waiting))
        new = (name for number in count(1) if (name := f"{group.name}-to-come-{number}") not in used | there.keys())
        for name in sorted([*used, *_first(new, free)]):
            found[name] = _node(name, group, options)
    return found


def _first(names: Iterable[str], most: int) -> Iterator[str]:
    yield from (name for name, _ in zip(names, range(most), strict=False))


def _is_of(group: NodeGroup, node: str) -> bool:
    start, _, number = node.rpartition("-to-come-")
    return start == group.name and number.isdigit()


def _node(name: str, group: NodeGroup, options: KubernetesOptions) -> Object:
    amounts = {group.resource: str(group.slots), "pods": str(group.slots), "memory": group.memory or "0"}
    return {
        "name": name,
        "labels": {**options.node_selector, **group.node_labels},
        "taints": [],
        "cordoned": False,
        "allocatable": {**amounts, "cpu": str(group.cpus or 0)},
        "ready": True,
        "not_ready": "",
        TO_COME: group.name,
    }


def count_elsewhere(
    placed: Collection[PlacedPod],
    there: Mapping[str, Object],
    options: KubernetesOptions,
    amounts: dict[str, Counter[str]],
) -> None:
    """Add what our pods use of nodes that the master did not choose, to what others use of them."""
    for one in placed:
        if one.elsewhere and one.actual in there:
            resource, _ = gpu_resource(there[one.actual], options)
            amounts.setdefault(one.actual, Counter())[resource] += len(one.slots)


def come_already(
    placed: Collection[PlacedPod], to_come: Mapping[str, Object], options: KubernetesOptions
) -> dict[str, dict[str, str]]:
    """Return the slots of nodes to come that have come, and where: what is left is offered under their real names."""
    found: dict[str, dict[str, str]] = {}
    for name, actual in {one.named: one.actual for one in placed if one.elsewhere}.items():
        if name in to_come:
            _, number = gpu_resource(to_come[name], options)
            ours = {slot for one in placed if one.named == name for slot in one.slots}
            found[name] = {slot: f"listed under node {actual}" for slot in gpu_slots(number) if slot not in ours}
    return found


def by_whom(slots: Collection[str], node: str, placed: Collection[PlacedPod]) -> dict[str, str]:
    """Return for people who uses these slots of a node: tasks that are listed at a node to come, then others."""
    ours = [one.named for one in placed if one.elsewhere and one.actual == node for _ in one.slots]
    left = len(slots) - len(ours)
    words = [OTHERS] * left + [f"used by a task that is listed under {name}" for name in ours]
    return dict(zip(sorted(slots), words, strict=False))
