"""Moves of experiments and models to another project or workspace, and so to other readers."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire import ExperimentState, ExperimentView
from detlab.schemas.wire.projects import MoveExperiment
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import Destination, destination
from detlab_hub.services.admission.workspace_defaults import defaults_of, storage_place
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs import withdrawn
from detlab_hub.services.base.configs.parts import EXPERIMENT
from detlab_hub.services.base.configs.rules import rules_for
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.masking import masked_storage
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.services.views import experiment_views
from detlab_hub.store.tables import ExperimentRow, WorkspaceRow


class Moves(Service):
    """Use cases of moves."""

    async def experiment(self, caller: Caller, experiment_id: int, wanted: MoveExperiment) -> ExperimentView:
        """Move an experiment: from then on the members of the other workspace see it, and those of this one no more.

        Raises:
            ConfigError: There is no such workspace or project for the caller, or it is archived; or a config policy
                there does not allow what has not ended.
            Conflict: It is being deleted, or the other workspace has another storage, and it was not said to keep it.
            Forbidden: It is not the caller's to move, or they may put nothing there.
            NotFound: There is no such experiment for the caller.
        """

        def move(unit: UnitOfWork) -> ExperimentView:
            s = unit.session
            row = experiment_for(s, caller, experiment_id, Action.EXPERIMENT_MOVE)
            _check_lasts(row)
            place = destination(s, caller, wanted.workspace, wanted.project, row.owner)
            if not wanted.keep_storage:
                _check_storage(s, row, place)
            if place.workspace_id != row.workspace_id and not ExperimentState(row.state).terminal:
                rules_for(s, place.workspace_id, EXPERIMENT).hold(s, row)
                withdrawn.check(s, row.config, place.workspace_id)
            before = (row.workspace_id, row.project_id)
            after = place.made(unit)
            if before != after:
                row.workspace_id, row.project_id = after
                detail = f"from project {before[1]} to project {after[1]} of workspace {after[0]}"
                audit.note(unit, caller, "experiment.move", f"experiment {row.id}", detail)
                unit.changed_experiment(row.id)
                note_rights(unit, before[0])
            return experiment_views.experiment_view(s, row, caller, self._context.pending_reasons)

        found = await self._context.write(move)
        self._context.rights_changed()
        return found


def _check_storage(s: Session, row: ExperimentRow, place: Destination) -> None:
    """Check that checkpoints are kept where both workspaces have them kept: a move moves no file."""
    there = {} if place.workspace is None else storage_place(defaults_of(place.workspace))
    home = None if row.workspace_id is None else s.get(WorkspaceRow, row.workspace_id)
    here = {} if home is None else storage_place(defaults_of(home))
    if here == there or home is place.workspace:
        return
    told = [str(masked_storage(block)) if block else "that of the cluster" for block in (here, there)]
    raise Conflict(
        f"experiment {row.id} lies in a workspace whose storage is {told[0]}, and "
        f"{place.reference or 'the personal one'!r} has another: {told[1]}. "
        "Its checkpoints would stay where they are, for the members of the other to read",
        hint=f"det experiment move {row.id} … --keep-storage leaves them there",
    )


def _check_lasts(row: ExperimentRow) -> None:
    if row.state == "DELETING":
        raise Conflict(f"experiment {row.id} is being deleted")
