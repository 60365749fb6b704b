"""Executors behind the store: the readers' threads, and an inline one for simulations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs each call immediately in the caller's thread: without threads, in the caller's own order."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` now and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # the future raises it, as from any executor
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        return future


def reader_threads(size: int) -> Executor:
    """Return an executor of `size` threads."""
    return ThreadPoolExecutor(size, thread_name_prefix="detlab-reader")
