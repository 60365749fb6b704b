"""Routes of collection: what an experiment keeps of its checkpoints, and what of them goes."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.storage import DeletionReply, GcPolicy, GcPreview, GcRequest
from detlab_hub.core.rights import Action
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.experiments.stored_files import EventFiles as EventFilesService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class PolicyQuery(Wire):
    """A policy to try; a number that is left out is 0 if another is given, and the experiment's own if none is."""

    save_experiment_best: int | None = Field(None, ge=0)
    save_trial_best: int | None = Field(None, ge=0)
    save_trial_latest: int | None = Field(None, ge=0)

    def policy(self) -> GcPolicy | None:
        """Return the policy that is asked about; None: the experiment's own."""
        given = self.model_dump(exclude_none=True)
        return GcPolicy(**dict.fromkeys(GcPolicy.model_fields, 0) | given) if given else None


@route("experiments/{experiment_id}/tensorboard-files", relayed=True)
class EventFiles(Guarded):
    """The TensorBoard event files of an experiment."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_DELETE_EVENT_FILES)
    async def delete(self, experiment_id: int) -> DeletionReply:
        """Remove the event files of an experiment that has ended; all else of it stays."""
        left = await self.services[EventFilesService].delete(self.person, experiment_id)
        return DeletionReply(deleted=experiment_id, left=left)


@route("experiments/{experiment_id}/gc", relayed=True)
class Gc(Guarded):
    """Collection of an experiment's checkpoints."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: PolicyQuery) -> GcPreview:
        """Preview which checkpoints a policy would remove and keep, and why; nothing is changed."""
        return await self.services[Collecting].preview(self.person, experiment_id, query.policy())

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_GC)
    async def post(self, experiment_id: int, body: GcRequest) -> GcPreview:
        """Change the policy, if one is given, and put what it does not keep into the trash."""
        return await self.services[Collecting].apply(self.person, experiment_id, body)
