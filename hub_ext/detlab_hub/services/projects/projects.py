"""Projects of a workspace: made, listed, edited, archived and deleted. Rights to one are those to its workspace."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.pasted import word
from detlab.schemas.wire import Archived
from detlab.schemas.wire.projects import CreateProject, EditProject, ProjectList, ProjectView
from detlab_hub.core.rights import Action, right_of
from detlab_hub.services.admission.notes import check_notes
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import no_such, person, workspace_for, workspace_things
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.projects.workspaces import ARCHIVED, check_no_runs
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.services.views import pages
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import ProjectRow, WorkspaceRow, clean_text

MOST = 10_000
"""Projects of one workspace."""


class Projects(Service):
    """Use cases of projects. All raise NotFound for a workspace that the caller may not see."""

    async def list(
        self,
        caller: Caller,
        workspace: str,
        *,
        limit: int = 100,
        after: int | None = None,
        archived: Archived = "no",
    ) -> ProjectList:
        """Return one page of a workspace's projects, the oldest first."""

        def look(s: Session) -> ProjectList:
            place = workspace_for(s, caller, workspace)
            ids = workspaces.page_of_projects(s, place.id, limit=limit, after=after, archived=ARCHIVED[archived])
            items, last = pages.of_rows(
                s, ProjectRow, ids, limit, lambda rows: [*map(pages.brief, _views(s, caller, place, rows))]
            )
            return ProjectList(items=items, after=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, workspace: str, project: str) -> ProjectView:
        """Return one project, by its name or id."""

        def look(s: Session) -> ProjectView:
            place = workspace_for(s, caller, workspace)
            return _views(s, caller, place, [_project_for(s, place, project)])[0]

        return await self._context.read(look)

    async def create(self, caller: Caller, workspace: str, wanted: CreateProject) -> ProjectView:
        """Make a project.

        Raises:
            Conflict: There is one of this name, there are too many, or the workspace is archived.
            Forbidden: The caller is no editor of the workspace.
        """

        def create(unit: UnitOfWork) -> ProjectView:
            place = _place_for(unit, caller, workspace)
            _check_free(unit.session, place, wanted.name)
            if workspaces.project_counts(unit.session, [place.id]).get(place.id, 0) >= MOST:
                raise Conflict(f"workspace {place.name!r} has {MOST} projects already")
            row = workspaces.add_project(unit.session, place.id, wanted.name, caller.name, unit.now)
            row.description, row.notes = wanted.description, wanted.notes
            unit.session.flush()
            audit.note(unit, caller, "project.create", f"project {row.id}", f"{row.name} of workspace {place.id}")
            return _views(unit.session, caller, place, [row])[0]

        return await self._context.write(create)

    async def edit(self, caller: Caller, workspace: str, project: str, wanted: EditProject) -> ProjectView:
        """Carry out an edit, all of it or nothing; the same again changes nothing.

        Raises:
            Conflict: There is another one of this name, or somebody has changed the notes since `notes_before`.
            Forbidden: The caller is no editor of the workspace; or no admin, who alone archives.
        """

        def edit(unit: UnitOfWork) -> ProjectView:
            place = workspace_for(unit.session, caller, workspace, Action.PROJECT_EDIT)
            if wanted.archived is not None:
                workspace_for(unit.session, caller, workspace, Action.PROJECT_ARCHIVE)
            row = _project_for(unit.session, place, project)
            check_notes(f"project {row.name!r}", row.notes, wanted.notes, wanted.notes_before)
            changed = [*_rename(unit.session, place, row, wanted), *_write(unit, row, wanted)]
            if changed:
                audit.note(unit, caller, "project.edit", f"project {row.id}", ", ".join(changed))
            return _views(unit.session, caller, place, [row])[0]

        return await self._context.write(edit)

    async def delete(self, caller: Caller, workspace: str, project: str) -> ProjectView:
        """Delete a project in which nothing lies.

        Raises:
            Conflict: Experiments, runs from elsewhere or user tasks that have not ended lie in it.
            Forbidden: The caller is no admin of the workspace.
        """

        def delete(unit: UnitOfWork) -> ProjectView:
            place = workspace_for(unit.session, caller, workspace, Action.PROJECT_DELETE)
            row = _project_for(unit.session, place, project)
            view = _views(unit.session, caller, place, [row])[0]
            if not (view.experiments or view.tasks):
                tracked = runs.counts_of_projects(unit.session, [row.id]).get(row.id, runs.RunCounts())
                check_no_runs(f"project {row.name!r}", tracked, f"{view.workspace}/{row.name}")
            if view.experiments or view.tasks:
                named = f"--workspace {word(view.workspace)} --project {word(row.name)}"
                within = [
                    f"{count} {noun}{'' if count == 1 else 's'}"
                    for count, noun in ((view.experiments, "experiment"), (view.tasks, "user task"))
                    if count
                ]
                verb = "lies" if view.experiments + view.tasks == 1 else "lie"
                raise Conflict(
                    f"project {row.name!r} is not empty: {' and '.join(within)} {verb} in it",
                    hint="Move them (det experiment move, det task move), or delete them and end the tasks first: "
                    f"det experiment list {named} --all, det task list {named}",
                )
            audit.note(unit, caller, "project.delete", f"project {row.id}", row.name)
            workspaces.delete_project(unit.session, row)
            note_rights(unit, place.id)  # what has ended in it, such as notebooks, is its owners' alone again
            return view

        return await self._context.write(delete)


