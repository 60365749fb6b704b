"""TensorBoard files of a trial: a local directory, copied to checkpoint storage.

They are stored as `tensorboard-<cluster>-<experiment>-<trial>/` under the root of the checkpoint storage: one private
folder per trial, since trials of several users may share the root. The name can be foreseen: if another user took it,
the folder is `….1`, `….2` …, and a TensorBoard shows only what lies in folders of its own user
(`detlab.storage.own_folders`). The Core API writes no event files itself; the trainer does.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from detlab.errors import StorageError
from detlab.info import ClusterInfo
from detlab.storage import StorageManager
from detlab.storage.own_folders import tensorboard_folder

logger = logging.getLogger("detlab.core")


class TensorboardMode(enum.Enum):
    """Who copies TensorBoard files to storage: AUTO when the context closes, MANUAL by `upload_tensorboard_files`."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


@functools.cache
def _local_run() -> str:
    """Return a name for this run, so that the curves of two runs do not mix; the ranks of torchrun share one."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", str(os.getpid()))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{run}" if run == str(os.getpid()) else run


def _own_folder(name: str) -> Path:
    """Return a folder for temporary files by a name that others can foresee: this user's, or a new one of another name.

    Another user may have made a folder of the name, or a link, to read what is written or to have it written elsewhere.
    """
    folder = Path(tempfile.gettempdir()) / name
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    made = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    logger.warning("%s is not a folder of yours alone: files are in %s", folder, made)
    return made


class TensorboardManager:
    """One rank's directory of event files and where it is copied to.

    Args:
        base_path: Local directory; made on first use.
        mode: Who copies.
        rank: Rank of this process, for the mangler.
        storage: Where to copy to; None off-cluster.
        prefix: Folder in the storage.
    """

    def __init__(
        self,
        base_path: Path,
        mode: TensorboardMode,
        rank: int,
        storage: StorageManager | None = None,
        prefix: str = "tensorboard",
    ) -> None:
        self._base_path = base_path
        self.mode = mode
        self._rank = rank
        self._storage = storage
        self._prefix = PurePosixPath(prefix)
        self._copied: dict[Path, tuple[int, int]] = {}

    @classmethod
    def for_task(
        cls, info: ClusterInfo, mode: TensorboardMode, rank: int, storage: StorageManager
    ) -> TensorboardManager:
        """Return the manager of one rank of a trial."""
        trial = info.trial
        prefix = tensorboard_folder(info.cluster_id, trial.experiment_id, trial.trial_id)
        return cls(cls.local_path(info, rank), TensorboardMode(mode), rank, storage, prefix)

    @classmethod
    def off_cluster(cls, rank: int, base_path: Path | None = None) -> TensorboardManager:
        """Return a manager that only has a directory."""
        return cls(base_path or cls.local_path(None, rank), TensorboardMode.MANUAL, rank)

    @staticmethod
    def local_path(info: ClusterInfo | None, rank: int) -> Path:
        """Return the directory of one rank of a task; off-cluster one of this user's and this run's alone."""
        if info is not None:
            return info.task_dir / "tensorboard" / f"rank{rank}"
        return _own_folder(f"detlab-tensorboard-{os.getuid()}") / _local_run() / f"rank{rank}"

    @property
    def base_path(self) -> Path:
        """The local directory; it exists."""
        self._base_path.mkdir(parents=True, exist_ok=True)
        return self._base_path

    def sync(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], Path] = lambda path, _: path,
    ) -> None:
        """Copy files that are new or changed since the last call."""
        if self._storage is None or not self._base_path.is_dir():
            return
        for path in sorted(self._base_path.rglob("*")):
            relative = path.relative_to(self._base_path)
            if path.is_symlink() or not path.is_file() or not selector(relative):
                continue
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size)
            if self._copied.get(relative) == version:
                continue
            target = self._prefix / PurePosixPath(mangler(relative, self._rank))
            self._storage.put_file(path, target.as_posix())
            self._copied[relative] = version

    def close(self) -> None:
        """Copy what is left, in AUTO mode; a failure is logged, because it must not fail the trial."""
        if self.mode is not TensorboardMode.AUTO:
            return
        try:
            self.sync()
        except StorageError as error:
            logger.warning("TensorBoard files were not copied to storage: %s", error)
