"""Servers in containers that the Hub's own Docker engine runs; needs the extra `docker-spawner`."""

from __future__ import annotations

from typing import Any

from dockerspawner import DockerSpawner

from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.holding import HoldingMixin


class DetDockerSpawner(HoldingMixin, DockerSpawner):
    """DockerSpawner whose containers start when the master has given them their slots."""

    def use(self, view: SpawnView) -> None:
        """Give the container the GPUs of its slots, and no others."""
        given: dict[str, Any] = dict(self.extra_host_config)  # type: ignore[has-type]
        given.pop("device_requests", None)
        if view.gpu_uuids:
            given["device_requests"] = [
                {"Driver": "", "Count": 0, "DeviceIDs": list(view.gpu_uuids), "Capabilities": [["gpu"]], "Options": {}}
            ]
        self.extra_host_config = given
