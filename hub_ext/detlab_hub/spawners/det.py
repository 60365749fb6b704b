"""The spawner of a detlab cluster: the node's agent runs the server."""

from __future__ import annotations

from typing import Any

from jupyterhub.spawner import Spawner
from traitlets import Unicode

from detlab_hub.spawners.allocation import PORT_ATTEMPTS, PORT_TAKEN, AllocationMixin
from detlab_hub.spawners.wording import SpawnFailed


class DetSpawner(AllocationMixin, Spawner):
    """Asks the master for an allocation; the agent that gets it starts the server with its runtime.

    Nothing runs on the Hub's own machine, and nothing is known here about uids: the agent decides under which uid a
    user's server runs.
    """

    only_user = Unicode(
        help="The only Hub user who gets servers: the one who runs a cluster without being root. Empty: everybody."
    ).tag(config=True)

    async def start(self) -> str:
        """Wait in the master's queue; return the address once the server answers.

        Raises:
            SpawnFailed: The options are wrong, or the server did not come up.
        """
        self._news.begin()
        self._news.say(0, "Requesting an allocation")
        self._check_user()
        wanted = self.wanted()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self.address_of(await self.allocate(self.request(wanted)))
            except SpawnFailed:
                taken = self._view is not None and self._view.exit_code == PORT_TAKEN
                if not taken or attempt == PORT_ATTEMPTS:
                    raise
            self._news.say(0, "Another process took the server's port in between; trying again with another")
        raise AssertionError("unreachable")

    def _check_user(self) -> None:
        if self.only_user and self.user.name != self.only_user:
            raise SpawnFailed(
                f"This cluster was started by {self.only_user}, who is not root: a server for {self.user.name} would"
                f" run as {self.only_user}. Start the cluster as root to serve several users.",
                reason="not_root",
            )

    async def get_url(self) -> str:
        """Return where the server is, as the master knows it."""
        if self._view is not None and self._view.port and self.server:
            return f"{self.address_of(self._view)}{self.server.base_url}"
        url: Any = await super().get_url()
        return str(url)
