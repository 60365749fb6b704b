"""For sites whose Hub reaches the engine itself: the master only keeps the slots, another spawner runs the server.

The allocation is held by a small process on the node's agent, which ends when the allocation does. Mix it in before
the spawner that starts the server:

    class Mine(HoldingMixin, DockerSpawner): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

from jupyterhub.utils import maybe_future
from traitlets import default

from detlab.errors import DetlabError, Problem
from detlab.schemas.taskwire import SpawnRequest, SpawnView, TaskKind
from detlab_hub.spawners.allocation import AllocationMixin
from detlab_hub.spawners.options import SpawnOptions, read
from detlab_hub.spawners.wording import SpawnFailed

TERMINAL = "/terminals/1"
"""The path at which a shell opens."""


class HoldingMixin(AllocationMixin):
    """A spawner that waits for an allocation, then starts the server in its own way.

    The server does not report whether it is used: idle rules are those of the Hub (jupyterhub-idle-culler).
    """

    offers_idle: ClassVar[bool] = False

    @default("runtimes")
    def _no_choice(self) -> list[str]:
        return []  # the other spawner is the runtime

    def problems(self, chosen: Any) -> list[Problem]:
        """Return every error in the user options, including options that only the nodes' agents support."""
        wanted, found = read(chosen, runtimes=self.runtimes)
        if wanted.kind is TaskKind.TENSORBOARD:
            found.append(Problem("kind", "this Hub starts no TensorBoards", "in a notebook: %det_tensorboard"))
        if "idle_timeout" in wanted.config:
            found.append(Problem("Idle timeout", "is not offered here: the Hub decides when its servers end"))
        return found

    def get_env(self) -> dict[str, str]:
        """Return the server's environment; a shell opens its terminal."""
        env = super().get_env()
        if isinstance(self.user_options, dict) and self.user_options.get("kind") == TaskKind.SHELL:
            env["JUPYTERHUB_DEFAULT_URL"] = TERMINAL
        return env

    def request(self, wanted: SpawnOptions) -> SpawnRequest:
        """Return the request for an allocation that runs no code of the user."""
        config = {"resources": wanted.config.get("resources") or {}, "idle_timeout": "never"}
        return super().request(wanted).model_copy(update={"hold": True, "config": config, "environment": {}})

    def use(self, view: SpawnView) -> None:
        """Give the server the slots of the allocation; the class that knows the engine implements it."""

    def handed_over(self) -> None:
        """End the lines about the allocation: those of the other spawner follow."""
        self._news.close()

    async def start(self) -> Any:
        """Wait in the master's queue, then start the server.

        Raises:
            SpawnFailed: The options are wrong, or there is no allocation.
        """
        self._news.begin()
        view = await self.allocate(self.request(self.wanted()), answers=False)
        try:
            self.use(view)
            self._news.say(70, f"{view.agent_id or 'A node'} has room; the server is being started")
            self.handed_over()
            return await maybe_future(super(AllocationMixin, self).start())
        except BaseException:
            self._release_soon()
            raise

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress of the allocation, then that of the other spawner."""
        async for event in super().progress():
            yield event
        async for event in super(AllocationMixin, self).progress():
            yield event

    async def stop(self, now: bool = False) -> None:
        """End the server, then release the allocation, even if the server could not be ended."""
        try:
            await maybe_future(super(AllocationMixin, self).stop(now))
        finally:
            await super().stop(now)

    async def poll(self) -> int | None:
        """Return None while the server runs and its allocation is held.

        A server whose allocation was ended (killed, idle, its node lost) is stopped: its slots now belong to others.
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
