"""Pods of the cluster that are not this agent's: the devices that they have are not offered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from detlab.schemas.podspec import HELD_LABEL
from detlab_agent.runtimes.kubernetes.api import Api, Object
from detlab_agent.runtimes.kubernetes.nodes import gpu_resource, gpu_slots, quantity
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.pods import AGENT_LABEL
from detlab_agent.runtimes.kubernetes.reflector import Reflector

_OVER = frozenset({"Succeeded", "Failed"})


class OtherPods:
    """What others use of each node.

    Args:
        api: The client.
        rules: What pods may be.
        on_change: Called when it has changed.
    """

    def __init__(self, api: Api, rules: Rules, on_change: Callable[[], None]) -> None:
        self.pods = Reflector(
            api,
            api.path("pods", namespaced=False),
            lambda pod: kept_other(pod, rules.options, rules.agent),
            lambda name: on_change(),
            labels=f"{AGENT_LABEL}!={rules.agent}",
            fields="status.phase!=Succeeded,status.phase!=Failed",
            key=lambda pod: f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}",
        )

    def amounts(self) -> dict[str, Counter[str]]:
        """Return how many devices of each kind they have, by node."""
        amounts: dict[str, Counter[str]] = {}
        for pod in self.pods.items.values():
            amounts.setdefault(pod["node"], Counter()).update(pod["amounts"])
        return amounts


class TakenSlots:
    """Which slots of a node are not offered since their devices are used.

    Which devices these are nobody knows: of the slots that none of our tasks has, the last are taken, and the same as
    before as far as possible.

    Args:
        options: The operator's.
    """

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._taken: dict[str, set[str]] = {}

    def choose(
        self,
        amounts: Mapping[str, Mapping[str, int]],
        nodes: Mapping[str, Object],
        busy: Mapping[str, Collection[str]],
    ) -> dict[str, set[str]]:
        """Return these slots by node.

        Args:
            amounts: Devices that are used, by node and kind.
            nodes: By name.
            busy: Slots by node of our tasks.
        """
        found: dict[str, set[str]] = {}
        for name in amounts.keys() & nodes.keys():
            resource, count = gpu_resource(nodes[name], self._options)
            free = [slot for slot in reversed(gpu_slots(count)) if slot not in busy.get(name, ())]
            before = self._taken.get(name, set())
            chosen = sorted(free, key=lambda slot: slot not in before)[: amounts[name].get(resource, 0)]
            if chosen:
                found[name] = set(chosen)
        self._taken = found
        return found


def kept_other(pod: Object, options: KubernetesOptions, agent: str) -> Object | None:
    """Return the devices of a pod that is not ours and has some on a node; else None."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    labels = meta.get("labels") or {}
    over = (pod.get("status") or {}).get("phase") in _OVER
    if over or not spec.get("nodeName") or labels.get(AGENT_LABEL) == agent or HELD_LABEL in labels:
        return None
    amounts: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        amounts.update(_devices(container, options))
    for container in spec.get("initContainers") or ():  # they run one after the other, before the rest
        for name, count in _devices(container, options).items():
            amounts[name] = max(amounts[name], count)
    return {"node": spec["nodeName"], "amounts": dict(amounts)} if amounts else None


def _devices(container: Mapping[str, Any], options: KubernetesOptions) -> dict[str, int]:
    limits = (container.get("resources") or {}).get("limits") or {}  # requests of devices are the same
    return {name: int(quantity(amount)) for name, amount in limits.items() if options.gpu(name)}
