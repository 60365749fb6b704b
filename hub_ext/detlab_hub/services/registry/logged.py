"""Models that runs have logged, as versions of registered models: MLflow's registry over the one that there is.

What is registered is a snapshot: the files as they are then become a checkpoint of the run, which nothing changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy.orm import Session

from detlab.errors import Conflict, DetlabError, NotFound
from detlab.schemas.wire.registry import (
    CreateModel,
    CreateVersion,
    EditModel,
    EditVersion,
    ModelList,
    ModelView,
    MoveLabel,
    RemoveLabel,
    VersionList,
    VersionView,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.admission import storage_quotas
from detlab_hub.services.base.access import model_for
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.artifact_files import file_path, make_private, remove_snapshots
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.services.tracking.access import Tracker, run_for, speaker_of, task_may_not
from detlab_hub.services.tracking.experiments import AlreadyExists, BadRequest
from detlab_hub.services.tracking.models import READY
from detlab_hub.services.tracking.models import model_for as logged_model_for
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import CheckpointRow, TrackedFileRow, TrackedRunRow

SOURCE = "mlflow.source"
"""In the metadata of a version: where a client said that it came from."""
_MOST_FILES = 20_000


@dataclass(frozen=True)
class ModelSource:
    """What is to be registered: a model that a run has logged, a folder of a run, or a version's checkpoint.

    Attributes:
        model: Id of a logged model.
        run: A run.
        folder: In it.
        version: A registered model and a version of it.
    """

    model: str = ""
    run: str = ""
    folder: str = ""
    version: tuple[str, str] | None = None


class LoggedVersions(Service):
    """Use cases of registered models, for clients of MLflow."""

    def __init__(self, context: ServiceContext, models: Models, versions: Versions, labels: Labels) -> None:
        super().__init__(context)
        self._models, self._versions, self._labels = models, versions, labels

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Models], services[Versions], services[Labels])

    async def create_model(self, caller: Tracker, name: str, description: str, tags: Mapping[str, str]) -> ModelView:
        """Make a registered model; to a trial that is one of its owner's.

        Raises:
            AlreadyExists: There is one.
        """
        person = speaker_of(caller)
        try:
            return await self._models.create(
                person, CreateModel(name=name, description=description, metadata=dict(tags))
            )
        except Conflict as error:
            raise AlreadyExists(error.message) from error

    async def model(self, caller: Tracker, name: str) -> ModelView:
        """Return a registered model; a trial sees those that its owner may write.

        Raises:
            NotFound: There is none for the caller.
        """
        found = await self._models.get(speaker_of(caller), name)
        if isinstance(caller, TaskCaller) and found.right == "read":
            raise task_may_not("read this model")
        return found

    async def register(
        self,
        caller: Tracker,
        name: str,
        source: ModelSource,
        *,
        said: str,
        description: str,
        tags: Mapping[str, str],
    ) -> VersionView:
        """Make a version of a registered model.

        Args:
            caller: Who registers it; a trial what it has logged itself.
            name: The registered model.
            source: What it is a version of.
            said: The same, as the client wrote it.
            description: Of the version.
            tags: Of the version.

        Raises:
            BadRequest: There is nothing of that kind to be registered.
            Forbidden: The caller may not change the model, or not register that.
            NotFound: There is no such registered model or source for the caller.
        """
        person = speaker_of(caller)
        await self._context.read(lambda s: model_for(s, person, name, Action.VERSION_REGISTER))
        if source.version is not None:
            if isinstance(caller, TaskCaller):
                raise task_may_not("register versions of other models again")
            checkpoint = (await self._versions.get(person, *source.version)).checkpoint
        else:
            checkpoint = await self._snapshot(caller, source)
        wanted = CreateVersion(checkpoint=checkpoint, comment=description, metadata={**tags, SOURCE: said})
        return await self._versions.register(person, name, wanted)

    async def _snapshot(self, caller: Tracker, source: ModelSource) -> str:
        """Make a checkpoint of the files of a source; return its uuid."""
        found = await self._context.read(lambda s: _files_of(s, caller, source))
        run_id, root, rows = found
        owner, groups = await self._context.read(lambda s: _owner_of(s, run_id))
        await storage_quotas.check_room(self._context, owner, groups, sum(row.size for row in rows))
        made = str(uuid.uuid4())
        settings, folder = self._context.settings, f"{source.folder}/" if source.folder else ""
        names = {row.path: row.path.removeprefix(folder) for row in rows}
        await self._context.workers.moves.run(user_of(caller), _link, settings, root, made, names)
        files = {names[row.path]: {"size": row.size, "digest": row.digest} for row in rows}

        def add(unit: UnitOfWork) -> None:
            run_for(unit.session, caller, run_id, Action.RUN_LOG)
            unit.session.add(
                CheckpointRow(
                    uuid=made,
                    run_id=run_id,
                    state="COMPLETED",
                    created_at=unit.now,
                    size=sum(row.size for row in rows),
                    files=files,
                    manifest_digest=f"sha256:{hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()}",
                )
            )

        try:
            await self._context.write(add)
        except DetlabError:  # the run has gone meanwhile
            await remove_snapshots(self._context, [made])
            raise
        return made

    async def version(self, caller: Tracker, name: str, version: str) -> VersionView:
        """Return a version by its number or a label."""
        found = await self.model(caller, name)
        return await self._versions.get(speaker_of(caller), str(found.id), version)

    # --- for people

    async def models(self, caller: Caller, *, name: str | None, limit: int, after: int | None) -> ModelList:
        """Return a page of registered models that the caller may see, the newest first."""
        return await self._models.list(caller, name=name, limit=limit, after=after)

    async def edit_model(
        self,
        caller: Caller,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
    ) -> ModelView:
        """Change a registered model."""
        edit = EditModel(
            name=new_name, description=description, set_metadata=dict(tags or {}), remove_metadata=[*remove]
        )
        return await self._models.edit(caller, name, edit)

    async def delete_model(self, caller: Caller, name: str) -> None:
        """Delete a registered model with its versions."""
        await self._models.delete(caller, name, force=True)

    async def versions(self, caller: Caller, name: str, limit: int, after: int | None) -> VersionList:
        """Return a page of the versions of a model, the newest first."""
        return await self._versions.list(caller, name, limit, after)

    async def edit_version(
        self,
        caller: Caller,
        name: str,
        version: str,
        *,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
    ) -> VersionView:
        """Change a version."""
        edit = EditVersion(comment=description, set_metadata=dict(tags or {}), remove_metadata=[*remove])
        return await self._versions.edit(caller, name, _number(version), edit)

    async def delete_version(self, caller: Caller, name: str, version: str) -> None:
        """Delete a version; labels that point at it go with it."""
        await self._versions.delete(caller, name, _number(version), force=True)

    async def put_label(self, caller: Caller, name: str, label: str, version: str) -> None:
        """Move a label, which is what MLflow calls an alias, to a version."""
        number = int(_number(version))
        await self._labels.move(caller, name, label, MoveLabel(version=number, reason="by MLflow"))

    async def remove_label(self, caller: Caller, name: str, label: str) -> None:
        """Take a label away; nothing happens if no version has it."""
        row = await self._context.read(lambda s: model_for(s, caller, name))
        try:
            await self._labels.remove(caller, str(row.id), label, RemoveLabel(reason="by MLflow"))
        except NotFound:
            return

    async def with_stage(self, caller: Caller, name: str, version: str, stage: str, only: bool) -> VersionView:
        """Give a version one of MLflow's stages, as a label; with `only`, none of the others keeps it, as always."""
        number = _number(version)
        if stage.lower() in STAGES:
            await self.put_label(caller, name, stage.lower(), number)
        elif stage.lower() == "none":
            held = (await self._versions.get(caller, name, number)).labels
            for label in set(held) & STAGES:
                await self.remove_label(caller, name, label)
        else:
            raise BadRequest(f"{stage[:40]!r} is no stage: None, {', '.join(one.title() for one in sorted(STAGES))}")
        return await self._versions.get(caller, name, number)


