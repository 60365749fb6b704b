"""The rate at which each task writes output, by the times of its lines. No I/O: the caller passes the time."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from detlab.schemas.wire import LogRecord, Record, RecordBatch
from detlab_hub.services.base.limits.bucket import Bucket
from detlab_hub.services.base.limits.model import MIB, PerUserLimits

AHEAD = 60.0
"""Seconds that a line's time may be ahead of the master's clock; later ones count as of then."""


@dataclass(frozen=True)
class OutputWriter:
    """A task that writes.

    Attributes:
        began: When it was given its place: none of its lines is older.
        nodes: On how many nodes it runs; each sends its own lines.
        bound: Whether its owner is bound by limits.
    """

    began: float
    nodes: int = 1
    bound: bool = True


@dataclass
class _Written:
    """The output of one node of a task."""

    lines: Bucket
    size: Bucket
    at: float
    behind: float = 0.0
    """Seconds by which the node's clock is at least behind the master's."""

    def move_to(self, said: float, began: float, now: float) -> None:
        """Fill up to the time of a line; it never goes back, and is never far ahead of now."""
        if not math.isfinite(said):
            said = now
        self.behind = max(self.behind, began - said)
        self.at = max(self.at, min(said + self.behind, now + AHEAD))
        self.lines.fill(self.at)
        self.size.fill(self.at)

    def takes(self, lines: int, size: int) -> bool:
        """Count lines, and their size in bytes, if they do not exceed the limit; return whether they were counted."""
        if self.lines.tokens < lines or self.size.tokens < size:
            return False
        self.lines.tokens -= lines
        self.size.tokens -= size
        return True


class OutputRates:
    """Thin what tasks write beyond their rate.

    Lines count at the times that they have, not when they arrive: what a node could not deliver for hours and was
    written slowly passes whole. Times can be forged, within bounds: a line is never older than its task and never more
    than `AHEAD` later than now, and time never goes back. So each node of a task has, whatever times it claims, at most
    `burst + rate * (age of the task + AHEAD)` in one life of the master, which is what a task that writes at its rate
    all the time has.

    Args:
        limits: The operator's limits.
        most: Tasks that are remembered; beyond that, those that wrote nothing for longest start anew.
    """

    def __init__(self, limits: PerUserLimits, most: int = 10_000) -> None:
        self._limits, self._most = limits, most
        self._writers: OrderedDict[str, OutputWriter] = OrderedDict()
        self._written: OrderedDict[tuple[str, int], _Written] = OrderedDict()

    def concern(self, batch: RecordBatch) -> bool:
        """Whether there is a limit for these records."""
        return batch.stream == "logs" and bool(self._limits.log_lines_per_second and self._limits.log_kb_per_second)

    def writer(self, task: str) -> OutputWriter | None:
        """Return what is known of a task; None if nothing is."""
        return self._writers.get(task)

    def know(self, task: str, writer: OutputWriter) -> None:
        """Remember who writes."""
        self._writers[task] = writer
        if len(self._writers) > self._most:
            self._writers.popitem(last=False)

    def thinned(
        self, task: str, node: int, writer: OutputWriter, batch: RecordBatch, now: float
    ) -> tuple[RecordBatch, int]:
        """Leave out the lines of a batch that are beyond a task's log rate; a line says how many.

        The line that says so has the number of the last one left out, so that the sender continues behind it.

        Returns:
            The batch, and how many lines were left out.
        """
        if not batch.records or not writer.bound or not self.concern(batch):
            return batch, 0
        first, last = batch.records[0], batch.records[-1]
        written = self._of(task, node if 0 < node < writer.nodes else 0, writer.began)
        written.move_to(first.time, writer.began, now)
        whole = sum(len(record.text) for record in batch.records if isinstance(record, LogRecord))
        if written.takes(len(batch.records), whole):
            written.move_to(last.time, writer.began, now)
            return batch, 0
        kept: list[Record] = []
        left_out: list[LogRecord] = []
        for record in batch.records:
            written.move_to(record.time, writer.began, now)
            if isinstance(record, LogRecord) and not written.takes(1, len(record.text)):
                left_out.append(record)
            else:
                kept.append(record)
        if not left_out:
            return batch, 0
        kept.append(self._told(left_out))
        kept.sort(key=lambda record: record.seq)
        return batch.model_copy(update={"records": kept}), len(left_out)

    def _of(self, task: str, node: int, began: float) -> _Written:
        found = self._written.get((task, node))
        if found is not None:
            self._written.move_to_end((task, node))
            return found
        limits = self._limits
        lines = Bucket.full(limits.log_lines_per_second, limits.log_lines_burst, began)
        size = Bucket.full(limits.log_kb_per_second * 1024, limits.log_burst_mb * MIB, began)
        found = self._written[task, node] = _Written(lines, size, began)
        if len(self._written) > self._most:
            self._written.popitem(last=False)
        return found

    def _told(self, left_out: list[LogRecord]) -> LogRecord:
        limits = self._limits
        told = (
            f"[detlab] {len(left_out):,} lines were left out here: a task may write {limits.log_lines_per_second:,g}"
            f" lines and {limits.log_kb_per_second:,g} kB a second in the long run (c.UserLimits.log_lines_per_second)"
        )
        return left_out[-1].model_copy(update={"text": told, "stdtype": "launcher", "level": "WARNING"})
