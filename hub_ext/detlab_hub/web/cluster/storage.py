"""Route of storage usage."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.storage import StorageBy, StorageUsage
from detlab_hub.web.base import Guarded
from detlab_hub.web.scopes import needs

MOST = 1000


class UsageQuery(Wire):
    """What the sums are of, and how many there are at most."""

    by: StorageBy = "user"
    limit: int = Field(100, ge=1, le=MOST)


class StorageUsageRoute(Guarded):
    """Bytes of checkpoints, trash, code and outputs."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: UsageQuery) -> StorageUsage:
        """Return who stores how much: all for administrators, else one's own and what one may read."""
        return await self.services.storage.usage(self.person, query.by, query.limit)