STAGES = frozenset({"staging", "production", "archived"})
"""MLflow's stages, which are labels here."""


def _number(version: str) -> str:
    if not (version.isascii() and version.isdigit()):
        raise BadRequest(f"{version[:40]!r} is no number of a version")
    return version


def _files_of(s: Session, caller: Tracker, source: ModelSource) -> tuple[str, str, list[TrackedFileRow]]:
    """Return the run of a source, the root of its files, and these.

    Raises:
        BadRequest: It has none, or is not complete.
    """
    if source.model:
        model, run = logged_model_for(s, caller, source.model, Action.RUN_LOG)
        if model.status != READY:
            raise BadRequest(f"model {model.id} is not complete: its files are still being uploaded, or were not")
        rows = runs.files_under(s, model.id, "", _MOST_FILES)
        if rows:
            return run.id, model.id, rows
        folder = model.name  # as older clients have it: below the run
        rows = runs.files_under(s, run.id, folder, _MOST_FILES)
        run_id = run.id
    else:
        found = run_for(s, caller, source.run, Action.RUN_LOG)
        run_id, rows = found.id, runs.files_under(s, found.id, source.folder, _MOST_FILES)
        if not rows and found.row is not None:  # client 3 names the run, and has logged the model beside it
            named = [one for one in runs.models_of(s, run_id, 100) if one.name == source.folder and one.status == READY]
            if named:
                return run_id, named[0].id, runs.files_under(s, named[0].id, "", _MOST_FILES)
    if not rows:
        raise BadRequest(f"there are no files to be registered in {source.folder[:80]!r} of run {run_id}")
    return run_id, run_id, rows


def _owner_of(s: Session, run_id: str) -> tuple[str, list[str]]:
    """Return whose quotas a snapshot of a run counts towards, with their groups."""
    run = s.get_one(TrackedRunRow, run_id)
    return run.owner, run.owner_groups


def _link(settings: Settings, root: str, made: str, names: Mapping[str, str]) -> None:
    """Put the files of a snapshot beside those of their run, whose later replacements leave them as they are."""
    for path, name in names.items():
        target = file_path(settings, made, name)
        make_private(target.parent)
        os.link(file_path(settings, root, path), target)
