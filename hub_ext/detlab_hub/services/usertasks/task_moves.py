"""Moves of user tasks to another project or workspace, and so to other readers."""

from __future__ import annotations

from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire import TrialState
from detlab.schemas.wire.projects import MoveTask
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import TASKS
from detlab_hub.services.base.configs.rules import rules_for
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.services.usertasks.usertasks import seen_task
from detlab_hub.services.views import task_views


class TaskMoves(Service):
    """The use case of moving a user task."""

    async def move(self, caller: Caller, task_id: str, wanted: MoveTask) -> TaskView:
        """Move a task: from then on the members of the other workspace see its state, and those of this one no more.

        What it runs with was decided at its start, and stays: it gets nothing that the other workspace gives. Its slots
        count under the quota of the other one.

        Raises:
            ConfigError: There is no such workspace or project for the caller, or it is archived; or a config policy
                there does not allow what has not ended.
            Forbidden: It is another user's, or the caller may put nothing there.
            NotFound: There is no such task for the caller.
        """

        def move(unit: UnitOfWork) -> TaskView:
            row = seen_task(unit.session, caller, task_id, Action.TASK_MOVE)
            place = destination(unit.session, caller, wanted.workspace, wanted.project, row.owner)
            if place.workspace_id != row.workspace_id and not TrialState(row.state).terminal:
                rules_for(unit.session, place.workspace_id, TASKS).hold(unit.session, row)
            before = (row.workspace_id, row.project_id)
            after = place.made(unit) if place.reference or place.project is not None else (None, None)
            if before != after:
                row.workspace_id, row.project_id = after
                detail = f"from project {before[1]} to project {after[1]} of workspace {after[0]}"
                audit.note(unit, caller, Action.TASK_MOVE, f"task {row.id}", detail)
                unit.changed_task(row)
                note_rights(unit, before[0])
                unit.outbox.kick_scheduler = True  # it counts under another quota
            return task_views.view_for(unit.session, caller, row, self._context.pending_reasons)

        found = await self._context.write(move)
        self._context.rights_changed()
        return found
