"""Workspaces, their members and projects: by name, in pages, and what lies in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, func, or_, select, update
from sqlalchemy.orm import Session

from detlab.schemas.wire import TrialState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    ConfigPolicyRow,
    ExperimentRow,
    MemberRow,
    ModelRow,
    ProjectRow,
    SavedViewRow,
    TaskRow,
    TemplateRow,
    WorkspaceRow,
    clean_text,
)

NOWHERE = "Uncategorized"
"""Name of everybody's personal workspace, and of the project in each where lies what names none."""
PERSONAL = "personal"
_ID_DIGITS = 18
_LIVE_TASKS = tuple(state.value for state in TrialState if not state.terminal)
_WORKSPACE = PreparedStatement(select(WorkspaceRow.id).where(WorkspaceRow.path == bindparam("path")))
_PROJECT = PreparedStatement(
    select(ProjectRow.id).where(ProjectRow.workspace_id == bindparam("workspace"), ProjectRow.key == bindparam("key"))
)
_LABELS = select(ProjectRow.id, WorkspaceRow.owner, WorkspaceRow.name, ProjectRow.name).join(
    WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id
)
_LABEL = PreparedStatement(_LABELS.where(ProjectRow.id == bindparam("project")))


_QUOTAS = PreparedStatement(
    select(WorkspaceRow.id, WorkspaceRow.owner, WorkspaceRow.name, WorkspaceRow.quota).where(
        WorkspaceRow.quota.is_not(None)
    )
)


def key_of(name: str) -> str:
    """Return what names have in common that differ only in case, in Unicode's form or in spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", clean_text(name)).casefold())
    return " ".join(folded.split())


def path_of(owner: str, name: str) -> str:
    """Return the unique key of an owner's workspace."""
    return f"{clean_text(owner)}/{key_of(name)}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS else None


# --- by name


def of_owner(s: Session, owner: str, name: str) -> WorkspaceRow | None:
    """Return somebody's workspace of a name."""
    return s.scalars(select(WorkspaceRow).where(WorkspaceRow.path == path_of(owner, name))).first()


def named(s: Session, name: str, asker: str) -> WorkspaceRow | None:
    """Return the workspace that a text means: by its id, `OWNER/NAME`, or else the asker's own of that name."""
    number = _number(clean_text(name))
    if number is not None:
        return s.get(WorkspaceRow, number)
    owner, slash, rest = clean_text(name).partition("/")
    found = of_owner(s, owner, rest) if slash else None
    return found or of_owner(s, asker, name)  # names of before workspaces had members may have a slash


def project_named(s: Session, workspace_id: int, name: str) -> ProjectRow | None:
    """Return the project of a workspace that a text means: by its id or its name."""
    number = _number(clean_text(name))
    query = select(ProjectRow).where(ProjectRow.workspace_id == workspace_id)
    return s.scalars(query.where(ProjectRow.key == key_of(name) if number is None else ProjectRow.id == number)).first()


def project_of_id(s: Session, text: str) -> ProjectRow | None:
    """Return the project that a text is the id of, of whatever workspace."""
    number = _number(clean_text(text))
    return None if number is None else s.get(ProjectRow, number)


def of_name(s: Session, name: str, condition: ColumnElement[bool], most: int) -> list[WorkspaceRow]:
    """Return workspaces of a name, of any owner, the oldest first: for hints."""
    query = select(WorkspaceRow).where(condition).order_by(WorkspaceRow.id)
    key = key_of(name)
    return [row for row in s.scalars(query.limit(1000)) if key_of(row.name) == key][:most]


# --- made on first use


def personal(s: Session, owner: str, now: float) -> int:
    """Return the id of somebody's personal workspace, which is made when it is needed first."""
    path = path_of(owner, NOWHERE)
    found = _WORKSPACE.scalar(s, {"path": path})
    if found is None:
        made = WorkspaceRow(path=path, name=NOWHERE, owner=owner, kind=PERSONAL, created_at=now)
        s.add(made)
        s.flush()
        found = made.id
    return int(found)


def uncategorized(s: Session, workspace_id: int, owner: str, now: float) -> int:
    """Return the id of the project for what names none, which is made when it is needed first."""
    found = _PROJECT.scalar(s, {"workspace": workspace_id, "key": key_of(NOWHERE)})
    if found is None:
        row = add_project(s, workspace_id, NOWHERE, owner, now)
        found = row.id
    return int(found)


