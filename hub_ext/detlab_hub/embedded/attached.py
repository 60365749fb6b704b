"""`det up --foreground`: the supervisor in this very process, for people who watch and for service managers."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Any

from detlab.errors import DetlabError
from detlab_hub.embedded import lifecycle
from detlab_hub.embedded.parts import make_parts
from detlab_hub.embedded.sockets.listeners import Listeners
from detlab_hub.embedded.state import Plan, StateFolder
from detlab_hub.embedded.supervisor import Supervisor

_DRAIN_SECONDS = 60.0


async def run(
    folder: StateFolder,
    options: lifecycle.Options,
    ready: Callable[[lifecycle.Cluster], None],
    say: lifecycle.Say,
) -> int:
    """Run the cluster until Ctrl-C or SIGTERM; trials then save and leave. A second signal does not wait for them.

    Returns:
        Exit status: 0 after a clean stop.

    Raises:
        DetlabError: It runs already, or does not come up.
    """
    folder.create()
    with folder.starting(patience=options.timeout):
        if folder.locked:
            raise DetlabError(f"a cluster already runs on {folder}", hint=f"det down --dir {folder}, then try again")
        listeners = Listeners()
        plan = lifecycle.make_plan(folder, options, listeners)
        folder.write_plan(plan)
        supervisor = Supervisor(folder, plan, make_parts(folder, plan), listeners)
        signalled = _Signals()
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0)  # its first step takes the folder
    watching = asyncio.create_task(_watch(folder, plan, options, ready, say))
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
        supervisor.request_stop()
        await running
        await asyncio.to_thread(lifecycle.stop_instances, folder, say)
    return 0


async def _watch(
    folder: StateFolder,
    plan: Plan,
    options: lifecycle.Options,
    ready: Callable[[lifecycle.Cluster], None],
    say: lifecycle.Say,
) -> None:
    deadline = time.monotonic() + options.timeout
    view = await asyncio.to_thread(lifecycle.Waiting(folder, plan, None, say).until_ready, deadline)
    lifecycle.remember(folder)
    ready(lifecycle.Cluster(folder, plan, view))


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
