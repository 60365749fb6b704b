"""Models: made, listed, edited, archived, shared and deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.text_limits import MOST_LABELS
from detlab.schemas.wire import Archived, GrantList, GrantRequest, GrantTo, GrantView
from detlab.schemas.wire.projects import MoveModel
from detlab.schemas.wire.registry import CreateModel, EditModel, ModelList, ModelView
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination, searched_workspace
from detlab_hub.services.admission.notes import check_notes
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import model_for, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.artifact_files import remove_snapshots
from detlab_hub.services.registry.announcing import announce
from detlab_hub.services.registry.facts import facts_of
from detlab_hub.services.registry.views import model_view, model_views
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.services.views import pages
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.registry import models, naming
from detlab_hub.store.tables import ModelGrantRow, ModelRow, clean_text

METADATA_BYTES = 1024 * 1024
MOST_GRANTS = 500
_ARCHIVED: dict[str, bool | None] = {"no": False, "only": True, "any": None}


class Models(Service):
    """Use cases of models. All raise NotFound for one that the caller may not see."""

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        after: int | None = None,
        name: str | None = None,
        owner: str | None = None,
        labels: Sequence[str] = (),
        archived: Archived = "no",
        workspace: str | None = None,
    ) -> ModelList:
        """Return one page of the models that the caller may see, newest first.

        Args:
            caller: Who asks.
            limit: Most models.
            after: Of the last page: its `after`.
            name: A part of their names, in capitals or not.
            owner: Only this user's.
            labels: Only those with all of these labels.
            archived: Whether archived ones are left out (`no`), alone (`only`) or among the others (`any`).
            workspace: Only those that lie in this one.

        Raises:
            NotFound: There is no such workspace for the caller.
        """

        def look(s: Session) -> ModelList:
            ids = models.page(
                s,
                visible(caller),
                limit=limit,
                after=after,
                name=name,
                owner=owner,
                labels=labels,
                archived=_ARCHIVED[archived],
                workspace=None if workspace is None else searched_workspace(s, caller, workspace),
            )
            items, last = pages.of_rows(s, ModelRow, ids, limit, lambda rows: model_views(s, rows, caller))
            return ModelList(items=items, after=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, model: str) -> ModelView:
        """Return one model, by its name or id."""
        return await self._context.read(lambda s: model_view(s, model_for(s, caller, model), caller))

    async def words(self, caller: Caller) -> Sequence[str]:
        """Return the labels of all models that the caller may see, the most frequent first."""
        return await self._context.look(caller.name, lambda s: models.words(s, visible(caller)))

    async def create(self, caller: Caller, wanted: CreateModel) -> ModelView:
        """Make a model.

        Raises:
            ConfigError: The name or the metadata cannot be used, or there is no such workspace for the caller.
            Conflict: The caller has one of this name.
            Forbidden: The caller may put nothing into that workspace.
        """
        check_name(wanted.name)
        check_metadata(wanted.metadata)

        def create(unit: UnitOfWork) -> ModelView:
            _check_free(unit.session, person(caller).name, wanted.name)
            row = ModelRow(
                name=wanted.name,
                owner=caller.name,
                workspace_id=_place(unit, caller, wanted.workspace, person(caller).name),
                description=wanted.description,
                notes=wanted.notes,
                metadata_=wanted.metadata,
                labels=list(dict.fromkeys(wanted.labels)),
                created_at=unit.now,
                updated_at=unit.now,
            )
            unit.session.add(row)
            unit.session.flush()
            models.replace_facts(unit.session, row.id, None, facts_of(row.labels, row.metadata_))
            audit.note(unit, caller, "model.create", f"model {row.id}", row.name)
            announce(unit, row, "created")
            return model_view(unit.session, row, caller)

        return await self._context.write(create)

    async def edit(self, caller: Caller, model: str, wanted: EditModel) -> ModelView:
        """Carry out an edit, all of it or nothing; the same again changes nothing.

        Raises:
            ConfigError: The name or the metadata cannot be used.
            Conflict: Its owner has another one of this name, or it would have too many labels.
            Forbidden: The caller may read it, not change it; or neither rename nor archive it, which is its owner's.
        """
        if wanted.name is not None:
            check_name(wanted.name)

        def edit(unit: UnitOfWork) -> ModelView:
            row = model_for(unit.session, caller, model, Action.MODEL_EDIT)
            if wanted.name is not None and wanted.name != row.name:
                model_for(unit.session, caller, model, Action.MODEL_RENAME)
            if wanted.archived is not None:
                model_for(unit.session, caller, model, Action.MODEL_ARCHIVE)
            check_notes(f"model {row.name!r}", row.notes, wanted.notes, wanted.notes_before)
            changed = [*_rename(unit.session, row, wanted), *_write(row, wanted), *_label(row, wanted)]
            if {"labels", "metadata"} & set(changed):
                models.replace_facts(unit.session, row.id, None, facts_of(row.labels, row.metadata_))
            if wanted.archived is not None and wanted.archived != (row.archived_at is not None):
                row.archived_at = unit.now if wanted.archived else None
                changed.append("archived" if wanted.archived else "unarchived")
            if changed:
                row.updated_at = unit.now
                audit.note(unit, caller, "model.edit", f"model {row.id}", ", ".join(changed))
                announce(unit, row, "edited")
            return model_view(unit.session, row, caller)

        return await self._context.write(edit)

    async def move(self, caller: Caller, model: str, wanted: MoveModel) -> ModelView:
        """Move a model: from then on the members of the other workspace see it, and those of this one no more.

        Raises:
            ConfigError: There is no such workspace for the caller, or it is archived.
            Forbidden: It is not the caller's to move, or they may put nothing there.
        """

        def move(unit: UnitOfWork) -> ModelView:
            row = model_for(unit.session, caller, model, Action.MODEL_MOVE)
            before, row.workspace_id = row.workspace_id, _place(unit, caller, wanted.workspace, row.owner)
            if row.workspace_id != before:
                audit.note(unit, caller, "model.move", f"model {row.id}", f"to workspace {row.workspace_id}")
                announce(unit, row, "shared")
                note_rights(unit, before)
            return model_view(unit.session, row, caller)

        found = await self._context.write(move)
        self._context.rights_changed()
        return found

    async def delete(self, caller: Caller, model: str, *, force: bool = False) -> ModelView:
        """Delete a model with its versions; their checkpoints stay, and are pinned no longer.

        Args:
            caller: Who asks.
            model: Its name or id.
            force: Also if labels point at its versions.

        Raises:
            Conflict: Labels point at its versions.
            Forbidden: It is another user's.
        """

        gone: list[str] = []

        def delete(unit: UnitOfWork) -> ModelView:
            row = model_for(unit.session, caller, model, Action.MODEL_DELETE)
            held = models.labels_of(unit.session, [row.id]).get(row.id, [])
            if held and not force:
                told = ", ".join(f"{one.label} (version {one.version})" for one in held[:10])
                raise Conflict(
                    f"labels point at versions of model {row.name!r}: {told}",
                    hint=f"det model delete {row.id} --force, if nothing loads it by them any more",
                )
            view = model_view(unit.session, row, caller)
            audit.note(unit, caller, "model.delete", f"model {row.id}", row.name)
            announce(unit, row, "deleted")
            logged = models.snapshots_of(unit.session, row.id)
            models.delete_model(unit.session, row)
            gone[:] = models.drop_snapshots(unit.session, logged)
            return view

        view = await self._context.write(delete)
        await remove_snapshots(self._context, gone)
        return view

    # --- grants

    async def grants(self, caller: Caller, model: str) -> GrantList:
        """Return with whom a model is shared."""
        return await self._context.read(lambda s: _grants(s, model_for(s, caller, model)))

    async def share(self, caller: Caller, model: str, request: GrantRequest) -> GrantList:
        """Share a model; what was granted to the same user or group before is replaced.

        They may also read and download the checkpoints of its versions, if these are the owner's, or were registered
        by theirs: see `access.models_using`.

        Raises:
            Conflict: It has too many grants already.
            Forbidden: It is another user's.
        """

        def put(unit: UnitOfWork) -> GrantList:
            row = model_for(unit.session, caller, model, Action.MODEL_SHARE)
            if len(_grants(unit.session, row).items) >= MOST_GRANTS:
                raise Conflict(
                    f"model {row.name!r} is shared {MOST_GRANTS} times already", hint="Share it with a group."
                )
            made = ModelGrantRow(
                model_id=row.id,
                kind=request.kind,
                name=clean_text(request.name),
                write=request.write,
                granted_by=caller.name,
                created_at=unit.now,
            )
            unit.session.merge(made)
            what = "may change it" if request.write else "may read it"
            audit.note(unit, caller, "model.share", f"model {row.id}", f"{request.kind} {request.name} {what}")
            announce(unit, row, "shared")
            note_rights(unit, None, [(request.kind, clean_text(request.name))])
            return _grants(unit.session, row)

        return self._changed(await self._context.write(put))

    async def unshare(self, caller: Caller, model: str, to: GrantTo) -> GrantList:
        """Withdraw a grant.

        Raises:
            Forbidden: It is another user's.
            NotFound: It is not shared with that user or group.
        """

        def remove(unit: UnitOfWork) -> GrantList:
            row = model_for(unit.session, caller, model, Action.MODEL_UNSHARE)
            if not rights.remove_model_grant(unit.session, row.id, to.kind, to.name):
                raise NotFound(
                    f"model {row.name!r} is not shared with the {to.kind} {to.name!r}",
                    hint=f"det model share {row.id}",
                )
            audit.note(unit, caller, "model.unshare", f"model {row.id}", f"{to.kind} {to.name}")
            announce(unit, row, "shared")
            note_rights(unit, None, [(to.kind, clean_text(to.name))])
            return _grants(unit.session, row)

        return self._changed(await self._context.write(remove))

    def _changed(self, found: GrantList) -> GrantList:
        self._context.rights_changed()
        return found


def _place(unit: UnitOfWork, caller: Caller, workspace: str, owner: str) -> int | None:
    """Return the workspace that a model is to lie in; None: its owner's personal one."""
    place = destination(unit.session, caller, workspace, "", owner)
    if not place.reference or place.workspace is None:
        return None
    return place.workspace.id


