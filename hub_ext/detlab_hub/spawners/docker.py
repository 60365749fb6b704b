"""Servers in containers that the Hub's own Docker engine runs; needs the extra `docker-spawner`."""

from __future__ import annotations

import inspect
from typing import Any

from dockerspawner import DockerSpawner
from traitlets import default

from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.holding import HoldingMixin


class DetDockerSpawner(HoldingMixin, DockerSpawner):
    """A DockerSpawner whose containers start when the master has given them their slots.

    Users may choose an image of `allowed_images`, if there are any.
    """

    extra_host_config: Any  # DockerSpawner's: a dict, or a function that makes one, which may be asynchronous
    _gpus: tuple[str, ...] = ()

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
            HTTPError: The image is not allowed; raised immediately, not after a wait.
            SpawnFailed: The options are wrong, or there is no allocation.
        """
        image = (self.user_options or {}).get("image")
        if image:
            await self.check_allowed(image)
        return await super().start()

    def use(self, view: SpawnView) -> None:
        """Give the container the GPUs of its slots, and no others."""
        self._gpus = tuple(view.gpu_uuids)

    async def create_object(self) -> Any:
        """Create the container with what the site gives it and the GPUs of its slots."""
        sites = self.extra_host_config
        self.extra_host_config = await self.host_config()
        try:
            return await super().create_object()
        finally:
            self.extra_host_config = sites  # which may be a function that is to be asked again at the next start

    async def host_config(self) -> dict[str, Any]:
        """Return the site's `extra_host_config`, of whatever kind, with the GPUs of the slots."""
        given = self.extra_host_config(self) if callable(self.extra_host_config) else self.extra_host_config
        if inspect.isawaitable(given):
            given = await given
        kept = {name: value for name, value in given.items() if name != "device_requests"}
        if not self._gpus:
            return kept
        request = {"Driver": "", "Count": 0, "DeviceIDs": list(self._gpus), "Capabilities": [["gpu"]], "Options": {}}
        return {**kept, "device_requests": [request]}
