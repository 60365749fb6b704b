"""Pods as the agent would make them, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.schemas import wire
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.kubernetes.nodes import kept_node
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.pods import pod, pod_name
from detlab_agent.runtimes.preparation import Order

GPU = wire.SlotView(id="gpu0", kind="cuda", name="H100")


def node() -> dict[str, Any]:
    """Return a node as an agent knows it."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
    ready = [{"type": "Ready", "status": "True"}]
    return kept_node({"metadata": {"name": "n"}, "status": {"allocatable": amounts, "conditions": ready}})


def an_order(**launch: Any) -> Order:
    """Return the order of a task of `mallory`."""
    fields = {"owner": "mallory", "node": "n", "slots": ["gpu0"], "container": wire.ContainerSpec(image="lab/x:1")}
    made = MasterDouble().allocate(["true"], runtime="kubernetes", **{**fields, **launch}).launch
    task = TaskDir(Path("/nowhere/tasks") / made.allocation_id)
    identity = Identity(made.owner, 23000, 23001, None, ())
    return Order(made, task, task.root.with_suffix(".json"), identity, [GPU], 0)


def made_pod(pod_spec: Any = None, settings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the pod of a task with a pod_spec.

    Raises:
        SetupFailed: The agent does not allow it.
    """
    order = an_order(config={} if pod_spec is None else {"environment": {"pod_spec": pod_spec}}, **more)
    options = KubernetesOptions.model_validate({"image": "lab/tasks:1", **(settings or {})})
    return pod(order, pod_name(order.record.stem), node(), Rules(options, "agent"))
