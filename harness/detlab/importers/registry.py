"""Registered models of a source, in the registry: versions of what was copied, aliases and stages as labels.

A model and a version that an import has made say so in their metadata, so that none is made twice. A label that
somebody has given to another version here stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from detlab.errors import ApiError
from detlab.importers.copying import RunCopies
from detlab.importers.destination import FROM_TAG, SOURCE_TAG
from detlab.importers.foreign import ForeignRegisteredModel, ForeignVersion, ImportSource, origin_of
from detlab.importers.names import VALUE_CHARS, key_of, label_of, registered_name
from detlab.importers.report import ImportReport
from detlab.importers.tracking_api import TrackingApi, TrackingRefusal
from detlab.schemas.text_limits import DESCRIPTION_CHARS
from detlab.schemas.wire.registry import ModelView, VersionView

if TYPE_CHECKING:
    from detlab.client.client import Client

NUMBER_KEY = "mlflow.version"
"""In the metadata of a version: its number in the source."""


class RegistryCopies:
    """The copy of registered models.

    Args:
        source: What is read.
        client: The cluster.
        api: The same, by the tracking protocol.
        copies: Which runs and logged models are copied.
        report: Counts what is done.
        workspace: Where models are made; empty: the personal one.
        dry: Only look.
    """

    def __init__(
        self,
        source: ImportSource,
        client: Client,
        api: TrackingApi,
        copies: RunCopies,
        report: ImportReport,
        *,
        workspace: str,
        dry: bool,
    ) -> None:
        self._source, self._client, self._api, self._copies = source, client, api, copies
        self._report, self._workspace, self._dry = report, workspace, dry
        self._left_out = report.left_out

    def copy(self) -> None:
        """Copy those whose versions are of runs that were copied."""
        known: dict[str, ModelView] | None = None
        for one in self._source.registered():
            versions = [version for version in one.versions if self._can(one, version)]
            if not versions:
                continue
            if known is None:
                known = self._known_models()
            self._one(one, versions, known)

    def _known_models(self) -> dict[str, ModelView]:
        found = self._client.list_models(workspace=self._workspace or None, archived=None)
        views = [self._whole(one.view) for one in found if self._workspace or not one.view.workspace]
        return {str(one.metadata[SOURCE_TAG]): one for one in views if SOURCE_TAG in one.metadata}

    def _whole(self, view: ModelView) -> ModelView:
        """Return a model with all of its metadata, of which a list may have a part."""
        return self._client.get_model(view.id).view if "metadata" in view.shortened else view

    def _can(self, one: ForeignRegisteredModel, version: ForeignVersion) -> bool:
        if version.model in self._copies.models or (version.run in self._copies.runs and not version.model):
            return True
        where = f"{one.name} {version.number}: {version.source}"
        self._left_out.add("versions of registered models whose files are not copied", where)
        return False

    def _key(self, one: ForeignRegisteredModel) -> str:
        return f"{self._source.kind}:{one.name}@{one.created_ms}"

    def _one(
        self, one: ForeignRegisteredModel, versions: Sequence[ForeignVersion], known: dict[str, ModelView]
    ) -> None:
        try:
            view = known.get(self._key(one)) or self._of_name(one)
            if view is not None and view.right == "read":
                self._left_out.add("registered models that others have here", one.name)
                return
            there = {} if view is None else self._versions(view)
            if view is None and not self._dry:
                view = self._made(one)
            if view is None or self._key(one) not in known:
                self._report.add(models=1)
            for version in versions:
                self._version(one, view, version, there)
        except TrackingRefusal as refusal:
            if refusal.ends(self._source.label):
                raise
            self._left_out.add("registered models that were refused", f"{one.name}: {refusal.message}")
        except ApiError as error:
            self._left_out.add("registered models that were refused", f"{one.name}: {error.message}")

    def _of_name(self, one: ForeignRegisteredModel) -> ModelView | None:
        """Return the caller's own model of that name: its next versions are those of the source."""
        wanted = registered_name(one.name).casefold()
        found = self._client.list_models(name=registered_name(one.name), archived=None)
        mine = [made.view for made in found if made.view.name.casefold() == wanted and made.view.right == "own"]
        return mine[0] if mine else None

    def _made(self, one: ForeignRegisteredModel) -> ModelView:
        metadata = {key: value[:VALUE_CHARS] for key, value in one.tags.items() if key_of(key) == key}
        metadata |= {SOURCE_TAG: self._key(one), FROM_TAG: origin_of(self._source)}
        name = registered_name(one.name)
        made = self._client.create_model(name, one.description[:DESCRIPTION_CHARS], metadata, workspace=self._workspace)
        return made.view

    def _versions(self, view: ModelView) -> dict[str, VersionView]:
        found = {}
        for one in self._client.get_model(view.id).list_versions():
            version = one.view
            if "metadata" in version.shortened:
                version = self._client.get_model(view.id).get_version(version.version).view
            found[str(version.metadata.get(SOURCE_TAG, ""))] = version
        return found

    def _version(
        self,
        one: ForeignRegisteredModel,
        view: ModelView | None,
        version: ForeignVersion,
        there: dict[str, VersionView],
    ) -> None:
        key = f"{self._key(one)}/{version.number}@{version.created_ms}"
        made = there.get(key)
        if made is None:
            self._report.add(versions=1)
        if self._dry or view is None:
            return
        held = {label.casefold() for label in view.moving}
        number = str(made.version) if made is not None else self._register(view, version, key)
        for label in version.labels:
            wanted = label_of(label)
            if wanted is None:
                self._left_out.add("aliases that cannot be labels", f"{one.name}: {label}")
            elif wanted.casefold() not in held:
                self._api.post("registered-models/alias", {"name": str(view.id), "alias": wanted, "version": number})

    def _register(self, view: ModelView, version: ForeignVersion, key: str) -> str:
        if version.model in self._copies.models:
            source = f"models:/{self._copies.models[version.model]}"
        else:
            source = f"runs:/{self._copies.runs[version.run]}/{version.folder}"
        tags = {name: value[:VALUE_CHARS] for name, value in version.tags.items() if key_of(name) == name}
        tags |= {SOURCE_TAG: key, NUMBER_KEY: str(version.number)}
        body = {
            "name": str(view.id),
            "source": source,
            "description": version.description[:DESCRIPTION_CHARS],
            "tags": [{"key": name, "value": value} for name, value in tags.items()],
        }
        reply = self._api.post("model-versions/create", body, again=False)
        return str(reply["model_version"]["version"])
