"""What lies in a storage, checkpoint by checkpoint, for whoever compares it with what the master knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.errors import StorageError
from detlab.storage.base import StorageManager
from detlab.storage.manifest import MANIFEST_NAME
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.posix import PosixStorage
from detlab.storage.unfinished import is_uuid


@dataclass(slots=True)
class StoredCheckpoint:
    """A checkpoint, or what there is of one.

    Attributes:
        uuid: Its name.
        bytes: Of all its files.
        content: The same without the manifest.
        published: Whether it has a manifest.
        marks: (owner, run) of those who have begun it and did not see it committed.
    """

    uuid: str
    bytes: int = 0
    content: int = 0
    published: bool = False
    marks: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Upload:
    """Parts of a large object whose upload never ended; they are in no list of objects, and cost money."""

    key: str
    id: str
    uuid: str
    bytes: int


def inventory(store: StorageManager) -> Iterator[StoredCheckpoint]:
    """Give all that this process's user has in a storage.

    Raises:
        StorageError: It cannot be looked at, or is of a kind that cannot be listed.
    """
    if isinstance(store, ObjectStorage):
        return iter(_objects(store).values())
    if isinstance(store, PosixStorage):
        return iter(_files(store).values())
    raise StorageError(
        f"a storage of type {type(store).__name__} cannot be listed", hint="it is checked by its own package's tools"
    )


def remove(store: StorageManager, found: StoredCheckpoint) -> None:
    """Remove a checkpoint that never came to be, published or not, and the marks of who began it."""
    store.delete(found.uuid)
    store.discard(found.uuid)
    for owner, run in found.marks:
        store.unmark(found.uuid, owner, run)


def _objects(store: ObjectStorage) -> dict[str, StoredCheckpoint]:
    found: dict[str, StoredCheckpoint] = {}
    for info in store.objects.list(""):
        uuid, _, rest = info.key.partition("/")
        if is_uuid(uuid) and rest:
            one = found.setdefault(uuid, StoredCheckpoint(uuid))
            one.bytes += info.size
            one.content += info.size if rest != MANIFEST_NAME else 0
            one.published |= rest == MANIFEST_NAME
    for uuid, owner, run in store.notes():
        found.setdefault(uuid, StoredCheckpoint(uuid)).marks.append((owner, run))
    return found


def _files(store: PosixStorage) -> dict[str, StoredCheckpoint]:
    found: dict[str, StoredCheckpoint] = {}
    for uuid, size in store.own_sizes().items():
        manifest = _size(store.root / uuid / MANIFEST_NAME)
        found[uuid] = StoredCheckpoint(uuid, size, size - (manifest or 0), manifest is not None)
    for uuid, size in store.staged_sizes().items():
        found.setdefault(uuid, StoredCheckpoint(uuid)).bytes += size
    for uuid, owner, run in store.notes():
        found.setdefault(uuid, StoredCheckpoint(uuid)).marks.append((owner, run))
    return found


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


class Uploads:
    """The unfinished uploads below the prefix of an `s3` block; they are listed by boto3, as obstore cannot.

    Args:
        block: The `checkpoint_storage` block.

    Raises:
        StorageError: boto3 is not installed here.
    """

    def __init__(self, block: Mapping[str, Any]) -> None:
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
        except ImportError as error:
            raise StorageError(
                "parts of uploads that never ended cannot be listed here without boto3",
                hint="pip install 'detlab[aws]' where tasks run; a rule of the bucket removes them without it:"
                " AbortIncompleteMultipartUpload",
            ) from error
        style = "path" if block.get("path_style", bool(block.get("endpoint_url"))) else "auto"
        self._errors = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
        self._bucket = block["bucket"]
        prefix = (block.get("prefix") or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = boto3.client(
            "s3",
            endpoint_url=block.get("endpoint_url"),
            region_name=block.get("region"),
            aws_access_key_id=block.get("access_key"),
            aws_secret_access_key=block.get("secret_key"),
            aws_session_token=block.get("session_token"),
            verify=block.get("ca_file"),
            config=botocore.config.Config(connect_timeout=10, read_timeout=60, s3={"addressing_style": style}),
        )

    def list(self) -> list[Upload]:
        """Return them, with the bytes of their parts.

        Raises:
            StorageError: The store does not answer, or does not let us.
        """
        try:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            found = [one for page in pages for one in page.get("Uploads", ())]
            return [self._sized(one["Key"], one["UploadId"]) for one in found]
        except self._errors as error:
            raise StorageError(f"unfinished uploads cannot be listed: {error}") from error

    def _sized(self, key: str, number: str) -> Upload:
        pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=number)
        size = sum(part["Size"] for page in pages for part in page.get("Parts", ()))
        return Upload(key, number, key.removeprefix(self._prefix).partition("/")[0], size)

    def abort(self, upload: Upload) -> None:
        """Remove the parts of one.

        Raises:
            StorageError: The store does not answer, or does not let us.
        """
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.id)
        except self._errors as error:
            raise StorageError(f"the upload of {upload.key} cannot be aborted: {error}") from error
