"""The few calls that the supervisor makes to its own Hub."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import httpx

from detlab import loopback
from detlab.trust import system_trust

log = logging.getLogger("detlab.supervisor")


class HubApi:
    """A client of the Hub's REST API.

    Args:
        url: Ends with `/hub/api`.
        token: Token of the service `detlab-supervisor`.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"token {token}"}

    def _client(self) -> httpx.AsyncClient:
        secure = system_trust(self._url)  # without TLS, reading certificates (50 ms) has no use
        return httpx.AsyncClient(
            base_url=self._url,
            headers=self._headers,
            timeout=10.0,
            trust_env=False,
            verify=secure,
            event_hooks=loopback.async_hooks(self._url),
        )

    async def restore_routes(self, timeout: float) -> bool:
        """Make the Hub write all its routes into the proxy; return False if it did not within `timeout` seconds."""
        async with self._client() as client:

            async def attempt() -> bool:
                return (await client.post("/proxy")).is_success

            return await _until(attempt, timeout)

    async def stop_servers(self, timeout: float) -> None:
        """Stop all notebook servers, waiting at most `timeout` seconds; do nothing if the Hub is away."""
        try:
            async with self._client() as client:
                if not await self._ask_to_stop(client):
                    return

                async def all_gone() -> bool:
                    return not await self._active(client)

                if not await _until(all_gone, timeout):
                    log.warning("some notebook servers did not stop within %.0f s", timeout)
        except httpx.HTTPError as error:
            log.info("notebook servers not asked to stop: %s", error)

    async def _ask_to_stop(self, client: httpx.AsyncClient) -> int:
        servers = await self._active(client)
        for user, server in servers:
            path = f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"
            await client.delete(path)
        return len(servers)

    @staticmethod
    async def _active(client: httpx.AsyncClient) -> list[tuple[str, str]]:
        reply = await client.get("/users", params={"state": "active"})
        reply.raise_for_status()
        return [(user["name"], name) for user in reply.json() for name in user.get("servers") or {}]


async def _until(attempt: Callable[[], Awaitable[bool]], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while True:
        try:
            if await attempt():
                return True
        except httpx.HTTPError as error:
            log.debug("the Hub: %s", error)
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.2)
