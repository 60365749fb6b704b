"""What an executor is told of the calls that a store gives it: simulations delay writes, and callers that wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.writer import StoreCall


class Listening(InlineExecutor):
    def __init__(self) -> None:
        self.told: list[tuple[bool, bool]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if isinstance(fn, StoreCall):
            self.told.append((fn.writes, fn.awaited))
        return super().submit(fn, *args, **kwargs)


async def test_an_executor_is_told_whether_a_call_writes_and_whether_a_loop_waits() -> None:
    """A simulation read this from the name of a function up the stack: a helper between them ended its slow disks."""
    told = Listening()
    store = Store.open("sqlite://", holder="test", writer=told)
    try:
        told.told.clear()
        assert await store.write(lambda session: 1) == 1
        assert await store.read(lambda session: 2) == 2
        assert store.write_sync(lambda session: 3) == 3
        assert store.read_sync(lambda session: 4) == 4
        await store.renew()
        assert told.told == [(True, True), (False, True), (True, False), (False, False), (True, True)]
    finally:
        store.close()


def test_a_write_is_a_write_whoever_waits_for_it() -> None:
    def run(fn: Callable[[Any], Any]) -> Any:
        return fn(None)

    assert StoreCall(run, writes=True, awaited=True) == StoreCall(run, writes=True, awaited=False)
    assert StoreCall(run, writes=True, awaited=True) != StoreCall(run, writes=False, awaited=True)
