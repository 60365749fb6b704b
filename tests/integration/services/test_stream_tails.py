"""Readers of streams share looks at the log: rights, filters, who lags, who comes late, who goes, and the end."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import NotFound
from detlab.schemas.wire import GrantRequest, GrantTo
from detlab_hub.services import Caller, batches, tails
from detlab_hub.services.stream import Follow
from detlab_hub.store.queries import events

EVE = Caller("eve")


class Sink:
    """Keeps what it is told; `full` until it is let read again."""

    def __init__(self):
        self.got = []
        self.free = asyncio.Event()
        self.free.set()
        self.refused = 0

    def put(self, part):
        if not self.free.is_set():
            self.refused += 1
            return False
        self.got += part.events
        return True

    async def room(self):
        await self.free.wait()

    @property
    def steps(self):
        return [event.data["steps_completed"] for event in self.got if event.kind == "metrics"]


class Broken(Sink):
    """Fails when it is told something."""

    def put(self, part):
        raise RuntimeError("it fell over")


async def report(world, experiment, step, trial=11, group="validation", wake=True, **metrics):
    """Append a metrics event as a report does."""
    data = {"group": group, "steps_completed": step, "run": 1, "metrics": metrics or {"loss": float(step)}}
    shell = world.services.stream._shell
    await shell.write(lambda turn: events.append(turn.session, "metrics", 1.0, experiment, trial, data))
    if wake:
        shell.wakeups.wake("streams")


async def until(true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(world, caller, experiment, sink=None, **more):
    """A stream that runs into a sink."""
    sink = sink or Sink()
    sink.task = asyncio.ensure_future(world.services.stream.events(caller, experiment, **more).run(sink))
    try:
        yield sink
    finally:
        sink.task.cancel()
        await asyncio.gather(sink.task, return_exceptions=True)


def members(world):
    """How many readers are up to date with their tails."""
    return sum(len(tail._members) for tail in world.services.stream._tails._tails)


async def made_by_alice(make_world):
    world = await make_world(training(50))
    return world, (await world.submit(config(name="mine"))).id


async def test_many_readers_share_one_look(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    looks = []
    take = batches.Look.__call__
    monkeypatch.setattr(batches.Look, "__call__", lambda look, s: looks.append(look) or take(look, s))
    sinks = [Sink() for _ in range(20)]
    tasks = [asyncio.ensure_future(world.services.stream.events(ALICE, mine).run(sink)) for sink in sinks]
    await until(lambda: members(world) == 20)
    await until(lambda: len(looks) >= 21)  # one each to catch up, and the tail's first
    before = len(looks)
    await report(world, mine, 1)
    await until(lambda: all(sink.steps == [1] for sink in sinks))
    assert len(looks) - before <= 2
    assert len({id(event) for sink in sinks for event in sink.got if event.kind == "metrics"}) == 1, "one for all"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not world.services.shell.wakeups.heard("streams"))


@pytest.mark.parametrize("of_all", [False, True])
async def test_i9_readers_who_share_a_look_are_told_what_each_may_know(make_world, of_all):
    world, mine = await made_by_alice(make_world)
    services = world.services
    hers = (await world.submit(config(name="hers"), BOB)).id
    await services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob"))
    one = None if of_all else mine
    follows = (Follow(mine), Follow(hers))
    async with (
        reading(world, ALICE, one, follows=follows) as alice,
        reading(world, BOB, one, follows=follows) as bob,
        reading(world, ROOT, one, follows=follows) as root,
        reading(world, EVE, None, follows=follows) as eve,
    ):
        await until(lambda: members(world) == 4)
        await services.experiments.pause(ALICE, mine)
        await report(world, hers, 5)
        await report(world, mine, 6)
        await until(lambda: all(6 in sink.steps for sink in (alice, bob, root)))
        may = {sink: [e.data["may"] for e in sink.got if e.kind == "experiment"][-1] for sink in (alice, bob, root)}
        assert may == {alice: "own", bob: "read", root: "own"}
        assert [sink.steps for sink in (alice, bob, root)] == ([[6], [5, 6], [5, 6]] if of_all else [[6]] * 3)
        # taken back: it ends the stream of that experiment, and is hidden on the stream of all
        await services.grants.remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        seen = len(bob.got)
        await report(world, mine, 7)
        await report(world, hers, 8)
        if of_all:
            await until(lambda: bob.steps[-1] == 8)
            assert mine not in {event.experiment_id for event in bob.got[seen:]}
            await services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob", write=True))
            await report(world, mine, 9)
            await until(lambda: bob.steps[-1] == 9)
            assert [e.data["may"] for e in bob.got if e.experiment_id == mine and "may" in e.data][-1] == "write"
        else:
            with pytest.raises(NotFound):
                await asyncio.wait_for(bob.task, 20)
            assert bob.steps == [6]
        await until(lambda: 7 in alice.steps)
        assert not [event for event in eve.got if event.kind != "cluster"], "what is nothing of hers"


async def test_i9_a_right_is_that_of_the_snapshot_even_before_the_wake_up(make_world, monkeypatch):
    """The change is committed and seen by a look before anybody was told that grants have changed."""
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob"))

    async def told_nobody(found):
        return found

    async with reading(world, BOB, mine) as bob:
        await until(lambda: members(world) == 1)
        await report(world, mine, 1)
        await until(lambda: bob.steps == [1])
        monkeypatch.setattr(services.grants, "_changed", told_nobody)
        await services.grants.remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        await report(world, mine, 2)
        with pytest.raises(NotFound):
            await asyncio.wait_for(bob.task, 20)
        assert bob.steps == [1]


async def test_who_was_let_look_is_told_that_it_was_deleted(make_world):
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob"))
    async with (
        reading(world, ALICE, None) as alice,
        reading(world, BOB, None) as bob,
        reading(world, EVE, None) as eve,
    ):
        await until(lambda: members(world) == 3)
        await services.experiments.kill(ALICE, mine)
        await until(lambda: any(event.kind == "experiment" for event in bob.got))
        await services.experiments.delete(ALICE, mine)

        def deleted(sink):
            return any(e.experiment_id == mine and e.data.get("state") == "DELETED" for e in sink.got)

        await until(lambda: deleted(alice) and deleted(bob))
        assert not [event for event in eve.got if event.kind != "cluster"]


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
    monkeypatch.setattr(batches, "LAG", 10)
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


async def test_who_comes_late_gets_each_event_once_and_in_order(make_world, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 7)
    monkeypatch.setattr(tails, "PERIOD", 0.002)
    world, mine = await made_by_alice(make_world)
    other = (await world.submit(config(name="other"))).id
    await report(world, mine, 0)
    start = (await world.services.overview.view(ALICE)).cursor

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
    monkeypatch.setattr(batches, "BATCH", 3)
    world, mine = await made_by_alice(make_world)
    start = (await world.services.overview.view(ALICE)).cursor

    async def changed():
        shell = world.services.stream._shell
        await shell.write(lambda turn: events.append(turn.session, "experiment", 1.0, mine, None, {}))

    for step in range(1, 11):
        await report(world, mine, step)
        if step % 4 == 0:
            await changed()
    await world.services.experiments.kill(ALICE, mine)
    async with reading(world, ALICE, mine, after=start) as late:
        await until(lambda: {"experiment"} & {event.kind for event in late.got} and len(late.steps) == 10)
    kinds = [event.kind for event in late.got]
    assert kinds.index("experiment") > len(kinds) - 1 - kinds[::-1].index("metrics"), kinds
    assert late.steps == list(range(1, 11))


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
            patched.setattr(world.services.shell, "read", fail)
            await report(world, mine, 1)
            for sink in (one, two):
                with pytest.raises(RuntimeError, match="the disk is gone"):
                    await asyncio.wait_for(sink.task, 20)
    assert not world.services.shell.wakeups.heard("streams")
    async with reading(world, ALICE, mine) as again:
        await until(lambda: members(world) == 1)
        await report(world, mine, 2)
        await until(lambda: again.steps == [2])


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
    assert not world.services.shell.wakeups.heard("streams")


async def test_a_large_audience_is_divided_and_each_part_looks_at_its_own_moment(make_world, monkeypatch):
    monkeypatch.setattr(tails, "ROOM", 3)
    world, mine = await made_by_alice(make_world)
    sinks = [Sink() for _ in range(14)]
    tasks = [asyncio.ensure_future(world.services.stream.events(ALICE, mine).run(sink)) for sink in sinks]
    await until(lambda: members(world) == 14)
    found = world.services.stream._tails._tails
    assert sorted(len(tail) for tail in found) == [3, 3, 4, 4]
    assert len({tail._phase for tail in found}) == 4
    for step in range(1, 40):
        await report(world, mine, step)
    await until(lambda: all(sink.steps == list(range(1, 40)) for sink in sinks))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class SlowLook:
    """Keeps the next look of a tail, which was taken, from its readers until `go`."""

    def __init__(self, world, monkeypatch):
        self.armed = False
        self.taken, self.go = asyncio.Event(), asyncio.Event()
        self._read = world.services.shell.read
        monkeypatch.setattr(world.services.shell, "read", self.read)

    async def read(self, what):
        found = await self._read(what)
        if self.armed and isinstance(what, batches.Look) and what.experiment_id is None:
            self.armed = False
            self.taken.set()
            await self.go.wait()
        return found

    async def after(self, world, experiment, *steps):
        """Report, and wait until the tail has looked at it."""
        await until(lambda: members(world) == 1)
        await asyncio.sleep(2 * tails.PERIOD)  # its first look is over
        self.armed = True
        for step in steps:
            await report(world, experiment, step, wake=step == steps[-1])
        await self.taken.wait()


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
    monkeypatch.setattr(batches, "LAG", 3)
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
    start = (await world.services.overview.view(ALICE)).cursor
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1)
        tail = world.services.stream._tails._tails[0]
        reader = batches.Reader(ALICE, batches.Wants(other), start, told=start)
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


async def test_i9_who_was_let_look_after_a_look_was_taken_is_not_refused_by_it(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1)
        await world.services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob"))
        async with reading(world, BOB, mine) as late:
            await until(lambda: members(world) == 2)
            slow.go.set()
            await report(world, mine, 2)
            await until(lambda: first.steps == [1, 2] and late.steps == [2])


async def test_i9_a_right_taken_back_beyond_a_full_look_counts_in_it(make_world, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 3)
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services.grants.put(ALICE, mine, GrantRequest(kind="user", name="bob"))

    async def told_nobody(found):
        return found

    async with reading(world, BOB, mine) as bob:
        await until(lambda: members(world) == 1)
        await report(world, mine, 1)
        await until(lambda: bob.steps == [1])
        monkeypatch.setattr(services.grants, "_changed", told_nobody)
        for step in (2, 3, 4):
            await report(world, mine, step, wake=False)
        await services.grants.remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        services.shell.wakeups.wake("streams")
        with pytest.raises(NotFound):
            await asyncio.wait_for(bob.task, 20)
        assert bob.steps == [1]


async def test_wishes_are_shared_while_somebody_has_them_and_forgotten_then(make_world):
    world, mine = await made_by_alice(make_world)
    stream = world.services.stream
    one, two = stream.events(ALICE, mine, names=["loss"]), stream.events(BOB, mine, names=["loss"])
    assert one._wants is two._wants
    del one
    gc.collect()
    assert stream.events(ALICE, mine, names=["loss"])._wants is two._wants
    for number in range(50):
        stream.events(ALICE, mine, names=[f"name{number}"])
    del two
    gc.collect()
    assert not len(stream._wants)


async def test_a_tail_that_is_stopped_before_its_first_step_lets_its_readers_go(make_world):
    world, mine = await made_by_alice(make_world)
    tail = tails.Tail(world.services.shell, 0.0)
    reader = batches.Reader(ALICE, batches.Wants(mine), 0, told=0)
    tail.enter(reader)
    member = tail.join(reader, Sink())
    await tail.stop()
    await asyncio.wait_for(member.left, 5)
    assert tail._running is None
    assert not tail._members