def add_project(s: Session, workspace_id: int, name: str, owner: str, now: float) -> ProjectRow:
    """Make a project; its key must be free."""
    row = ProjectRow(workspace_id=workspace_id, key=key_of(name), name=name, owner=owner, created_at=now)
    s.add(row)
    s.flush()
    return row


# --- labels


def labels(s: Session, project_ids: Collection[int]) -> dict[int, tuple[str, str, str]]:
    """Return project id -> (owner of the workspace, its name, name of the project)."""
    if len(project_ids) == 1:
        found = _LABEL.all(s, {"project": next(iter(project_ids))})
    else:
        found = list(s.execute(_LABELS.where(ProjectRow.id.in_(sorted(project_ids)))))
    return {project_id: (owner, workspace, project) for project_id, owner, workspace, project in found}


def references(s: Session, workspace_ids: Collection[int]) -> dict[int, str]:
    """Return workspace id -> `OWNER/NAME`."""
    if not workspace_ids:
        return {}
    query = select(WorkspaceRow.id, WorkspaceRow.owner, WorkspaceRow.name)
    found: dict[int, str] = {}
    for part in chunks(sorted(workspace_ids)):
        found.update((key, f"{owner}/{name}") for key, owner, name in s.execute(query.where(WorkspaceRow.id.in_(part))))
    return found


# --- pages


def visible_to(viewer: Person) -> ColumnElement[bool]:
    """Return the condition on workspaces that a user may read."""
    whose = case((WorkspaceRow.kind == PERSONAL, WorkspaceRow.owner), else_="")
    return visible(ObjectKind.WORKSPACE, viewer, owner=whose, workspace_id=WorkspaceRow.id)


def listed_to(viewer: Person) -> ColumnElement[bool]:
    """Return which workspaces are in lists of a user: all that they may see, but for personal ones of others.

    Those are in no list, not even in an administrator's: there are as many as users.
    """
    mine = or_(WorkspaceRow.kind != PERSONAL, WorkspaceRow.path == path_of(viewer.name, NOWHERE))
    return and_(visible_to(viewer), mine)


def page(
    s: Session,
    viewer: Person,
    *,
    limit: int,
    after: int | None = None,
    name: str | None = None,
    archived: bool | None = False,
) -> list[int]:
    """Return the ids of the workspaces that are listed to a user, the oldest first, and one more."""
    query = select(WorkspaceRow.id).where(listed_to(viewer)).order_by(WorkspaceRow.id).limit(limit + 1)
    if after is not None:
        query = query.where(WorkspaceRow.id > after)
    if name:
        query = query.where(WorkspaceRow.path.contains(key_of(name), autoescape=True))
    if archived is not None:
        query = query.where(WorkspaceRow.archived_at.is_not(None) if archived else WorkspaceRow.archived_at.is_(None))
    return list(s.scalars(query))


def quotas(s: Session) -> list[Any]:
    """Return (id, owner, name, slots) of each workspace with a quota: read in every pass of the scheduler."""
    return list(_QUOTAS.all(s, {}))


def with_quotas(s: Session, viewer: Person) -> list[WorkspaceRow]:
    """Return the workspaces with a quota of slots that a user may read, the oldest first."""
    query = select(WorkspaceRow).where(WorkspaceRow.quota.is_not(None), visible_to(viewer))
    return list(s.scalars(query.order_by(WorkspaceRow.id)))


def page_of_projects(
    s: Session, workspace_id: int, *, limit: int, after: int | None = None, archived: bool | None = False
) -> list[int]:
    """Return the ids of a workspace's projects, in the order in which they were made, and one more."""
    query = select(ProjectRow.id).where(ProjectRow.workspace_id == workspace_id)
    query = query.order_by(ProjectRow.id).limit(limit + 1)
    if after is not None:
        query = query.where(ProjectRow.id > after)
    if archived is not None:
        query = query.where(ProjectRow.archived_at.is_not(None) if archived else ProjectRow.archived_at.is_(None))
    return list(s.scalars(query))


# --- what lies in them


def project_counts(s: Session, workspace_ids: Sequence[int]) -> dict[int, int]:
    """Return how many projects workspaces have; one without any has no entry."""
    return _counts(s, ProjectRow.workspace_id, workspace_ids)


def experiment_counts(s: Session, workspace_ids: Sequence[int]) -> dict[int, int]:
    """Return how many experiments lie in workspaces."""
    return _counts(s, ExperimentRow.workspace_id, workspace_ids)


