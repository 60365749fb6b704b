"""For sites whose Hub reaches the engine itself: the master only keeps the slots, another spawner runs the server.

The allocation is held by a small process on the node's agent, which ends when the allocation does. Mix it in before
the spawner that starts the server:

    class Mine(HoldingMixin, DockerSpawner): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from jupyterhub.utils import maybe_future

from detlab.errors import DetlabError
from detlab.schemas.taskwire import SpawnRequest, SpawnView
from detlab_hub.spawners.allocation import AllocationMixin
from detlab_hub.spawners.options import Wish
from detlab_hub.spawners.wording import SpawnFailed


class HoldingMixin(AllocationMixin):
    """A spawner that waits for an allocation, then starts the server in its own way."""

    def request(self, wish: Wish) -> SpawnRequest:
        """Return the request of an allocation that runs nothing of the user's."""
        config = {key: value for key, value in wish.config.items() if key in {"resources", "idle_timeout"}}
        return super().request(wish).model_copy(update={"hold": True, "config": config, "environment": {}})

    def use(self, view: SpawnView) -> None:
        """Give the server the slots of the allocation; for the class that knows the engine."""

    async def start(self) -> Any:
        """Wait in the master's queue, then start the server.

        Raises:
            SpawnFailed: The options are wrong, or there is no place.
        """
        self._news.begin()
        view = await self.allocate(self.request(self.wish()), answers=False)
        try:
            self.use(view)
            self._news.say(70, f"{view.agent_id or 'A node'} has room; the server is being started")
            self._news.close()
            return await maybe_future(super(AllocationMixin, self).start())
        except BaseException:
            self._release_soon()
            raise

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the wait for the allocation, then what the other spawner says."""
        async for event in super().progress():
            yield event
        async for event in super(AllocationMixin, self).progress():
            yield event

    async def stop(self, now: bool = False) -> None:
        """End the server, then give the allocation back, whatever became of the first."""
        try:
            await maybe_future(super(AllocationMixin, self).stop(now))
        finally:
            await super().stop(now)

    async def poll(self) -> int | None:
        """Return None while the server runs and its allocation is held.

        A server whose allocation was ended (killed, idle, its node lost) is stopped: its slots are somebody else's.
        """
        status: int | None = await maybe_future(super(AllocationMixin, self).poll())
        if status is not None or not self.task_id:
            return status
        held = await super().poll()
        if held is None:
            return None
        self.log.warning("%s: its allocation has ended, stopping the server", self._log_name)
        try:
            await maybe_future(super(AllocationMixin, self).stop(True))
        except (DetlabError, SpawnFailed, OSError) as error:
            self.log.error("%s: not stopped: %s", self._log_name, error)
            return None
        return held
