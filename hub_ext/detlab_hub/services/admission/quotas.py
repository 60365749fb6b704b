"""Quotas: slots that a user, all users of a group, or all that lies in a workspace may hold, and bytes users may keep.

The scheduler enforces those of slots (`core.scheduling.limits`). A user who holds more than a quota, because it was
lowered, keeps the slots; none of the user's tasks starts until fewer are held. Those of bytes are in `storage_quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.pasted import word
from detlab.schemas.jobwire import (
    COST_ONLY,
    QuotaList,
    QuotaRequest,
    QuotaTo,
    QuotaView,
    StorageQuotaView,
    WorkspaceQuotaView,
)
from detlab.schemas.wire.storage import size_text
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.admission import cost_caps, storage_quotas
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers, person, workspace_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import jobs, workspaces
from detlab_hub.store.tables import QuotaRow, StorageQuotaRow, WorkspaceRow, clean_text

MOST = 10_000
"""Most quotas: the scheduler checks each one in every pass."""
WORKSPACE = "workspace"


class Quotas(Service):
    """Use cases of quotas."""

    async def list(self, caller: Caller) -> QuotaList:
        """Return the quotas with their usage: all to administrators, else those that apply to the caller."""
        now, currency = self._context.clock(), self._context.settings.currency
        caps = await self._context.read(lambda s: cost_caps.views(s, caller, now))
        found = await self._context.read(lambda s: _list(s, caller))
        return found.model_copy(update={"costs": caps, "currency": currency})

    async def put(self, caller: Caller, request: QuotaRequest) -> QuotaList:
        """Set or replace a quota. It ends no task and removes nothing.

        Raises:
            Conflict: There are too many, or the workspace is somebody's personal one.
            Forbidden: The caller is not an administrator.
        """

        def put(unit: UnitOfWork) -> str | None:
            if request.kind in COST_ONLY:
                return cost_caps.put(unit, caller, request)
            if request.kind == WORKSPACE:
                return _set_of_workspace(unit.session, caller, request.name, request.slots)
            done = [
                _set(unit, caller, request, table, amount, words)
                for table, amount, words in (
                    (QuotaRow, request.slots, _slots_text),
                    (StorageQuotaRow, request.storage, _storage_text),
                )
                if amount is not None
            ]
            if request.cost is not None:
                done.append(cost_caps.put(unit, caller, request))
            return "; ".join(one for one in done if one is not None) or None

        return await self._change(caller, "quota.set", request, put)

    async def remove(
        self, caller: Caller, to: QuotaTo, what: Literal["slots", "storage", "cost"] | None = None
    ) -> QuotaList:
        """Remove a quota of slots or of bytes, a cap of cost, or all of them.

        Raises:
            Forbidden: The caller is not an administrator.
            NotFound: There is no such quota, or no such workspace.
        """
        of = "" if what is None else f" of {what}"

        def remove(unit: UnitOfWork) -> str | None:
            if to.kind == WORKSPACE:
                if what in ("storage", "cost") or workspace_for(unit.session, caller, to.name).quota is None:
                    raise NotFound(f"the workspace {to.name[:300]!r} has no quota{of}", hint="det quota list")
                return _set_of_workspace(unit.session, caller, to.name, None)
            capped = what in (None, "cost") and cost_caps.remove(unit, to)
            gone = (
                what != "cost" and to.kind not in COST_ONLY and jobs.remove_quota(unit.session, to.kind, to.name, what)
            )
            if not gone and not capped:
                raise NotFound(f"the {to.kind} {to.name!r} has no quota{of}", hint="det quota list")
            return f"no quota{of} any more"

        return await self._change(caller, "quota.remove", to, remove)

    async def _change(
        self, caller: Caller, action: str, to: QuotaTo, change: Callable[[UnitOfWork], str | None]
    ) -> QuotaList:
        check_administers(caller, ObjectKind.QUOTA, "change quotas")

        def run(unit: UnitOfWork) -> None:
            done = change(unit)
            if done is not None:
                audit.note(unit, caller, action, f"{to.kind} {to.name}", done)
                unit.changed_cluster()
                unit.outbox.kick_scheduler = True

        await self._context.write(run)
        return await self.list(caller)  # not in the transaction: it reads all running tasks


def _slots_text(slots: int) -> str:
    return f"{slots} slots"


def _storage_text(size: int) -> str:
    return f"{size_text(size)} of storage"


def _set(
    unit: UnitOfWork,
    caller: Caller,
    to: QuotaTo,
    table: type[QuotaRow] | type[StorageQuotaRow],
    amount: int,
    words: Callable[[int], str],
) -> str | None:
    """Set one quota; return what was changed, None if it stood before."""
    column = "slots" if table is QuotaRow else "size"
    name = clean_text(to.name)
    row = unit.session.get(table, (to.kind, name))
    before = None if row is None else int(getattr(row, column))
    if before == amount:
        return None
    if row is None and (unit.session.scalar(select(func.count()).select_from(table)) or 0) >= MOST:
        raise Conflict(f"there are {MOST} quotas already", hint="Give groups quotas instead of their users.")
    made = {column: amount, "set_by": caller.name, "set_at": unit.now}
    unit.session.merge(table(kind=to.kind, name=name, **made))
    said = "none" if before is None else str(before) if table is QuotaRow else size_text(before)
    return f"{words(amount)}, before {said}"


def never(s: Session, user: str, groups: Collection[str], slots: int, workspace_id: int | None = None) -> str | None:
    """Return why a user can never have `slots` at a time: a quota is lower. None if every quota allows them.

    Args:
        s: A session.
        user: Whose task it is.
        groups: Of the user.
        slots: How many it needs.
        workspace_id: Where it lies; None: in no workspace that has a quota.
    """
    for row in jobs.quotas_of(s, user, groups):
        if slots > row.slots:
            return _over(s, slots, (row.kind, row.name), f"{row.kind} {row.name}", row.slots)
    place = None if workspace_id is None else s.get(WorkspaceRow, workspace_id)
    if place is not None and place.quota is not None and slots > place.quota:
        named = f"workspace {place.owner}/{place.name}"
        return _over(s, slots, (WORKSPACE, str(place.id)), named, place.quota)
    return None


def _over(s: Session, slots: int, key: tuple[str, str], named: str, most: int) -> str:
    held, _ = _used(jobs.live(s)).get(key, (0, 0))
    return f"needs {slots} slots, more than the quota of {named}: {most} ({held} held now)"


def _set_of_workspace(s: Session, caller: Caller, name: str, slots: int | None) -> str | None:
    """Set the quota of a workspace, None: lift it; return what was changed."""
    row = workspace_for(s, caller, name)
    if row.kind == workspaces.PERSONAL:
        hint = f"Set that of its owner: det quota set --user {word(row.owner)} --slots N"
        raise Conflict(f"workspace {row.id} is {row.owner}'s personal one, which has no quota", hint=hint)
    before, row.quota = row.quota, slots
    if before == slots:
        return None
    said = "no quota any more" if slots is None else _slots_text(slots)
    return f"{said}, before {'none' if before is None else before}, of {row.owner}/{row.name}"


def _list(s: Session, caller: Caller) -> QuotaList:
    rows = jobs.quotas(s, person(caller))
    places = workspaces.with_quotas(s, person(caller))
    used = _used(jobs.live(s)) if rows or places else {}
    return QuotaList(
        items=[_view(row, *used.get((row.kind, row.name), (0, 0))) for row in rows],
        storage=[
            StorageQuotaView.model_validate(
                {
                    "kind": one.kind,
                    "name": one.name,
                    "storage": one.limit,
                    "used": one.used,
                    "set_by": row.set_by,
                    "set_at": row.set_at,
                }
            )
            for row, one in storage_quotas.of_rows(s, jobs.storage_quotas(s, person(caller)))
        ],
        workspaces=[_view_of_workspace(row, *used.get((WORKSPACE, str(row.id)), (0, 0))) for row in places],
    )


def _used(live: Iterable[jobs.Live]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (slots held, slots waited for) by (kind, name) of what a quota may be of: a workspace by its id."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for one in live:
        waiting = one.slots_needed if one.pending else 0
        bound = [(jobs.USER, clean_text(one.owner)), *((jobs.GROUP, group) for group in set(one.groups))]
        bound += [] if one.workspace_id is None else [(WORKSPACE, str(one.workspace_id))]
        for key in bound:
            held, waits = sums.get(key, (0, 0))
            sums[key] = held + one.held, waits + waiting
    return sums


def _view(row: QuotaRow, held: int, waiting: int) -> QuotaView:
    return QuotaView.model_validate(
        {
            "kind": row.kind,
            "name": row.name,
            "slots": row.slots,
            "held": held,
            "waiting": waiting,
            "set_by": row.set_by,
            "set_at": row.set_at,
        }
    )


def _view_of_workspace(row: WorkspaceRow, held: int, waiting: int) -> WorkspaceQuotaView:
    named = f"{row.owner}/{row.name}"
    return WorkspaceQuotaView(workspace_id=row.id, workspace=named, slots=row.quota or 0, held=held, waiting=waiting)
