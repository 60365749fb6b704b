"""MLflow's routes of registered models, answered by the registry: tags are metadata, aliases and stages are labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from detlab.errors import NotFound
from detlab.schemas.wire.registry import ModelView, VersionView
from detlab_hub.core.rights import Action
from detlab_hub.core.tracking.search import MODEL_FIELDS, VERSION_FIELDS, Clause, FieldOf
from detlab_hub.services.registry.logged import SOURCE, STAGES, LoggedVersions, ModelSource
from detlab_hub.services.tracking.access import run_id_of
from detlab_hub.services.tracking.experiments import BadRequest, read_filter
from detlab_hub.web.mlflow.artifacts import place_of
from detlab_hub.web.mlflow.base import Empty, Message, ProtocolHandler, serves
from detlab_hub.web.mlflow.messages import Entry, KeyValue, as_dict
from detlab_hub.web.scopes import needs

RUNS, MODELS, FILES = "runs:/", "models:/", "mlflow-artifacts:/"


class ModelName(Message):
    """Which registered model."""

    name: str = Field(min_length=1, max_length=1000)


class NewModelMessage(ModelName):
    """A new registered model."""

    description: str = ""
    tags: list[Entry] = Field(default=[], max_length=1000)


class RenameModel(ModelName):
    """Another name for one."""

    new_name: str = Field(min_length=1, max_length=1000)


class EditModelMessage(ModelName):
    """Another description of one."""

    description: str = ""


class ModelTag(ModelName, Entry):
    """A tag of one."""


class ModelTagKey(ModelName):
    """The key of one."""

    key: str = Field(min_length=1)


class LatestVersions(ModelName):
    """The newest versions of one, by stage."""

    stages: list[str] = Field(default=[])


class Alias(Message):
    """A label of a version."""

    alias: str
    version: str


class AliasName(ModelName):
    """Which label."""

    alias: str = Field(min_length=1, max_length=256)


class NewAlias(AliasName):
    """A label that moves."""

    version: str


class SearchQuery(Message):
    """Which models or versions."""

    filter: str = ""
    max_results: int = Field(100, ge=1, le=200_000)
    order_by: list[str] = Field(default=[])
    page_token: str = ""


class VersionMessage(Message):
    """A version of a registered model."""

    name: str
    version: str
    creation_timestamp: int
    last_updated_timestamp: int
    current_stage: str
    description: str
    source: str
    run_id: str | None = None
    status: str = "READY"
    tags: list[KeyValue] | None = None
    aliases: list[str] | None = None


class ModelMessage(Message):
    """A registered model."""

    name: str
    creation_timestamp: int
    last_updated_timestamp: int
    description: str
    latest_versions: list[VersionMessage] | None = None
    tags: list[KeyValue] | None = None
    aliases: list[Alias] | None = None


class ModelReply(Message):
    """One registered model."""

    registered_model: ModelMessage


class ModelsReply(Message):
    """A page of registered models."""

    registered_models: list[ModelMessage] | None = None
    next_page_token: str | None = None


class VersionReply(Message):
    """One version."""

    model_version: VersionMessage


class VersionsReply(Message):
    """Versions."""

    model_versions: list[VersionMessage] | None = None
    next_page_token: str | None = None


class UriReply(Message):
    """Where the files of a version are."""

    artifact_uri: str


class VersionKey(ModelName):
    """Which version."""

    version: str = Field(min_length=1, max_length=100)


class NewVersion(ModelName):
    """A new version."""

    source: str = Field(min_length=1, max_length=4000)
    run_id: str = ""
    model_id: str = ""
    description: str = ""
    tags: list[Entry] = Field(default=[], max_length=1000)


class EditVersionMessage(VersionKey):
    """Another description of a version."""

    description: str = ""


class VersionTag(VersionKey, Entry):
    """A tag of a version."""


class VersionTagKey(VersionKey):
    """The key of one."""

    key: str = Field(min_length=1)


class Stage(VersionKey):
    """A stage for a version."""

    stage: str
    archive_existing_versions: bool = False


def source_of(body: NewVersion) -> ModelSource:
    """Return what a new version is to be of.

    Raises:
        BadRequest: It is nothing that lies in this cluster: nobody's own address is opened.
    """
    said = body.source
    if body.model_id or said.startswith(f"{MODELS}m-"):
        return ModelSource(model=body.model_id or said.removeprefix(MODELS).strip("/"))
    if said.startswith(RUNS):
        run, _, folder = said.removeprefix(RUNS).strip("/").partition("/")
        return ModelSource(run=run, folder=folder)
    if said.startswith(MODELS):
        name, _, version = said.removeprefix(MODELS).strip("/").rpartition("/")
        return ModelSource(version=(name, version))
    if said.startswith(FILES):
        place = place_of(said.removeprefix(FILES))
        if place.is_model:
            return ModelSource(model=place.root)
        if body.run_id in {"", place.root}:
            return ModelSource(run=place.root, folder=place.path)
    raise BadRequest(
        f"{said[:200]!r} is no model of a run of this cluster",
        hint="Name runs:/RUN/FOLDER or models:/MODEL_ID; a checkpoint is registered by `det model register-version`.",
    )


def files_uri(checkpoint: str) -> str:
    """Return where a client finds the files of a checkpoint."""
    return f"{FILES}0/checkpoints/{checkpoint}/artifacts"


def version_message(view: VersionView) -> VersionMessage:
    """Return a version as a message."""
    stages = [label for label in view.labels if label in STAGES]
    run = view.lineage.tracked_run or (run_id_of(view.lineage.trial_id) if view.lineage.trial_id else "")
    return VersionMessage(
        name=view.model_reference or view.model,
        version=str(view.version),
        creation_timestamp=round(view.created_at * 1000),
        last_updated_timestamp=round(view.updated_at * 1000),
        current_stage=stages[0].title() if stages else "None",
        description=view.comment,
        source=str(view.metadata.get(SOURCE) or files_uri(view.checkpoint)),
        run_id=run or None,
        tags=tags_of({key: value for key, value in view.metadata.items() if key != SOURCE}),
        aliases=[label for label in view.labels if label not in STAGES] or None,
    )


def model_of(view: ModelView, latest: VersionView | None = None) -> ModelMessage:
    """Return a registered model as a message."""
    aliases = [Alias(alias=label, version=str(version)) for label, version in view.moving.items()]
    return ModelMessage(
        name=view.reference or view.name,
        creation_timestamp=round(view.created_at * 1000),
        last_updated_timestamp=round(view.updated_at * 1000),
        description=view.description,
        latest_versions=None if latest is None else [version_message(latest)],
        tags=tags_of(view.metadata),
        aliases=[one for one in aliases if one.alias not in STAGES] or None,
    )


def tags_of(metadata: Mapping[str, Any]) -> list[KeyValue] | None:
    """Return metadata as tags, which are texts."""
    return [KeyValue(key=key, value=str(value)) for key, value in metadata.items()] or None


def _asked_name(clauses: tuple[Clause, ...]) -> tuple[str | None, bool]:
    """Return the name that a filter asks for, and whether it is the whole; what all models fulfil is passed over.

    Raises:
        BadRequest: It asks for something else.
    """
    found, whole = None, False
    for one in clauses:
        if one.of is FieldOf.TAG and one.key == "mlflow.prompt.is_prompt" and one.operator == "!=":
            continue
        if one.of is not FieldOf.ATTRIBUTE or one.key != "name" or one.operator not in {"=", "LIKE", "ILIKE"}:
            raise BadRequest(
                "models are searched by a part of their name here", hint="det model list --label, det model search"
            )
        found, whole = str(one.values[0]).strip("%"), one.operator == "="
    return found, whole


def _after(token: str, digits: int) -> int | None:
    """Return the last item of the page before; None: there was none."""
    return int(token) if token.isascii() and token.isdigit() and len(token) <= digits else None


@serves("registered-models/create")
class CreateModelRoute(ProtocolHandler):
    """A new registered model."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_REGISTER)
    async def post(self, body: NewModelMessage) -> ModelReply:
        """Make a registered model."""
        service = self.services[LoggedVersions]
        view = await service.create_model(self.tracker, body.name, body.description, as_dict(body.tags))
        return ModelReply(registered_model=model_of(view))


