"""Nodes of a cluster as the master knows nodes: slots, size, labels, and whether a pod may go there."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from detlab.schemas.wire import NodeHello, SlotView
from detlab_agent.runtimes.kubernetes.api import Object
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions

_log = logging.getLogger(__name__)
MOST_LABELS, LABEL_CHARS = 48, 200
MOST_NODES = 10_000
"""Nodes that are offered; those that take no pods are the first to be left out, those with tasks never are."""
TO_COME = "to_come"
"""The key of a node that is not there: the name of its group of nodes."""
_UNITS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{name}i": 1024.0**power for power, name in enumerate(("K", "M", "G", "T", "P", "E"), 1)}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_PASSED_OVER = ("feature.node.kubernetes.io/", "beta.kubernetes.io/")
_TRUSTED = "node-restriction.kubernetes.io/"
"""What labels begin with that a kubelet cannot set on its own node: none of them is left out for others."""
_BLOCKS = frozenset({"NoSchedule", "NoExecute"})
_OWN_TAINTS = "node.kubernetes.io/"
"""What those begin with that Kubernetes itself gives a node, for the time being."""
_NOT_FOR_TASKS = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})


def quantity(text: Any) -> float:
    """Return the number that a quantity such as `500m` or `4Gi` stands for.

    Raises:
        ValueError: It is none.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{str(text)[:40]!r} is no quantity of Kubernetes")
    return float(found[1]) * _UNITS[found[2]]


