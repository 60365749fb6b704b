"""Versions side by side: metrics, hyperparameters, config, environment and code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, DetlabError, Problem
from detlab.schemas.wire.registry import Comparison, FileDifference, VersionView
from detlab_hub.services.base.access import may_read, model_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.comparison.code import CodeDifferences, CodeSource
from detlab_hub.services.comparison.differing import differences, flat
from detlab_hub.services.registry.labels import version_of
from detlab_hub.services.registry.views import version_views
from detlab_hub.store.queries.registry import models

MOST_VERSIONS = 10


class Comparisons(Service):
    """Compares versions of a model.

    Args:
        context: Reads.
        code: Compares the code of experiments.
    """

    def __init__(self, context: ServiceContext, code: CodeDifferences) -> None:
        super().__init__(context)
        self._code = code

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[CodeDifferences])

    async def compare(self, caller: Caller, model: str, versions: Sequence[str]) -> Comparison:
        """Compare versions of a model, in the order in which they are named; none named: the newest two.

        The config and the code of experiments that the caller may not read are left out.

        Raises:
            ConfigError: They are one, or more than ten.
            NotFound: There is no such model for the caller, or no such version.
        """
        if len(versions) == 1 or len(versions) > MOST_VERSIONS:
            problem = f"name 2 to {MOST_VERSIONS} versions, not {len(versions)}"
            raise ConfigError([Problem("versions", problem)], f"nothing to compare: {problem}")

        def look(s: Session) -> tuple[list[VersionView], list[int | None]]:
            row = model_for(s, caller, model)
            found = [version_of(s, row, name) for name in versions] or models.versions(s, row.id, limit=2)[::-1]
            views = version_views(s, found, caller, full=True)
            ids = [view.lineage.experiment_id for view in views]
            return views, [one if one is not None and may_read(s, caller, one) else None for one in ids]

        views, experiments = await self._context.look(caller.name, look)
        found = await self._context.workers.comparisons.run(caller.name, compare_views, views)
        return found.model_copy(update={"code": await self._compare_code(caller, views, experiments)})

    async def _compare_code(
        self, caller: Caller, views: Sequence[VersionView], experiments: Sequence[int | None]
    ) -> list[FileDifference]:
        if len({view.lineage.bundle_digest for view in views}) < 2 or None in experiments:
            return []
        # As they were when the versions were registered: an experiment may have got other code since.
        sources = [
            CodeSource(one, view.lineage.bundle_digest or None, f"version {view.version}")
            for one, view in zip(experiments, views, strict=True)
            if one is not None
        ]
        try:
            return await self._code.between(caller, sources)
        except DetlabError:  # a bundle is gone or damaged: the rest of the comparison is of use without it
            return []


def compare_views(views: Sequence[VersionView]) -> Comparison:
    """Compare what the views hold."""
    lineages = [view.lineage for view in views]
    configs = [flat(lineage.config) for lineage in lineages]
    return Comparison(
        versions=[view.model_copy(update={"lineage": _small(view)}) for view in views],
        metrics=differences([lineage.metrics for lineage in lineages]),
        hyperparameters=differences([flat(lineage.hyperparameters) for lineage in lineages]),
        config=[row for row in differences(configs) if not row.same] if all(configs) else [],
        environment=[row for row in differences([lineage.environment for lineage in lineages]) if not row.same],
    )


def _small(view: VersionView) -> Any:
    return view.lineage.model_copy(update={"config": {}, "environment": {}})
