"""Objects that artifacts refer to, read with the credentials of whoever reads: object stores, and https.

Nothing here runs in the master. A download follows a reference only if its user asks for that, and whatever comes is
compared with the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from detlab.client.transport.calls import ByteWriter
from detlab.client.transport.copying import store_of
from detlab.errors import StorageError
from detlab.storage.objects.client import Objects
from detlab.storage.objects.store import ObjectStorage

_CHUNK = 8 * 1024 * 1024
_SECONDS = 60.0
_WEB = frozenset({"http", "https"})
_STORES = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az"}


def digest_at(uri: str) -> tuple[str, int]:
    """Return the digest and the size of an object.

    Raises:
        StorageError: It cannot be read from here.
    """
    found, size = hashlib.sha256(), 0
    for chunk in chunks_at(uri):
        found.update(chunk)
        size += len(chunk)
    return f"sha256:{found.hexdigest()}", size


def fetch(uri: str, writer: ByteWriter) -> None:
    """Write an object.

    Raises:
        StorageError: It cannot be read from here.
    """
    for chunk in chunks_at(uri):
        writer.write(chunk)


def chunks_at(uri: str) -> Iterator[bytes]:
    """Yield the bytes of an object.

    Raises:
        StorageError: It cannot be read from here.
    """
    scheme = urlsplit(uri).scheme
    if scheme in _WEB:
        return _of_web(uri)
    if scheme == "data":
        raise StorageError(
            f"{uri} names a data set, and no place to read it from", hint="Give its digest: add_reference(…, digest=…)"
        )
    return _of_store(uri)


def _of_web(uri: str) -> Iterator[bytes]:
    import httpx

    try:
        with httpx.stream("GET", uri, timeout=_SECONDS, follow_redirects=False) as reply:
            if reply.status_code != 200:
                raise StorageError(f"{uri} answers with status {reply.status_code}; redirects are not followed")
            yield from reply.iter_bytes(_CHUNK)
    except httpx.HTTPError as error:
        raise StorageError(f"{uri} cannot be read: {error or type(error).__name__}") from error


def _of_store(uri: str) -> Iterator[bytes]:
    parts = urlsplit(uri)
    folder, _, key = parts.path.lstrip("/").rpartition("/")
    if not key:
        raise StorageError(f"{uri} names no object, but a folder", hint="Refer to each object in it")
    scheme = _STORES.get(parts.scheme, parts.scheme)
    objects = _objects(f"{scheme}://{parts.netloc}" + (f"/{unquote(folder)}" if folder else ""))
    size, start = objects.head(unquote(key)).size, 0
    while start < size:
        part = bytes(objects.get_range(unquote(key), start, min(start + _CHUNK, size)))
        if not part:
            raise StorageError(f"{uri} ends after {start:,} of {size:,} bytes")
        yield part
        start += len(part)


def _objects(root: str) -> Objects:
    store = store_of(root)
    if not isinstance(store, ObjectStorage):
        raise StorageError(f"{root} is no object store that can be read here")
    return store.objects
