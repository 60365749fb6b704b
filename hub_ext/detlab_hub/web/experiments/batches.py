"""The route of acts on many experiments."""

from __future__ import annotations

from detlab.schemas.wire.batches import BatchReply, BatchRequest
from detlab_hub.core.rights import Action
from detlab_hub.services.batches.batches import ManyExperiments
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("experiments/batch", relayed=True)
class Batches(Guarded):
    """One act on many."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_BATCH)
    async def post(self, body: BatchRequest) -> BatchReply:
        """Pause, activate, cancel, kill, archive, delete, move or label many; the reply says what became of each."""
        return await self.services[ManyExperiments].run(self.person, body)
