"""Artifacts: listed, described, moved and deleted."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas.wire.artifacts.artifacts import ArtifactList, ArtifactView, EditArtifact
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination, searched_workspace
from detlab_hub.services.artifacts.access import artifact_for, check_unused
from detlab_hub.services.artifacts.views import artifact_views
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.named_files import remove_artifact
from detlab_hub.services.tracking.access import Tracker, speaker_of
from detlab_hub.services.views import pages
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.registry import artifacts, naming
from detlab_hub.store.tables import ArtifactRow


class Artifacts(Service):
    """Use cases of artifacts. All raise NotFound for one that the caller may not see."""

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        after: int | None = None,
        name: str | None = None,
        kind: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
    ) -> ArtifactList:
        """Return one page of the artifacts that the caller may see, newest first.

        Args:
            caller: Who asks.
            limit: Most artifacts.
            after: Of the last page: its `next`.
            name: A part of their names, in capitals or not.
            kind: Only those of this kind.
            owner: Only this user's.
            workspace: Only those that lie in this one.

        Raises:
            NotFound: There is no such workspace for the caller.
        """

        def look(s: Session) -> ArtifactList:
            place = None if workspace is None else searched_workspace(s, caller, workspace)
            visible = rights.visible_artifacts(person(caller))
            ids = artifacts.page(
                s, visible, limit=limit, after=after, name=name, kind=kind, owner=owner, workspace=place
            )
            items, last = pages.of_rows(s, ArtifactRow, ids, limit, lambda rows: artifact_views(s, rows, caller))
            return ArtifactList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Tracker, name: str) -> ArtifactView:
        """Return one artifact, by its name or id."""
        who = speaker_of(caller)
        return await self._context.read(lambda s: artifact_views(s, [artifact_for(s, who, name)], who)[0])

    async def edit(self, caller: Caller, name: str, wanted: EditArtifact) -> ArtifactView:
        """Change the description, the name or the workspace; the same again changes nothing.

        Raises:
            ConfigError: There is no such workspace for the caller, or the name cannot be used.
            Conflict: Its owner has another one of this name.
            Forbidden: The caller may not change it; name and workspace are its owner's.
        """

        def edit(unit: UnitOfWork) -> ArtifactView:
            row = artifact_for(unit.session, caller, name, Action.ARTIFACT_EDIT)
            changed = _move(unit, caller, row, wanted)
            if wanted.description is not None and wanted.description != row.description:
                row.description = wanted.description
                changed.append("description")
            if changed:
                row.updated_at = unit.now
                audit.note(unit, caller, "artifact.edit", f"artifact {row.id}", ", ".join(changed))
            return artifact_views(unit.session, [row], caller)[0]

        return await self._context.write(edit)

    async def delete(self, caller: Caller, name: str, *, force: bool = False) -> ArtifactView:
        """Delete an artifact with all its versions and files.

        Args:
            caller: Who asks.
            name: Its name or id.
            force: Also if runs use its versions, or aliases point at them.

        Raises:
            Conflict: They do.
            Forbidden: It is another user's.
        """
        row = await self._context.read(lambda s: artifact_for(s, caller, name, Action.ARTIFACT_DELETE))

        def delete(unit: UnitOfWork) -> ArtifactView:
            found = artifact_for(unit.session, caller, str(row.id), Action.ARTIFACT_DELETE)
            versions = artifacts.version_ids(unit.session, found.id)
            check_unused(unit.session, versions, f"artifact {found.name!r}", force=force)
            view = artifact_views(unit.session, [found], caller)[0]
            audit.note(unit, caller, "artifact.delete", f"artifact {found.id}", found.name)
            artifacts.delete_artifact(unit.session, found, unit.now)
            return view

        async with self._context.artifact_locks.of(row.id):
            view = await self._context.write(delete)
            await self._context.workers.removals.run(caller.name, remove_artifact, self._context.settings, row.id)
        return view


def check_name(name: str) -> None:
    """Check that a name cannot be taken for an id.

    Raises:
        ConfigError: It can.
    """
    if name.isdigit():
        problem = "a name of digits only would be an id"
        raise ConfigError([Problem("name", problem)], f"{name[:80]!r} cannot be the name of an artifact: {problem}")


def _move(unit: UnitOfWork, caller: Caller, row: ArtifactRow, wanted: EditArtifact) -> list[str]:
    """Give another name and another workspace, if these are wanted; return what has changed."""
    s, changed = unit.session, []
    if wanted.name is not None and wanted.name != row.name:
        artifact_for(s, caller, str(row.id), Action.ARTIFACT_MOVE)
        check_name(wanted.name)
        if naming.of_owner(s, ArtifactRow, row.owner, wanted.name) is not None:
            raise Conflict(f"{row.owner} has an artifact {wanted.name!r} already", hint="Choose another name")
        row.name = wanted.name
        changed.append("name")
    if wanted.workspace is not None:
        place = destination(s, caller, wanted.workspace, "", row.owner)
        target = place.workspace.id if place.reference and place.workspace is not None else None
        if target != row.workspace_id:
            artifact_for(s, caller, str(row.id), Action.ARTIFACT_MOVE)
            row.workspace_id = target
            changed.append("workspace")
    return changed
