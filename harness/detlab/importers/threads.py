"""A few threads that work off a stream of jobs, and stop together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
AHEAD = 3
"""Jobs that are taken from the stream for each thread, at most."""


def work_off(jobs: Iterable[T], work: Callable[[T], object], threads: int, stop: Callable[[], object]) -> None:
    """Do all jobs of a stream, several at a time; the stream itself is read here.

    Args:
        jobs: The stream.
        work: Does one.
        threads: How many at a time.
        stop: Tells those under way to stop, after the first error or an interrupt.

    Raises:
        Exception: The first of a job.
    """
    with _pool(threads, stop) as pool:
        pending: set[Future[object]] = set()
        for job in jobs:
            pending.add(pool.submit(work, job))
            if len(pending) >= AHEAD * threads:
                pending = _judged(pending)
        while pending:
            pending = _judged(pending)


def _judged(pending: set[Future[object]]) -> set[Future[object]]:
    done, left = wait(pending, return_when=FIRST_COMPLETED)
    for one in done:
        one.result()
    return left


@contextmanager
def _pool(threads: int, stop: Callable[[], object]) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="detlab-import")
    try:
        yield pool
    except BaseException:
        stop()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
