"""Routes of models. One is named by its name, percent-encoded, by OWNER/NAME likewise, or by its id."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from detlab.schemas.wire import Archived, GrantList, GrantRequest, GrantTo, Wire
from detlab.schemas.wire.edits import Label
from detlab.schemas.wire.registry import (
    Comparison,
    CreateModel,
    EditModel,
    LabelMove,
    LabelMoves,
    ModelList,
    ModelView,
    MoveLabel,
    RemoveLabel,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.registry.comparing import Comparisons
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models as ModelsService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class ModelsQuery(Wire):
    """Which models."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`after` of the last page."""
    name: str | None = Field(None, max_length=1000)
    """A part of the name."""
    owner: str | None = None
    label: list[Label] = Field(default_factory=list, max_length=20)
    """Only those with all of these labels; repeat it."""
    archived: Archived = "no"
    """`no` leaves archived models out, `only` leaves out all others."""
    workspace: str | None = Field(None, max_length=1000)
    """Only those that lie in this workspace: a name, OWNER/NAME or an id."""


class Forced(Wire):
    """How a deletion is meant."""

    force: bool = False
    """Also if labels point at it."""


class CompareQuery(Wire):
    """What is compared."""

    versions: Annotated[str, Field(max_length=2000)] = ""
    """Numbers, semantic versions or labels, separated by commas; empty: the newest two."""


class HistoryQuery(Wire):
    """Which moves."""

    limit: int = Field(200, ge=1, le=2000)
    label: str | None = Field(None, max_length=100)


class Words(Wire):
    """Labels of models."""

    items: list[str]


@route("models", relayed=True)
class Models(Guarded):
    """All models."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: ModelsQuery) -> ModelList:
        """List models, newest first."""
        return await self.services[ModelsService].list(
            self.person,
            limit=query.limit,
            after=query.after,
            name=query.name,
            owner=query.owner,
            labels=query.label,
            archived=query.archived,
            workspace=query.workspace,
        )

    @needs("write", cross_site="xsrf", action=Action.MODEL_CREATE)
    async def post(self, body: CreateModel) -> ModelView:
        """Make a model, which has no version yet."""
        return await self.services[ModelsService].create(self.person, body)


@route("model-labels")
class ModelLabels(Guarded):
    """The labels of all models."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> Words:
        """List the labels of models, the most frequent first."""
        return Words(items=[*await self.services[ModelsService].words(self.person)])


@route("models/{model}", relayed=True)
class Model(Guarded):
    """One model."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str) -> ModelView:
        """Return a model, without its versions."""
        return await self.services[ModelsService].get(self.person, model)

    @needs("write", cross_site="xsrf", action=Action.MODEL_DELETE)
    async def delete(self, model: str, query: Forced) -> ModelView:
        """Delete a model with its versions; the checkpoints stay, and may be deleted then."""
        return await self.services[ModelsService].delete(self.person, model, force=query.force)


@route("models/{model}/edit", relayed=True)
class EditOne(Guarded):
    """What people write about a model."""

    @needs("write", cross_site="xsrf", action=Action.MODEL_EDIT)
    async def post(self, model: str, body: EditModel) -> ModelView:
        """Change a model's name, texts, metadata and labels; archive it or restore it."""
        return await self.services[ModelsService].edit(self.person, model, body)


@route("models/{model}/compare", relayed=True)
class Compare(Guarded):
    """Versions side by side."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str, query: CompareQuery) -> Comparison:
        """Compare versions: metrics, hyperparameters, and what differs of config, environment and code."""
        named = [name.strip() for name in query.versions.split(",") if name.strip()]
        return await self.services[Comparisons].compare(self.person, model, named)


@route("models/{model}/labels", relayed=True)
class History(Guarded):
    """The moves of labels."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str, query: HistoryQuery) -> LabelMoves:
        """List who moved which label of a model when and why, newest first."""
        return await self.services[Labels].history(self.person, model, query.limit, query.label)


@route("models/{model}/labels/{label}", relayed=True)
class Move(Guarded):
    """One label of a model's versions."""

    @needs("write", cross_site="xsrf", action=Action.LABEL_MOVE)
    async def post(self, model: str, label: str, body: MoveLabel) -> LabelMove:
        """Give a label to a version, and take it from the one that had it."""
        return await self.services[Labels].move(self.person, model, label, body)


@route("models/{model}/labels/{label}/remove", relayed=True)
class Remove(Guarded):
    """The removal of a label."""

    @needs("write", cross_site="xsrf", action=Action.LABEL_REMOVE)
    async def post(self, model: str, label: str, body: RemoveLabel) -> LabelMove:
        """Take a label away: no version has it then."""
        return await self.services[Labels].remove(self.person, model, label, body)


@route("models/{model}/grants", relayed=True)
class Grants(Guarded):
    """The grants of a model."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str) -> GrantList:
        """List with whom the model is shared."""
        return await self.services[ModelsService].grants(self.person, model)

    @needs("write", cross_site="xsrf", action=Action.MODEL_SHARE)
    async def put(self, model: str, body: GrantRequest) -> GrantList:
        """Share the model, with the checkpoints of its versions; a grant to the same one is replaced."""
        return await self.services[ModelsService].share(self.person, model, body)

    @needs("write", cross_site="xsrf", action=Action.MODEL_UNSHARE)
    async def delete(self, model: str, query: GrantTo) -> GrantList:
        """Take a grant back."""
        return await self.services[ModelsService].unshare(self.person, model, query)
