"""`det up --foreground`: the supervisor in this process, for a terminal and for service managers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.pasted import word
from detlab_hub.embedded import lifecycle
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.parts import make_parts
from detlab_hub.embedded.sockets.listeners import Listeners
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.embedded.supervisor import Supervisor

_DRAIN_SECONDS = 60.0
_POLL_SECONDS = 0.5
"""Seconds between two checks of the source files."""
_RELOADED = {".py", ".html", ".js", ".css", ".sql"}
_CODE = {
    names.HUB: ("detlab_hub.spawners", "detlab_hub.embedded"),
    names.MASTER: ("detlab", "detlab_hub"),
    names.AGENT: ("detlab", "detlab_agent"),
}
"""The packages whose changes restart a part."""


async def run(
    folder: StateFolder,
    options: lifecycle.UpOptions,
    ready: Callable[[lifecycle.RunningCluster], None],
    say: lifecycle.Say,
    *,
    reload: bool = False,
) -> int:
    """Run the cluster until Ctrl-C or SIGTERM; trials then save and leave. A second signal does not wait for them.

    Args:
        folder: The state folder.
        options: The options of `det up`.
        ready: Called once the cluster is up.
        say: Called with messages about what takes long.
        reload: Restart parts when their code changes.

    Returns:
        Exit status: 0 after a clean stop.

    Raises:
        DetlabError: The cluster is running already, or does not come up.
    """
    fresh = not folder.root.exists()
    folder.create()
    with folder.starting(patience=options.timeout):
        if folder.locked:
            raise DetlabError(
                f"a cluster already runs on {folder}", hint=f"det down --dir {word(folder)}, then try again"
            )
        listeners = Listeners()
        with lifecycle.kept_if_started(folder, fresh=fresh):
            plan = lifecycle.make_plan(folder, options, listeners)
            folder.write_plan(plan)
            supervisor = Supervisor(folder, plan, make_parts(folder, plan), listeners)
        signalled = _Signals()
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0)  # its first step takes the folder
    watching = asyncio.create_task(_watch(folder, plan, options, ready, say))
    reloading = asyncio.create_task(reload_changed(supervisor, Sources(code_of_parts()), say)) if reload else None
    try:
        first: list[asyncio.Future[None]] = [running, watching, signalled.first]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
            await asyncio.wait([running, signalled.first], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            say("Shutting down; press Ctrl-C again not to wait for running trials.")
            draining = asyncio.create_task(
                asyncio.to_thread(lifecycle.drain, plan, folder.secret("user_token"), _DRAIN_SECONDS, say)
            )
            second: list[asyncio.Future[Any]] = [draining, signalled.second]
            await asyncio.wait(second, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if reloading is not None:
            reloading.cancel()
        supervisor.request_stop()
        await running
        await asyncio.to_thread(lifecycle.stop_instances, folder, say)
    return 0


async def _watch(
    folder: StateFolder,
    plan: StartPlan,
    options: lifecycle.UpOptions,
    ready: Callable[[lifecycle.RunningCluster], None],
    say: lifecycle.Say,
) -> None:
    deadline = time.monotonic() + options.timeout
    view = await asyncio.to_thread(lifecycle.StartWatch(folder, plan, None, say).until_ready, deadline)
    lifecycle.remember(folder)
    ready(lifecycle.RunningCluster(folder, plan, view))


def code_of_parts() -> dict[str, list[Path]]:
    """Return the folders whose files each part runs, by the part's name."""
    return {part: [folder for name in packages for folder in _folders(name)] for part, packages in _CODE.items()}


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


class Sources:
    """Notices which source files have changed.

    Args:
        folders: The folders of each part, by its name.
    """

    def __init__(self, folders: Mapping[str, Sequence[Path]]) -> None:
        self._folders = folders
        self._seen = self._modified()

    def changes(self) -> dict[str, list[Path]]:
        """Return the files that changed, appeared or disappeared since the last call, by the part to restart."""
        before, self._seen = self._seen, self._modified()
        changed = sorted(path for path, _ in before.items() ^ self._seen.items())
        found = {
            part: list(dict.fromkeys(path for path in changed if any(path.is_relative_to(one) for one in folders)))
            for part, folders in self._folders.items()
        }
        return {part: paths for part, paths in found.items() if paths}

    def _modified(self) -> dict[Path, int]:
        return dict(self._files())

    def _files(self) -> Iterator[tuple[Path, int]]:
        for folder in {folder for folders in self._folders.values() for folder in folders}:
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    if path.suffix in _RELOADED:
                        yield path, path.stat().st_mtime_ns


async def reload_changed(supervisor: Supervisor, sources: Sources, say: lifecycle.Say) -> None:
    """Restart parts whenever their code changes; never returns.

    Args:
        supervisor: Runs the parts.
        sources: Their source files.
        say: Called with which file made which parts restart.
    """
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        if changes := await asyncio.to_thread(sources.changes):
            first = next(iter(changes.values()))[0]
            say(f"{first.name} changed: restarting {', '.join(changes)}")
            await supervisor.restart(changes)


class _Signals:
    """SIGINT and SIGTERM as two futures: the first one, and the next."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.second: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal)

    def _signal(self) -> None:
        for future in (self.first, self.second):
            if not future.done():
                future.set_result(None)
                return
