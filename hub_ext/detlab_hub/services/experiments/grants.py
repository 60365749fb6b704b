"""Sharing experiments: owners grant other users, or groups of the Hub, the right to read or to change them (I9)."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.schemas.wire import GrantList, GrantRequest, GrantTo, GrantView
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.store.queries import rights
from detlab_hub.store.tables import GrantRow, clean_text

MOST = 500
"""Grants of one experiment."""


class Grants(Service):
    """Use cases of grants. All raise NotFound for an experiment that the caller may not see."""

    async def list(self, caller: Caller, experiment_id: int) -> GrantList:
        """Return an experiment's grants. All who may read it may read them.

        Raises:
            NotFound: There is no such experiment for the caller.
        """

        def look(s: Session) -> GrantList:
            experiment_for(s, caller, experiment_id)
            return _list(s, experiment_id)

        return await self._context.read(look)

    async def put(self, caller: Caller, experiment_id: int, request: GrantRequest) -> GrantList:
        """Share an experiment; what was granted to the same user or group before is replaced.

        Raises:
            Conflict: It has too many grants already.
            Forbidden: The experiment is another user's.
            NotFound: There is no such experiment for the caller.
        """

        def put(unit: UnitOfWork) -> GrantList:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_SHARE)
            if len(rights.grants_of(unit.session, row.id)) >= MOST:
                raise Conflict(f"experiment {row.id} is shared {MOST} times already", hint="Share it with a group.")
            made = GrantRow(
                experiment_id=row.id,
                kind=request.kind,
                name=request.name,
                write=request.write,
                granted_by=caller.name,
                created_at=unit.now,
            )
            rights.put_grant(unit.session, made)
            what = "may change it" if request.write else "may read it"
            _note(unit, caller, row.id, "experiment.share", f"{request.kind} {request.name} {what}")
            note_rights(unit, None, [(request.kind, clean_text(request.name))])
            return _list(unit.session, row.id)

        return await self._changed(await self._context.write(put))

    async def remove(self, caller: Caller, experiment_id: int, to: GrantTo) -> GrantList:
        """Withdraw a grant; streams that depend on it end.

        Raises:
            Forbidden: The experiment is another user's.
            NotFound: There is no such experiment for the caller, or it is not shared with that user or group.
        """

        def remove(unit: UnitOfWork) -> GrantList:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_UNSHARE)
            if not rights.remove_grant(unit.session, row.id, to.kind, to.name):
                raise NotFound(
                    f"experiment {row.id} is not shared with the {to.kind} {to.name!r}",
                    hint=f"det experiment share {row.id}",
                )
            _note(unit, caller, row.id, "experiment.unshare", f"{to.kind} {to.name}")
            note_rights(unit, None, [(to.kind, clean_text(to.name))])
            return _list(unit.session, row.id)

        return await self._changed(await self._context.write(remove))

    async def _changed(self, found: GrantList) -> GrantList:
        self._context.rights_changed()
        return found


def _note(unit: UnitOfWork, caller: Caller, experiment_id: int, action: str, detail: str) -> None:
    audit.note(unit, caller, action, f"experiment {experiment_id}", detail)
    unit.changed_experiment(experiment_id)


def _list(s: Session, experiment_id: int) -> GrantList:
    s.flush()
    return GrantList(
        items=[
            GrantView.model_validate(
                {
                    "kind": row.kind,
                    "name": row.name,
                    "write": row.write,
                    "granted_by": row.granted_by,
                    "created_at": row.created_at,
                }
            )
            for row in rights.grants_of(s, experiment_id)
        ]
    )
