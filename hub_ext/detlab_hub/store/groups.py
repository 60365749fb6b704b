"""Group commit: writes that wait for the same thread run together, so that they share one commit.

A commit costs an fsync, whatever was written. While one is under way, others wait; taken together they wait for one
more, not for one each. A single write runs as usual.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from sqlalchemy.orm import Session

P = ParamSpec("P")
T = TypeVar("T")
MOST = 32
"""Writes in one transaction."""
PATIENCE = 0.025
"""Seconds after which a transaction takes no further write: the first one waits for the last."""


@dataclass(eq=False)
class QueuedWrite:
    """One write: what to do, and the future that gets the result once it is committed."""

    fn: Callable[[Session], Any]
    future: Future[Any] = field(default_factory=Future)


def as_told(error: BaseException) -> BaseException:
    """Return the error in a form that a future can raise: a coroutine that gets StopIteration would wait for ever."""
    if not isinstance(error, StopIteration):
        return error
    told = RuntimeError("a write raised StopIteration")
    told.__cause__ = error
    return told


@dataclass
class Outcome:
    """The result of one write of a group whose transaction is still open."""

    write: QueuedWrite
    result: Any = None
    error: BaseException | None = None

    def tell(self) -> None:
        """Set the result of the future; only after the commit."""
        if self.error is None:
            self.write.future.set_result(self.result)
        else:
            self.write.future.set_exception(as_told(self.error))


class GroupingWriter(Executor):
    """An executor of one thread that runs writes together that wait at the same time.

    Args:
        alone: Runs one write in its own transaction. Its calls are grouped.
        together: Runs a first one and those that follow in one transaction. It sets the result of each that it takes,
            and does not raise.
    """

    def __init__(
        self,
        alone: Callable[[Callable[[Session], Any]], Any],
        together: Callable[[QueuedWrite, Iterator[QueuedWrite]], None],
    ) -> None:
        self._alone, self._together = alone, together
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="detlab-writer")
        self._waiting: deque[QueuedWrite] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in the thread, in its turn; a write may run together with others.

        Raises:
            RuntimeError: The writer is closed.
        """
        if fn != self._alone:
            return self._thread.submit(fn, *args, **kwargs)
        write = QueuedWrite(*args, **kwargs)  # type: ignore[arg-type]  # they are those of `alone`
        self._waiting.append(write)
        try:
            self._thread.submit(self._take)
        except RuntimeError:
            # It has been shut down. The last call before may have taken this one in all the same.
            if write.future.cancel():
                raise
        return write.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more writes; waiting ones are still written, unless they are cancelled."""
        if cancel_futures:
            for write in tuple(self._waiting):
                write.future.cancel()
        self._thread.shutdown(wait)

    def _take(self) -> None:
        """Run the waiting writes. This is called once for each write; each call completes at least one if any waits."""
        first = self._next()
        if first is None:
            return
        if self._waiting:
            self._together(first, self._others(min(len(self._waiting), MOST - 1), time.monotonic() + PATIENCE))
            return
        try:
            result = self._alone(first.fn)
        except BaseException as error:  # the future raises it, as from any executor
            first.future.set_exception(as_told(error))
        else:
            first.future.set_result(result)

    def _others(self, count: int, until: float) -> Iterator[QueuedWrite]:
        """Yield at most `count` waiting writes, and none after `until`: the rest follow in a later transaction."""
        for _ in range(count):
            write = None if time.monotonic() > until else self._next()
            if write is None:
                return
            yield write

    def _next(self) -> QueuedWrite | None:
        """Return the oldest waiting write that was not cancelled, None if there is none."""
        while self._waiting:
            write = self._waiting.popleft()
            if write.future.set_running_or_notify_cancel():
                return write
        return None
