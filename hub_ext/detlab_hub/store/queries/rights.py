"""Which rows a user may read, as conditions made from the table of rights; grants and roles, which give them (I9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, and_, delete, false, or_, select, true
from sqlalchemy.orm import Session

from detlab_hub.core.rights import TABLE, CallerRelation, ObjectKind, Person, Right, Role, by_role
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    ArtifactRow,
    ExperimentRow,
    GrantRow,
    MemberRow,
    ModelGrantRow,
    ModelRow,
    clean_text,
)

Column: TypeAlias = Any
"""A column of a table, as an attribute of its class."""
USER = "user"
GROUP = "group"


def visible(
    kind: ObjectKind,
    viewer: Person,
    *,
    owner: Column = None,
    experiment_id: Column = None,
    model_id: Column = None,
    workspace_id: Column = None,
    named: tuple[Column, Column] | None = None,
    least: Right = Right.READ,
) -> ColumnElement[bool]:
    """Return the condition on rows of a kind to which the viewer has at least a right.

    Args:
        kind: What the rows are.
        viewer: The reading user.
        owner: The column with the owner; None: there is none.
        experiment_id: The column with the experiment whose grants apply; None: none do.
        model_id: The column with the model whose grants apply, likewise.
        workspace_id: The column with the workspace whose members' roles apply, likewise.
        named: The columns with the kind (user or group) and the name of whom the row itself is for.
        least: The least right.
    """
    columns: dict[str, Any] = {
        "owner": owner,
        "experiment_id": experiment_id,
        "model_id": model_id,
        "workspace_id": workspace_id,
    }
    return or_(false(), *ways(kind, viewer, named=named, least=least, **columns))


def visible_experiments(viewer: Person, least: Right = Right.READ) -> ColumnElement[bool]:
    """Return the condition on experiments to which the viewer has at least a right."""
    return or_(false(), *ways_to_experiments(viewer, least))


def ways_to_experiments(viewer: Person, least: Right = Right.READ) -> list[ColumnElement[bool]]:
    """Return the conditions of `visible_experiments`, any of which suffices."""
    table = ExperimentRow
    columns: dict[str, Any] = {"owner": table.owner, "experiment_id": table.id, "workspace_id": table.workspace_id}
    return ways(ObjectKind.EXPERIMENT, viewer, least=least, **columns)


def visible_models(viewer: Person, least: Right = Right.READ) -> ColumnElement[bool]:
    """Return the condition on models to which the viewer has at least a right."""
    columns: dict[str, Any] = {"owner": ModelRow.owner, "model_id": ModelRow.id, "workspace_id": ModelRow.workspace_id}
    return visible(ObjectKind.MODEL, viewer, least=least, **columns)


def visible_artifacts(viewer: Person, least: Right = Right.READ) -> ColumnElement[bool]:
    """Return the condition on artifacts to which the viewer has at least a right."""
    columns: dict[str, Any] = {"owner": ArtifactRow.owner, "workspace_id": ArtifactRow.workspace_id}
    return visible(ObjectKind.ARTIFACT, viewer, least=least, **columns)


def ways(
    kind: ObjectKind,
    viewer: Person,
    *,
    owner: Column = None,
    experiment_id: Column = None,
    model_id: Column = None,
    workspace_id: Column = None,
    named: tuple[Column, Column] | None = None,
    least: Right = Right.READ,
) -> list[ColumnElement[bool]]:
    """Return the conditions of `visible`, any of which suffices, for a query of each where no index serves them all."""
    having = {relation for relation, right in TABLE[kind].items() if right >= least}
    if (viewer.admin and not viewer.run and CallerRelation.ADMIN in having) or CallerRelation.USER in having:
        return [true()]
    found: list[ColumnElement[bool]] = []
    if owner is not None and viewer.name and (CallerRelation.RUN if viewer.run else CallerRelation.OWNER) in having:
        found.append(owner == viewer.name)
    if CallerRelation.READER in having or CallerRelation.EDITOR in having:
        if experiment_id is not None:
            write = None if CallerRelation.READER in having else GrantRow.write.is_(True)
            shared = select(GrantRow.experiment_id).where(_to(viewer, GrantRow.kind, GrantRow.name))
            found.append(experiment_id.in_(shared if write is None else shared.where(write)))
        if model_id is not None:
            models = select(ModelGrantRow.model_id).where(_to(viewer, ModelGrantRow.kind, ModelGrantRow.name))
            any_grant = CallerRelation.READER in having
            found.append(model_id.in_(models if any_grant else models.where(ModelGrantRow.write.is_(True))))
        if named is not None:
            found.append(_to(viewer, *named))
    if workspace_id is not None and (roles := _roles(viewer, having)):
        theirs = select(MemberRow.workspace_id).where(_to(viewer, MemberRow.kind, MemberRow.name))
        found.append(workspace_id.in_(theirs if len(roles) == len(Role) else theirs.where(MemberRow.role.in_(roles))))
    return found


def _roles(viewer: Person, having: Collection[CallerRelation]) -> list[str]:
    """Return the roles by which a member has one of these relations."""
    return [role.wire for role in Role if by_role(viewer, role) in having]


# --- grants


def grants_among(s: Session, experiment_ids: Sequence[int], who: Person) -> dict[int, bool]:
    """Return those of some experiments that are shared with a user; True: the best grant also permits changes."""
    found: dict[int, bool] = {}
    for part in chunks(list(experiment_ids)):
        query = select(GrantRow.experiment_id, GrantRow.write).where(GrantRow.experiment_id.in_(part))
        for experiment_id, write in s.execute(query.where(_to(who, GrantRow.kind, GrantRow.name))):
            found[experiment_id] = write or found.get(experiment_id, False)
    return found


def grants_of(s: Session, experiment_id: int) -> list[GrantRow]:
    """List the grants of an experiment, users first."""
    query = select(GrantRow).where(GrantRow.experiment_id == experiment_id)
    return list(s.scalars(query.order_by(GrantRow.kind.desc(), GrantRow.name)))


def grants_of_each(s: Session, experiment_ids: Sequence[int]) -> dict[int, list[GrantRow]]:
    """Return the grants of some experiments, by experiment; one that is not shared has no entry."""
    found: dict[int, list[GrantRow]] = {}
    for part in chunks(list(experiment_ids)):
        for row in s.scalars(select(GrantRow).where(GrantRow.experiment_id.in_(part))):
            found.setdefault(row.experiment_id, []).append(row)
    return found


def put_grant(s: Session, row: GrantRow) -> None:
    """Make a grant, or change the one to the same user or group."""
    s.merge(row)


def remove_grant(s: Session, experiment_id: int, kind: str, name: str) -> bool:
    """Remove a grant; return False if there was none."""
    query = delete(GrantRow).where(
        GrantRow.experiment_id == experiment_id, GrantRow.kind == kind, GrantRow.name == clean_text(name)
    )
    return bool(getattr(s.execute(query), "rowcount", 0))


# --- roles


def places_of(s: Session, viewer: Person) -> list[int]:
    """Return the workspaces in which a user has a role; none for one who may read all experiments anyway."""
    having = {relation for relation, right in TABLE[ObjectKind.EXPERIMENT].items() if right >= Right.READ}
    if viewer.admin and not viewer.run and CallerRelation.ADMIN in having:
        return []
    query = select(MemberRow.workspace_id).where(_to(viewer, MemberRow.kind, MemberRow.name)).distinct()
    return list(s.scalars(query.order_by(MemberRow.workspace_id)))


def roles_among(s: Session, workspace_ids: Collection[int], who: Person) -> dict[int, Role]:
    """Return the best role of a user in each of some workspaces; where they are no member, there is no entry."""
    found: dict[int, Role] = {}
    for part in chunks(sorted(workspace_ids)):
        query = select(MemberRow.workspace_id, MemberRow.role).where(MemberRow.workspace_id.in_(part))
        for workspace_id, name in s.execute(query.where(_to(who, MemberRow.kind, MemberRow.name))):
            found[workspace_id] = max(Role.of(name), found.get(workspace_id, Role.VIEWER))
    return found


@dataclass(frozen=True)
class Members:
    """The members of a workspace, as `Thing` has them."""

    users: Mapping[str, Role]
    groups: Mapping[str, Role]


NOBODY = Members({}, {})


def members_of_each(s: Session, workspace_ids: Collection[int]) -> dict[int, Members]:
    """Return the members of some workspaces, by workspace; one without any has no entry."""
    found: dict[int, list[tuple[str, str, str]]] = {}
    for part in chunks(sorted(workspace_ids)):
        query = select(MemberRow.workspace_id, MemberRow.kind, MemberRow.name, MemberRow.role)
        query = query.where(MemberRow.workspace_id.in_(part)).order_by(MemberRow.kind, MemberRow.name)
        for workspace_id, kind, name, role in s.execute(query):
            found.setdefault(workspace_id, []).append((kind, name, role))
    return {key: _members(tuple(rows)) for key, rows in found.items()}


@lru_cache(maxsize=256)
def _members(rows: tuple[tuple[str, str, str], ...]) -> Members:
    """Make members of their rows: one object for equal ones, as streams keep it for each experiment."""
    users = {name: Role.of(role) for kind, name, role in rows if kind == USER}
    return Members(users, {name: Role.of(role) for kind, name, role in rows if kind != USER})


# --- grants of models


def model_grants_among(s: Session, model_ids: Sequence[int], who: Person) -> dict[int, bool]:
    """Return those of some models that are shared with a user; True: the best grant also permits changes."""
    found: dict[int, bool] = {}
    for part in chunks(list(model_ids)):
        query = select(ModelGrantRow.model_id, ModelGrantRow.write).where(ModelGrantRow.model_id.in_(part))
        for model_id, write in s.execute(query.where(_to(who, ModelGrantRow.kind, ModelGrantRow.name))):
            found[model_id] = write or found.get(model_id, False)
    return found


def grants_of_models(s: Session, model_ids: Sequence[int]) -> dict[int, list[ModelGrantRow]]:
    """Return the grants of some models, users first, by model; one that is not shared has no entry."""
    found: dict[int, list[ModelGrantRow]] = {}
    for part in chunks(list(model_ids)):
        query = select(ModelGrantRow).where(ModelGrantRow.model_id.in_(part))
        for row in s.scalars(query.order_by(ModelGrantRow.kind.desc(), ModelGrantRow.name)):
            found.setdefault(row.model_id, []).append(row)
    return found


def remove_model_grant(s: Session, model_id: int, kind: str, name: str) -> bool:
    """Remove a grant of a model; return False if there was none."""
    row = s.get(ModelGrantRow, (model_id, kind, clean_text(name)))
    if row is not None:
        s.delete(row)
    return row is not None


def _to(viewer: Person, kind: Column, name: Column) -> ColumnElement[bool]:
    """Return the condition on rows that name a user or a group: those that name the viewer or a group of theirs."""
    to_user = and_(kind == USER, name == viewer.name)
    if not viewer.groups:
        return to_user
    return or_(to_user, and_(kind == GROUP, name.in_(sorted(viewer.groups))))
