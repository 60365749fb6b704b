"""The files of runs and models on their way, and which of them are pickles: told by their bytes, nothing is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from detlab.importers.folders import Unreadable
from detlab.importers.foreign import ForeignFile, ImportSource
from detlab.importers.left_out import LeftOut
from detlab.importers.names import file_problem
from detlab.importers.report import ImportReport
from detlab.importers.tracking_api import TrackingRefusal
from detlab.storage.formats import format_of

Put = Callable[[str, BinaryIO, int], object]
"""Called with (path, bytes, their number)."""
PICKLE_ENDINGS = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".ckpt")
"""By which a file is judged that is there already, from an import that was stopped: it is not read again."""


@dataclass(frozen=True)
class FileCopies:
    """Copies files.

    Attributes:
        source: What is read.
        report: Counts what is copied, and what is left out.
        most: Bytes of a file.
    """

    source: ImportSource
    report: ImportReport
    most: int

    @property
    def _left_out(self) -> LeftOut:
        return self.report.left_out

    def fitting(self, files: Sequence[ForeignFile], of: str) -> list[ForeignFile]:
        """Return those files that can be kept; the others are counted."""
        found = []
        for one in files:
            if problem := file_problem(one.path):
                self._left_out.add(f"files whose path {problem}", f"{of}: {one.path}")
            elif one.size is not None and one.size > self.most:
                self._left_out.add(f"files over {self.most // 1024**2:,} MiB", f"{of}: {one.path}")
            else:
                found.append(one)
        return found

    def copy(self, files: Sequence[ForeignFile], put: Put, of: str, there: Collection[tuple[str, int]] = ()) -> int:
        """Copy files; return how many of them are pickles.

        Args:
            files: Them.
            put: Uploads one.
            of: What they are of, for people.
            there: Path and size of those that are there already.
        """
        return sum(self._one(one, put, of, (one.path, one.size) in there) for one in files)

    def _one(self, file: ForeignFile, put: Put, of: str, there: bool) -> bool:
        if there:
            return file.path.lower().endswith(PICKLE_ENDINGS)
        try:
            with self.source.open(file) as (stream, size):
                if size > self.most:
                    self._left_out.add(f"files over {self.most // 1024**2:,} MiB", f"{of}: {file.path}")
                    return False
                pickled = _is_pickled(stream)
                stream.seek(0)
                put(file.path, stream, size)
                self.report.add(files=1, bytes=size)
        except Unreadable as error:
            self._left_out.add("files that cannot be read", f"{of}: {error}")
            return False
        except TrackingRefusal as refusal:
            if refusal.ends(self.source.label):
                raise
            self._left_out.add("files that were refused", f"{of}: {file.path}: {refusal.message}")
            return False
        if pickled:
            self.report.add(pickles=1)
        return pickled


def _is_pickled(stream: BinaryIO) -> bool:
    try:
        return format_of(stream).pickled
    except (OSError, ValueError):
        return False
