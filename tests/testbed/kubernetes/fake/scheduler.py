"""Binds pods to nodes of the fake cluster by what they ask for, select and tolerate. It preempts nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal

from testbed.kubernetes.fake import admission
from testbed.kubernetes.fake.resources import Object, Refused
from testbed.kubernetes.fake.selectors import quantity
from testbed.kubernetes.fake.store import Change, Store, now


def emit(store: Store, about: Object, kind: str, reason: str, message: str, source: str) -> None:
    """Make an event about a pod; the same one again counts."""
    events, meta = store.kind("events"), about["metadata"]
    for found in store.all(events, meta["namespace"]):
        if (found["involvedObject"]["uid"], found["reason"], found["message"]) == (meta["uid"], reason, message):
            store.modify(events, meta["namespace"], found["metadata"]["name"], _count)
            return
    involved = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    event = {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", **involved},
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "firstTimestamp": now(),
        "lastTimestamp": now(),
        "count": 1,
    }
    try:
        store.create(events, meta["namespace"], event)
    except Refused:  # its namespace is gone
        return


def _count(event: Object) -> None:
    event.update(count=event["count"] + 1, lastTimestamp=now())


def with_condition(status: Object, kind: str, value: str, reason: str = "", message: str = "") -> None:
    """Set one condition of a status."""
    found = {one["type"]: one for one in status.get("conditions") or []}
    new = {"type": kind, "status": value, **({"reason": reason} if reason else {})}
    new |= {"message": message} if message else {}
    old = found.get(kind)
    since = old["lastTransitionTime"] if old and old["status"] == value else now()
    found[kind] = {**new, "lastProbeTime": None, "lastTransitionTime": since}
    status["conditions"] = list(found.values())


class Scheduler:
    """Looks at what waits whenever a pod or a node has changed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.paused = False
        self._due = False

    def start(self) -> None:
        """Begin, in the running loop."""
        self.store.listeners.add(self._note)
        self._wake()

    def stop(self) -> None:
        """Bind nothing more."""
        self.store.listeners.discard(self._note)

    def _note(self, change: Change) -> None:
        if change.resource.plural == "nodes" and not change.deleted:
            asyncio.get_running_loop().call_soon(self._taint, change.after["metadata"]["name"])
        if change.resource.plural in {"pods", "nodes"}:
            self._wake()

    def _taint(self, name: str) -> None:
        """Keep a cordoned node's taint, as the controller of nodes does."""
        key = "node.kubernetes.io/unschedulable"

        def taint(node: Object) -> None:
            others = [one for one in node["spec"].get("taints") or [] if one["key"] != key]
            if node["spec"].get("unschedulable"):
                others.append({"key": key, "effect": "NoSchedule"})
            if others:
                node["spec"]["taints"] = others
            else:
                node["spec"].pop("taints", None)

        self.store.modify(self.store.kind("nodes"), "", name, taint)

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._due = False
        if self.paused:
            return
        pods = self.store.kind("pods")
        waiting = [pod for pod in self.store.all(pods) if self._waits(pod)]
        if not waiting:
            return
        nodes = list(self.store.all(self.store.kind("nodes")))
        free = {node["metadata"]["name"]: self._free(node) for node in nodes}
        for pod in sorted(
            waiting, key=lambda one: (-one["spec"].get("priority", 0), one["metadata"]["creationTimestamp"])
        ):
            self._place(pod, nodes, free)

    @staticmethod
    def _waits(pod: Object) -> bool:
        spec = pod["spec"]
        if pod["metadata"].get("deletionTimestamp") or spec.get("nodeName") or pod["status"]["phase"] != "Pending":
            return False
        return spec["schedulerName"] == "default-scheduler" and not spec.get("schedulingGates")

    def _free(self, node: Object) -> dict[str, Decimal]:
        amounts = {key: quantity(value) for key, value in node["status"].get("allocatable", {}).items()}
        for pod in self.store.all(self.store.kind("pods")):
            if pod["spec"].get("nodeName") == node["metadata"]["name"] and pod["status"]["phase"] in admission.LIVE:
                _take(amounts, pod)
        return amounts

    def _place(self, pod: Object, nodes: list[Object], free: dict[str, dict[str, Decimal]]) -> None:
        why: Counter[str] = Counter()
        fitting = []
        for node in nodes:
            name = node["metadata"]["name"]
            reasons = _refusals(pod["spec"], node, free[name])
            why.update(reasons)
            if not reasons:
                fitting.append(name)
        if fitting:
            chosen = max(fitting, key=lambda name: (free[name].get("cpu", Decimal(0)), name))
            self.bind(pod, chosen)
            _take(free[chosen], pod)
            return
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
        message = f"0/{len(nodes)} nodes are available: {said}." if nodes else "no nodes available to schedule pods"
        meta = pod["metadata"]
        before = pod["status"].get("conditions") or []
        if any(one["type"] == "PodScheduled" and one.get("message") == message for one in before):
            return

        def change(one: Object) -> None:
            with_condition(one["status"], "PodScheduled", "False", "Unschedulable", message)

        self.store.modify(self.store.kind("pods"), meta["namespace"], meta["name"], change)
        emit(self.store, pod, "Warning", "FailedScheduling", message, "default-scheduler")

    def bind(self, pod: Object, node: str) -> None:
        """Bind a pod to a node."""
        meta = pod["metadata"]

        def change(one: Object) -> None:
            one["spec"]["nodeName"] = node
            with_condition(one["status"], "PodScheduled", "True")

        self.store.modify(self.store.kind("pods"), meta["namespace"], meta["name"], change)
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        emit(self.store, pod, "Normal", "Scheduled", message, "default-scheduler")


def _take(amounts: dict[str, Decimal], pod: Object) -> None:
    for key, amount in (admission.requested(pod["spec"]) | {"pods": Decimal(1)}).items():
        amounts[key] = amounts.get(key, Decimal(0)) - amount


def _refusals(spec: Object, node: Object, free: dict[str, Decimal]) -> list[str]:
    labels = node["metadata"].get("labels") or {}
    chosen = all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is not None:
        terms = affinity.get("nodeSelectorTerms") or []
        chosen = chosen and any(_matches_term(node, term) for term in terms)
    if not chosen:
        return ["node(s) didn't match Pod's node affinity"]
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or [])
    taints = list(node["spec"].get("taints") or [])
    if not ready and not any(one["key"].startswith("node.kubernetes.io/") for one in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    for taint in taints:
        hard = taint.get("effect") in {"NoSchedule", "NoExecute"}
        if hard and not any(_tolerates(one, taint) for one in spec.get("tolerations") or []):
            if taint["key"] == "node.kubernetes.io/unschedulable":
                return ["node(s) were unschedulable"]
            value = taint.get("value", "")
            return [f"node(s) had taint {{{taint['key']}: {value}}}, that the pod didn't tolerate"]
    wanted = admission.requested(spec) | {"pods": Decimal(1)}
    short = [key for key, amount in wanted.items() if amount > free.get(key, Decimal(0))]
    return ["Too many pods" if key == "pods" else f"Insufficient {key}" for key in short]


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _matches_term(node: Object, term: Object) -> bool:
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    by_labels = all(_matches(labels, one) for one in term.get("matchExpressions") or [])
    return by_labels and all(_matches(fields, one) for one in term.get("matchFields") or [])


def _matches(labels: Object, term: Object) -> bool:
    has, values = labels.get(term["key"]), term.get("values") or []
    match term["operator"]:
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt":
            return has is not None and int(has) > int(values[0])
        case "Lt":
            return has is not None and int(has) < int(values[0])
    return False