def kept_node(node: Object) -> Object:
    """Return the part of a node that is needed here; it does not change with each of its heartbeats."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    return {
        "name": meta["name"],
        "labels": meta.get("labels") or {},
        "taints": spec.get("taints") or [],
        "cordoned": bool(spec.get("unschedulable")),
        "allocatable": status.get("allocatable") or {},
        "ready": bool(ready) and ready[0].get("status") == "True",
        "not_ready": "" if not ready else str(ready[0].get("message") or ready[0].get("reason") or ""),
    }


def gpu_resource(node: Object, options: KubernetesOptions) -> tuple[str, int]:
    """Return the resource whose units are the slots of a node, and their number; ("", 0) where it has none.

    A node whose GPUs are divided in several ways offers the parts of which it has most.
    """
    amounts = {name: int(quantity(amount)) for name, amount in node["allocatable"].items() if options.gpu(name)}
    found = [(count, name) for name, count in amounts.items() if count > 0]
    if not found:
        return "", 0
    count, name = max(found)
    return name, count


def gpu_slots(count: int) -> list[str]:
    """Return the names of so many slots: which device a pod gets is the choice of its node."""
    return [f"gpu{number}" for number in range(count)]


def offered(
    nodes: Mapping[str, Object],
    options: KubernetesOptions,
    used: Collection[str],
    taken: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[NodeHello]:
    """Return the nodes for a Hello, in the order of their names.

    A node with tasks that is not ready is away: the master waits for it for a while, then takes its tasks for lost. Of
    one that takes no new pods all slots are closed, and people see why; machines that are not for tasks are left out.

    Args:
        nodes: By name, as `kept_node` returns them.
        options: The operator's.
        used: Names of nodes with tasks.
        taken: Slots by node whose devices are used, and by whom.
    """
    found: dict[str, NodeHello] = {}
    closed_ones = []
    for name, node in nodes.items():
        if not all(node["labels"].get(key) == value for key, value in options.node_selector.items()):
            continue
        why = why_closed(node, options.tolerations)
        if not node["ready"] and name in used:
            found[name] = NodeHello(name=name, away=True, note=why)
        elif why and name not in used:
            closed_ones.append((name, why))
        else:
            found[name] = _closed(_hello(node, options, {}), why) if why else _hello(node, options, taken.get(name, {}))
    for name, why in sorted(closed_ones)[: max(0, MOST_NODES - len(found))]:
        told = _hello(nodes[name], options, {})
        if told.slots and not _NOT_FOR_TASKS & {taint.get("key") for taint in nodes[name]["taints"]}:
            found[name] = _closed(told, why)
    kept = sorted(found, key=lambda name: (name not in used, name))[: max(MOST_NODES, len(used))]
    if len(kept) < len(found):
        _log.warning("%d nodes are left out: an agent offers no more than %d", len(found) - len(kept), MOST_NODES)
    return [found[name] for name in sorted(kept)]


def why_closed(node: Object, tolerations: Sequence[Mapping[str, Any]]) -> str:
    """Return for people why a node takes no tasks now; "" if it does."""
    if not node["ready"]:
        return _short(f"not ready: {node['not_ready'] or 'its kubelet does not report'}")
    if node["cordoned"]:
        return _short(f"cordoned, so it takes no new pods: kubectl uncordon {node['name']}")
    taint = _in_the_way(node, tolerations)
    if taint is None:
        return ""
    own = str(taint.get("key")).startswith(_OWN_TAINTS)
    return _short(f"taint {_word_of(taint)}" + ("" if own else ", which the agent's tolerations do not name"))


def _short(text: str) -> str:
    return text if len(text) <= LABEL_CHARS else f"{text[: LABEL_CHARS - 1]}…"


def _closed(told: NodeHello, why: str) -> NodeHello:
    slots = [slot.model_copy(update={"enabled": False, "note": why}) for slot in told.slots]
    return told.model_copy(update={"slots": slots, "note": why, "max_zero_slot_tasks": 0})


def _hello(node: Object, options: KubernetesOptions, taken: Mapping[str, str]) -> NodeHello:
    resource, count = gpu_resource(node, options)
    labels: Mapping[str, str] = node["labels"]
    kind = "rocm" if resource.startswith("amd.com/") else "cuda"
    model = labels.get("nvidia.com/gpu.product") or labels.get("amd.com/gpu.product-name") or resource
    if resource and not resource.endswith("/gpu"):
        model = f"{model} {resource.rpartition('/')[2]}" if model != resource else resource
    memory = _megabytes(labels.get("nvidia.com/gpu.memory")) if resource.endswith("/gpu") else 0
    slots = [
        SlotView.model_validate(
            {
                "id": name,
                "kind": kind,
                "name": model[:LABEL_CHARS],
                "memory": memory,
                "enabled": name not in taken,
                "note": taken.get(name, ""),
            }
        )
        for name in gpu_slots(count)
    ]
    if not slots:
        slots = [SlotView(id=f"cpu{number}", kind="cpu", name="CPU") for number in range(options.cpu_slots)]
    pods = int(quantity(node["allocatable"].get("pods", "110")))
    return NodeHello(
        name=node["name"],
        slots=slots,
        labels=_labels(labels),
        pool=next((one.name for one in options.pools if one.node_labels.items() <= labels.items()), None),
        address="",
        max_zero_slot_tasks=max(0, pods - len(slots)),
        cpus=quantity(node["allocatable"].get("cpu", "0")) or None,
        memory=int(quantity(node["allocatable"].get("memory", "0"))) or None,
        note="not there yet: the autoscaler adds it when a task is placed on it" if TO_COME in node else "",
    )


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    short = {
        name: value
        for name, value in sorted(labels.items(), key=lambda one: (not one[0].startswith(_TRUSTED), one[0]))
        if len(name) <= LABEL_CHARS and len(value) <= LABEL_CHARS and not name.startswith(_PASSED_OVER)
    }
    return dict(list(short.items())[:MOST_LABELS])


def _megabytes(text: str | None) -> int:
    return int(text) << 20 if text is not None and text.isdigit() else 0


def closed(node: Object, tolerations: Sequence[Mapping[str, Any]]) -> str:
    """Return why a node takes no new pod with these tolerations; "" if it does."""
    if node["cordoned"]:
        return f"node {node['name']} is cordoned"
    taint = _in_the_way(node, tolerations)
    return "" if taint is None else f"node {node['name']} has the taint {_word_of(taint)}"


def _in_the_way(node: Object, tolerations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first taint of a node that keeps a pod with these tolerations away; None: none does."""
    for taint in node["taints"]:
        if taint.get("effect") in _BLOCKS and not any(_tolerates(one, taint) for one in tolerations):
            found: Mapping[str, Any] = taint
            return found
    return None


def _word_of(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint['effect']}"


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
