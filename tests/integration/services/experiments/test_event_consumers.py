"""Durable consumers of the event log: nothing missed, in order, whatever crashes; one that fails holds up no other."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, CrashError, Flaw, asha, config, training

from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.notify.consumers import CONSUMERS, Consumers, installed
from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.queries import consumers, events
from detlab_hub.store.tables import EventConsumerRow


class Collector:
    """Keeps what it is given."""

    kinds = frozenset({"experiment", "trial"})

    def __init__(self, name="collector"):
        self.name = name
        self.taken, self.missed = [], 0
        self.fails = 0

    async def take(self, batch):
        if self.fails:
            self.fails -= 1
            raise OSError("the other side is down")
        self.taken += batch

    async def lost(self, count):
        self.missed += count

    def moves(self, kind, key):
        ours = [event for event in self.taken if event.kind == kind and key in (event.experiment_id, event.trial_id)]
        return [(event.data["moved"]["from"], event.data["moved"]["to"]) for event in ours if "moved" in event.data]


def loops(world, *found):
    return Consumers(world.services.context, found)


async def catch_up(world, consumer):
    while await loops(world, consumer).step(consumer):
        pass


def row_of(world, name="collector"):
    return world.store.read_sync(lambda s: s.get(EventConsumerRow, name))


async def test_events_say_how_states_changed(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    collector = Collector()
    await catch_up(world, collector)
    made = await world.submit(config())
    await world.finish(made.id)
    await catch_up(world, collector)
    moves = collector.moves("experiment", made.id)
    assert moves[-1][1] == "COMPLETED"
    assert all(before != after for before, after in moves)
    assert [after for _, after in moves[:-1]] == [before for before, _ in moves[1:]]
    ids = [event.id for event in collector.taken]
    assert ids == sorted(set(ids))


async def test_streams_do_not_show_what_is_for_consumers(make_world):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    reader = world.services[Stream].events(ALICE, made.id, after=0)
    seen = await anext(reader)
    await reader.aclose()
    told = [event for event in seen if event.kind == "experiment"]
    assert told[-1].data["state"] == "COMPLETED"
    assert all("moved" not in event.data for event in seen)


async def test_a_new_consumer_starts_with_what_happens_next(make_world):
    world = await make_world(training(1))
    await world.add_agent()
    first = await world.submit(config())
    await world.finish(first.id)
    collector = Collector()
    await catch_up(world, collector)
    assert collector.taken == []
    second = await world.submit(config())
    await catch_up(world, collector)
    assert {event.experiment_id for event in collector.taken} == {second.id}


async def test_nothing_is_missed_where_the_master_dies_before_the_cursor_moves(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    calm, crashed = Collector("calm"), Collector("crashed")
    for one in (calm, crashed):
        await catch_up(world, one)
    made = await world.submit(config(asha(concurrent=1)))
    await world.finish(made.id)
    await catch_up(world, calm)
    done = False
    before = world.writes[0]
    await world.reboot()
    recovery = world.writes[0] - before
    for place in range(1, 4):  # it dies before it registers, before the cursor moves, and not at all
        world.flaw = Flaw(world.writes[0] + recovery + place, after_commit=False)
        await world.reboot()
        try:
            await catch_up(world, crashed)
            done = True
        except CrashError:
            continue
    assert done
    assert world.crashes >= 4
    expected = [event.id for event in calm.taken]
    assert sorted({event.id for event in crashed.taken}) == expected
    assert len(crashed.taken) > len(expected), "the same again after a crash: at least once, not at most"


async def test_a_consumer_that_fails_is_told_again_and_its_error_is_kept(make_world):
    world = await make_world(training(1))
    collector = Collector()
    await catch_up(world, collector)
    made = await world.submit(config())
    collector.fails = 2
    for _ in range(2):
        with pytest.raises(OSError, match="the other side"):
            await loops(world, collector).step(collector)
    row = row_of(world)
    assert (row.failures, row.error) == (2, "OSError: the other side is down")
    await catch_up(world, collector)
    assert {event.experiment_id for event in collector.taken} == {made.id}
    assert (row_of(world).failures, row_of(world).error) == (0, "")


async def test_one_that_hangs_holds_up_no_other(make_world):
    world = await make_world(training(1))
    hanging, quick = Collector("hanging"), Collector("quick")
    for one in (hanging, quick):
        await catch_up(world, one)
    never, arrived = asyncio.Event(), asyncio.Event()

    async def hang(batch):
        await never.wait()

    async def take(batch):
        quick.taken += batch
        arrived.set()

    hanging.take, quick.take = hang, take
    serving = asyncio.create_task(loops(world, hanging, quick).run())
    await world.submit(config())
    await asyncio.wait_for(arrived.wait(), 20)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert quick.taken


async def test_the_log_keeps_what_a_consumer_has_not_taken_within_bounds(make_world):
    world = await make_world(training(1))
    collector = Collector()
    await catch_up(world, collector)
    cursor = row_of(world).cursor
    made = await world.submit(config())
    await world.services[Experiments].pause(ALICE, made.id)
    await world.services[Experiments].activate(ALICE, made.id)

    def trim(s):
        return events.trim(s, 1, needed=consumers.slowest(s, {"collector"})), events.bounds(s)

    behind = world.store.read_sync(events.head) - cursor
    assert 2 < behind <= events.MOST_KEPT
    _, (floor, _) = world.store.write_sync(trim)
    assert floor <= cursor
    await catch_up(world, collector)
    assert collector.taken
    assert collector.missed == 0
    _, (floor, head) = world.store.write_sync(trim)
    assert head - floor == 1


async def test_one_that_was_away_for_too_long_is_told_how_much_it_lost(make_world):
    world = await make_world(training(1))
    collector = Collector()
    await catch_up(world, collector)
    cursor = row_of(world).cursor
    made = await world.submit(config())
    for _ in range(4):
        await world.services[Experiments].pause(ALICE, made.id)
        await world.services[Experiments].activate(ALICE, made.id)
    world.store.write_sync(lambda s: events.trim(s, 1, needed=consumers.slowest(s, {"collector"})))
    floor = world.store.read_sync(events.floor)
    assert floor > cursor, "a consumer cannot make the log grow without bound"
    await catch_up(world, collector)
    assert collector.missed == floor - cursor
    assert collector.taken[-1].data["moved"]["to"] == "ACTIVE"


async def test_names_are_unique(make_world):
    world = await make_world()
    with pytest.raises(ValueError, match="names of their own"):
        loops(world, Collector(), Collector())


def test_consumers_are_found_by_entry_point_and_a_broken_one_is_left_out(tmp_path, monkeypatch, caplog):
    info = tmp_path / "hooks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{CONSUMERS.group}]\ngood = hooks_of_ours:Good\nbad = hooks_of_ours:Bad\n")
    (tmp_path / "hooks_of_ours.py").write_text("class Good:\n    name = 'good'\n    kinds = frozenset()\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        CONSUMERS.forget()
        assert [one.name for one in installed()] == ["good"]
    CONSUMERS.forget()
    assert "event consumer bad (hooks_of_ours:Bad) cannot be made" in caplog.text