@serves("registered-models/get")
class GetModel(ProtocolHandler):
    """One registered model."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: ModelName) -> ModelReply:
        """Return a registered model with its newest version."""
        service = self.services[LoggedVersions]
        view = await service.model(self.tracker, query.name)
        latest = await service.version(self.tracker, str(view.id), "latest") if view.versions else None
        return ModelReply(registered_model=model_of(view, latest))


@serves("registered-models/search")
class FoundRegisteredModels(ProtocolHandler):
    """Many registered models."""

    @needs("read", cross_site="bearer")
    async def get(self, query: SearchQuery) -> ModelsReply:
        """Return a page of registered models, the newest first."""
        clauses, _ = read_filter(query.filter, [], MODEL_FIELDS)
        name, whole = _asked_name(clauses)
        found = await self.services[LoggedVersions].models(
            self.person, name=name, limit=min(query.max_results, 1000), after=_after(query.page_token, 18)
        )
        items = [model_of(one) for one in found.items if not whole or name in {one.name, one.reference}]
        token = None if found.after is None else str(found.after)
        return ModelsReply(registered_models=items or None, next_page_token=token)


@serves("registered-models/rename")
class RenamedModel(ProtocolHandler):
    """Another name."""

    @needs("write", cross_site="bearer", action=Action.MODEL_EDIT)
    async def post(self, body: RenameModel) -> ModelReply:
        """Rename a registered model."""
        view = await self.services[LoggedVersions].edit_model(self.person, body.name, new_name=body.new_name)
        return ModelReply(registered_model=model_of(view))


@serves("registered-models/update")
class UpdatedModel(ProtocolHandler):
    """Another description."""

    @needs("write", cross_site="bearer", action=Action.MODEL_EDIT)
    async def patch(self, body: EditModelMessage) -> ModelReply:
        """Change the description of a registered model."""
        view = await self.services[LoggedVersions].edit_model(self.person, body.name, description=body.description)
        return ModelReply(registered_model=model_of(view))


@serves("registered-models/delete")
class DeletedModel(ProtocolHandler):
    """A registered model that goes."""

    @needs("write", cross_site="bearer", action=Action.MODEL_DELETE)
    async def delete(self, body: ModelName) -> Empty:
        """Delete a registered model with its versions."""
        await self.services[LoggedVersions].delete_model(self.person, body.name)
        return Empty()


@serves("registered-models/get-latest-versions")
class NewestVersions(ProtocolHandler):
    """The newest versions."""

    @needs("read", cross_site="bearer", reads=True)
    async def post(self, body: LatestVersions) -> VersionsReply:
        """Return the newest version, or those with some stages."""
        service, found = self.services[LoggedVersions], []
        for stage in [one.lower() for one in body.stages[:10]] or ["latest"]:
            try:
                found.append(await service.version(self.person, body.name, "latest" if stage == "none" else stage))
            except NotFound:
                await service.model(self.person, body.name)
        return VersionsReply(model_versions=[version_message(one) for one in found] or None)

    get = post


@serves("registered-models/set-tag")
class SetModelTag(ProtocolHandler):
    """A tag."""

    @needs("write", cross_site="bearer", action=Action.MODEL_EDIT)
    async def post(self, body: ModelTag) -> Empty:
        """Set a tag of a registered model."""
        await self.services[LoggedVersions].edit_model(self.person, body.name, tags={body.key: body.value})
        return Empty()


@serves("registered-models/delete-tag")
class DeleteModelTag(ProtocolHandler):
    """A tag that goes."""

    @needs("write", cross_site="bearer", action=Action.MODEL_EDIT)
    async def delete(self, body: ModelTagKey) -> Empty:
        """Remove a tag of a registered model."""
        await self.services[LoggedVersions].edit_model(self.person, body.name, remove=[body.key])
        return Empty()


@serves("registered-models/alias")
class ModelAlias(ProtocolHandler):
    """A label of a version."""

    @needs("read", cross_site="bearer")
    async def get(self, query: AliasName) -> VersionReply:
        """Return the version that has a label."""
        view = await self.services[LoggedVersions].version(self.person, query.name, query.alias)
        return VersionReply(model_version=version_message(view))

    @needs("write", cross_site="bearer", action=Action.LABEL_MOVE)
    async def post(self, body: NewAlias) -> Empty:
        """Move a label to a version."""
        await self.services[LoggedVersions].put_label(self.person, body.name, body.alias, body.version)
        return Empty()

    @needs("write", cross_site="bearer", action=Action.LABEL_REMOVE)
    async def delete(self, body: AliasName) -> Empty:
        """Take a label away."""
        await self.services[LoggedVersions].remove_label(self.person, body.name, body.alias)
        return Empty()


@serves("model-versions/create")
class CreateVersionRoute(ProtocolHandler):
    """A new version."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_REGISTER)
    async def post(self, body: NewVersion) -> VersionReply:
        """Register a model that a run has logged."""
        view = await self.services[LoggedVersions].register(
            self.tracker,
            body.name,
            source_of(body),
            said=body.source,
            description=body.description,
            tags=as_dict(body.tags),
        )
        return VersionReply(model_version=version_message(view))


