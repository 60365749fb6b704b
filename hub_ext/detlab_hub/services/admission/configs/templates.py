"""Templates: named parts of configs that people lay under what they submit.

One lies in a workspace, whose members see it and whose editors use it, or is the cluster's, for everybody. What it
holds runs as whoever uses it: so it is changed by who made it and by admins of the workspace alone, each submit shows
what it gave, and whoever may use it has its credentials in their tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, Problem
from detlab.pasted import word
from detlab.schemas import expconf
from detlab.schemas.wire import ProblemView
from detlab.schemas.wire.configs.templates import CLUSTER as OF_CLUSTER
from detlab.schemas.wire.configs.templates import SetTemplate, TemplateList, TemplateView
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.admission.configs.layers import chain_of, merged, no_template, place_of, pool_problem
from detlab_hub.services.admission.workspace_defaults import check_storage, defaults_of
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import (
    administers,
    check_administers,
    check_may_ask,
    has_secrets_of,
    owns,
    person,
    workspace_for,
)
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs import parts
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.views import pages
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.configs import templates
from detlab_hub.store.tables import CLUSTER, TemplateRow, WorkspaceRow

MOST = 1000
"""Templates of one place."""
_SECRETS = "its credentials are in the tasks of all who may use it: you, editors of a shared workspace, or everybody"
REFUSED = "this cannot be a template"


class Templates(Service):
    """Use cases of templates. One that a caller may not see is not there for them."""

    async def list(
        self, caller: Caller, *, workspace: str | None = None, limit: int = 100, after: int | None = None
    ) -> TemplateList:
        """Return a page of the templates that the caller may see, without their configs.

        Raises:
            NotFound: There is no such workspace for the caller.
        """

        def page(s: Session) -> TemplateList:
            place = None if workspace is None else place_of(s, caller, workspace)
            ids = templates.page(s, person(caller), limit, after, place)
            items, last = pages.of_rows(s, TemplateRow, ids, limit, lambda rows: _views(s, rows))
            return TemplateList(items=items, after=None if last is None else last.id)

        return await self._context.look(caller.name, page)

    async def get(self, caller: Caller, name: str) -> TemplateView:
        """Return a template with its config, credentials masked.

        Raises:
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: _whole(s, _seen(s, caller, name)))

    async def set(self, caller: Caller, wanted: SetTemplate) -> TemplateView:
        """Make a template, or replace the one of its name; what was submitted with it stays as it is.

        Raises:
            ConfigError: With every mistake of its config, or masks instead of secrets.
            Conflict: It would stand on itself, on one of another place, or on too many; or there are too many.
            Forbidden: The caller may not put something there, or not change that one.
            NotFound: There is no such workspace for the caller, or no such template to stand on.
        """
        check_may_ask(caller, Action.TEMPLATE_SET)
        part, problems = _part(wanted)
        found = await self._context.workers.submissions.run(caller.name, parts.checked, part)
        problems = [*problems, *found, *(pool_problem(self._context.settings, part) if not found else ())]
        if expconf.errors_of(problems):
            raise ConfigError(expconf.in_order(problems), REFUSED)

        def put(unit: UnitOfWork) -> TemplateView:
            s = unit.session
            place = _place_to_change(unit, caller, wanted.workspace, Action.TEMPLATE_SET)
            row = templates.named(s, place, wanted.name)
            if row is None:
                if templates.count(s, place) >= MOST:
                    raise Conflict(f"there are {MOST} templates already", hint="det template remove NAME")
                row = TemplateRow(workspace_id=place, key=workspaces.key_of(wanted.name), name=wanted.name, version=0)
                row.owner, row.config = person(caller).name, {}
                s.add(row)
            elif wanted.create:
                raise Conflict(f"there is a template {wanted.name!r} already", hint="det template set replaces it")
            else:
                _check_changes(s, caller, row)
            mine = has_secrets_of(caller, row.set_by or row.owner)
            row.config = parts.unmasked(part, row.config if mine else None, row.set_by)
            row.description, row.version = wanted.description, row.version + 1
            row.set_by, row.set_at = person(caller).name, unit.now
            s.flush()
            row.base_id = None if not wanted.base else _base(s, caller, row, wanted.base).id
            s.flush()
            chain_of(s, row)
            for changed in _with_those_on(s, row):
                _check_default(s, caller, changed)
            audit.note(unit, caller, Action.TEMPLATE_SET, f"template {_reference(s, row)}", f"version {row.version}")
            view = _whole(s, row)
            warned = [Problem("", "holds credentials", _SECRETS, "warning")] if parts.holds_secrets(row.config) else []
            shown = [one for one in (*problems, *warned) if one.level == "warning"]
            return view.model_copy(update={"warnings": [ProblemView.model_validate(one.to_dict()) for one in shown]})

        return await self._context.write(put)

    async def remove(self, caller: Caller, name: str) -> TemplateView:
        """Remove a template.

        Raises:
            Conflict: Others stand on it, or its workspace lays it under all experiments.
            Forbidden: It is not the caller's to change.
            NotFound: There is none for the caller.
        """

        def remove(unit: UnitOfWork) -> TemplateView:
            s = unit.session
            check_may_ask(caller, Action.TEMPLATE_REMOVE)
            row = _seen(s, caller, name)
            _place_to_change(unit, caller, _where(s, row), Action.TEMPLATE_REMOVE)
            _check_changes(s, caller, row)
            on_it = templates.standing_on(s, row.id)
            if on_it:
                here = [repr(one.name) for one in on_it if one.workspace_id == row.workspace_id]
                said = ", ".join(here[:5]) if here else f"{len(on_it)} of workspaces"
                raise Conflict(f"other templates stand on {row.name!r}: {said}", hint="set these with another --base")
            if _is_default(s, row):
                hint = f"det workspace set-defaults {word(_where(s, row))} --template ''"
                raise Conflict(f"{row.name!r} is the default template of its workspace", hint=hint)
            view = _whole(s, row)
            audit.note(unit, caller, Action.TEMPLATE_REMOVE, f"template {view.reference}", f"version {row.version}")
            s.delete(row)
            return view

        return await self._context.write(remove)


