"""Withdrawn sources: administrators withdraw in the whole cluster, admins of a workspace in it; either can be undone.

What trains on one is paused in the transaction that withdraws it, and its owners are told; nothing is deleted. What
starts, goes on or is promoted later asks `base.configs.withdrawn`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict

from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.governance.refusals import REFUSALS
from detlab.governance.withdrawals import Withdrawal
from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.governance.evidence import (
    RestoreSource,
    WithdrawnSourceList,
    WithdrawnSourceView,
    WithdrawSource,
)
from detlab_hub.core.lifecycle import experiment as lifecycle
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers, person, workspace_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.withdrawn import CODE, PAUSED, WithdrawnSources, keep, key_of, without_pause
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.transitions import apply_experiment, finish_turn
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.registry import withdrawn
from detlab_hub.store.tables import CLUSTER, Meta, ModelRow

_log = logging.getLogger(__name__)
MOST = 1_000
"""Withdrawals of one place: each start of training looks at them."""
_LOOKED_AT = 2_000
"""Versions with evidence, the newest, that are looked at."""
_SHOWN = 50
"""Versions that a list names of one source."""
_MOST_TOLD = 60
_NAMED = 20


class Withdrawals(Service):
    """Use cases of withdrawn sources."""

    async def page(self, caller: Caller) -> WithdrawnSourceList:
        """Return what is withdrawn in the cluster, and in the workspaces that the caller may read."""

        def look(s: Session) -> WithdrawnSourceList:
            known = WithdrawnSources(s)
            places = withdrawn.readable_places(s, person(caller)) & known.by_place.keys()
            shown = {place: known.by_place[place] for place in places}
            views = _views(s, caller, shown)
            return WithdrawnSourceList(items=sorted(views, key=lambda one: -one.at))

        return await self._context.read(look)

    async def withdraw(self, caller: Caller, wanted: WithdrawSource) -> WithdrawnSourceView:
        """Withdraw a source, and pause what trains on it; again, it pauses what does so since.

        Raises:
            Conflict: The workspace is somebody's personal one, or too much is withdrawn there.
            Forbidden: The caller is no administrator there.
            NotFound: There is no such workspace for the caller.
        """

        def change(unit: UnitOfWork) -> WithdrawnSourceView:
            s = unit.session
            place, name = _place(s, caller, wanted.workspace, Action.SOURCE_WITHDRAW)
            by = person(caller).name
            one = Withdrawal(wanted.source, wanted.manifest, name, wanted.reason, by, unit.now)
            before = WithdrawnSources(s).by_place.get(place, [])
            if len(before) >= MOST and s.get(Meta, key_of(place, one.source, one.manifest)) is None:
                raise Conflict(f"{MOST} sources are withdrawn there already", hint="det governance sources")
            keep(s, place, one)
            s.flush()
            paused = _pause(unit, place, one)
            detail = f"{one.reason}; {one.manifest or 'any manifest'}; paused {len(paused)} experiments"
            audit.note(unit, caller, Action.SOURCE_WITHDRAW, _subject(place, one.source), detail)
            finish_turn(unit)
            (view,) = _views(s, caller, {place: [one]})
            return view.model_copy(update={"paused": paused})

        return await self._context.write(change)

    async def undo(self, caller: Caller, wanted: RestoreSource) -> WithdrawnSourceView:
        """Take a withdrawal back; what it has paused stays so until its owners, who are told, go on with it. Return
        what it was.

        Raises:
            Conflict: The workspace is somebody's personal one.
            Forbidden: The caller is no administrator there.
            NotFound: There is no such workspace for the caller, or no such withdrawal.
        """

        def change(unit: UnitOfWork) -> WithdrawnSourceView:
            s = unit.session
            place, name = _place(s, caller, wanted.workspace, Action.SOURCE_RESTORE)
            row = s.get(Meta, key_of(place, wanted.source, wanted.manifest))
            if row is None:
                where = f"in workspace {name}" if name else "in the cluster"
                what = f"the source {wanted.source!r} is not withdrawn {where}"
                said = f" for the manifest {wanted.manifest}" if wanted.manifest else " for all manifests"
                raise NotFound(what + said, hint="det governance sources lists name, manifest and workspace")
            (was,) = [
                one
                for one in WithdrawnSources(s).by_place[place]
                if (one.source, one.manifest) == (wanted.source, wanted.manifest)
            ]
            s.delete(row)
            s.flush()
            audit.note(unit, caller, Action.SOURCE_RESTORE, _subject(place, was.source), wanted.reason)
            _tell_restored(unit, place, was, person(caller).name)
            finish_turn(unit)
            return WithdrawnSourceView(**dataclasses.asdict(was))

        return await self._context.write(change)


def _place(s: Session, caller: Caller, workspace: str, action: Action) -> tuple[int, str]:
    """Return the place in which the caller may withdraw sources, and its name; empty: the cluster."""
    if not workspace:
        check_administers(caller, ObjectKind.CLUSTER, "withdraw sources in the whole cluster")
        return CLUSTER, ""
    row = workspace_for(s, caller, workspace, action)
    if row.kind == workspaces.PERSONAL:
        raise Conflict(
            f"workspace {row.id} is {row.owner}'s personal one, in which no sources are withdrawn",
            hint="An administrator of the cluster withdraws a source everywhere: leave --workspace out",
        )
    return row.id, f"{row.owner}/{row.name}"


def _subject(place: int, source: str) -> str:
    return f"source {source}" if place == CLUSTER else f"source {source} in workspace {place}"


def _pause(unit: UnitOfWork, place: int, one: Withdrawal) -> list[int]:
    """Pause what trains on a source, or started from what it has trained, and tell the owners."""
    s, only = unit.session, WithdrawnSources(unit.session)
    only.by_place = {place: [one]}
    owners: dict[str, list[int]] = defaultdict(list)
    for number in withdrawn.active(s, place, ExperimentState.ACTIVE.value):
        row = unit.experiment(number)
        found = only.of_training(s, row.config, row.workspace_id)
        if not found:
            continue
        row.warnings = [*without_pause(row.warnings), PAUSED + found[0][1].message]
        if not row.config.get("unmanaged"):  # by hand: nothing of it runs here
            apply_experiment(unit, row, lifecycle.ExperimentPauseRequested())
        unit.changed_experiment(number)
        owners[row.owner].append(number)
    for owner, numbers in owners.items():
        hint = f"{REFUSALS['REVOKED'][:1].upper()}{REFUSALS['REVOKED'][1:]}"
        text = f"Paused, with what was saved: {_named(numbers)}. {hint}"
        said = Said("alert", f"the source {one.source!r} {one.said}"[:200], text, "warn", numbers[0])
        tell(unit, owner, f"withdrawal {place}", said, most=_MOST_TOLD)
    paused = [number for numbers in owners.values() for number in numbers]
    _log.info("the source %r is withdrawn: %d experiments paused", one.source, len(paused))
    return sorted(paused)


def _tell_restored(unit: UnitOfWork, place: int, one: Withdrawal, by: str) -> None:
    """Say of what a withdrawal has paused that it can go on, and tell the owners; another may still keep it paused."""
    s, left, only = unit.session, WithdrawnSources(unit.session), WithdrawnSources(unit.session)
    only.by_place = {place: [one]}
    owners: dict[str, list[int]] = defaultdict(list)
    for number in withdrawn.active(s, place, ExperimentState.PAUSED.value):
        row = unit.experiment(number)
        others = without_pause(row.warnings)
        if len(others) == len(row.warnings) or not only.of_training(s, row.config, row.workspace_id):
            continue
        still = left.of_training(s, row.config, row.workspace_id)
        if still:
            said = still[0][1].message
        else:
            said = f"{one.source!r}, and {by} has since taken that back; det experiment activate {number}"
            owners[row.owner].append(number)
        row.warnings = [*others, PAUSED + said]
        unit.changed_experiment(number)
    for owner, numbers in owners.items():
        text = f"It can go on: {_named(numbers)}." if len(numbers) == 1 else f"They can go on: {_named(numbers)}."
        title = f"{by} has taken back the withdrawal of the source {one.source!r}"[:200]
        tell(unit, owner, f"withdrawal {place}", Said("alert", title, text, "info", numbers[0]), most=_MOST_TOLD)


def _named(numbers: list[int]) -> str:
    names = ", ".join(map(str, numbers[:_NAMED])) + (" …" if len(numbers) > _NAMED else "")
    return f"experiment {names}" if len(numbers) == 1 else f"experiments {names}"


# --- the registry


def check_promotion(s: Session, model: ModelRow, uuid: str) -> None:
    """Check that a checkpoint may become a version of a model, or a version with it get a label.

    Raises:
        Conflict: A source that has trained it is withdrawn (code `governance.revoked`).
    """
    found = WithdrawnSources(s).in_checkpoint(s, uuid, model.workspace_id)
    if found:
        said = "; ".join(one.message for one in found)
        raise Conflict(f"REVOKED: {said}", hint=REFUSALS["REVOKED"], code=CODE)


def _views(s: Session, caller: Caller, shown: dict[int, list[Withdrawal]]) -> list[WithdrawnSourceView]:
    """Return the views of withdrawals, with the versions that the caller may read."""
    known, listed, looked = WithdrawnSources(s), dict[Withdrawal, list[str]](), 0
    known.by_place = shown
    for uuid, number, model in withdrawn.versions_with_evidence(s, person(caller), _LOOKED_AT) if shown else ():
        looked += 1
        for one in {one: None for _, one in known.behind(s, uuid, model.workspace_id)}:
            listed.setdefault(one, []).append(f"{model.owner}/{model.name}@{number}")
    return [
        WithdrawnSourceView(
            **dataclasses.asdict(one),
            versions=listed.get(one, [])[:_SHOWN],
            more_versions=looked >= _LOOKED_AT or len(listed.get(one, [])) > _SHOWN,
        )
        for several in shown.values()
        for one in several
    ]
