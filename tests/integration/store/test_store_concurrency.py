"""Readers beside the writer see whole transactions, never half of one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from detlab_hub.store import Store
from detlab_hub.store.queries import events
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import TrialRow

COMMITS = 150


def test_readers_see_whole_transactions_while_the_writer_writes(store: Store, trial_id: int) -> None:
    done = threading.Event()
    faults: list[str] = []
    looks = [0, 0, 0]

    def write_one(s: object, step: int) -> None:
        metrics.insert_report(s, trial_id, 1, "training", step, 0.0, {"a": step, "b": -step})
        row = s.get(TrialRow, trial_id)
        row.steps_completed = step
        events.append(s, "metrics", 0.0, 1, trial_id, {"step": step})

    def look(index: int) -> None:
        newest = 0
        while not done.is_set():
            row, curves, head = store.read_sync(
                lambda s: (s.get(TrialRow, trial_id), metrics.series(s, [trial_id]), events.head(s))
            )
            assert row is not None
            lasts = {view.name: view.steps[-1] for view in curves}
            seen = row.steps_completed
            if seen and lasts != {"a": seen, "b": seen}:
                faults.append(f"trial at {seen}, curves at {lasts}")
            if head != seen:
                faults.append(f"trial at {seen}, events at {head}")
            if seen < newest:
                faults.append(f"time ran back from {newest} to {seen}")
            newest = seen
            looks[index] += 1

    readers = [threading.Thread(target=look, args=(index,)) for index in range(len(looks))]
    for reader in readers:
        reader.start()
    try:
        for step in range(1, COMMITS + 1):
            store.write_sync(lambda s, step=step: write_one(s, step))
    finally:
        done.set()
        for reader in readers:
            reader.join(30)
    assert faults == []
    assert min(looks) > 0


async def test_many_writes_at_once_are_ordered_and_none_is_lost(store: Store, trial_id: int) -> None:
    ids = await asyncio.gather(
        *(store.write(lambda s, n=n: events.append(s, "trial", 0.0, 1, trial_id, {"n": n})) for n in range(100))
    )
    found = await store.read(lambda s: events.after(s, 0, 1000))
    assert [event.id for event in found] == sorted(ids)
    assert [event.data["n"] for event in found] == list(range(100))


async def test_a_cancelled_write_is_done_or_not_begun(store: Store, trial_id: int) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(s: object) -> int:
        started.set()
        assert go_on.wait(10)
        return events.append(s, "trial", 0.0, 1, trial_id, {"which": "running"})

    running = asyncio.create_task(store.write(slow))
    await asyncio.to_thread(started.wait, 10)
    waiting = asyncio.create_task(
        store.write(lambda s: events.append(s, "trial", 0.0, 1, trial_id, {"which": "waiting"}))
    )
    await asyncio.sleep(0)
    running.cancel()
    waiting.cancel()
    for task in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task
    go_on.set()
    await store.write(lambda s: None)
    found = await store.read(lambda s: events.after(s, 0))
    assert [event.data["which"] for event in found] == ["running"]
    assert store.healthy
