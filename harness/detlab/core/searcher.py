"""`core_context.searcher`: for code written before Determined 0.38; since then the master stops trials."""

from __future__ import annotations

import enum
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from detlab.core.distributed.context import DistributedContext

logger = logging.getLogger("detlab.core")

_DEPRECATED = (
    "SearcherContext.operations() is deprecated since Determined 0.38: set the training length in your code, and "
    "report the searcher's metric with report_validation_metrics()"
)


class Unit(enum.Enum):
    """What a length counts."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """`WorkersAskChief`: all ranks iterate in step. `ChiefOnly`: the chief alone iterates."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


def parse_length(searcher: Mapping[str, Any]) -> int:
    """Return a training length from a `searcher` block: `max_length`, else `max_time`, else 0."""
    length = searcher.get("max_length")
    if isinstance(length, Mapping):
        length = next(iter(length.values()), None)
    if length is None:
        length = searcher.get("max_time")
    return int(length or 0)


def parse_units(searcher: Mapping[str, Any]) -> Unit | None:
    """Return the unit of `max_length` if the `searcher` block names one."""
    length = searcher.get("max_length")
    name = searcher.get("unit") or (next(iter(length), None) if isinstance(length, Mapping) else None)
    try:
        return Unit(str(name).upper())
    except ValueError:
        return None


class SearcherOperation:
    """Train until `length`, validate, and call `report_completed`."""

    def __init__(self, length: int, is_chief: bool, report_progress: Callable[[float], None]) -> None:
        self._length = length
        self._is_chief = is_chief
        self._report_progress = report_progress
        self._completed = False

    @property
    def length(self) -> int:
        """Total training to reach, counted from the start of the trial."""
        return self._length

    def report_progress(self, length: float) -> None:
        """Report how much has been trained, in the unit of `length`.

        Raises:
            RuntimeError: Called by another rank than the chief, or after `report_completed`.
        """
        self._require_chief("report_progress")
        if self._completed and length != self._length:
            raise RuntimeError("op.report_progress() was called after op.report_completed()")
        if self._length > 0:
            self._report_progress(min(1.0, max(0.0, length / self._length)))

    def report_completed(self, searcher_metric: Any) -> None:
        """End this operation. The metric itself goes through `report_validation_metrics`.

        Raises:
            RuntimeError: Called by another rank than the chief, or twice.
        """
        self._require_chief("report_completed")
        if self._completed:
            raise RuntimeError("op.report_completed() was called twice")
        self._completed = True
        logger.debug("searcher operation of length %d completed with %r", self._length, searcher_metric)

    def _require_chief(self, what: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"op.{what}() is for the chief (rank 0)")


class SearcherContext:
    """One operation, as long as the config's `searcher.max_length` (or `max_time`) says."""

    def __init__(
        self,
        distributed: DistributedContext,
        length: int,
        report_progress: Callable[[float], None],
        units: Unit | None = None,
    ) -> None:
        self._dist = distributed
        self._length = length
        self._report_progress = report_progress
        self._units = units

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Yield the one operation.

        Args:
            searcher_mode: Which ranks iterate.
            auto_ack: Accepted for compatibility.

        Raises:
            RuntimeError: The chief continued without `report_completed`, or a worker iterates in mode ChiefOnly.
        """
        warnings.warn(_DEPRECATED, FutureWarning, stacklevel=2)
        return self._operations(SearcherMode(searcher_mode))

    def _operations(self, mode: SearcherMode) -> Iterator[SearcherOperation]:
        in_step = mode is SearcherMode.WorkersAskChief
        if self._dist.rank != 0:
            if not in_step:
                raise RuntimeError("searcher.operations(searcher_mode=ChiefOnly) is for the chief (rank 0)")
            while (length := self._dist.broadcast(None)) is not None:
                yield SearcherOperation(length, False, self._report_progress)
            return
        operation = SearcherOperation(self._length, True, self._report_progress)
        if in_step:
            self._dist.broadcast(self._length)
        yield operation
        if not operation._completed:
            raise RuntimeError("call op.report_completed() on each operation")
        if in_step:
            self._dist.broadcast(None)

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing; kept for older code."""

    def get_configured_units(self) -> Unit | None:
        """Return the unit that `searcher.max_length` names, if any."""
        return self._units


class DummySearcherContext(SearcherContext):
    """Off-cluster: one operation of length 1 (or as given)."""

    def __init__(self, distributed: DistributedContext, length: int = 1) -> None:
        super().__init__(distributed, length, _log_progress)


def _log_progress(progress: float) -> None:
    logger.info("progress: %.0f %%", 100 * progress)
