"""Places are given in turn by user, and none is lost with somebody who goes away."""

from __future__ import annotations

import asyncio

from detlab_hub.services.base.threads import FairPlaces


async def started(*tasks: asyncio.Task[None]) -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Room:
    """Searches in two places that last until they are let go."""

    def __init__(self, count: int = 2) -> None:
        self.places = FairPlaces(count)
        self.order: list[str] = []
        self.going: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._stay(name))
            await started()

    async def _stay(self, name: str) -> None:
        self.going[name] = asyncio.Event()
        async with self.places.of(name[0]):
            self.order.append(name)
            await self.going[name].wait()

    async def end(self, name: str) -> None:
        self.going[name].set()
        await started()


async def test_one_users_searches_do_not_delay_other_peoples() -> None:
    room = Room()
    await room.ask("a1", "a2", "a3", "a4", "a5", "b1", "c1", "b2")
    assert room.order == ["a1", "a2"]
    for _ in range(6):
        await room.end(next(name for name in room.order if not room.going[name].is_set()))
    assert room.order == ["a1", "a2", "a3", "b1", "c1", "a4", "b2", "a5"]


async def test_a_place_is_handed_on_by_whoever_goes_away() -> None:
    room = Room(1)
    await room.ask("a1", "b1", "c1")
    room.tasks["b1"].cancel()
    await started()
    await room.end("a1")
    assert room.order == ["a1", "c1"]


async def test_a_place_that_comes_to_somebody_who_just_left_is_not_lost() -> None:
    room = Room(1)
    await room.ask("a1", "b1", "c1")
    room.going["a1"].set()
    await asyncio.sleep(0)  # a1 hands its place to b1, who has not run yet
    room.tasks["b1"].cancel()
    await started()
    assert room.order == ["a1", "c1"]
    await room.end("c1")
    await room.ask("d1")
    assert room.order == ["a1", "c1", "d1"]


async def test_a_place_stays_free_for_others_where_each_user_may_hold_one() -> None:
    room = Room(2)
    room.places = FairPlaces(2, each=1)
    await room.ask("a1", "a2", "a3", "b1")
    assert room.order == ["a1", "b1"]
    await room.end("b1")
    assert room.order == ["a1", "b1"], "the free place is no second one for a"
    await room.ask("c1")
    assert room.order == ["a1", "b1", "c1"]
    await room.end("a1")
    assert room.order[-1] == "a2"
    room.tasks["a3"].cancel()
    await started()
    await room.end("a2")
    await room.ask("b2")
    assert room.order[-1] == "b2"
