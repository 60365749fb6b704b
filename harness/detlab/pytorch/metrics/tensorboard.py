"""TensorBoard: event files of a trial's reports, and the writer for users.

Determined's tags are `Determined/<metric>` and `Determined/val_<metric>`; detlab's tags differ in the product's name
alone.
"""

from __future__ import annotations

import logging
import math
import numbers
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from detlab.core.metrics.tensorboard import TensorboardManager
from detlab.info import get_cluster_info
from detlab.pytorch.errors import TrainerError

if TYPE_CHECKING:
    from detlab.core import Context, DistributedContext

logger = logging.getLogger("detlab.pytorch")

TAG_PREFIX = "detlab/"
UPLOAD_SECONDS = 30.0
"""Seconds between automatic copies to storage."""
SCALARS_PER_FILE = 20_000
"""After so many a new event file is begun: files that grow are copied as a whole each time."""
_CLOSE_SECONDS = 60.0

_open_writers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Writers of this process; what they hold is written out before files are copied."""


def summary_writer(log_dir: str | os.PathLike[str]) -> Any:
    """Return a `torch.utils.tensorboard.SummaryWriter`, whose events are on disk whenever files are copied to storage.

    Raises:
        TrainerError: The package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TrainerError(
            f"TensorBoard files cannot be written: {error}",
            hint="Install it with `pip install tensorboard`, or call pytorch.init(enable_tensorboard_logging=False).",
        ) from error
    writer = SummaryWriter(os.fspath(log_dir))
    _open_writers.add(writer)
    return writer


class TorchWriter:
    """Writes event files to the trial's TensorBoard directory, for use in a trial's or a callback's code.

    Everything that a `SummaryWriter` can do is also a method of this object.

    Args:
        log_dir: Where to write; the trial's own directory if None.

    Attributes:
        writer: The `torch.utils.tensorboard.SummaryWriter`.

    Raises:
        TrainerError: The package tensorboard is not installed.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None) -> None:
        if log_dir is None:
            log_dir = TensorboardManager.local_path(get_cluster_info(), int(os.environ.get("RANK", "0")))
        self.writer = summary_writer(log_dir)

    def add_scalar(self, name: str, value: Any, step: int | None = None, *args: Any, **kwargs: Any) -> None:
        """Write one number.

        Args:
            name: Tag in TensorBoard.
            value: A number, or an array or tensor with one element.
            step: Its place on the horizontal axis.
            *args: As `SummaryWriter.add_scalar` takes them.
            **kwargs: As `SummaryWriter.add_scalar` takes them.
        """
        self.writer.add_scalar(name, value, step, *args, **kwargs)

    def flush(self) -> None:
        """Write what is in memory to the file."""
        self.writer.flush()

    def reset(self) -> None:
        """Write what is in memory and close the file; the next event begins a new one."""
        self.writer.close()

    def __getattr__(self, name: str) -> Any:
        if name == "writer":  # not there yet: do not ask it for itself
            raise AttributeError(name)
        return getattr(self.writer, name)


class TensorboardContext(Protocol):
    """What writing to TensorBoard needs of a trial's context."""

    distributed: DistributedContext
    _core: Context

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether the trainer writes metrics to TensorBoard."""

    def get_tensorboard_writer(self) -> Any:
        """Return the trial's `SummaryWriter`, always the same one."""


