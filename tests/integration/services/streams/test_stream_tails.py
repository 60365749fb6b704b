"""Readers of streams share looks at the log: filters, who lags, who goes, what fails, and the end."""

from __future__ import annotations

import asyncio
import gc

import pytest
from services_scripted import ALICE, BOB, config
from stream_reading import Broken, Sink, made_by_alice, members, reading, report, until

from detlab.errors import Unavailable
from detlab_hub.services.streams import batches, reads, tails
from detlab_hub.services.streams.stream import Follow, Stream


async def test_many_readers_share_one_look(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    taken = []
    take = reads.LogRead.__call__
    monkeypatch.setattr(reads.LogRead, "__call__", lambda look, s: taken.append(look) or take(look, s))
    sinks = [Sink() for _ in range(20)]
    tasks = [asyncio.ensure_future(world.services[Stream].events(ALICE, mine).run(sink)) for sink in sinks]
    await until(lambda: members(world) == 20)
    await until(lambda: len(taken) >= 21)  # one each to catch up, and the tail's first
    before = len(taken)
    await report(world, mine, 1)
    await until(lambda: all(sink.steps == [1] for sink in sinks))
    assert len(taken) - before <= 2
    assert len({id(event) for sink in sinks for event in sink.got if event.kind == "metrics"}) == 1, "one for all"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not world.services.context.wakeups.has_waiters("streams"))


async def test_readers_with_wishes_of_their_own_share_a_look(make_world):
    world, mine = await made_by_alice(make_world)
    other = (await world.submit(config(name="other"))).id
    async with (
        reading(world, ALICE, mine) as everything,
        reading(world, ALICE, mine, names=["loss"]) as loss,
        reading(world, ALICE, mine, groups=["training"]) as training_only,
        reading(world, ALICE, None) as states,
        reading(world, ALICE, None, follows=[Follow(mine, trial=12), Follow(other, name="acc")]) as follows,
    ):
        await until(lambda: members(world) == 5)
        await report(world, mine, 1, loss=1.0, acc=0.1)
        await report(world, mine, 2, trial=12, group="training", acc=0.2)
        await report(world, other, 3, acc=0.3, loss=3.0)
        await report(world, mine, 4, loss=4.0)
        await until(lambda: everything.steps[-1:] == [4])
        await until(lambda: follows.steps[-1:] == [3])

        def told(sink):
            return [(e.data["steps_completed"], e.data["metrics"]) for e in sink.got if e.kind == "metrics"]

        assert told(everything) == [(1, {"loss": 1.0, "acc": 0.1}), (2, {"acc": 0.2}), (4, {"loss": 4.0})]
        assert told(loss) == [(1, {"loss": 1.0}), (4, {"loss": 4.0})]
        assert told(training_only) == [(2, {"acc": 0.2})]
        assert told(states) == []
        assert told(follows) == [(2, {"acc": 0.2}), (3, {"acc": 0.3})]


async def test_who_has_no_room_is_not_waited_for_and_loses_nothing(make_world):
    world, mine = await made_by_alice(make_world)
    async with reading(world, ALICE, mine) as quick, reading(world, ALICE, mine) as slow:
        await until(lambda: members(world) == 2)
        slow.free.clear()
        for step in range(1, 31):
            await report(world, mine, step)
        await until(lambda: (len(quick.steps), members(world)) == (30, 1))
        assert slow.steps == []
        assert slow.refused == 1, "nobody tries again before there is room"
        slow.free.set()
        await until(lambda: len(slow.steps) == 30)
        assert slow.steps == quick.steps == list(range(1, 31))
        await until(lambda: members(world) == 2)
        await report(world, mine, 31)
        await until(lambda: slow.steps[-1] == quick.steps[-1] == 31)


async def test_who_lags_too_far_is_told_to_take_the_snapshot_again(make_world, monkeypatch):
    monkeypatch.setattr(reads, "LAG", 10)
    world, mine = await made_by_alice(make_world)
    async with reading(world, ALICE, mine) as slow, reading(world, ALICE, mine) as quick:
        await until(lambda: members(world) == 2)
        slow.free.clear()
        for step in range(1, 21):
            await report(world, mine, step)
            await until(lambda step=step: quick.steps[-1:] == [step])
        slow.free.set()
        await until(lambda: slow.got)
        assert [event.kind for event in slow.got] == ["resync"]
        await report(world, mine, 21)
        await until(lambda: slow.steps == [21])
        assert slow.got[0].id < slow.got[1].id


async def test_a_sink_that_fails_ends_its_own_stream_alone(make_world):
    world, mine = await made_by_alice(make_world)
    async with reading(world, ALICE, mine, Broken()) as broken, reading(world, ALICE, mine) as sound:
        await until(lambda: members(world) == 2)
        await report(world, mine, 1)
        with pytest.raises(RuntimeError, match="fell over"):
            await asyncio.wait_for(broken.task, 20)
        await report(world, mine, 2)
        await until(lambda: sound.steps == [1, 2])


