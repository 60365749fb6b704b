"""A semaphore that serves waiting users in turn: round robin by user, not by arrival."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """A number of places, one for each user in turn: behind a hundred requests of one, others wait for a round.

    Args:
        count: Number of places.
        each: Places that one user may hold at a time, while others are free, too; None: all.
    """

    def __init__(self, count: int, each: int | None = None) -> None:
        self._free = count
        self._each = count if each is None else each
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, the one whose turn is next first."""

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Hold a place, as soon as there is one and it is the user's turn."""
        if self._free and self._held[user] < self._each:
            self._take(user)
        else:
            await self._turn(user)
        try:
            yield
        finally:
            self._give_back(user)

    def _take(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    async def _turn(self, user: str) -> None:
        """Wait until a place is passed on."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(user)  # it came at the moment at which nobody wanted it any more
            raise

    def _give_back(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        for following in list(self._waiting):
            if self._held[following] < self._each and self._pass_on(following):
                return

    def _pass_on(self, user: str) -> bool:
        """Give the free place to the next call of a user; False: none of theirs waits any more."""
        turns = self._waiting.pop(user)
        turn = turns.popleft()
        while turn.done() and turns:
            turn = turns.popleft()
        if turns:
            self._waiting[user] = turns  # behind all others
        if turn.done():
            return False
        self._take(user)
        turn.set_result(None)
        return True
