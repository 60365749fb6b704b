"""Versions side by side: metrics, hyperparameters, config, environment and code."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, DetlabError, Problem
from detlab.schemas.taskwire import CodeFile
from detlab.schemas.wire.registry import Comparison, Difference, FileDifference, VersionView
from detlab_hub.services.base.access import may_read, model_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.threads import TooSlow
from detlab_hub.services.experiments.code import FILE_LIMIT, Code
from detlab_hub.services.registry.labels import version_of
from detlab_hub.services.registry.views import version_views
from detlab_hub.store.queries.registry import models

MOST_VERSIONS = 10
MOST_ROWS = 2000
"""Rows of each table of a comparison."""
MOST_FILES = 500
"""Files of the code that differ."""
MOST_DIFFS = 50
"""Of them, how many are compared line by line."""
DIFF_CHARS = 20_000
"""Of one file."""
_EMPTY: tuple[Any, ...] = (None, {}, [], "")
"""What says nothing in a config: written or left out, it is the same."""
DIFFED_BYTES = 256 * 1024
"""Bytes of the largest file that is compared line by line."""
DIFFED_LINES = 3000
"""Lines of such a file: the time that a comparison takes grows with their square, and faster."""
DIFFS_SECONDS = 10.0
"""After which no further file of a request is compared line by line."""


class Comparisons(Service):
    """Compares versions of a model.

    Args:
        context: Reads.
        code: Reads the code of experiments.
    """

    def __init__(self, context: ServiceContext, code: Code) -> None:
        super().__init__(context)
        self._code = code

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Code])

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
            (one, view.lineage.bundle_digest or None)
            for one, view in zip(experiments, views, strict=True)
            if one is not None
        ]
        try:
            lists = [(await self._code.list(caller, *one)).items for one in sources]
        except DetlabError:  # a bundle is gone or damaged: the rest of the comparison is of use without it
            return []
        by_path = [{file.path: file for file in files} for files in lists]
        found: list[FileDifference] = []
        until = asyncio.get_running_loop().time() + DIFFS_SECONDS
        for path in sorted({path for files in by_path for path in files}):
            here = [files.get(path) for files in by_path]
            if len({None if file is None else file.digest for file in here}) < 2:
                continue
            more = len(found) < MOST_DIFFS and asyncio.get_running_loop().time() < until
            text = await self._diff(caller, path, here, sources, views) if more else ""
            digests = [None if file is None else file.digest for file in here]
            found.append(FileDifference(path=path, digests=digests, diff=text))
            if len(found) >= MOST_FILES:
                break
        return found

    async def _diff(
        self,
        caller: Caller,
        path: str,
        here: Sequence[CodeFile | None],
        sources: Sequence[tuple[int, str | None]],
        views: Sequence[VersionView],
    ) -> str:
        """Return the difference of the first version that has a file and the next that has another one."""
        having = [(file, place) for place, file in enumerate(here) if file is not None]
        other = next(((file, place) for file, place in having[1:] if file.digest != having[0][0].digest), None)
        if other is None or any(file.size > min(DIFFED_BYTES, FILE_LIMIT) for file, _ in (having[0], other)):
            return ""
        texts, names = [], []
        for file, place in (having[0], other):
            try:
                experiment, bundle = sources[place]
                texts.append((await self._code.file(caller, experiment, file.digest, bundle)).decode())
            except (DetlabError, UnicodeDecodeError):  # gone meanwhile, or no text
                return ""
            names.append(f"{path} (version {views[place].version})")
        try:
            return await self._context.workers.comparisons.run(caller.name, unified, texts, names)
        except TooSlow:
            return ""


def unified(texts: Sequence[str], names: Sequence[str]) -> str:
    """Return the unified difference of two texts; empty if one has too many lines."""
    before, after = (text.splitlines(keepends=True) for text in texts)
    if max(len(before), len(after)) > DIFFED_LINES:
        return ""
    lines = difflib.unified_diff(before, after, names[0], names[1])
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return text if len(text) <= DIFF_CHARS else f"{text[:DIFF_CHARS]}\n… (longer than is shown)\n"


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


def differences(values: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return a row for each name that any of the mappings has, by name; a value that is empty is none."""
    names = sorted({name for mapping in values for name in mapping})
    rows = []
    for name in names[:MOST_ROWS]:
        found = [mapping.get(name) for mapping in values]
        same = all(one == found[0] or (one in _EMPTY and found[0] in _EMPTY) for one in found)
        rows.append(Difference(name=name, values=found, same=same))
    return rows


def flat(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return nested mappings as one, by dotted path."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < 20:
            found.update(flat(value, f"{name}.", depth + 1))
        else:
            found[name] = value
    return found
