"""Folders of one's own in a place where other users may write, too.

The root of a checkpoint storage may be one folder for all users (mode 1777). Whatever name can be foreseen there,
somebody else can take first: as a folder in which they then read along, as a link, or as anything that is in the way.
So a folder counts as ours only if we have made it, and a name that is taken is left to its owner: the next
number is ours.

The names that detlab can foresee are here: `unfinished_folder` and `tensorboard_folder`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path

from detlab.errors import StorageError

LAST = 1000
"""The last number that is tried."""
_NUMBERED = re.compile(r"(.+)\.[1-9][0-9]{0,3}", re.DOTALL)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def unfinished_folder() -> str:
    """Return the name of this user's folder for checkpoints that are not finished."""
    return f".unfinished-{os.geteuid()}"


def tensorboard_folder(cluster_id: str, experiment_id: int, trial_id: int) -> str:
    """Return the name under which a trial's event files are stored, and under which a TensorBoard looks for them."""
    return f"tensorboard-{cluster_id}-{experiment_id}-{trial_id}"


_TENSORBOARD = re.compile(r"tensorboard-.+-[0-9]+-[0-9]+", re.DOTALL)


def is_event_files(name: str) -> bool:
    """Whether a folder at the top of a root is one of a trial's event files."""
    numbered = _NUMBERED.fullmatch(name)
    return any(_TENSORBOARD.fullmatch(one) is not None for one in (name, numbered[1] if numbered else ""))


def is_clusters_own(name: str) -> bool:
    """Whether a folder at the top of a root is one that clusters make beside the checkpoints: event files, records."""
    return is_event_files(name) or name == ".owner"


class OwnFolders:
    """This user's own private folders at the top of a root: `name`, or `name.1`, `name.2` … if others took that.

    Nothing is cached except what a new folder of ours looks like there: each call searches again, so that all processes
    on all nodes find the same folder. An existing folder takes precedence over a name that has become free: another
    user who took `name` and gives it up later cannot lead any process away from `name.1`. Only where we have no folder
    yet could two processes that begin at once end up in two: one makes it, as the chief does with its mark, before the
    others know of the checkpoint.

    Args:
        root: Not made here.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, name: str) -> Path:
        """Return our folder of this name, created (mode 0700) if there is none.

        Raises:
            StorageError: Other users have taken the name with all of its numbers.
            OSError: As the operating system says.
        """
        found = self.find(name)
        if found is not None:
            return found
        for number in range(LAST + 1):
            path = self.root / (f"{name}.{number}" if number else name)
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if self._is_private(path):  # another process of ours was faster
                    return path
            else:
                return self.find(name) or path  # that process may have got a lower number
        raise self._all_taken(name)

    def find(self, name: str) -> Path | None:
        """Return our folder of this name, if there is one: that of the lowest number."""
        first = self.root / name
        if self._is_private(first):  # nothing can be lower: the root need not be listed
            return first
        return next(iter(self.find_all(name)), None)

    def find_all(self, name: str) -> list[Path]:
        """Return all of our folders of this name, the lowest number first; there is hardly ever more than one."""
        numbered = re.compile(re.escape(name) + r"(?:\.([1-9][0-9]{0,3}))?")
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            matches = [match for entry in entries if (match := numbered.fullmatch(entry.name))]
            found = sorted((int(match[1] or 0), self.root / match[0]) for match in matches)
            return [path for number, path in found if number <= LAST and self._is_private(path)]
        return []

    def named(self, names: Collection[str], owner: int | None = None) -> list[Path]:
        """Return the folders of any of these names, with or without a number, that are ours, or a uid's.

        The root is listed once, however many names there are; one that does not exist has none.
        """
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if entry.name in names or ((match := _NUMBERED.fullmatch(entry.name)) and match[1] in names):
                    path = self.root / entry.name
                    if self.owns(path) if owner is None else _is_folder_of(path, owner):
                        found.append(path)
        return sorted(found)

    def owns(self, path: Path) -> bool:
        """Whether there is a folder of ours at this path, no link to one."""
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode) and self.made(status)

    def made(self, status: os.stat_result) -> bool:
        """Whether what has this status is ours."""
        return status.st_uid == os.geteuid() or status.st_uid == self._new[0]

    def _is_private(self, path: Path) -> bool:
        """Whether the folder there is ours and nobody else may enter it.

        What we have left open to others somewhere else, they may have moved here, with what they put into it.
        """
        status = _status(path)
        if status is None or not stat.S_ISDIR(status.st_mode) or not self.made(status):
            return False
        others = status.st_mode & _OTHERS
        return others == 0 or others & ~self._new[1] == 0

    @functools.cached_property
    def _new(self) -> tuple[int, int]:
        """Which uid a new folder of ours has here, and what others may do in it.

        Some file systems say another uid (NFS with `all_squash`) or another mode (CIFS) than it was made with.
        """
        try:
            probe = Path(tempfile.mkdtemp(prefix=".detlab-", dir=self.root))
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:  # who only reads here has made nothing
                return os.geteuid(), 0
            raise
        try:
            status = probe.lstat()
            return status.st_uid, status.st_mode & _OTHERS
        finally:
            probe.rmdir()

    def _all_taken(self, name: str) -> StorageError:
        status = _status(self.root / name)
        owner = "already removed" if status is None else f"uid {status.st_uid}'s"
        return StorageError(
            f"cannot make {self.root / name}: what is there is {owner} or no private folder of uid {os.geteuid()}, "
            f"and so it is with all names up to {name}.{LAST}",
            hint="have them removed; their owner wants to read or to block what you store here",
        )


def _is_folder_of(path: Path, uid: int) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == uid


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
