"""Moves of experiments and models to another project or workspace, and so to other readers."""

from __future__ import annotations

from detlab.errors import Conflict
from detlab.schemas.wire import ExperimentView
from detlab.schemas.wire.projects import MoveExperiment
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries import workspaces
from detlab_hub.store.tables import ExperimentRow


class Moves(Service):
    """Use cases of moves."""

    async def experiment(self, caller: Caller, experiment_id: int, wanted: MoveExperiment) -> ExperimentView:
        """Move an experiment: from then on the members of the other workspace see it, and those of this one no more.

        Raises:
            ConfigError: There is no such workspace or project for the caller, or it is archived.
            Conflict: It is being deleted.
            Forbidden: It is not the caller's to move, or they may put nothing there.
            NotFound: There is no such experiment for the caller.
        """

        def move(unit: UnitOfWork) -> ExperimentView:
            s = unit.session
            row = experiment_for(s, caller, experiment_id, Action.EXPERIMENT_MOVE)
            _check_lasts(row)
            place = destination(s, caller, wanted.workspace, wanted.project, row.owner)
            before = (row.workspace_id, row.project_id)
            after = place.made(unit)
            if before != after:
                workspaces.lock(s, after[0])
                row.workspace_id, row.project_id = after
                detail = f"from project {before[1]} to project {after[1]} of workspace {after[0]}"
                audit.note(unit, caller, "experiment.move", f"experiment {row.id}", detail)
                unit.changed_experiment(row.id)
            return experiment_views.experiment_view(s, row, caller, self._context.pending_reasons)

        found = await self._context.write(move)
        self._context.rights_changed()
        return found


def _check_lasts(row: ExperimentRow) -> None:
    if row.state == "DELETING":
        raise Conflict(f"experiment {row.id} is being deleted")
