"""One trial as an integration sees it: what it reports, how long it trains, and when it is to stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from detlab import core
from detlab.core.metrics.values import check_metrics
from detlab.core.preemption.agreeing import StopAgreement
from detlab.frameworks.errors import FrameworkError
from detlab.frameworks.lengths import SearchLength

logger = logging.getLogger("detlab.frameworks")

TRAINING = "training"
VALIDATION = "validation"

SECONDS = 1.0
"""Between two reports of progress."""


class TrialControl:
    """Reports, length and stops of a trial whose loop belongs to another framework.

    All ranks make one; the chief (rank 0) reports, and its word counts on whether to stop. Off-cluster nothing is
    resumed and nothing stops.

    Args:
        core_context: What `core.init()` gave.

    Attributes:
        resumed_at: Step of the checkpoint that this attempt resumes from, once it is known.

    Raises:
        FrameworkError: `core_context` is something else.
    """

    def __init__(self, core_context: core.Context) -> None:
        if not isinstance(core_context, core.Context):
            raise FrameworkError(
                f"core_context must be what `with det.core.init() as core_context:` gives, not {core_context!r:.200}"
            )
        self.core = core_context
        self.distributed = core_context.distributed
        self.chief = core_context.distributed.rank == 0
        info = core_context.info
        self._info = info if info is not None and info.task_type == "TRIAL" else None
        self._searcher: Mapping[str, Any] = (self._info.trial._config.get("searcher") if self._info else None) or {}
        self._dropped: set[str] = set()
        self._agreement = StopAgreement(core_context.preempt, core_context.distributed)
        self._progress_at = -math.inf
        self._validated_at = -1
        self.resumed_at: int | None = None

    @property
    def trial_id(self) -> int | None:
        """Id of the trial; None off-cluster."""
        return self._info.trial.trial_id if self._info else None

    @property
    def latest_checkpoint(self) -> str | None:
        """The checkpoint to resume from; None off-cluster, and for a trial that starts."""
        return self._info.latest_checkpoint if self._info else None

    @property
    def searched_names(self) -> frozenset[str]:
        """Names of metrics that the searcher reads: its metric and its measure of time."""
        named = (self._searcher.get("metric"), self._searcher.get("time_metric"))
        return frozenset(name for name in named if isinstance(name, str))

    @property
    def length(self) -> SearchLength | None:
        """How long the search lets the trial train, if its config says so in batches or epochs."""
        return SearchLength.of(self._searcher)

    def check_length(self, *, batches: float | None, epochs: float | None, setting: str) -> None:
        """Compare the length of the search with that of the code, as `SearchLength.check` does."""
        if (length := self.length) is not None:
            length.check(batches=batches, epochs=epochs, setting=setting, resumed=self.latest_checkpoint is not None)

    # --- reports

    def report(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics, if this is the chief.

        What cannot be reported (None, objects of the framework) is left out, with a warning for each name: training
        does not fail for it.

        Args:
            group: `training`, `validation` or any other.
            steps_completed: Steps of the optimizer.
            metrics: By name.
        """
        if not self.chief:
            return
        kept = self._reportable(metrics)
        if not kept:
            return
        train = self.core.train
        if group == TRAINING:
            train.report_training_metrics(steps_completed, kept)
        elif group == VALIDATION:
            train.report_validation_metrics(steps_completed, kept)
        else:
            train.report_metrics(group, steps_completed, kept)

    def report_validation(self, steps_completed: int, metrics: Mapping[str, Any], epochs: float | None) -> None:
        """Report a validation with what the searcher measures time by, unless one of this step or a later one was.

        Code often validates once more after training, or before it resumes: the searcher must not see that twice.

        Args:
            steps_completed: Steps of the optimizer.
            metrics: By name.
            epochs: Trained so far, if known.
        """
        if steps_completed <= self._validated_at or steps_completed < (self.resumed_at or 0):
            logger.debug("not reported: another validation at step %d", steps_completed)
            return
        self._validated_at = steps_completed
        self.report(VALIDATION, steps_completed, {**metrics, **counts(steps_completed, epochs)})

    def report_progress(self, done: float) -> None:
        """Report the share that is done, from 0 to 1, at most once a second, if this is the chief."""
        now = time.monotonic()
        if self.chief and math.isfinite(done) and now - self._progress_at >= SECONDS:
            self._progress_at = now
            self.core.train.report_progress(min(1.0, max(0.0, done)))

    def set_status(self, status: str) -> None:
        """Say what the trial does, if this is the chief."""
        if self.chief:
            self.core.train.set_status(status)

    def _reportable(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return check_metrics(metrics)
        except (TypeError, ValueError):
            kept: dict[str, Any] = {}
        for name, value in metrics.items():
            try:
                kept.update(check_metrics({name: value}))
            except (TypeError, ValueError) as error:
                self._warn_once(str(name), error)
        return kept

    def _warn_once(self, name: str, error: Exception) -> None:
        if name not in self._dropped:
            self._dropped.add(name)
            logger.warning("not reported: %s", error)

    # --- stops

    @property
    def stopping(self) -> bool:
        """Whether the trial is to stop."""
        return self._agreement.stopping

    def should_stop(self, step: int) -> bool:
        """Return whether to store a checkpoint and leave, as `StopAgreement.should_stop` does."""
        return self._agreement.should_stop(step)

    def ask(self, step: int) -> bool:
        """Do as `should_stop`, but ask in any case, as at the end of an epoch."""
        return self._agreement.ask(step)

    def leave(self) -> None:
        """End this process as a trial does that is to be resumed, or that the searcher has stopped: exit code 0.

        Raises:
            SystemExit: Always; `with core.init()` closes on its way.
        """
        self.set_status("stopped")
        logger.info("the trial was asked to stop and has stored its checkpoint: it ends here, to be resumed if need be")
        raise SystemExit(0)


def counts(steps_completed: int, epochs: float | None) -> dict[str, Any]:
    """Return the metrics by which a searcher measures time: `batches`, and `epochs` if they are known."""
    found: dict[str, Any] = {"batches": steps_completed}
    if epochs is not None:
        rounded = round(epochs)
        found["epochs"] = rounded if abs(epochs - rounded) < 1e-6 else epochs
    return found
