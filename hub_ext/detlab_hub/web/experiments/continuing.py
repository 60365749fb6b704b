"""The route by which experiments that have ended go on."""

from __future__ import annotations

from detlab.schemas.wire import ExperimentView
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab_hub.core.rights import Action
from detlab_hub.services.experiments.continuing import Continuing
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("experiments/{experiment_id}/continue", relayed=True)
class ContinueOne(Guarded):
    """Going on after the end."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_CONTINUE)
    async def post(self, experiment_id: int, body: ContinueExperiment) -> ExperimentView:
        """Let trials of an experiment that has ended train on from their checkpoints, perhaps for longer."""
        return await self.services[Continuing].go_on(self.person, experiment_id, body)