def check_default_template(s: Session, caller: Caller, place: WorkspaceRow, name: str) -> None:
    """Check that a workspace may lay one of its templates under all experiments of its members.

    Raises:
        Conflict: It is somebody's personal one, or the template stands on others in a loop.
        Forbidden: The template decides what runs as the members: only administrators of the cluster may do that.
        NotFound: The workspace has no such template.
    """
    if not name:
        return
    row = templates.named(s, place.id, name)
    if row is None:
        named = f"{place.owner}/{place.name}"
        hint = f"make it: det template set {word(name)} FILE --workspace {word(named)}"
        raise NotFound(f"workspace {named!r} has no template {name[:300]!r}", hint=hint)
    _check_admins_may(s, caller, row)


def _check_default(s: Session, caller: Caller, row: TemplateRow) -> None:
    """Check a template that has changed, if its workspace lays it under all experiments."""
    if _is_default(s, row):
        _check_admins_may(s, caller, row)


def _check_admins_may(s: Session, caller: Caller, row: TemplateRow) -> None:
    if administers(caller, ObjectKind.WORKSPACE):
        return
    for one in chain_of(s, row):
        if one.workspace_id != CLUSTER and (beyond := parts.beyond_admins(one.config)):
            raise Forbidden(
                f"the default template of a workspace runs as its members: only administrators of the cluster may have"
                f" one with {', '.join(beyond)} ({one.name!r})",
                hint="Leave these out; or have members name it: --template",
            )
        if one.workspace_id != CLUSTER:
            check_storage(one.config.get("checkpoint_storage") or {})


# --- who may


def _seen(s: Session, caller: Caller, name: str) -> TemplateRow:
    """Load a template that the caller may see: by `WORKSPACE:NAME`; by its name: a personal one, or the cluster's."""
    where, colon, rest = name.rpartition(":")
    for place in [where] if colon else ["", OF_CLUSTER]:
        try:
            row = templates.named(s, place_of(s, caller, place), rest)
        except NotFound:
            raise no_template(name) from None
        if row is not None:
            return row
    raise no_template(name)


def _place_to_change(unit: UnitOfWork, caller: Caller, workspace: str, action: Action) -> int:
    """Return the id of where a template lies that the caller may change; their personal workspace is made.

    Raises:
        Forbidden: They may not.
        NotFound: There is no such workspace for the caller.
    """
    if workspace == OF_CLUSTER:
        check_administers(caller, ObjectKind.CLUSTER, "change templates of the cluster")
        return CLUSTER
    place = place_of(unit.session, caller, workspace, action)
    if place == -1:
        return workspaces.personal(unit.session, person(caller).name, unit.now)
    return place


