"""The open streams: how many each user has, and how many bytes are buffered in them for clients that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.reached import TooMany

BYTES_PER_USER = 16 * 1024 * 1024
SLOW_LIMIT = 30.0


class Account:
    """The buffered bytes of one user's streams together."""

    def __init__(self, most_bytes: int) -> None:
        self.streams = 0
        self.unsent = 0
        self._most = most_bytes
        self._room = asyncio.Event()
        self._room.set()

    @property
    def full(self) -> bool:
        """Whether nothing more may be written to any of the user's streams."""
        return self.unsent >= self._most

    def wait_for(self, unsent: asyncio.Future[None], size: int) -> None:
        """Count bytes that a socket did not take, until they have left the process or the stream is closed."""
        self.unsent += size
        if self.full:
            self._room.clear()

        def sent(_: asyncio.Future[None]) -> None:
            self.unsent -= size
            if not self.full:
                self._room.set()

        unsent.add_done_callback(sent)

    async def room(self) -> None:
        """Wait until something may be written again."""
        await self._room.wait()


class Streams:
    """The open streams, so that users do not have too many and a stopping server can end them.

    Args:
        limits: What one user may have open; others (the Hub's spawners) are not limited.
        bytes_per_user: Bytes that may wait in all streams of one user.
        slow_limit: Seconds that a reader may leave what was written unread before the stream is cut.
    """

    def __init__(
        self, limits: PerUserLimits, bytes_per_user: int = BYTES_PER_USER, slow_limit: float = SLOW_LIMIT
    ) -> None:
        self.slow_limit = slow_limit
        self._limits = limits
        self._bytes_per_user = bytes_per_user
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def account_of(self, user: str | None, groups: Collection[str] = ()) -> Account:
        """Count one more stream of a user; call `leave` when it has ended.

        Args:
            user: Who reads; None: a caller who is not limited.
            groups: The user's groups of the Hub.

        Raises:
            TooMany: The user has as many as they may.
        """
        if user is None:
            return Account(self._bytes_per_user)
        account = self._accounts.setdefault(user, Account(self._bytes_per_user))
        most = self._limits.open_streams
        if most and account.streams >= most and self._limits.binds(user, groups):
            message = f"you have {account.streams} streams open, and a user may have {most}"
            todo = (
                "Close pages, notebooks or programs that follow experiments or logs, or follow all experiments with one"
                " stream (`GET stream`)"
            )
            raise TooMany("streams", user, "open_streams", message, todo)
        account.streams += 1
        return account

    def leave(self, user: str | None, account: Account) -> None:
        """Count one stream less of a user."""
        account.streams -= 1
        if user is not None and account.streams <= 0 and account.unsent <= 0:
            self._accounts.pop(user, None)

    def add(self, task: asyncio.Task[None]) -> None:
        """Remember a stream until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all streams; their readers reconnect with their cursors."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
