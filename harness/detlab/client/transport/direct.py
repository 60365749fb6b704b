"""The storage of a checkpoint as this machine may reach it, past the master.

The block in a checkpoint's view may be another user's words, and its secrets are masked. So this machine's own
credentials are sent only to addresses that are the cloud's own, or that the user has named here, unless one asks for
`direct`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab.client.transport.calls import Progress
from detlab.errors import CheckpointError, StorageError
from detlab.schemas.wire import CheckpointView
from detlab.storage import Manifest, StorageManager, from_config
from detlab.storage.posix import PosixStorage

_SIGNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("~/.aws/credentials", "~/.aws/config"),
    ),
    "gcs": (
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("~/.config/gcloud/application_default_credentials.json",),
    ),
    "azure": (("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID"), ()),
}
"""By type the variables and files that hold credentials of this machine."""
_ADDRESSES = ("endpoint_url", "account_url", "connection_string")
_AZURE = (".blob.core.windows.net", ".dfs.core.windows.net")
_LOOK = 0.2
"""Seconds between two looks at how much has arrived."""


def remote_store(view: CheckpointView, *, asked: bool) -> StorageManager | None:
    """Return the checkpoint's store if it is no folder and can be read from here; None for one to be left alone.

    Args:
        view: The checkpoint.
        asked: Whether the user asked for it; else it is tried only where credentials are likely and the address is
            safe to send them to.

    Raises:
        StorageError: `asked`, and the store cannot be read, in its own words.
        CheckpointError: `asked`, and what the store has under this uuid is not what the master committed.
    """
    from detlab.schemas.expconf.raw.secret_keys import MASK  # with all that configs need: not for each command

    shown = {key: value for key, value in view.storage.items() if value != MASK and value is not None}
    block = {key: value.removesuffix(f"?{MASK}") if isinstance(value, str) else value for key, value in shown.items()}
    if not asked and not (_has_credentials(block) and _is_safe(block)):
        return None
    try:
        store = from_config(block)
        if isinstance(store, PosixStorage):
            return None
        _compare(view, at_once(store).manifest(view.uuid))
    except StorageError:
        if asked:
            raise
        return None
    return store


def at_once(store: StorageManager) -> StorageManager:
    """Return the store for a first look, which says after some seconds that it does not answer: somebody waits."""
    from detlab.storage.objects.store import ObjectStorage

    return ObjectStorage(store.objects, patience=0.0) if isinstance(store, ObjectStorage) else store


def _has_credentials(block: Mapping[str, Any]) -> bool:
    variables, files = _SIGNS.get(str(block.get("type")), ((), ()))
    return any(os.environ.get(name) for name in variables) or any(Path(name).expanduser().exists() for name in files)


def _is_safe(block: Mapping[str, Any]) -> bool:
    """Whether the address is the cloud's own, or the one that this user has named in the environment."""
    named = {os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("AWS_ENDPOINT_URL_S3")}
    for key in _ADDRESSES:
        address = block.get(key)
        if address is None or address in named:
            continue
        parts = urlsplit(str(address))
        if parts.scheme != "https" or not (parts.hostname or "").endswith(_AZURE):
            return False
    return True


def _compare(view: CheckpointView, manifest: Manifest) -> None:
    if view.manifest_digest and manifest.digest != view.manifest_digest:
        raise CheckpointError(f"manifest.json of checkpoint {view.uuid} is not the one that was committed")


def fetch_direct(store: StorageManager, view: CheckpointView, folder: Path, progress: Progress | None) -> None:
    """Copy the files that the view lists into a folder, each verified; what is there and right is not copied again.

    Raises:
        CheckpointError: A file is missing or damaged.
        StorageError: The store cannot be read.
    """
    with _watching(view, folder, progress):
        store.download(view.uuid, folder, Manifest(view.uuid, dict(view.files)))


@contextmanager
def _watching(view: CheckpointView, folder: Path, progress: Progress | None) -> Iterator[None]:
    """Tell now and then how much there is in the folder: a store does not say."""
    if progress is None:
        yield
        return
    total = sum(file.size for file in view.files.values())
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK):
            progress(min(_bytes_in(folder), total), total)

    thread = threading.Thread(target=watch, name="detlab-download-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress(total, total)


def _bytes_in(folder: Path) -> int:
    found = 0
    with suppress(OSError):
        for path in folder.rglob("*"):
            with suppress(OSError):
                status = path.stat()
                found += min(status.st_size, status.st_blocks * 512) if path.is_file() else 0
    return found
