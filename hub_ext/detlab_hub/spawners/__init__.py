"""The Hub's spawners: servers that wait for an allocation of the master.

`DetSpawner` lets the node's agent run the server. `detlab_hub.spawners.docker.DetDockerSpawner` and
`detlab_hub.spawners.kube.DetKubeSpawner` only hold an allocation, for sites whose Hub reaches the engine itself.
"""

from detlab_hub.spawners.allocation import AllocationMixin
from detlab_hub.spawners.det import DetSpawner
from detlab_hub.spawners.holding import HoldingMixin
from detlab_hub.spawners.wording import SpawnFailed

__all__ = ["AllocationMixin", "DetSpawner", "HoldingMixin", "SpawnFailed"]
