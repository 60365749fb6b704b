"""What the seeds of one process share: a template database, the seams of the process, the source of randomness."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from detlab_hub.core.scheduling import PlacementDecision, Snapshot
from detlab_hub.services import master as services
from detlab_hub.services.placement import passes
from detlab_hub.store import Store, lease, migrate, store
from simulation.machines.master import make_database
from simulation.randomness import determined
from simulation.world import Outcome, World
from testbed.databases.engines import sharing


class Bench:
    """What many seeds share: a template database, and the seams of the process."""

    def __init__(self) -> None:
        root = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="detlab-sim-", dir=root if root.is_dir() else None))
        self.template = make_database(self.folder, lambda url: Store.open(url, holder="template"))
        self.world: World | None = None
        self._warm = False
        importlib.import_module("numpy.random")  # draws randomness when it is first imported: not inside a seed
        # The template has the newest schema: alembic would only read its scripts again at each start.
        migrate.upgrade = lambda connection: None
        migrate.check_schema = lambda connection, where: "head"
        migrate._quick_check = lambda path, url: None  # a fresh copy is sound
        lease._start_time = self._start_time  # of the simulated process
        store.writer_engine = self._watched(sharing(store.writer_engine))
        store.reader_engine = sharing(store.reader_engine)
        asyncio.Event.__hash__ = _serial_hash  # see there
        # No user tasks and no servers of the Hub are simulated: what looks for them need not.
        services.GUARD_PERIOD = services.RECONCILE_PERIOD = 3600.0
        passes.schedule = self._judged(passes.schedule)
        logging.getLogger().addHandler(_Errors(self))
        logging.getLogger().setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # of the dead

    def _judged(self, schedule: Callable[[Snapshot], PlacementDecision]) -> Callable[[Snapshot], PlacementDecision]:
        """The scheduler, whose decisions the promises judge before they become rows."""

        def judged(snapshot: Snapshot) -> PlacementDecision:
            decision = schedule(snapshot)
            if self.world is not None:
                self.world.promises.decided(snapshot, decision)
            return decision

        return judged

    def _watched(self, make: Callable[..., Engine]) -> Callable[..., Engine]:
        """An engine whose writes are counted by table."""

        def made(*args: Any) -> Engine:
            engine = make(*args)

            @event.listens_for(engine, "connect")
            def watch(connection: Any, _record: Any) -> None:
                if self.world is not None:
                    self.world.promises.written.watch(connection)

            return engine

        return made

    def _start_time(self, pid: int) -> int | None:
        """Which simulated masters live; of real processes only our own is ever asked for."""
        if self.world is not None and pid >= 10_000 and pid in self.world.living_pids:
            return 1
        return 0 if pid == os.getpid() else None

    def run(
        self,
        seed: int,
        *,
        calm: bool = False,
        kind: Callable[..., World] = World,
        look: Callable[[Any], None] | None = None,
    ) -> Outcome:
        """Run one seed in a world of a kind; `look` sees that at its end, before it is put away."""
        folder = self.folder / f"seed{seed}"
        folder.mkdir()
        _serials.clear()
        try:
            with determined(seed):
                self.world = kind(seed, folder, self.template, calm=calm)
                outcome = self.world.run(look)
                self.world = None
            # The collector has looked by now, as it had to wait while the seed ran.
            if not self._warm:
                # What is loaded by now stays: the collector need not look at it again and again.
                self._warm = True
                gc.collect()
                gc.freeze()
            return outcome
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


class _Errors(logging.Handler):
    """An exception that product code logs as a failure of its own is one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(logging.ERROR)
        self._bench = bench

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        world = self._bench.world
        if world is not None and record.exc_info and record.levelno == logging.ERROR and world.loop.process().alive:
            world.loop.errors.append(f"logged: {record.getMessage()}: {record.exc_info[1]!r}")


_serials: list[int] = []


def _serial_hash(event: asyncio.Event) -> int:
    """Events lie in sets: by their address the order would differ from run to run."""
    try:
        return event._serial
    except AttributeError:
        event._serial = len(_serials)
        _serials.append(0)
        return event._serial
