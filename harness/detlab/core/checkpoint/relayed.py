"""Checkpoints whose files this task cannot open: the master hands them over.

Where each user's tasks have a uid of their own, the files of a checkpoint can be opened by its user alone, also those
that others may start from. The master opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from detlab.core.session import COMMIT_LIMIT, TaskSession
from detlab.errors import CheckpointError, CheckpointUnreadable, DetlabError, StaleAttempt
from detlab.storage import Manifest
from detlab.storage import files as storage_files

Selector = Callable[[str], bool]


class RelayedCheckpoints:
    """Fetches checkpoints through the master.

    Args:
        session: Of the task.
    """

    def __init__(self, session: TaskSession) -> None:
        self._session = session
        self._known: set[str] = set()

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._known

    def manifest(self, uuid: str, digest: str, refused: CheckpointUnreadable) -> Manifest:
        """Return the manifest of a checkpoint, and fetch its files from the master from now on.

        Args:
            uuid: The checkpoint.
            digest: Of the manifest, as it was committed.
            refused: Why this task could not open it.

        Raises:
            CheckpointUnreadable: The master cannot open it either.
        """
        with TemporaryDirectory(prefix="detlab-checkpoint-") as folder:
            file = Path(folder) / "manifest"
            try:
                self._fetch(uuid, digest, file)
            except StaleAttempt:
                raise
            except DetlabError as error:
                raise CheckpointUnreadable(
                    f"{refused.message}, and the master does not hand it over: {error.message}",
                    hint="its owner can copy it to where you can read it: det checkpoint copy UUID --to STORAGE",
                ) from refused
            found = Manifest.from_bytes(file.read_bytes(), uuid=uuid)
        self._known.add(uuid)
        return found

    @contextmanager
    def restored(self, uuid: str, manifest: Manifest, selector: Selector | None) -> Iterator[Path]:
        """Yield a folder with the verified files of a checkpoint, which is removed at the end of the block.

        Raises as `download` does.
        """
        with TemporaryDirectory(prefix="detlab-checkpoint-", ignore_cleanup_errors=True) as folder:
            self.download(uuid, Path(folder), manifest, selector)
            yield Path(folder)

    def download(self, uuid: str, target: Path, manifest: Manifest, selector: Selector | None) -> None:
        """Fetch the files of a checkpoint, each verified by its digest.

        Raises:
            CheckpointError: A file was altered.
            StorageError: The target cannot be written.
            DetlabError: The master refused.
        """
        for name in storage_files.chosen_folders(manifest.directories, selector):
            (target / name).mkdir(parents=True, exist_ok=True)
        for name, entry in manifest.files.items():
            if selector is not None and not selector(name):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fetch(uuid, entry.digest, path)
            path.chmod(entry.mode | 0o600)

    def _fetch(self, uuid: str, digest: str, target: Path) -> None:
        partial = storage_files.partial_of(target)
        try:
            self._session.download(
                f"task/checkpoints/{uuid}/files/{quote(digest, safe='')}", partial, limit=COMMIT_LIMIT
            )
            with partial.open("rb") as file:
                actual, _ = storage_files.digest_of(file.fileno())
            if actual != digest:
                raise CheckpointError(f"the file {target.name} of checkpoint {uuid} is not what was committed")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
