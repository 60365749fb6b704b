"""`core_context.train`: reporting metrics, progress and early exits of a trial."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from detlab.core.distributed.context import DistributedContext
from detlab.core.metrics.media import MediaReporter, MediaSpool
from detlab.core.metrics.tensorboard import TensorboardManager, TensorboardMode
from detlab.core.metrics.values import check_group, check_metrics, check_progress, check_steps, metric_steps
from detlab.core.session import INTERACTIVE_LIMIT, TaskSession
from detlab.errors import NotFound
from detlab.schemas.wire import BestValidationReply

logger = logging.getLogger("detlab.core")

TRAINING = "training"
VALIDATION = "validation"


class EarlyExitReason(enum.Enum):
    """Why training code ends early on purpose."""

    INVALID_HP = "INVALID_HP"
    USER_REQUESTED_STOP = "USER_REQUESTED_STOP"
    ERRORED = "ERRORED"


class _Sink(Protocol):
    """Where records go."""

    def append(self, kind: str, fields: dict[str, Any]) -> int: ...

    def raise_refusals(self) -> None: ...


class TrainContext:
    """Reports of the chief (rank 0): metrics, progress, status, metadata.

    Reports are appended to the task's spool and return at once; the launcher delivers them, through outages of
    the master too. What the master refuses is raised by the next report.
    """

    _steps_completed: int | None = None
    """Of the last report of metrics in this process."""

    def __init__(
        self,
        sink: _Sink,
        session: TaskSession,
        distributed: DistributedContext,
        tensorboard: TensorboardManager,
        media: MediaSpool | None = None,
    ) -> None:
        self._sink: _Sink = sink
        self._session = session
        self._distributed = distributed
        self._tensorboard = tensorboard
        self._media = MediaReporter(media, distributed.rank)

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: list[dict[str, Any]] | None = None,
    ) -> None:
        """Report metrics of the training loop.

        Args:
            steps_completed: Steps (batches, by convention) trained so far, counted over all attempts. Less than 0 is
                reported as 0, with a warning.
            metrics: Name to value: numbers, or dicts, lists and strings, which are kept as structured values.
            batch_metrics: One dict per batch since the last report; kept beside the metrics.

        Raises:
            TypeError: A value is neither a number nor structured.
            ValueError: A name is invalid, or `steps_completed` exceeds 2**53.
            RecordsRefused: The master refused an earlier report.
            SpoolError: The report could not be written to the task's disk.
        """
        self._report(TRAINING, steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a validation; the searcher reads its metric from here.

        Raises as `report_training_metrics` does. Values that are bytes are dropped with a warning, as
        Determined does.
        """
        if isinstance(metrics, dict):
            dropped = [name for name, value in metrics.items() if isinstance(value, bytes | bytearray)]
            if dropped:
                logger.warning("dropped metrics that are bytes: %s", ", ".join(map(str, dropped)))
                metrics = {name: value for name, value in metrics.items() if name not in dropped}
        self._report(VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics under any group name that has no dot; raises as `report_training_metrics` does."""
        self._report(group, steps_completed, metrics)

    def report_media(self, steps_completed: int, media: Mapping[str, Any]) -> None:
        """Report images, sound, video, text, HTML, tables and plots of a step.

        This never raises, and never waits for the master: what cannot be logged is one warning. Reported again, a key
        replaces what it had at that step.

        Args:
            steps_completed: Steps (batches, by convention) trained so far, counted over all attempts.
            media: Key to an object of `detlab.media` (`det.Image(array)`, …), or a list of at most 100 of them. A data
                frame, a figure of matplotlib or plotly, an image of PIL and a text are taken as they are.
        """
        self._media.report(steps_completed, media)

    def report_progress(self, progress: float) -> None:
        """Report how much of the training is done, from 0 to 1.

        Raises:
            ValueError: `progress` is outside of 0..1 or not finite.
            RuntimeError: A rank other than the chief called.
        """
        self._send("progress", {"progress": check_progress(progress)})

    def set_status(self, status: str) -> None:
        """Describe in a few words what the trial is doing now, for people who watch it."""
        self._send("status", {"status": str(status).encode(errors="replace").decode()})

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report why this trial is about to end early; `init` does so itself when `InvalidHP` leaves its block."""
        self._send("early_exit", {"reason": EarlyExitReason(reason).value})

    def _report_invalid_hp(self) -> None:
        """Report, on any rank, that the hyperparameters are invalid: often one rank alone sees it, and then ends."""
        self._sink.append("early_exit", {"reason": EarlyExitReason.INVALID_HP.value})

    def _report_resumed(self, steps_completed: int) -> None:
        """Report, before any metrics, that this attempt continues from an earlier step than its checkpoint has.

        Args:
            steps_completed: Of the checkpoint that was good; what earlier attempts reported beyond it is superseded.
        """
        self._send("resumed", {"steps_completed": check_steps(steps_completed)})

    def _report_system(self, group: str, steps_completed: int, metrics: dict[str, float]) -> None:
        """Report metrics of the node, from the profiler's thread: refusals are left for the training's own calls."""
        fields = {"group": group, "steps_completed": metric_steps(steps_completed), "metrics": check_metrics(metrics)}
        self._sink.append("metrics", fields)

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Replace the metadata of this trial and return what is now stored.

        Raises:
            ApiError: The master refused it (limits on size and depth).
            ClusterUnreachable: No answer for 5 minutes.
        """
        self._require_chief("set_metadata")
        reply = self._session.call("PUT", "task/metadata", body=metadata)
        return reply if isinstance(reply, dict) else metadata

    def get_metadata(self) -> dict[str, Any] | None:
        """Return the metadata of this trial. Raises as `set_metadata` does."""
        reply: dict[str, Any] | None = self._session.get("task/metadata")
        return reply

    def get_experiment_best_validation(self) -> float | None:
        """Return the best value of the searcher's metric over the whole experiment so far, or None.

        Raises:
            ClusterUnreachable: No answer for 5 minutes.
        """
        return self._best_validation(INTERACTIVE_LIMIT)

    def _best_validation(self, limit: float) -> float | None:
        """Do as `get_experiment_best_validation`, waiting at most `limit` seconds through an outage."""
        try:
            reply = self._session.get("task/best-validation", limit=limit)
        except NotFound:
            return None
        return BestValidationReply.model_validate(reply).value

    def get_tensorboard_path(self) -> Path:
        """Return a directory for TensorBoard event files of this rank; it exists."""
        return self._tensorboard.base_path

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], Path] = lambda path, _: path,
    ) -> None:
        """Copy TensorBoard files to checkpoint storage (`TensorboardMode.MANUAL` only).

        Args:
            selector: Whether to take a file, by its path relative to `get_tensorboard_path()`.
            mangler: Gives the name to store it under, from that path and this rank.

        Raises:
            RuntimeError: The mode is AUTO, which copies by itself.
        """
        if self._tensorboard.mode is TensorboardMode.AUTO:
            raise RuntimeError("upload_tensorboard_files() is for tensorboard_mode=TensorboardMode.MANUAL")
        self._tensorboard.sync(selector, mangler)

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: list[dict[str, Any]] | None = None,
    ) -> None:
        fields: dict[str, Any] = {
            "group": check_group(group),
            "steps_completed": metric_steps(steps_completed),
            "metrics": check_metrics(metrics),
        }
        if batch_metrics is not None:
            fields["batch_metrics"] = [
                check_metrics(item, what=f"batch_metrics[{index}]") for index, item in enumerate(batch_metrics)
            ]
        self._send("metrics", fields)
        self._steps_completed = fields["steps_completed"]
        logger.info("%s metrics at step %d: %s", group, fields["steps_completed"], fields["metrics"])

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        self._require_chief(f"report {kind}")
        self._sink.raise_refusals()
        self._sink.append(kind, fields)

    def _require_chief(self, what: str) -> None:
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"only the chief (rank 0) may {what}, not rank {self._distributed.rank}: "
                "guard the call with `if core_context.distributed.rank == 0:`"
            )


class DummyTrainContext(TrainContext):
    """Off-cluster: reports are checked and logged, metadata is kept in memory."""

    def __init__(
        self, distributed: DistributedContext | None = None, tensorboard: TensorboardManager | None = None
    ) -> None:
        from detlab.core.distributed.context import DummyDistributedContext

        self._distributed = distributed or DummyDistributedContext()
        self._tensorboard = tensorboard or TensorboardManager.off_cluster(self._distributed.rank)
        self._sink = _LogSink()
        self._media = MediaReporter(None, self._distributed.rank)
        self._metadata: dict[str, Any] = {}

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Keep the metadata for `get_metadata` in this process."""
        self._require_chief("set_metadata")
        self._metadata = dict(metadata)
        return self._metadata

    def get_metadata(self) -> dict[str, Any] | None:
        """Return what `set_metadata` was given."""
        return self._metadata

    def _best_validation(self, limit: float) -> float | None:
        """Return None: off-cluster there is no experiment."""
        return None


class _LogSink:
    def append(self, kind: str, fields: dict[str, Any]) -> int:
        if kind != "metrics":  # metrics are logged by the context itself
            logger.info("%s: %s", kind, ", ".join(str(value) for value in fields.values()))
        return 0

    def raise_refusals(self) -> None:
        """Do nothing: off-cluster no report is refused."""
