"""The trash: what is in it, and its emptying before the time of each checkpoint is over."""

from __future__ import annotations

import math

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from detlab.schemas.wire.storage import EmptyTrash, TrashItem, TrashView
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_may_ask, experiment_for, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow

MOST_SHOWN = 1_000


class Trash(Service):
    """Use cases of the trash, of one experiment or of all that the caller owns."""

    async def look(self, caller: Caller, experiment_id: int | None = None) -> TrashView:
        """Return what can still be restored.

        Raises:
            NotFound: There is no such experiment for the caller.
        """
        now = self._context.clock()

        def look(s: Session) -> TrashView:
            if experiment_id is not None:
                experiment_for(s, caller, experiment_id)
            return _view(s, caller, experiment_id, now, math.inf)

        return await self._context.look(caller.name, look)

    async def empty(self, caller: Caller, wanted: EmptyTrash) -> TrashView:
        """Have what is in the trash be removed now; the tasks that do so are started with the next tick.

        Returns:
            What was in it.

        Raises:
            Forbidden: The experiment is another user's, who shares it; or a notebook run asks.
            NotFound: There is no such experiment for the caller.
        """
        self._context.settings.check_not_a_copy()
        until = math.inf if wanted.until is None else wanted.until

        def empty(unit: UnitOfWork) -> TrashView:
            s = unit.session
            check_may_ask(caller, Action.TRASH_EMPTY)
            if wanted.experiment_id is not None:
                experiment_for(s, caller, wanted.experiment_id, Action.TRASH_EMPTY)
            found = _view(s, caller, wanted.experiment_id, unit.now, until)
            changes = update(RemovalRow).where(RemovalRow.uuid.in_(_uuids(caller, wanted.experiment_id, until)))
            changes = changes.values(due_at=unit.now, begun_at=unit.now, by_task=True)
            s.execute(changes.execution_options(synchronize_session="fetch"))
            for one in found.items:
                detail = f"{one.checkpoints} checkpoints, {one.bytes} bytes"
                audit.note(unit, caller, "experiment.empty_trash", f"experiment {one.experiment_id}", detail)
                unit.changed_experiment(one.experiment_id)
            return found.model_copy(update={"emptied": True})

        return await self._context.write(empty)


def _uuids(caller: Caller, experiment_id: int | None, until: float) -> Select[str]:
    """Return the statement of the checkpoints in the trash: removals of whole ones that were not handed out."""
    mine = ExperimentRow.owner == person(caller).name if experiment_id is None else ExperimentRow.id == experiment_id
    restorable = (RemovalRow.begun_at.is_(None), RemovalRow.paths.is_(None), RemovalRow.requested_at <= until)
    return (
        select(CheckpointRow.uuid)
        .join(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
        .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        .where(mine, *restorable)
    )


def _view(s: Session, caller: Caller, experiment_id: int | None, now: float, until: float) -> TrashView:
    size = func.coalesce(func.sum(RemovalRow.bytes), 0)
    query = (
        select(ExperimentRow.id, ExperimentRow.name, func.count(), size)
        .select_from(RemovalRow)
        .join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
        .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        .where(RemovalRow.uuid.in_(_uuids(caller, experiment_id, until)))
        .group_by(ExperimentRow.id, ExperimentRow.name)
        .order_by(size.desc(), ExperimentRow.id)
    )
    items = [
        TrashItem(experiment_id=key, name=name, checkpoints=count, bytes=int(total))
        for key, name, count, total in s.execute(query)
    ]
    return TrashView(
        items=items[:MOST_SHOWN],
        checkpoints=sum(one.checkpoints for one in items),
        bytes=sum(one.bytes for one in items),
        at=now,
    )
