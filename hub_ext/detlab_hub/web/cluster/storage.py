"""Route of storage usage."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.storage import EmptyTrash, StorageBy, StorageUsage, TrashView
from detlab_hub.core.rights import Action
from detlab_hub.services.checkpoints.trash import Trash as TrashService
from detlab_hub.services.cluster.storage import Storage
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs

MOST = 1000


class UsageQuery(Wire):
    """What the sums are of, and how many there are at most."""

    by: StorageBy = "user"
    limit: int = Field(100, ge=1, le=MOST)


@route("storage/usage", relayed=True)
class StorageUsageRoute(Guarded):
    """Bytes of checkpoints, trash, code and outputs."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: UsageQuery) -> StorageUsage:
        """Return who stores how much: all for administrators, else one's own and what one may read."""
        return await self.services[Storage].usage(self.person, query.by, query.limit)


class TrashQuery(Wire):
    """Whose trash."""

    experiment_id: RowId | None = None
    """Of one experiment; else of all that the caller owns."""


@route("storage/trash", relayed=True)
class Trash(Guarded):
    """Deleted checkpoints that can still be restored."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: TrashQuery) -> TrashView:
        """Return what is in the trash; nothing is changed."""
        return await self.services[TrashService].look(self.person, query.experiment_id)

    @needs("write", cross_site="xsrf", action=Action.TRASH_EMPTY)
    async def post(self, body: EmptyTrash) -> TrashView:
        """Remove what is in the trash now, for good."""
        return await self.services[TrashService].empty(self.person, body)