def experiment_counts_of_projects(s: Session, project_ids: Sequence[int]) -> dict[int, int]:
    """Return how many experiments lie in projects."""
    return _counts(s, ExperimentRow.project_id, project_ids)


def model_counts(s: Session, rows: Sequence[WorkspaceRow]) -> dict[int, int]:
    """Return how many models lie in workspaces, by id; those of a personal one name no workspace, but its owner."""
    found = _counts(s, ModelRow.workspace_id, [row.id for row in rows])
    own = {row.owner: row.id for row in rows if row.kind == PERSONAL}
    query = select(ModelRow.owner, func.count()).where(ModelRow.workspace_id.is_(None)).group_by(ModelRow.owner)
    for part in chunks(sorted(own)):
        for owner, count in s.execute(query.where(ModelRow.owner.in_(part))):
            found[own[owner]] = found.get(own[owner], 0) + count
    return found


def live_task_counts(s: Session, workspace_ids: Sequence[int]) -> dict[int, int]:
    """Return how many user tasks that have not ended lie in workspaces."""
    return _counts(s, TaskRow.workspace_id, workspace_ids, TaskRow.state.in_(_LIVE_TASKS))


def live_task_counts_of_projects(s: Session, project_ids: Sequence[int]) -> dict[int, int]:
    """Return how many user tasks that have not ended lie in projects."""
    return _counts(s, TaskRow.project_id, project_ids, TaskRow.state.in_(_LIVE_TASKS))


def _counts(s: Session, column: Any, ids: Sequence[int], *conditions: ColumnElement[bool]) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in chunks(list(ids)):
        query = select(column, func.count()).where(column.in_(part), *conditions).group_by(column)
        found.update((key, count) for key, count in s.execute(query))
    return found


def count_of(s: Session, owner: str) -> int:
    """Return how many workspaces somebody has made."""
    return s.scalar(select(func.count()).where(WorkspaceRow.owner == owner)) or 0


def delete_project(s: Session, row: ProjectRow) -> None:
    """Delete a project in which nothing lies.

    Views that its members have, and user tasks that have ended in it, become their owners' alone again.
    """
    s.execute(update(TaskRow).where(TaskRow.project_id == row.id).values(project_id=None, workspace_id=None))
    s.execute(update(SavedViewRow).where(SavedViewRow.project_id == row.id).values(project_id=None))
    s.delete(row)
    s.flush()


def delete_workspace(s: Session, row: WorkspaceRow) -> None:
    """Delete a workspace in which nothing lies, with its members and projects.

    Its templates and config policies go with it. Views that its members have, and user tasks that have ended in it,
    become their owners' alone again.
    """
    s.execute(update(TaskRow).where(TaskRow.workspace_id == row.id).values(workspace_id=None, project_id=None))
    s.execute(delete(MemberRow).where(MemberRow.workspace_id == row.id))
    for laid in (TemplateRow, ConfigPolicyRow):
        s.execute(delete(laid).where(laid.workspace_id == row.id))
    projects = select(ProjectRow.id).where(ProjectRow.workspace_id == row.id)
    s.execute(update(SavedViewRow).where(SavedViewRow.project_id.in_(projects)).values(project_id=None))
    s.execute(delete(ProjectRow).where(ProjectRow.workspace_id == row.id))
    s.delete(row)
    s.flush()


# --- members


def members(s: Session, workspace_id: int) -> list[MemberRow]:
    """Return the members of a workspace, users first."""
    query = select(MemberRow).where(MemberRow.workspace_id == workspace_id)
    return list(s.scalars(query.order_by(MemberRow.kind.desc(), MemberRow.name)))


def member(s: Session, workspace_id: int, kind: str, name: str) -> MemberRow | None:
    """Return a member of a workspace."""
    return s.get(MemberRow, (workspace_id, kind, clean_text(name)))


def visible_projects(s: Session, viewer: Person, ids: Collection[int]) -> set[int]:
    """Return those of some projects that a user may read."""
    query = select(ProjectRow.id).join(WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id)
    return set(s.scalars(query.where(visible_to(viewer), ProjectRow.id.in_(sorted(ids))))) if ids else set()


def visible_references(s: Session, viewer: Person, ids: Collection[int]) -> dict[int, str]:
    """Return `OWNER/NAME` of those of some workspaces that a user may read."""
    query = select(WorkspaceRow.id).where(visible_to(viewer), WorkspaceRow.id.in_(sorted(ids)))
    return references(s, set(s.scalars(query))) if ids else {}
