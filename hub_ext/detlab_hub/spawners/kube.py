"""Servers in pods that the Hub's own Kubernetes cluster runs; needs the extra `kube`."""

from __future__ import annotations

from kubespawner import KubeSpawner

from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.holding import HoldingMixin

GPU_RESOURCE = "nvidia.com/gpu"
NODE_LABEL = "kubernetes.io/hostname"


class DetKubeSpawner(HoldingMixin, KubeSpawner):
    """KubeSpawner whose pods start when the master has given them their slots, on the node that has them."""

    def use(self, view: SpawnView) -> None:
        """Ask for as many GPUs as there are slots, on the allocation's node: an agent is named like its node."""
        known: dict[str, str] = dict(self.extra_resource_limits)  # type: ignore[has-type]
        limits = {name: value for name, value in known.items() if name != GPU_RESOURCE}
        if view.gpu_uuids:
            limits[GPU_RESOURCE] = str(len(view.gpu_uuids))
        self.extra_resource_limits = limits
        nodes: dict[str, str] = dict(self.node_selector)  # type: ignore[has-type]
        selector = {name: value for name, value in nodes.items() if name != NODE_LABEL}
        if view.agent_id:
            selector[NODE_LABEL] = view.agent_id
        self.node_selector = selector
