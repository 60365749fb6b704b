"""The process beside a script that logs: it sends what is logged, measures the machine, and sees when the script dies.

    python -m detlab.track.companion FOLDER WRITER [--offline] [--code SCRIPT]

Its standard input is open as long as the script has not finished. It is a process of its own so that nothing that goes
wrong here, and no work that is done here, is the script's; it survives a script that is killed, and says so.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from detlab.backoff import Backoff
from detlab.core.metrics.spool import SpoolError
from detlab.core.metrics.system import NodeReader, Reading, sample_between
from detlab.errors import ClusterUnreachable, LimitReached, Unavailable
from detlab.schemas.wire.logged_names import near_key
from detlab.track.code import command_line_of, gather
from detlab.track.folder import RunFolder
from detlab.track.master import HttpRunMaster
from detlab.track.records import RunSpool, has_ended
from detlab.track.sending import RunDelivery, note_death
from detlab.track.this_run import TROUBLE_FILE

logger = logging.getLogger("detlab.track")
POLL = 0.5
"""Seconds between two looks at what was logged."""
CLOSING_POLL = 0.1
"""The same while the script waits."""
SAMPLE_SECONDS = 15.0
PATIENCE, PATIENCE_AFTER_DEATH = 5.0, 600.0
"""Seconds of failures after which it gives up: while the script waits for it, and after it was killed."""
DELIVERED, LEFT = 0, 3
"""Exit codes: the master has everything, or not."""


class Companion:
    """Stays with one process of a run until that has ended, and all is sent."""

    def __init__(self, folder: RunFolder, writer: str, *, offline: bool, delivery: RunDelivery | None = None) -> None:
        self._folder = folder
        self._writer = writer
        self._directory = folder.path / writer
        self._process = folder.process_of(writer)
        self._parent = os.getppid()
        self._spool = RunSpool(self._directory)
        self._delivery = None if offline else delivery or RunDelivery(folder, [writer], HttpRunMaster())
        self._gathering: threading.Thread | None = None
        self._closed = False
        """Whether the script has finished, and waits for us."""
        self._reader: NodeReader | None = None
        self._before: Reading | None = None
        self._sampled_at = 0.0
        self._samples = 0
        self._failing_since: float | None = None
        self._backoff = Backoff(first=POLL, cap=30.0)

    def gather(self, script: str) -> None:
        """Begin to look at the code, unless another process of the run has."""
        with contextlib.suppress(OSError):
            self._folder.files.mkdir()
            work = threading.Thread(target=self._gather, args=(script,), name="code", daemon=True)
            self._gathering = work
            work.start()

    def run(self) -> int:
        """Work until the end; return the exit code."""
        while True:
            # Both are asked before the rest is sent: what was written until then is in it.
            ending, gathered = self._ending(), self._gathering is None or not self._gathering.is_alive()
            if not ending:
                self._sample()
            whole = self._send()
            if ending and gathered and whole:
                return DELIVERED
            if ending and self._patience_is_over():
                return LEFT
            self._wait(POLL if self._failing_since is None else self._backoff.next_pause())

    @property
    def script_is_gone(self) -> bool:
        """Whether the script has ended, however."""
        return self._process.lives is False or os.getppid() != self._parent

    def _ending(self) -> bool:
        if self.script_is_gone:
            with contextlib.suppress(SpoolError):  # a full disk: the next `det sync` writes it
                note_death(self._folder, self._writer, known=True)
            return True
        return self._closed and has_ended(self._directory)

    def _send(self) -> bool:
        if self._delivery is None:
            return True
        whole = self._delivery.step()
        if whole:
            self._delivery.beat()
        failure = self._delivery.failure
        if failure is None:
            self._failing_since = None
            self._backoff.reset()
        elif self._failing_since is None:
            self._failing_since = time.monotonic()
            logger.warning("%s", failure)
        self._note_trouble("" if failure is None else getattr(failure, "message", str(failure)).partition(";")[0])
        return whole and failure is None

    def _note_trouble(self, text: str) -> None:
        path = self._directory / TROUBLE_FILE
        with contextlib.suppress(OSError):
            if text:
                path.write_text(text.splitlines()[0][:500], encoding="utf-8", errors="replace")
            else:
                path.unlink(missing_ok=True)

    def _patience_is_over(self) -> bool:
        if self._failing_since is None or self._delivery is None:
            return False
        passes = isinstance(self._delivery.failure, ClusterUnreachable | Unavailable | LimitReached)
        patience = PATIENCE_AFTER_DEATH if self.script_is_gone else PATIENCE if passes else 0.0
        return time.monotonic() - self._failing_since > patience

    def _wait(self, seconds: float) -> None:
        if self._closed:
            time.sleep(min(seconds, CLOSING_POLL))
            return
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            self._closed = True
            self._backoff.reset()
            if self._failing_since is not None:
                self._failing_since = time.monotonic()  # it has its patience from now on

    def _gather(self, script: str) -> None:
        try:
            tags = gather(Path.cwd(), script, self._folder.files, command_line_of(self._process.pid))
            self._spool.append("tags", {"values": tags})
        except Exception as error:  # of any package's metadata, any repository
            logger.warning("the code of the run is not kept: %s: %s", type(error).__name__, error)

    def _sample(self) -> None:
        now = time.monotonic()
        if now - self._sampled_at < SAMPLE_SECONDS and self._before is not None:
            return
        self._sampled_at = now
        try:
            self._reader = self._reader or NodeReader(os.environ)
            before, self._before = self._before, self._reader.read()
            if before is None:
                return
            groups = sample_between(before, self._before).values()
            values = {near_key(f"system/{name}"): value for group in groups for name, value in group.items()}
            self._spool.append("metrics", {"step": self._samples, "values": values})
            self._samples += 1
        except Exception as error:  # whatever a file, a driver or the disk raises: pictures of a machine, no more
            if self._samples == 0:
                logger.warning("the machine cannot be measured: %s: %s", type(error).__name__, error)
            self._samples += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run as the process beside a script."""
    parser = argparse.ArgumentParser(prog="python -m detlab.track.companion")
    parser.add_argument("folder", type=Path)
    parser.add_argument("writer")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--code", metavar="SCRIPT")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    with contextlib.suppress(OSError):
        os.nice(10)
    companion = Companion(RunFolder.opened(given.folder), given.writer, offline=given.offline)
    # What ends a whole job, as a batch system does, leaves the script some seconds: what it logs in them is sent, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(LEFT) if companion.script_is_gone else None)
    if given.code is not None:
        companion.gather(given.code)
    return companion.run()


if __name__ == "__main__":
    sys.exit(main())
