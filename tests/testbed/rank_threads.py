"""Ranks as threads of one process, with real `DistributedContext`s between them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detlab.core import DistributedContext


class RankThreads:
    """A group of ranks; `each` runs a function on all of them at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._threads = ThreadPoolExecutor(size)
        self.contexts: list[DistributedContext] = self.each_number(self._join)

    def _join(self, rank: int) -> DistributedContext:
        return DistributedContext(
            rank=rank,
            size=self.size,
            local_rank=rank,
            local_size=self.size,
            cross_rank=0,
            cross_size=1,
            timeout=20,
            operation_timeout=20,
        )

    def each_number(self, function: Callable[[int], Any]) -> list[Any]:
        return list(self._threads.map(function, range(self.size)))

    def each(self, function: Callable[[DistributedContext], Any]) -> list[Any]:
        """Return what `function` returned on each rank, or the exception it raised."""

        def call(rank: int) -> Any:
            try:
                return function(self.contexts[rank])
            except Exception as error:  # handed to the test, which says what it expects
                return error

        return self.each_number(call)

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        self._threads.shutdown()


@contextlib.contextmanager
def rank_threads(sizes: tuple[int, ...], directory: Path) -> Iterator[dict[int, RankThreads]]:
    """Give a group of each size; they use a task directory, so that no port is fixed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        groups = {}
        for size in sizes:
            task_dir = directory / str(size)
            task_dir.mkdir()
            (task_dir / "rank_key").write_text(secrets.token_hex(32))
            (task_dir / "rank_key").chmod(0o600)
            patch.setenv("DET_TASK_DIR", str(task_dir))
            groups[size] = RankThreads(size)
            stack.callback(groups[size].close)
        patch.delenv("DET_TASK_DIR")
        yield groups