@serves("model-versions/get")
class GetVersion(ProtocolHandler):
    """One version."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: VersionKey) -> VersionReply:
        """Return a version."""
        view = await self.services[LoggedVersions].version(self.tracker, query.name, query.version)
        return VersionReply(model_version=version_message(view))


@serves("model-versions/get-download-uri")
class VersionUri(ProtocolHandler):
    """The files of a version."""

    @needs("read", cross_site="bearer")
    async def get(self, query: VersionKey) -> UriReply:
        """Return where the files of a version are."""
        view = await self.services[LoggedVersions].version(self.person, query.name, query.version)
        return UriReply(artifact_uri=files_uri(view.checkpoint))


@serves("model-versions/search")
class FoundVersions(ProtocolHandler):
    """Versions of a model."""

    @needs("read", cross_site="bearer")
    async def get(self, query: SearchQuery) -> VersionsReply:
        """Return a page of the versions of a model, the newest first."""
        clauses, _ = read_filter(query.filter, [], VERSION_FIELDS)
        name, _ = _asked_name(clauses)
        if not name:
            raise BadRequest("versions are searched by the name of their model: name = 'digits'")
        service, limit = self.services[LoggedVersions], min(query.max_results, 1000)
        try:
            found = await service.versions(self.person, name, limit, _after(query.page_token, 9))
        except NotFound:
            return VersionsReply()
        items = [version_message(one) for one in found.items]
        token = None if found.after is None else str(found.after)
        return VersionsReply(model_versions=items or None, next_page_token=token)


@serves("model-versions/update")
class UpdatedVersion(ProtocolHandler):
    """Another description."""

    @needs("write", cross_site="bearer", action=Action.VERSION_EDIT)
    async def patch(self, body: EditVersionMessage) -> VersionReply:
        """Change the description of a version."""
        view = await self.services[LoggedVersions].edit_version(
            self.person, body.name, body.version, description=body.description
        )
        return VersionReply(model_version=version_message(view))


@serves("model-versions/delete")
class DeletedVersion(ProtocolHandler):
    """A version that goes."""

    @needs("write", cross_site="bearer", action=Action.VERSION_DELETE)
    async def delete(self, body: VersionKey) -> Empty:
        """Delete a version."""
        await self.services[LoggedVersions].delete_version(self.person, body.name, body.version)
        return Empty()


@serves("model-versions/set-tag")
class SetVersionTag(ProtocolHandler):
    """A tag."""

    @needs("write", cross_site="bearer", action=Action.VERSION_EDIT)
    async def post(self, body: VersionTag) -> Empty:
        """Set a tag of a version."""
        tags = {body.key: body.value}
        await self.services[LoggedVersions].edit_version(self.person, body.name, body.version, tags=tags)
        return Empty()


@serves("model-versions/delete-tag")
class DeleteVersionTag(ProtocolHandler):
    """A tag that goes."""

    @needs("write", cross_site="bearer", action=Action.VERSION_EDIT)
    async def delete(self, body: VersionTagKey) -> Empty:
        """Remove a tag of a version."""
        service = self.services[LoggedVersions]
        await service.edit_version(self.person, body.name, body.version, remove=[body.key])
        return Empty()


@serves("model-versions/transition-stage")
class StagedVersion(ProtocolHandler):
    """A stage, which is a label here."""

    @needs("write", cross_site="bearer", action=Action.LABEL_MOVE)
    async def post(self, body: Stage) -> VersionReply:
        """Give a version a stage."""
        view = await self.services[LoggedVersions].with_stage(
            self.person, body.name, body.version, body.stage, body.archive_existing_versions
        )
        return VersionReply(model_version=version_message(view))