def visible(caller: Caller) -> Any:
    """Return the condition on models that the caller may see."""
    return rights.visible_models(person(caller))


def check_name(name: str) -> None:
    """Check that a name cannot be taken for an id.

    Raises:
        ConfigError: It can.
    """
    if name.isdigit():
        problem = "a name of digits only would be an id"
        raise ConfigError([Problem("name", problem)], f"{name[:80]!r} cannot be the name of a model: {problem}")


def check_metadata(metadata: dict[str, Any]) -> None:
    """Check that metadata is small.

    Raises:
        ConfigError: It has more than 1 MiB as JSON.
    """
    size = len(json.dumps(metadata, separators=(",", ":")))
    if size > METADATA_BYTES:
        problem = f"{size:,} bytes as JSON; {METADATA_BYTES:,} is the most"
        raise ConfigError([Problem("metadata", problem)], f"the metadata is too large: {problem}")


def edited_metadata(
    before: dict[str, Any], whole: dict[str, Any] | None, changes: dict[str, Any], gone: list[str]
) -> dict[str, Any]:
    """Return metadata after an edit: replaced, then keys set, then keys removed.

    Raises:
        ConfigError: It would be too large.
    """
    wanted = {**(before if whole is None else whole), **changes}
    for key in gone:
        wanted.pop(key, None)
    if wanted != before:
        check_metadata(wanted)
    return wanted