async def test_a_look_that_fails_ends_all_who_share_it_and_the_next_ones_read_again(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    async with reading(world, ALICE, mine) as one, reading(world, BOB, None) as two:
        await until(lambda: members(world) == 2)

        async def fail(look):
            raise RuntimeError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(tails, "AGAIN", (0.01, 0.02))
            patched.setattr(world.services.context, "read", fail)
            await report(world, mine, 1)
            for sink in (one, two):
                with pytest.raises(RuntimeError, match="the disk is gone"):
                    await asyncio.wait_for(sink.task, 20)
    assert not world.services.context.wakeups.has_waiters("streams")
    async with reading(world, ALICE, mine) as again:
        await until(lambda: members(world) == 1)
        await report(world, mine, 2)
        await until(lambda: again.steps == [2])


async def test_a_look_that_fails_for_a_moment_is_taken_again_and_nobody_notices(make_world, monkeypatch):
    """One "database is locked" ended the streams of all who shared the look."""
    monkeypatch.setattr(tails, "AGAIN", (0.01, 0.02, 0.03))
    world, mine = await made_by_alice(make_world)
    read, failures = world.services.context.read, [Unavailable("locked"), OSError("gone"), Unavailable("locked")]

    async def fails(look):
        if isinstance(look, reads.LogRead) and failures:
            raise failures.pop()
        return await read(look)

    async with reading(world, ALICE, mine) as one, reading(world, ALICE, None, follows=[Follow(mine)]) as two:
        await until(lambda: members(world) == 2)
        await report(world, mine, 1)
        await until(lambda: one.steps == two.steps == [1])
        told = len(one.got)
        monkeypatch.setattr(world.services.context, "read", fails)
        await report(world, mine, 2)
        await report(world, mine, 3)
        await until(lambda: one.steps == two.steps == [1, 2, 3])
        assert not failures
        assert members(world) == 2, "nobody was let go"
        ids = [event.id for event in one.got[told:]]
        assert ids == sorted(set(ids))


async def test_who_leaves_while_a_failed_look_waits_is_forgotten(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    failed = asyncio.Event()

    async def fail(look):
        failed.set()
        raise OSError("the disk is gone")

    async with reading(world, ALICE, mine) as one:
        await until(lambda: members(world) == 1)
        monkeypatch.setattr(world.services.context, "read", fail)
        await report(world, mine, 1)
        await failed.wait()
        one.task.cancel()
        await until(lambda: members(world) == 0)
        await asyncio.wait_for(world.services[Stream].stop(), 5)
    assert not world.services.context.wakeups.has_waiters("streams")


async def test_who_is_cancelled_is_forgotten_and_the_services_end_the_rest(make_world):
    world, mine = await made_by_alice(make_world)
    async with reading(world, ALICE, mine) as goes, reading(world, ALICE, mine) as stays:
        await until(lambda: members(world) == 2)
        goes.task.cancel()
        await until(lambda: members(world) == 1)
        await report(world, mine, 1)
        await until(lambda: stays.steps == [1])
        assert goes.steps == []
        await world.services.stop()
        await asyncio.wait_for(stays.task, 20)
    assert members(world) == 0
    assert not world.services.context.wakeups.has_waiters("streams")


async def test_a_large_audience_is_divided_and_each_part_looks_at_its_own_moment(make_world, monkeypatch):
    monkeypatch.setattr(tails, "ROOM", 3)
    world, mine = await made_by_alice(make_world)
    sinks = [Sink() for _ in range(14)]
    tasks = [asyncio.ensure_future(world.services[Stream].events(ALICE, mine).run(sink)) for sink in sinks]
    await until(lambda: members(world) == 14)
    found = world.services[Stream]._tails._tails
    assert sorted(len(tail) for tail in found) == [3, 3, 4, 4]
    assert len({tail._phase for tail in found}) == 4
    for step in range(1, 40):
        await report(world, mine, step)
    await until(lambda: all(sink.steps == list(range(1, 40)) for sink in sinks))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_wishes_are_shared_while_somebody_has_them_and_forgotten_then(make_world):
    world, mine = await made_by_alice(make_world)
    stream = world.services[Stream]
    one, two = stream.events(ALICE, mine, names=["loss"]), stream.events(BOB, mine, names=["loss"])
    assert one._subscription is two._subscription
    del one
    gc.collect()
    assert stream.events(ALICE, mine, names=["loss"])._subscription is two._subscription
    for number in range(50):
        stream.events(ALICE, mine, names=[f"name{number}"])
    del two
    gc.collect()
    assert not len(stream._subscriptions)


async def test_a_tail_that_is_stopped_before_its_first_step_lets_its_readers_go(make_world):
    world, mine = await made_by_alice(make_world)
    tail = tails.Tail(world.services.context, 0.0)
    reader = batches.StreamReader(ALICE, batches.Subscription(mine), 0, sent_cursor=0)
    tail.enter(reader)
    member = tail.join(reader, Sink())
    await tail.stop()
    await asyncio.wait_for(member.left, 5)
    assert tail._running is None
    assert not tail._members
