"""A semaphore that serves waiting users in turn: round robin by user, not by arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """A number of places, one for each user in turn: behind a hundred requests of one, others wait for a round."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, the one whose turn is next first."""

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Hold a place, as soon as there is one and it is the user's turn."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(user)
        try:
            yield
        finally:
            self._give_back()

    async def _turn(self, user: str) -> None:
        """Wait until a place is passed on."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it came at the moment at which nobody wanted it any more
            raise

    def _give_back(self) -> None:
        while self._waiting:
            user = next(iter(self._waiting))
            turns = self._waiting.pop(user)
            turn = turns.popleft()
            if turns:
                self._waiting[user] = turns  # behind all others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
