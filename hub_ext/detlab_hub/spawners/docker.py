"""Servers in containers that the Hub's own Docker engine runs; needs the extra `docker-spawner`."""

from __future__ import annotations

from typing import Any

from dockerspawner import DockerSpawner
from traitlets import default

from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.holding import HoldingMixin


class DetDockerSpawner(HoldingMixin, DockerSpawner):
    """DockerSpawner whose containers start when the master has given them their slots.

    Users may choose an image of `allowed_images`, if there are any.
    """

    @default("runtimes")
    def _with_images(self) -> list[str]:
        return ["docker"] if self._get_allowed_images() else []  # what makes the form ask for an image

    @default("images")
    def _those_allowed(self) -> list[str]:
        allowed = self._get_allowed_images()
        return [] if isinstance(allowed, str) else list(allowed)

    async def start(self) -> Any:
        """Wait in the master's queue, then start the container.

        Raises:
            HTTPError: The image is not allowed; said at once, not after a wait.
            SpawnFailed: The options are wrong, or there is no place.
        """
        image = (self.user_options or {}).get("image")
        if image:
            await self.check_allowed(image)
        return await super().start()

    def use(self, view: SpawnView) -> None:
        """Give the container the GPUs of its slots, and no others."""
        given: dict[str, Any] = dict(self.extra_host_config)  # type: ignore[has-type]
        given.pop("device_requests", None)
        if view.gpu_uuids:
            given["device_requests"] = [
                {"Driver": "", "Count": 0, "DeviceIDs": list(view.gpu_uuids), "Capabilities": [["gpu"]], "Options": {}}
            ]
        self.extra_host_config = given
