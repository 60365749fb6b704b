"""One stream for all views of a page: the states of everything, and the metrics of what it follows."""

from __future__ import annotations

import asyncio

from services_scripted import ALICE, BOB, config, training

from detlab_hub.services.streams.stream import Follow, Stream
from detlab_hub.store.queries import events


async def report(world, experiment, trial, group="validation", **metrics):
    """Append a metrics event as a report does."""
    data = {"group": group, "steps_completed": 1, "run": 1, "metrics": metrics}
    context = world.services[Stream]._context
    await context.write(lambda unit: events.append(unit.session, "metrics", 1.0, experiment, trial, data))
    context.wakeups.wake("streams")


async def collect(world, caller, follows, last, after=0):
    """Read a stream up to a metric."""
    stream = world.services[Stream].events(caller, None, after=after, follows=follows)
    found = []
    try:
        async with asyncio.timeout(20):
            async for batch in stream:
                found += batch
                if any(last in event.data.get("metrics", {}) for event in batch):
                    return found
    finally:
        await stream.aclose()
    raise AssertionError("the stream ended")


def metrics(found):
    return [(e.experiment_id, e.trial_id, e.data["metrics"]) for e in found if e.kind == "metrics"]


async def test_states_of_all_and_the_metrics_that_are_followed_come_in_order(make_world):
    world = await make_world(training(3))
    one, two, three = [(await world.submit(config(name=name))).id for name in ("one", "two", "three")]
    await report(world, one, 11, loss=1.0, other=2.0)
    await report(world, one, 11, "training", loss=3.0)
    await report(world, two, 21, a=4.0, b=5.0)
    await report(world, two, 22, a=6.0)
    await report(world, two, 22, a=6.5, b=7.0)
    await report(world, three, 31, a=8.0)
    await report(world, two, 21, last=9.0)
    follows = [Follow(one, group="validation", name="loss"), Follow(two, trial=21), Follow(two, name="b")]
    found = await collect(world, ALICE, follows, "last")
    assert metrics(found) == [
        (one, 11, {"loss": 1.0}),
        (two, 21, {"a": 4.0, "b": 5.0}),
        (two, 22, {"b": 7.0}),
        (two, 21, {"last": 9.0}),
    ]
    assert {e.experiment_id for e in found if e.kind == "experiment"} == {one, two, three}
    ids = [e.id for e in found]
    assert ids == sorted(set(ids))
    again = await collect(world, ALICE, follows, "last", after=metrics_id(found, 1))
    assert metrics(again) == metrics(found)[2:], "a stream that is opened anew goes on after its cursor"


def metrics_id(found, index):
    return [e.id for e in found if e.kind == "metrics"][index]


async def test_nothing_is_followed_unless_it_is_asked_for(make_world):
    world = await make_world(training(3))
    mine = (await world.submit(config(name="mine"))).id
    await report(world, mine, 11, loss=1.0)
    await report(world, mine, 11, last=1.0)
    found = await collect(world, ALICE, [Follow(mine, name="last")], "last")
    assert metrics(found) == [(mine, 11, {"last": 1.0})]


async def test_somebody_elses_and_what_is_not_there_add_nothing_and_end_nothing(make_world):
    world = await make_world(training(3))
    mine = (await world.submit(config(name="mine"))).id
    hers = (await world.submit(config(name="hers"), BOB)).id
    await report(world, mine, 11, loss=1.0)
    await report(world, hers, 21, loss=2.0)
    await report(world, mine, 11, last=3.0)
    follows = [Follow(mine), Follow(hers), Follow(999_999)]
    found = await collect(world, ALICE, follows, "last")
    assert metrics(found) == [(mine, 11, {"loss": 1.0}), (mine, 11, {"last": 3.0})]
    assert hers not in {e.experiment_id for e in found}
