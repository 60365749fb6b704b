"""Servers in pods that the Hub's own Kubernetes cluster runs; needs the extra `kube`."""

from __future__ import annotations

from kubespawner import KubeSpawner

from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.holding import HoldingMixin

GPU_RESOURCE = "nvidia.com/gpu"
NODE_LABEL = "kubernetes.io/hostname"


class DetKubeSpawner(HoldingMixin, KubeSpawner):
    """A KubeSpawner whose pods start when the master has given them their slots, on the node that has them."""

    # the types of KubeSpawner's traits
    extra_resource_limits: dict[str, str]
    node_selector: dict[str, str]

    def use(self, view: SpawnView) -> None:
        """Ask for as many GPUs as there are slots, on the allocation's node: an agent is named like its node."""
        limits = {name: value for name, value in self.extra_resource_limits.items() if name != GPU_RESOURCE}
        if view.gpu_uuids:
            limits[GPU_RESOURCE] = str(len(view.gpu_uuids))
        self.extra_resource_limits = limits
        selector = {name: value for name, value in self.node_selector.items() if name != NODE_LABEL}
        if view.agent_id:
            selector[NODE_LABEL] = view.agent_id
        self.node_selector = selector
