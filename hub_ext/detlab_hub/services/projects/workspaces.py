"""Workspaces: made, listed, edited, archived and deleted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.pasted import word
from detlab.schemas.wire import Archived
from detlab.schemas.wire.workspaces import CreateWorkspace, EditWorkspace, WorkspaceList, WorkspaceView
from detlab_hub.core.rights import Action, ObjectKind, right_of, role_of
from detlab_hub.services.admission.configs.templates import check_default_template
from detlab_hub.services.admission.workspace_defaults import (
    check_defaults,
    defaults_of,
    shown_defaults,
    with_secrets_of,
)
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import administers, owns, person, workspace_for, workspace_things
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.services.views import pages
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.registry import artifacts
from detlab_hub.store.queries.rights import USER
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import MemberRow, WorkspaceRow, clean_text

MOST = 1000
"""Workspaces that one user has made."""
ARCHIVED: dict[str, bool | None] = {"no": False, "only": True, "any": None}


class Workspaces(Service):
    """Use cases of workspaces. All raise NotFound for one that the caller may not see."""

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        after: int | None = None,
        name: str | None = None,
        archived: Archived = "no",
    ) -> WorkspaceList:
        """Return one page of the workspaces in which the caller has a role, the oldest first."""

        def look(s: Session) -> WorkspaceList:
            ids = workspaces.page(s, person(caller), limit=limit, after=after, name=name, archived=ARCHIVED[archived])
            items, last = pages.of_rows(s, WorkspaceRow, ids, limit, lambda rows: workspace_views(s, rows, caller))
            return WorkspaceList(items=[*map(pages.brief, items)], after=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, workspace: str) -> WorkspaceView:
        """Return one workspace, by its name or id."""
        return await self._context.read(lambda s: workspace_view(s, workspace_for(s, caller, workspace), caller))

    async def create(self, caller: Caller, wanted: CreateWorkspace) -> WorkspaceView:
        """Make a workspace, of which the caller is the first admin.

        Raises:
            Conflict: The caller has made one of this name, or too many.
        """

        def create(unit: UnitOfWork) -> WorkspaceView:
            s, owner = unit.session, person(caller).name
            _check_free(s, owner, wanted.name)
            if workspaces.count_of(s, owner) >= MOST:
                raise Conflict(f"you have made {MOST} workspaces already", hint="det workspace delete NAME")
            row = WorkspaceRow(
                path=workspaces.path_of(owner, wanted.name),
                name=wanted.name,
                owner=owner,
                description=wanted.description,
                created_at=unit.now,
            )
            s.add(row)
            s.flush()
            first = MemberRow(workspace_id=row.id, kind=USER, name=owner, role="admin", added_by=owner)
            first.created_at = unit.now
            s.add(first)
            s.flush()
            audit.note(unit, caller, "workspace.create", f"workspace {row.id}", row.name)
            return workspace_view(s, row, caller)

        return await self._context.write(create)

    async def edit(self, caller: Caller, workspace: str, wanted: EditWorkspace) -> WorkspaceView:
        """Carry out an edit, all of it or nothing; the same again changes nothing.

        Raises:
            ConfigError: A default could not stand in a config.
            Conflict: Its maker has another one of this name; or it is personal, and not to be renamed or archived.
            Forbidden: The caller is no admin of it, or has not made it and renames it, or only administrators of the
                cluster may set such a default.
        """

        def edit(unit: UnitOfWork) -> WorkspaceView:
            row = workspace_for(unit.session, caller, workspace, Action.WORKSPACE_EDIT)
            if wanted.archived is not None:
                workspace_for(unit.session, caller, workspace, Action.WORKSPACE_ARCHIVE)
            if row.kind == workspaces.PERSONAL and (wanted.name is not None or wanted.archived is not None):
                raise personal_conflict(row, "keeps its name, and is not archived")
            if wanted.name is not None and wanted.name != row.name:
                _check_may_rename(caller, row)
            changed = [*_rename(unit.session, row, wanted), *_write(unit, row, wanted)]
            before = defaults_of(row)
            defaults = None if wanted.defaults is None else with_secrets_of(before, wanted.defaults)
            if defaults is not None and defaults != before:
                check_defaults(caller, before, defaults, unit.settings)
                if defaults.template != before.template:
                    check_default_template(unit.session, caller, row, defaults.template)
                row.defaults = defaults.model_dump(exclude_defaults=True)
                changed.append(f"defaults: {', '.join(row.defaults) or 'none'}")
            if changed:
                audit.note(unit, caller, "workspace.edit", f"workspace {row.id}", ", ".join(changed))
            return workspace_view(unit.session, row, caller)

        return await self._context.write(edit)

    async def delete(self, caller: Caller, workspace: str) -> WorkspaceView:
        """Delete a workspace with its projects, in which nothing lies.

        Raises:
            Conflict: Something lies in it, or it is personal.
            Forbidden: The caller is no admin of it.
        """

        def delete(unit: UnitOfWork) -> WorkspaceView:
            row = workspace_for(unit.session, caller, workspace, Action.WORKSPACE_DELETE)
            if row.kind == workspaces.PERSONAL:
                raise personal_conflict(row, "is not deleted")
            view = workspace_view(unit.session, row, caller)
            if view.experiments or view.models or view.tasks:
                named = word(f"{row.owner}/{row.name}")
                within = " and ".join(
                    f"{count} {noun}{'' if count == 1 else 's'}"
                    for count, noun in (
                        (view.experiments, "experiment"),
                        (view.models, "model"),
                        (view.tasks, "user task"),
                    )
                    if count
                )
                raise Conflict(
                    f"workspace {row.name!r} is not empty: it holds {within}",
                    hint="Move them (det experiment move, det model move, det task move), or delete them and end the "
                    f"tasks first: det experiment list --workspace {named} --all, det task list --workspace {named}",
                )
            tracked = runs.counts_of_workspaces(unit.session, [row.id]).get(row.id, runs.RunCounts())
            check_no_runs(f"workspace {row.name!r}", tracked, f"{row.owner}/{row.name}/PROJECT")
            if named_folders := artifacts.count_of_workspace(unit.session, row.id):
                raise Conflict(
                    f"workspace {row.name!r} is not empty: {named_folders} artifacts lie in it",
                    hint="Move or delete them first: det artifact list --workspace, det artifact move",
                )
            audit.note(unit, caller, "workspace.delete", f"workspace {row.id}", row.name)
            members = [(one.kind, one.name) for one in workspaces.members(unit.session, row.id)]
            workspaces.delete_workspace(unit.session, row)
            note_rights(unit, None, members)
            return view

        return await self._context.write(delete)


def personal_conflict(row: WorkspaceRow, what: str) -> Conflict:
    """Make the error for what a personal workspace is not for."""
    return Conflict(
        f"workspace {row.id} is {row.owner}'s personal one, which {what}",
        hint="det workspace create NAME makes one that can be shared; det experiment move ID WORKSPACE PROJECT",
    )


def check_no_runs(what: str, tracked: runs.RunCounts, project: str) -> None:
    """Check that no run from elsewhere lies in what is to be deleted, not even one that is marked as deleted.

    Raises:
        Conflict: Some do.
    """
    count = tracked.shown + tracked.deleted
    if not count:
        return
    marked = f", {tracked.deleted} of them marked as deleted" if tracked.deleted else ""
    raise Conflict(
        f"{what} is not empty: {count} run{'' if count == 1 else 's'} from elsewhere {'lies' if count == 1 else 'lie'}"
        f" in it{marked}",
        hint=f"det run list --project {word(project)} lists them, with --deleted those that are marked;"
        " det run delete RUN --forever removes one for good",
    )


def workspace_views(s: Session, rows: Sequence[WorkspaceRow], caller: Caller) -> Sequence[WorkspaceView]:
    """Make the views that a caller gets of some workspaces, with a few queries whatever their number."""
    ids = [row.id for row in rows]
    things, who = workspace_things(s, caller, rows), person(caller)
    projects, experiments = workspaces.project_counts(s, ids), workspaces.experiment_counts(s, ids)
    tracked = runs.counts_of_workspaces(s, ids)
    models, tasks = workspaces.model_counts(s, rows), workspaces.live_task_counts(s, ids)
    found = []
    for row in rows:
        role = role_of(who, things[row.id])
        view = WorkspaceView(
            id=row.id,
            name=row.name,
            owner=row.owner,
            personal=row.kind == workspaces.PERSONAL,
            description=row.description,
            created_at=row.created_at,
            archived_at=row.archived_at,
            may=right_of(who, things[row.id]).wire,
            role=None if role is None else role.wire,
            projects=projects.get(row.id, 0),
            experiments=experiments.get(row.id, 0),
            runs=tracked.get(row.id, runs.RunCounts()).shown,
            models=models.get(row.id, 0),
            tasks=tasks.get(row.id, 0),
            quota=row.quota,
            defaults=shown_defaults(row),
        )
        found.append(view)
    return found


def workspace_view(s: Session, row: WorkspaceRow, caller: Caller) -> WorkspaceView:
    """Make the view that a caller gets of one workspace."""
    return workspace_views(s, [row], caller)[0]


def _check_free(s: Session, owner: str, name: str) -> None:
    if workspaces.key_of(name) == workspaces.key_of(workspaces.NOWHERE):
        raise Conflict(f"{workspaces.NOWHERE!r} is the name of everybody's personal workspace", hint="Choose another.")
    known = workspaces.of_owner(s, owner, name)
    if known is not None:
        raise Conflict(
            f"{owner} has made a workspace {known.name!r} already, with the id {known.id}: names are the same if they "
            "differ only in case or in how Unicode writes them",
            hint="det workspace list --all",
        )


def _check_may_rename(caller: Caller, row: WorkspaceRow) -> None:
    """Check that nobody but its maker, and administrators of the cluster, gives a workspace another name.

    Its name is one of its maker's, for whom it needs no owner: others could have theirs mean what they submit by it.
    """
    if not owns(caller, row.owner) and not administers(caller, ObjectKind.WORKSPACE):
        raise Forbidden(
            f"workspace {row.id} has one of {row.owner}'s names: only they and administrators of the cluster rename it",
            hint="Change its description instead: det workspace edit",
        )


def _rename(s: Session, row: WorkspaceRow, wanted: EditWorkspace) -> list[str]:
    if wanted.name is None or wanted.name == row.name:
        return []
    if workspaces.key_of(wanted.name) != workspaces.key_of(row.name):
        _check_free(s, row.owner, wanted.name)
    row.name, row.path = wanted.name, workspaces.path_of(row.owner, wanted.name)
    return ["name"]


def _write(unit: UnitOfWork, row: WorkspaceRow, wanted: EditWorkspace) -> list[str]:
    changed = []
    if wanted.description is not None and clean_text(wanted.description) != row.description:
        row.description = clean_text(wanted.description)
        changed.append("description")
    if wanted.archived is not None and wanted.archived != (row.archived_at is not None):
        row.archived_at = unit.now if wanted.archived else None
        changed.append("archived" if wanted.archived else "unarchived")
    return changed
