"""Executors behind the store: the readers' threads, and an inline one for simulations; what they are given."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from sqlalchemy.orm import Session

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreCall(Generic[T]):
    """How a call reaches the database; an executor that treats writes in its own way, or waiting callers, looks here.

    Attributes:
        run: Runs the call in a transaction.
        writes: Whether that transaction writes.
        awaited: Whether an event loop waits for it; else the thread that submits it.
    """

    run: Callable[[Callable[[Session], T]], T]
    writes: bool
    awaited: bool = field(compare=False)

    def __call__(self, fn: Callable[[Session], T]) -> T:
        """Run a call."""
        return self.run(fn)


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