class BatchMetricWriter:
    """Writes reported metrics to TensorBoard and has the files copied to storage, all ranks' own ones included.

    It never ends a training: an error is logged as a warning, once.

    Args:
        context: Of the trial; its switch `set_enable_tensorboard_logging` counts at each call.
    """

    def __init__(self, context: TensorboardContext) -> None:
        self._context = context
        self._chief = context.distributed.rank == 0
        self._writer: Any = None
        self._written = 0
        self._broken = False
        self._warned: set[str] = set()
        self._next_upload = time.monotonic() + UPLOAD_SECONDS
        self._uploader = _Uploader(self._copy)
        if context.get_enable_tensorboard_logging() and self._chief:
            self._open()  # now: importing TensorBoard takes its time

    def on_train_step_end(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Write reported training metrics; those that are no numbers are left out."""
        self._write(steps_completed, metrics)

    def on_validation_step_end(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Write reported validation metrics, under names that begin with `val`."""
        self._write(
            steps_completed,
            {name if name.startswith("val") else f"val_{name}": value for name, value in metrics.items()},
        )

    def flush_and_upload(self) -> None:
        """Have a thread write out and copy all new files; returns at once."""
        if self._context.get_enable_tensorboard_logging():
            self._next_upload = time.monotonic() + UPLOAD_SECONDS
            self._uploader.request()

    def close(self) -> None:
        """Close the event file and wait, up to a minute, until all files are copied. Harmless when repeated."""
        if self._writer is not None:
            self._guarded(self._writer.close)
            self._writer = None
        if self._context.get_enable_tensorboard_logging():
            self._uploader.request()
        if not self._uploader.close(_CLOSE_SECONDS):
            logger.warning("TensorBoard files were not all copied to storage within %.0f s", _CLOSE_SECONDS)

    def _write(self, step: int, metrics: dict[str, Any]) -> None:
        if self._broken or not self._chief or not self._context.get_enable_tensorboard_logging():
            return
        if self._writer is None:
            self._open()
        self._guarded(lambda: self._add(step, metrics))
        if time.monotonic() >= self._next_upload:
            self.flush_and_upload()

    def _add(self, step: int, metrics: dict[str, Any]) -> None:
        if self._writer is None:
            return
        for name, value in metrics.items():
            number = _number(value)
            if number is None:
                continue
            tag = (TAG_PREFIX + name).encode(errors="replace").decode()  # the file format takes Unicode alone
            self._writer.add_scalar(tag, number, step)
            self._written += 1
        if self._written >= SCALARS_PER_FILE:
            self._written = 0
            self._writer.close()

    def _open(self) -> None:
        def open_it() -> None:
            self._writer = self._context.get_tensorboard_writer()

        self._guarded(open_it)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Call `act`; if that fails, TensorBoard is over for this run, and training continues."""
        try:
            act()
        except Exception as error:  # whatever the writer raises: pictures of a run are no reason to end it
            if not self._broken:
                self._broken = True
                logger.warning("metrics are not written to TensorBoard any more: %s: %s", type(error).__name__, error)

    def _copy(self) -> None:
        """Write out and copy all files, in the uploader's thread."""
        try:
            for writer in {*_open_writers, self._writer} - {None}:
                writer.flush()
            self._context._core.train.upload_tensorboard_files(self._selected, _stored_as)
        except Exception as error:  # whatever the writer or the storage raises: as above
            said = f"{type(error).__name__}: {error}"
            if said not in self._warned:
                self._warned.add(said)
                logger.warning("TensorBoard files were not copied to storage: %s", said)

    def _selected(self, path: Path) -> bool:
        """Return whether to copy a file: event files of the chief, and all else, such as profiles, of every rank."""
        return self._chief or "tfevents" not in path.name


def _stored_as(path: Path, rank: int) -> Path:
    return path if rank == 0 else Path(f"rank{rank}") / path


def _number(value: Any) -> float | None:
    """Return a metric as a number, or None if it is not one."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, numbers.Real):
        return None
    number: Any = value
    try:
        return float(number)
    except OverflowError:  # an integer beyond any float
        return math.inf if number > 0 else -math.inf


class _Uploader:
    """Calls `copy` in a thread of its own whenever that is requested; requests in the meantime become one.

    Args:
        copy: Must not raise.
    """

    def __init__(self, copy: Callable[[], None]) -> None:
        self._copy = copy
        self._wanted = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Have files copied soon."""
        if self._closing:
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="detlab-tensorboard", daemon=True)
            self._thread.start()

    def close(self, timeout: float) -> bool:
        """Wait for what was requested; return whether it was done within `timeout` seconds."""
        self._closing = True
        if self._thread is None:
            return True
        self._wanted.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            closing = self._closing
            self._copy()
            if closing:
                return