def _check_changes(s: Session, caller: Caller, row: TemplateRow) -> None:
    """Check that the caller may change a template in a workspace whose editor they are: it may run as others.

    Raises:
        Forbidden: Somebody else has made it, or it is under all experiments, and they are no admin of its workspace.
    """
    if row.workspace_id == CLUSTER:
        return
    under = next((one for one in _with_those_on(s, row) if _is_default(s, one)), None)
    if owns(caller, row.owner) and under is None:
        return
    try:
        workspace_for(s, caller, str(row.workspace_id), Action.WORKSPACE_EDIT)
    except Forbidden:
        whose = f"{row.owner}'s: only they and admins of its workspace change it"
        if under is not None:
            stands = "" if under is row else f"under {under.name!r}, "
            whose = f"{stands}the default of its workspace: only admins of that change it"
        raise Forbidden(f"template {row.name!r} is {whose}", hint="det template set ANOTHER_NAME FILE") from None


def _base(s: Session, caller: Caller, row: TemplateRow, name: str) -> TemplateRow:
    """Load the template that one is to stand on: of the same place, or of the cluster."""
    where, colon, rest = name.rpartition(":")
    places = [row.workspace_id, CLUSTER] if not colon else [place_of(s, caller, where)]
    found = next((one for place in places if (one := templates.named(s, place, rest)) is not None), None)
    if found is None:
        raise no_template(name)
    if found.workspace_id not in (row.workspace_id, CLUSTER):
        raise Conflict(
            f"template {row.name!r} cannot stand on {name!r}, which others may see than itself",
            hint="One stands on templates of the same workspace, or of the cluster.",
        )
    return found


def _with_those_on(s: Session, row: TemplateRow) -> Sequence[TemplateRow]:
    """Return a template and all that stand on it."""
    found = [row]
    for one in found:
        found += [other for other in templates.standing_on(s, one.id) if other not in found]
    return found


# --- views


def _part(wanted: SetTemplate) -> tuple[Any, list[Problem]]:
    if wanted.config is not None:
        return wanted.config, []
    if wanted.config_yaml is None:
        return None, [Problem("", "there is no config: send `config` or `config_yaml`")]
    found, problems = expconf.load_yaml(wanted.config_yaml, "template")
    return ({} if found is None else found), problems


def _where(s: Session, row: TemplateRow) -> str:
    if row.workspace_id == CLUSTER:
        return OF_CLUSTER
    return _wheres(s, [row])[row.workspace_id]


def _wheres(s: Session, rows: Sequence[TemplateRow]) -> dict[int, str]:
    """Return what the places of templates are called, by their ids."""
    found = {CLUSTER: OF_CLUSTER}
    for key in {row.workspace_id for row in rows} - {CLUSTER}:
        place = s.get_one(WorkspaceRow, key)
        found[key] = f"{place.owner}/{place.name}"
    return found


def _reference(s: Session, row: TemplateRow) -> str:
    return f"{_where(s, row)}:{row.name}"


def _is_default(s: Session, row: TemplateRow) -> bool:
    place = None if row.workspace_id == CLUSTER else s.get(WorkspaceRow, row.workspace_id)
    name = "" if place is None else defaults_of(place).template
    return bool(name) and workspaces.key_of(name) == row.key


def _views(s: Session, rows: Sequence[TemplateRow]) -> list[TemplateView]:
    places = _wheres(s, rows)
    views = []
    for row in rows:
        base = None if row.base_id is None else s.get(TemplateRow, row.base_id)
        views.append(
            TemplateView(
                name=row.name,
                workspace=places[row.workspace_id],
                reference=f"{places[row.workspace_id]}:{row.name}",
                owner=row.owner,
                base="" if base is None else _reference(s, base),
                description=row.description,
                version=row.version,
                set_by=row.set_by,
                set_at=row.set_at,
                default=_is_default(s, row),
            )
        )
    return views


def _whole(s: Session, row: TemplateRow) -> TemplateView:
    config = {"config": parts.masked(row.config), "merged": parts.masked(merged(s, row))}
    return _views(s, [row])[0].model_copy(update=config)
