"""Readers who come late, catch up, or join while a look is under way: each event once, in order."""

from __future__ import annotations

import asyncio

from services_scripted import ALICE, config
from stream_reading import Sink, SlowLook, made_by_alice, members, reading, report, until

from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.streams import batches, reads, tails
from detlab_hub.services.streams.stream import Follow, Stream
from detlab_hub.store.queries import events


async def test_who_comes_late_gets_each_event_once_and_in_order(make_world, monkeypatch):
    monkeypatch.setattr(reads, "BATCH", 7)
    monkeypatch.setattr(tails, "PERIOD", 0.002)
    world, mine = await made_by_alice(make_world)
    other = (await world.submit(config(name="other"))).id
    await report(world, mine, 0)
    start = (await world.services[Overview].view(ALICE)).cursor

    async def write():
        for step in range(1, 200):
            await report(world, mine, step)
            if step % 3 == 0:
                await report(world, other, step)

    writing = asyncio.ensure_future(write())
    sinks = []

    async def come(number):
        one = None if number % 2 else mine
        async with reading(world, ALICE, one, after=start, follows=[Follow(mine)]) as sink:
            sinks.append(sink)
            if number % 5 == 0:
                await asyncio.sleep(0.01)
                sink.free.clear()
                await asyncio.sleep(0.02)
                sink.free.set()
            await until(lambda: sink.steps[-1:] == [199])

    coming = []
    for number in range(30):
        coming.append(asyncio.ensure_future(come(number)))
        await asyncio.sleep(0.005)
    await writing
    await asyncio.gather(*coming)
    assert len(sinks) == 30
    for sink in sinks:
        assert sink.steps == list(range(1, 200))
        ids = [event.id for event in sink.got]
        assert ids == sorted(set(ids))


async def test_who_catches_up_hears_of_the_end_behind_the_last_metrics(make_world, monkeypatch):
    """A full look told what an experiment had become since: readers left at "completed" before the metrics between."""
    monkeypatch.setattr(reads, "BATCH", 3)
    world, mine = await made_by_alice(make_world)
    start = (await world.services[Overview].view(ALICE)).cursor

    async def changed():
        context = world.services[Stream]._context
        await context.write(lambda unit: events.append(unit.session, "experiment", 1.0, mine, None, {}))

    for step in range(1, 11):
        await report(world, mine, step)
        if step % 4 == 0:
            await changed()
    await world.services[Experiments].kill(ALICE, mine)
    async with reading(world, ALICE, mine, after=start) as late:
        await until(lambda: {"experiment"} & {event.kind for event in late.got} and len(late.steps) == 10)
    kinds = [event.kind for event in late.got]
    assert kinds.index("experiment") > len(kinds) - 1 - kinds[::-1].index("metrics"), kinds
    assert late.steps == list(range(1, 11))


async def test_who_joins_ahead_of_a_look_under_way_is_told_nothing_twice(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1)
        for step in (2, 3, 4):
            await report(world, mine, step)
        async with reading(world, ALICE, mine, after=0) as late:
            await until(lambda: members(world) == 2)
            assert late.steps == [1, 2, 3, 4]
            slow.go.set()
            await report(world, mine, 5)
            await until(lambda: 5 in late.steps and 5 in first.steps)
            assert first.steps == late.steps == [1, 2, 3, 4, 5]


async def test_who_joins_ahead_of_a_lost_look_need_not_take_the_snapshot_again(make_world, monkeypatch):
    monkeypatch.setattr(reads, "LAG", 3)
    world, mine = await made_by_alice(make_world)
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1, 2, 3, 4, 5)
        await report(world, mine, 6)
        async with reading(world, ALICE, mine) as late:
            await until(lambda: members(world) == 2)
            slow.go.set()
            await until(lambda: first.got)
            await report(world, mine, 7)
            await until(lambda: 7 in late.steps and 7 in first.steps)
            assert [event.kind for event in first.got] == ["resync", "metrics", "metrics"]
            assert [event.kind for event in late.got] == ["metrics"]


async def test_who_joins_during_a_look_that_did_not_ask_for_its_experiment_is_not_refused(make_world, monkeypatch):
    monkeypatch.setattr(tails, "MOST_FOLLOWED", 0)  # the look has the metrics of all
    world, mine = await made_by_alice(make_world)
    other = (await world.submit(config(name="other"))).id
    start = (await world.services[Overview].view(ALICE)).cursor
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1)
        tail = world.services[Stream]._tails._tails[0]
        reader = batches.StreamReader(ALICE, batches.Subscription(other), start, sent_cursor=start)
        tail.enter(reader)
        member = tail.join(reader, Sink())
        slow.go.set()
        await until(lambda: first.steps == [1])
        await asyncio.wait_for(member.left, 20)  # it is let go, to look by itself; not ended
        tail.part(reader)
        tail.leave(reader)
        async with reading(world, ALICE, other) as late:
            await until(lambda: members(world) == 2)
            await report(world, other, 2)
            await until(lambda: late.steps == [2])