def _place_for(unit: UnitOfWork, caller: Caller, workspace: str) -> WorkspaceRow:
    """Return the workspace that is to get a project; one's own personal one is made when it is needed first."""
    if workspaces.key_of(workspace) == workspaces.key_of(workspaces.NOWHERE):
        workspaces.personal(unit.session, person(caller).name, unit.now)
    place = workspace_for(unit.session, caller, workspace, Action.PROJECT_CREATE)
    if place.archived_at is not None:
        hint = f"det workspace unarchive {word(f'{place.owner}/{place.name}')}"
        raise Conflict(f"workspace {place.name!r} is archived: it takes nothing new", hint=hint)
    return place


def _project_for(s: Session, place: WorkspaceRow, project: str) -> ProjectRow:
    row = workspaces.project_named(s, place.id, project)
    if row is None:
        hint = f"det workspace list-projects {place.id}"
        raise no_such(f"there is no project {project[:300]!r} in workspace {place.name!r}", exists=False, hint=hint)
    return row


def _views(s: Session, caller: Caller, place: WorkspaceRow, rows: Sequence[ProjectRow]) -> Sequence[ProjectView]:
    may = right_of(person(caller), workspace_things(s, caller, [place])[place.id]).wire
    ids = [row.id for row in rows]
    tracked = runs.counts_of_projects(s, ids)
    counts, tasks = workspaces.experiment_counts_of_projects(s, ids), workspaces.live_task_counts_of_projects(s, ids)
    return [
        ProjectView(
            id=row.id,
            name=row.name,
            workspace_id=place.id,
            workspace=f"{place.owner}/{place.name}",
            owner=row.owner,
            description=row.description,
            notes=row.notes,
            created_at=row.created_at,
            archived_at=row.archived_at,
            experiments=counts.get(row.id, 0),
            runs=tracked.get(row.id, runs.RunCounts()).shown,
            tasks=tasks.get(row.id, 0),
            may=may,
        )
        for row in rows
    ]


def _check_free(s: Session, place: WorkspaceRow, name: str) -> None:
    known = workspaces.project_named(s, place.id, name)
    if known is not None:
        raise Conflict(
            f"there is a project {known.name!r} in workspace {place.name!r} already, with the id {known.id}: names are "
            "the same if they differ only in case or in how Unicode writes them",
            hint=f"det workspace list-projects {place.id} --all",
        )


def _rename(s: Session, place: WorkspaceRow, row: ProjectRow, wanted: EditProject) -> list[str]:
    if wanted.name is None or wanted.name == row.name:
        return []
    if workspaces.key_of(wanted.name) != row.key:
        _check_free(s, place, wanted.name)
    row.name, row.key = wanted.name, workspaces.key_of(wanted.name)
    return ["name"]


def _write(unit: UnitOfWork, row: ProjectRow, wanted: EditProject) -> list[str]:
    changed = []
    for field in ("description", "notes"):
        text = getattr(wanted, field)
        if text is not None and clean_text(text) != getattr(row, field):
            setattr(row, field, clean_text(text))
            changed.append(field)
    if wanted.archived is not None and wanted.archived != (row.archived_at is not None):
        row.archived_at = unit.now if wanted.archived else None
        changed.append("archived" if wanted.archived else "unarchived")
    return changed
