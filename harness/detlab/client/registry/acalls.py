"""The part of the asynchronous client that is about registered models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from detlab.client.operations import registry
from detlab.client.ordering import OrderBy, archived_filter, several
from detlab.client.plain_values import plain
from detlab.client.registry.amodels import AsyncModel, AsyncModelVersion
from detlab.client.registry.facts import ModelSortBy
from detlab.client.transport.session import AsyncSession


class AsyncRegistryCalls:
    """Models of a cluster."""

    session: AsyncSession

    async def create_model(
        self,
        name: str,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Collection[str] = (),
        *,
        notes: str = "",
        workspace: str | int = "",
    ) -> AsyncModel:
        """Make a model: a name under which versions are kept.

        Args:
            name: Unique among one's own models; not only digits.
            description: What it is.
            metadata: Any JSON.
            labels: Words by which it is found.
            notes: Markdown.
            workspace: Where it is to lie, and so whose members see it; empty: your personal one.

        Raises:
            Conflict: There is one of this name.
        """
        fields = {
            "description": description,
            "metadata": plain(metadata or {}, "metadata"),
            "labels": several(labels),
            "notes": notes,
            **({"workspace": str(workspace)} if workspace != "" else {}),
        }
        return AsyncModel(self.session, await self.session.run(registry.create_model(name=name, **fields)))

    async def get_model(self, identifier: str | int) -> AsyncModel:
        """Return a model by its name if it is your own, by `OWNER/NAME`, or by its id.

        Raises:
            NotFound: There is none.
        """
        return AsyncModel(self.session, await self.session.run(registry.get_model(identifier)))

    async def get_model_by_id(self, model_id: int) -> AsyncModel:
        """Return a model by its id."""
        return await self.get_model(int(model_id))

    async def get_model_version(self, reference: str) -> AsyncModelVersion:
        """Return a version by `digits@production`, `digits@3`, `digits@1.2.0` or `digits`, which is its newest."""
        name, version = registry.split_reference(reference)
        return AsyncModelVersion(self.session, await self.session.run(registry.get_version(name, version)))

    async def list_models(
        self,
        sort_by: ModelSortBy | str = ModelSortBy.NAME,
        order_by: OrderBy | str = OrderBy.ASCENDING,
        name: str | None = None,
        description: str | None = None,
        *,
        labels: Collection[str] = (),
        owner: str | None = None,
        archived: bool | None = False,
        limit: int | None = None,
        workspace: str | int | None = None,
    ) -> list[AsyncModel]:
        """Return models.

        Args:
            sort_by: The key.
            order_by: The direction.
            name: A part of the name, in capitals or not.
            description: A part of the description.
            labels: Only those with all of these labels.
            owner: Only this user's.
            archived: False leaves archived ones out, True all others; None leaves out none.
            limit: Only the newest so many.
            workspace: Only those that lie in this one: its name, `OWNER/NAME` or id.
        """
        key, descending = ModelSortBy(sort_by).value, OrderBy(order_by) is OrderBy.DESCENDING
        which = archived_filter(archived)
        words = several(labels) or ()
        wanted = registry.list_models(
            limit=limit, name=name, owner=owner, labels=words, archived=which, workspace=workspace
        )
        views = await self.session.run(wanted)
        if description is not None:
            views = [view for view in views if description.lower() in view.description.lower()]
        views.sort(key=lambda view: getattr(view, key), reverse=descending)
        return [AsyncModel(self.session, view) for view in views]

    async def get_models(
        self,
        sort_by: ModelSortBy | str = ModelSortBy.NAME,
        order_by: OrderBy | str = OrderBy.ASCENDING,
        name: str | None = None,
        description: str | None = None,
    ) -> list[AsyncModel]:
        """Do the same as `list_models`, which replaced it in Determined."""
        return await self.list_models(sort_by, order_by, name, description)

    async def get_model_labels(self) -> list[str]:
        """Return the labels of all models, the most frequent first."""
        return await self.session.run(registry.model_labels())

    async def best(
        self, metric: str, where: str = "", *, smaller_is_better: bool = False, limit: int = 1
    ) -> list[AsyncModelVersion]:
        """Return the best versions of all models by a metric at their steps.

        Args:
            metric: Such as `accuracy` (of the group `validation`) or `training.loss`.
            where: A condition, such as `label = vision and dataset = v3 and hp.lr < 0.1`.
            smaller_is_better: The order.
            limit: At most this many.

        Raises:
            ConfigError: The condition cannot be read; the message points at the column.
        """
        wanted = registry.search(metric, where, smaller_is_better=smaller_is_better, limit=limit)
        return [AsyncModelVersion(self.session, view) for view in await self.session.run(wanted)]

    async def search_versions(self, where: str = "", *, limit: int = 100) -> list[AsyncModelVersion]:
        """Return versions of all models by a condition (see `best`), newest first."""
        views = await self.session.run(registry.search(None, where, limit=limit))
        return [AsyncModelVersion(self.session, view) for view in views]