def _check_free(s: Session, owner: str, name: str) -> None:
    known = naming.of_owner(s, ModelRow, owner, name)
    if known is not None:
        raise Conflict(
            f"there is a model {name!r} already, with the id {known.id}", hint=f"det model describe {known.id}"
        )


def _rename(s: Session, row: ModelRow, wanted: EditModel) -> list[str]:
    if wanted.name is None or wanted.name == row.name:
        return []
    _check_free(s, row.owner, wanted.name)
    row.name = wanted.name
    return ["name"]


def _write(row: ModelRow, wanted: EditModel) -> list[str]:
    """Set what is given; return the names of what changed."""
    changed = []
    for field in ("description", "notes"):
        text = getattr(wanted, field)
        if text is not None and clean_text(text) != getattr(row, field):
            setattr(row, field, clean_text(text))
            changed.append(field)
    metadata = edited_metadata(row.metadata_, wanted.metadata, wanted.set_metadata, wanted.remove_metadata)
    if metadata != row.metadata_:
        row.metadata_ = metadata
        changed.append("metadata")
    return changed


def _label(row: ModelRow, wanted: EditModel) -> list[str]:
    labels = list(row.labels if wanted.labels is None else wanted.labels) + wanted.add_labels
    gone = set(wanted.remove_labels)
    labels = [label for label in dict.fromkeys(labels) if label not in gone]
    if labels == row.labels:
        return []
    if len(labels) > MOST_LABELS:
        raise Conflict(f"model {row.name!r} would have {len(labels)} labels; {MOST_LABELS} is the most")
    row.labels = labels
    return ["labels"]


def _grants(s: Session, row: ModelRow) -> GrantList:
    s.flush()
    return GrantList(
        items=[
            GrantView.model_validate(
                {
                    "kind": one.kind,
                    "name": one.name,
                    "write": one.write,
                    "granted_by": one.granted_by,
                    "created_at": one.created_at,
                }
            )
            for one in rights.grants_of_models(s, [row.id]).get(row.id, [])
        ]
    )
