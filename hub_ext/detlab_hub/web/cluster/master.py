"""Routes of the master itself: its log, its settings, and its message to everybody."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.cluster.master import (
    ClusterMessageReply,
    LogLevel,
    MasterConfig,
    MasterLogPage,
    SetClusterMessage,
    SetMasterConfig,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.cluster.master_log import MasterLog, level_now
from detlab_hub.services.cluster.message import ClusterMessage
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class MasterLogQuery(Wire):
    """Which lines."""

    after: int | None = Field(None, ge=0, le=2**53)
    """Only those with larger ids, the `last` of the page before; null: the newest ones."""
    limit: int = Field(100, ge=1, le=1000)
    level: LogLevel = "debug"
    """Only those of this level, and above."""
    search: str = Field("", max_length=200)
    """Only those with this text in them, or in the name of their logger, whatever its case."""


@route("cluster/message", relayed=True)
class ClusterMessageRoute(Guarded):
    """What administrators tell everybody."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> ClusterMessageReply:
        """Return the message at the top of all pages; administrators also see one that does not count now."""
        return await self.services[ClusterMessage].get(self.person)

    @needs("admin", cross_site="xsrf", action=Action.CLUSTER_MESSAGE)
    async def put(self, body: SetClusterMessage) -> ClusterMessageReply:
        """Set the message, instead of the one before."""
        return await self.services[ClusterMessage].put(self.person, body)

    @needs("admin", cross_site="xsrf", action=Action.CLUSTER_MESSAGE)
    async def delete(self) -> ClusterMessageReply:
        """Take the message away; return what it was."""
        return await self.services[ClusterMessage].clear(self.person)


@route("master/logs")
class MasterLogs(Guarded):
    """The master's own log."""

    @needs("admin", cross_site="xsrf")
    async def get(self, query: MasterLogQuery) -> MasterLogPage:
        """Return lines that the master has written since it started, oldest first; the newest 10,000 are kept."""
        return await self.services[MasterLog].page(self.person, **query.model_dump())


@route("master/config")
class Config(Guarded):
    """How the master is set up."""

    @needs("admin", cross_site="xsrf")
    async def get(self) -> MasterConfig:
        """Return the settings of the master, with secrets masked."""
        return self._config()

    @needs("admin", cross_site="xsrf", action=Action.MASTER_CONFIGURE)
    async def post(self, body: SetMasterConfig) -> MasterConfig:
        """Change what can be changed while the master runs: the level of its log, until its next start."""
        await self.services[MasterLog].set_level(self.person, body.log_level)
        return self._config()

    def _config(self) -> MasterConfig:
        return MasterConfig(settings=self.settings["shown_settings"](), log_level=level_now())
