"""The Hub's side of `spawns`: a small client of the master, with the spawners' token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from pydantic import ValidationError

from detlab.client.transport.calls import Call, Reply, Retries, error_of, model
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import AsyncSession
from detlab.client.transport.streaming import Lines
from detlab.errors import ApiError, AuthError, ClusterUnreachable, Conflict, DetlabError, Unavailable
from detlab.schemas.taskwire import SpawnOffers, SpawnRequest, SpawnView
from detlab.token_text import one_word

CALL_SECONDS = 15.0
_ONCE = Retries(attempts=0, refused=0)
"""Callers decide for how long they retry: a page of the Hub must not wait for a master that is away."""


class StreamEnded(Exception):
    """The stream ended or broke while the task continues: post the same key again."""


class SpawnClient:
    """Calls of one Hub to one master. One event loop per object.

    Args:
        url: Base of the service; ends with `/services/detlab/`.
        token: `dthub_…`.
    """

    def __init__(self, url: str, token: str) -> None:
        address = ClusterAddress(url.rstrip("/") + "/", token, "the spawner's service_url")
        self._session = AsyncSession(address, timeout=CALL_SECONDS, backoff=_ONCE)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def post(self, request: SpawnRequest) -> SpawnView:
        """Ask for a server; the same key returns the task that was made first."""
        return await self._call("POST", "spawns", json=request)

    async def get(self, task_id: str) -> SpawnView:
        """Return the state of a spawn."""
        return await self._call("GET", f"spawns/{task_id}")

    async def claim(self, task_id: str) -> SpawnView:
        """Confirm that the Hub has the address: from then on the stream is not a lease."""
        return await self._call("POST", f"spawns/{task_id}/claim")

    async def delete(self, task_id: str) -> SpawnView:
        """End a spawn."""
        return await self._call("DELETE", f"spawns/{task_id}")

    async def offers(self, owner: str) -> SpawnOffers:
        """Return which options a form cannot offer to this user now."""
        call = Call("GET", "spawns/offers", params={"owner": owner}, parse=model(SpawnOffers))
        found: SpawnOffers = await self._session.send(call)
        return found

    async def _call(self, method: Any, path: str, json: Any = None) -> SpawnView:
        view: SpawnView = await self._session.send(Call(method, path, json=json, parse=model(SpawnView)))
        return view

    async def follow(self, task_id: str) -> AsyncIterator[SpawnView]:
        """Yield every change until the task has ended.

        Raises:
            StreamEnded: The connection ended, but the task has not.
            DetlabError: The master refuses.
        """
        lines = Lines()
        try:
            async with self._session.open(Call("GET", f"spawns/{task_id}/stream")) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_of(Reply(response.status_code, response.content))
                async for chunk in response.aiter_bytes():
                    for line in lines.feed(chunk):
                        if line.strip():
                            yield SpawnView.model_validate_json(line)
        except (httpx.TransportError, ValidationError) as error:
            raise StreamEnded(str(error)) from error
        raise StreamEnded("the master ended the stream")


def passes(error: DetlabError) -> bool:
    """Whether an error may pass with time: the master is away, starting, or behind a proxy that does not find it."""
    if isinstance(error, ClusterUnreachable | Unavailable):
        return True
    server_side = isinstance(error, ApiError) and error.status >= 500
    return server_side and not isinstance(error, AuthError | Conflict)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], SpawnClient]] = WeakKeyDictionary()


def shared(url: str, token: str) -> SpawnClient:
    """Return this event loop's client: all spawners of a Hub share its connections."""
    own = _clients.setdefault(asyncio.get_running_loop(), {})
    if (url, token) not in own:
        own[url, token] = SpawnClient(url, token)
    return own[url, token]


def read_token(path: str) -> str:
    """Return the spawners' token from its file; empty if there is none."""
    try:
        return one_word(Path(path).read_text(encoding="ascii"), path)
    except OSError:
        return ""
