"""Code bundles: fetched once per digest, checked, kept for the next task."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import httpx

from detlab import loopback
from detlab.backoff import Backoff
from detlab.errors import master_said
from detlab.launch.archives import UnsafeBundle, digest_like
from detlab.schemas.bundles import file_name
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.base import RefusedTask, SetupFailed

_log = logging.getLogger(__name__)
MAX_DOWNLOAD = 1 << 30
"""Bytes of one packed bundle."""
KEEP = 4 << 30
"""Bytes of packed bundles that are kept; those unused for longest are removed first."""
PATIENCE = 600.0
"""Seconds to keep trying while the master does not answer."""


class BundleCache:
    """Packed bundles in a directory that only the agent's user may enter.

    Args:
        directory: Their directory; made if missing.
        endpoints: Addresses of the master.
        token: Gives the agent's key.
    """

    def __init__(self, directory: Path, endpoints: Endpoints, token: Callable[[], str]) -> None:
        self._directory = directory
        self._endpoints = endpoints
        self._token = token
        self._locks: dict[str, asyncio.Lock] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def fetch(self, digest: str) -> Path:
        """Return the packed bundle, from the cache or the master.

        Raises:
            RefusedTask: The disk has no room for it.
            SetupFailed: It does not exist, is too large, does not match its digest, or the master is away for too long.
        """
        name = file_name(digest)
        if name is None:
            raise SetupFailed(f"{digest!r} is no digest of a bundle")
        path = self._directory / name
        async with self._locks.setdefault(digest, asyncio.Lock()):
            if path.exists():
                os.utime(path)
                return path
            await self._download_patiently(digest, path)
            self._make_room(path)
        return path

    async def _download_patiently(self, digest: str, path: Path) -> None:
        backoff = Backoff()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                await self._download(digest, path)
                return
            except httpx.HTTPError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise SetupFailed(f"bundle {digest}: the master does not answer: {error}") from error
                _log.info("bundle %s: %s; trying again", digest, error)
            except OSError as error:
                path.with_suffix(".partial").unlink(missing_ok=True)
                if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                    raise RefusedTask(f"no room for bundle {digest}: {error}") from error
                raise SetupFailed(f"bundle {digest}: {error}") from error
            await asyncio.sleep(backoff.next_pause())

    async def _download(self, digest: str, path: Path) -> None:
        partial = path.with_suffix(".partial")
        size = 0
        headers = {"Authorization": f"Bearer {self._token()}", "Accept-Encoding": "identity"}
        timeout = httpx.Timeout(60.0, connect=10.0)
        address = self._endpoints.bundle(digest)
        trust = self._endpoints.trust()
        async with (
            httpx.AsyncClient(
                timeout=timeout,
                follow_redirects=False,
                verify=trust,
                event_hooks=loopback.async_hooks(address),
                trust_env=False,
            ) as client,
            client.stream("GET", address, headers=headers) as reply,
        ):
            if 400 <= reply.status_code < 500 and reply.status_code not in {401, 408, 429}:
                said = master_said(await reply.aread())
                if said is not None:  # else a proxy or the Hub before it, which do not know the way yet
                    raise SetupFailed(
                        f"bundle {digest}: the master answers with status {reply.status_code}: {said['message']}"
                    )
            reply.raise_for_status()
            with partial.open("wb") as file:
                # Raw: a transport that unpacks "Content-Encoding: gzip" would change the bytes that are digested.
                async for piece in reply.aiter_raw():
                    size += len(piece)
                    if size > MAX_DOWNLOAD:
                        raise SetupFailed(f"bundle {digest}: larger than {MAX_DOWNLOAD} bytes")
                    file.write(piece)
        await asyncio.to_thread(_verify, partial, digest)
        partial.replace(path)

    def _make_room(self, newest: Path) -> None:
        """Remove the bundles unused for longest, beyond the size that is kept."""
        held = sorted(
            ((item.stat().st_mtime, item.stat().st_size, item) for item in self._directory.glob("*.tar.gz")),
            reverse=True,
        )
        total = 0
        for _, size, item in held:
            total += size
            if total > KEEP and item != newest:
                item.unlink(missing_ok=True)


def _verify(archive: Path, digest: str) -> None:
    """Remove a downloaded bundle that does not match its digest.

    Raises:
        SetupFailed: It does not match.
    """
    try:
        found = digest_like(digest, archive)
    except UnsafeBundle as error:
        archive.unlink()
        raise SetupFailed(f"bundle {digest}: {error}") from error
    if found != digest:
        archive.unlink()
        raise SetupFailed(f"bundle {digest}: what was downloaded does not match the digest")
