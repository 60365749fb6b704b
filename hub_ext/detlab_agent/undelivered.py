"""Deliver the spool of a dead launcher, with the shipping code of the launcher itself."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from detlab.launch.delivery.sender import Deliverer, HttpTransport
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader
from detlab.launch.delivery.tokens import TokenKeeper
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.base import RunningTask

_log = logging.getLogger(__name__)


class _NoMarks:
    """The task is over: there is no file to note progress in, and no one to tell about refusals."""

    def __init__(self, allocation_id: str) -> None:
        self._allocation_id = allocation_id

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Do nothing: the master skips what it has."""

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """Say it in the agent's log."""
        for refusal in refusals:
            _log.warning("%s: record %d refused: %s", self._allocation_id, refusal.seq, refusal.message)

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Say it in the agent's log."""
        _log.warning("%s: its spool of %s was changed: %s", self._allocation_id, shipper.stream, reader.damage)


class _KeyTransport(HttpTransport):
    """Sends with the agent's present key: it may enrol again while a delivery waits out an outage."""

    def __init__(self, endpoints: Endpoints, key: Callable[[], str]) -> None:
        super().__init__(endpoints.api, endpoints.trust())
        self._key = key

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """See `Transport.post`; the token that is passed is the key from the start."""
        return super().post(path, body, self._key())


class LeftoverShipper:
    """Ships spools of dead launchers.

    Args:
        endpoints: The master.
        token: Gives the agent's key.
    """

    def __init__(self, endpoints: Endpoints, token: Callable[[], str]) -> None:
        self._endpoints = endpoints
        self._token = token

    async def deliver(self, task: RunningTask) -> None:
        """Ship everything that is left of a task, however long the master is away.

        Cancelling it stops the delivery, which starts again after the agent's restart.
        """
        query = urlencode({"allocation_id": task.allocation_id, **({"node": task.node} if task.node else {})})
        deliverer = Deliverer(
            lambda: _KeyTransport(self._endpoints, self._token),
            f"agents/records?{query}",
            task.leftovers(),
            TokenKeeper(self._token(), math.inf, 0.0),
            _NoMarks(task.allocation_id),
        )
        deliverer.start()
        try:
            await asyncio.to_thread(deliverer.finish)
        except asyncio.CancelledError:
            deliverer.stop(0.0)
            raise
