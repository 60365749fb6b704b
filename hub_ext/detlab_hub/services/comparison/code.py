"""How the code of experiments differs, file by file, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from detlab.errors import DetlabError
from detlab.schemas.taskwire import CodeFile
from detlab.schemas.wire.registry import FileDifference
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.threads import TooSlow
from detlab_hub.services.comparison.differing import unified
from detlab_hub.services.experiments.code import FILE_LIMIT, Code

MOST_FILES = 500
"""Files of the code that differ."""
MOST_DIFFS = 50
"""Of them, how many are compared line by line."""
DIFFED_BYTES = 256 * 1024
"""Bytes of the largest file that is compared line by line."""
DIFFS_SECONDS = 10.0
"""After which no further file of a request is compared line by line."""


@dataclass(frozen=True)
class CodeSource:
    """The code of one side.

    Attributes:
        experiment: Whose.
        bundle: The one that it had earlier; None: the one that it has.
        name: Of the side, for people.
    """

    experiment: int
    bundle: str | None
    name: str


class CodeDifferences(Service):
    """Compares the code of experiments.

    Args:
        context: Threads.
        code: Reads the code.
    """

    def __init__(self, context: ServiceContext, code: Code) -> None:
        super().__init__(context)
        self._code = code

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Code])

    async def between(self, caller: Caller, sources: Sequence[CodeSource]) -> list[FileDifference]:
        """Return the files that are not the same in all sources, by path.

        Raises:
            NotFound: An experiment is not there for the caller, or its code is no longer stored.
            BundleError: Some code cannot be shown.
        """
        lists = [(await self._code.list(caller, one.experiment, one.bundle)).items for one in sources]
        by_path = [{file.path: file for file in files} for files in lists]
        found: list[FileDifference] = []
        until = asyncio.get_running_loop().time() + DIFFS_SECONDS
        for path in sorted({path for files in by_path for path in files}):
            here = [files.get(path) for files in by_path]
            if len({None if file is None else file.digest for file in here}) < 2:
                continue
            more = len(found) < MOST_DIFFS and asyncio.get_running_loop().time() < until
            text = await self._diff(caller, path, here, sources) if more else ""
            digests = [None if file is None else file.digest for file in here]
            found.append(FileDifference(path=path, digests=digests, diff=text))
            if len(found) >= MOST_FILES:
                break
        return found

    async def _diff(
        self, caller: Caller, path: str, here: Sequence[CodeFile | None], sources: Sequence[CodeSource]
    ) -> str:
        """Return the difference of the first side that has a file and the next that has another one."""
        having = [(file, place) for place, file in enumerate(here) if file is not None]
        other = next(((file, place) for file, place in having[1:] if file.digest != having[0][0].digest), None)
        if other is None or any(file.size > min(DIFFED_BYTES, FILE_LIMIT) for file, _ in (having[0], other)):
            return ""
        texts, names = [], []
        for file, place in (having[0], other):
            one = sources[place]
            try:
                texts.append((await self._code.file(caller, one.experiment, file.digest, one.bundle)).decode())
            except (DetlabError, UnicodeDecodeError):  # gone meanwhile, or no text
                return ""
            names.append(f"{path} ({one.name})")
        try:
            return await self._context.workers.comparisons.run(caller.name, unified, texts, names)
        except TooSlow:
            return ""
