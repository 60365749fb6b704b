"""Readers of streams for tests: sinks that remember, and looks that are held back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from services_scripted import config, training

from detlab_hub.services.streams import reads, tails
from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.queries import events


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
    context = world.services[Stream]._context
    await context.write(lambda unit: events.append(unit.session, "metrics", 1.0, experiment, trial, data))
    if wake:
        context.wakeups.wake("streams")


async def until(true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(world, caller, experiment, sink=None, **more):
    """A stream that runs into a sink."""
    sink = sink or Sink()
    sink.task = asyncio.ensure_future(world.services[Stream].events(caller, experiment, **more).run(sink))
    try:
        yield sink
    finally:
        sink.task.cancel()
        await asyncio.gather(sink.task, return_exceptions=True)


def members(world):
    """How many readers are up to date with their tails."""
    return sum(len(tail._members) for tail in world.services[Stream]._tails._tails)


async def made_by_alice(make_world):
    world = await make_world(training(50))
    return world, (await world.submit(config(name="mine"))).id


class SlowLook:
    """Keeps the next look of a tail, which was taken, from its readers until `go`."""

    def __init__(self, world, monkeypatch):
        self.armed = False
        self.taken, self.go = asyncio.Event(), asyncio.Event()
        self._read = world.services.context.read
        monkeypatch.setattr(world.services.context, "read", self.read)

    async def read(self, what):
        found = await self._read(what)
        if self.armed and isinstance(what, reads.LogRead) and what.experiment_id is None:
            self.armed = False
            self.taken.set()
            await self.go.wait()
        return found

    async def after(self, world, experiment, *steps, readers=1):
        """Report, and wait until the tail has looked at it."""
        await until(lambda: members(world) == readers)
        await asyncio.sleep(2 * tails.PERIOD)  # its first look is over
        self.armed = True
        for step in steps:
            await report(world, experiment, step, wake=step == steps[-1])
        await self.taken.wait()
