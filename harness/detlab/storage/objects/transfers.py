"""Files to objects and back: several requests at once, digests on the way, and again after a failure."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from detlab.backoff import Backoff
from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.schemas.wire import CheckpointFile
from detlab.storage import files
from detlab.storage.objects.client import Data, ObjectExists, ObjectMissing, Objects, StoreAway
from detlab.storage.objects.words import is_expired

logger = logging.getLogger("detlab.storage")

T = TypeVar("T")

PART = 8 * 1024 * 1024
"""Bytes of a part of a large file, and of a range that is asked for; smaller files are one request."""
_MOST_PARTS = 9000
"""S3 takes 10,000."""
_AT_ONCE = 8
"""Requests on their way: so many parts are in memory."""
_TOLD_EVERY = 60.0
_INLINE = 256 * 1024
"""Bytes below which a block is digested at once: to hand it over would take longer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Goes on while a store does not answer.

    Attributes:
        seconds: For how long after the first failure.
        clock: Seconds that never go back.
        sleep: Waits.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until_done(self, step: Callable[[], T], what: str) -> T:
        """Repeat a step that may be repeated until the store has answered.

        Credentials that have just expired are asked for once more: another process may have renewed them.

        Raises:
            StoreAway: It did not answer in time.
            StorageError: As the step raises it.
        """
        backoff, began, told, renewed = Backoff(first=0.5, cap=15.0), self.clock(), 0.0, False
        while True:
            try:
                return step()
            except StoreAway as error:
                gone = self.clock() - began
                pause = backoff.next_pause()
                if gone + pause > self.seconds:
                    raise
                if backoff.failures == 1 or gone - told >= _TOLD_EVERY:
                    told = gone
                    logger.warning(
                        "the store does not answer; %s goes on when it does: %s", what, error.message, exc_info=False
                    )
                self.sleep(pause)
            except StorageError as error:
                if renewed or not is_expired(error):
                    raise
                renewed = True


Claim = Callable[[str], None]
"""Makes sure that no other process writes the object of a key, or raises `CheckpointError`."""


def upload(
    objects: Objects, wanted: Mapping[str, tuple[Path, str]], patience: Patience, claim: Claim
) -> dict[str, CheckpointFile]:
    """Store files as objects that were not there, and describe what was sent.

    Args:
        objects: Where to.
        wanted: File and key by name.
        patience: While the store is away.
        claim: For objects that are sent in parts, which no store creates conditionally by all libraries.

    Raises:
        CheckpointError: Another writer has stored something else under one of the keys.
        StorageError: As the store says.
    """
    small = {name: pair for name, pair in wanted.items() if pair[0].stat().st_size <= PART}
    done: dict[str, CheckpointFile] = {}
    with ThreadPoolExecutor(_AT_ONCE, "detlab-upload") as pool:
        try:
            running = {name: pool.submit(_send, objects, *pair, patience, claim) for name, pair in small.items()}
            # A large file is many requests at once by itself; it has a thread so that a signal is not kept waiting.
            for name in sorted(wanted.keys() - small.keys()):
                done[name] = pool.submit(_send, objects, *wanted[name], patience, claim).result()
            done |= {name: future.result() for name, future in running.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: done[name] for name in wanted}


def _send(objects: Objects, path: Path, key: str, patience: Patience, claim: Claim) -> CheckpointFile:
    return patience.until_done(lambda: _send_once(objects, path, key, claim), f"the upload of {path.name}")


def _send_once(objects: Objects, path: Path, key: str, claim: Claim) -> CheckpointFile:
    """Send a file as it is now; what is told of it is told of the bytes that were sent."""
    descriptor = files.open_regular(path)
    try:
        status = os.fstat(descriptor)
        sent = _Digested(descriptor, _part_size(status.st_size))
        try:
            if status.st_size <= PART:
                objects.put(key, b"".join(sent), create=True)
            else:
                _refuse_existing(objects, key)
                claim(key)
                objects.put_parts(key, iter(sent))
        except ObjectExists as error:
            for _ in sent:  # what a store did not want to see is digested all the same
                pass
            _accept_same(objects, key, sent, error)
        mode = stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRUSR
        return CheckpointFile(size=sent.size, digest=sent.digest, mode=mode)
    finally:
        os.close(descriptor)


def _refuse_existing(objects: Objects, key: str) -> None:
    with contextlib.suppress(ObjectMissing):
        objects.head(key)
        raise ObjectExists(f"{objects.where}/{key} exists")


def _part_size(size: int) -> int:
    return PART * max(1, math.ceil(size / (PART * _MOST_PARTS)))


class _Digest:
    """A SHA-256 digest of blocks, by a thread of its own, at most two of them behind.

    Digesting leaves the interpreter to others: while one block is digested, the next is read, sent or written.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._thread: ThreadPoolExecutor | None = None
        self._last: deque[Future[None]] = deque()

    def update(self, block: Data) -> None:
        """Digest a block, which must not change any more, after those before it."""
        if self._thread is None and len(block) < _INLINE:
            self._hash.update(block)
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "detlab-digest")
        self._last.append(self._thread.submit(self._hash.update, block))
        while len(self._last) > 2:
            self._last.popleft().result()

    def text(self) -> str:
        """Return the digest of all blocks."""
        while self._last:
            self._last.popleft().result()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        return "sha256:" + self._hash.hexdigest()


class _Digested:
    """The blocks of an open file, counted and digested as they are taken."""

    def __init__(self, descriptor: int, block: int) -> None:
        self._descriptor, self._block = descriptor, block
        self._hash = _Digest()
        self.size = 0

    def __iter__(self) -> Iterator[Data]:
        while block := _read(self._descriptor, self._block):
            self._hash.update(block)
            self.size += len(block)
            yield block

    @property
    def digest(self) -> str:
        return self._hash.text()


def _read(descriptor: int, size: int) -> bytes:
    """Read a whole block: a short read in the middle of a file would make a part too small for the store."""
    block = os.read(descriptor, size)
    if not block or len(block) == size:
        return block
    pieces = [block]
    missing = size - len(block)
    while missing and (piece := os.read(descriptor, missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _accept_same(objects: Objects, key: str, sent: _Digested, error: ObjectExists) -> None:
    """Let an object pass that holds these very bytes: an answer to our own request may have been lost."""
    if digest_of(objects, key) != (sent.digest, sent.size):
        raise another_writer(objects.where, key) from error


def another_writer(where: str, key: str) -> CheckpointError:
    """Return the error for an object that is not, or not surely, ours to write."""
    return CheckpointError(
        f"{where}/{key} is another's: another process writes, or wrote, a checkpoint of this name",
        hint="discard what was begun, and store it under another uuid",
    )


def put_same(objects: Objects, key: str, data: bytes) -> None:
    """Create a small object, or find that it is there with these bytes.

    Raises:
        ObjectExists: It is there with others.
    """
    try:
        objects.put(key, data, create=True)
    except ObjectExists:
        if objects.get(key) != data:
            raise


def describe_bytes(data: bytes) -> CheckpointFile:
    """Return what a manifest says of a file with these bytes."""
    return CheckpointFile(size=len(data), digest="sha256:" + hashlib.sha256(data).hexdigest(), mode=0o644)


def digest_of(objects: Objects, key: str) -> tuple[str, int]:
    """Return digest and size of what an object holds now, by reading it."""
    size, checksum = objects.head(key).size, hashlib.sha256()
    for start in range(0, size, PART):
        checksum.update(objects.get_range(key, start, min(size, start + PART)))
    return "sha256:" + checksum.hexdigest(), size


def replace(objects: Objects, path: Path, key: str, patience: Patience) -> None:
    """Store a file under a key, whatever was there."""

    def send() -> None:
        descriptor = files.open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            blocks = _Digested(descriptor, _part_size(size))
            if size <= PART:
                objects.put(key, b"".join(blocks))
            else:
                objects.put_parts(key, iter(blocks))
        finally:
            os.close(descriptor)

    patience.until_done(send, f"the upload of {path.name}")


@dataclass(frozen=True, slots=True)
class FileToFetch:
    """One file that is to be fetched.

    Attributes:
        name: In the checkpoint.
        key: Its object.
        target: Where to; its folder is made.
        entry: What was stored.
    """

    name: str
    key: str
    target: Path
    entry: CheckpointFile


def download(objects: Objects, uuid: str, wanted: Iterable[FileToFetch], patience: Patience) -> None:
    """Fetch files by ranges, several at once; each gets its name when its digest is right.

    A file that is there with the right digest is not fetched again, so that an interrupted download goes on.

    Raises:
        CheckpointMissing: An object is not there; it is named.
        CheckpointError: A file differs from the manifest, also when it was fetched once more; it is named.
    """
    todo = [item for item in wanted if not _is_there(item)]
    with ThreadPoolExecutor(_AT_ONCE, "detlab-download") as pool:
        ranges = _ranges_ahead(objects, uuid, todo, patience, pool)
        try:
            for item in todo:
                _fetch(item, uuid, ranges, partial(_again, objects, uuid, item, patience))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _is_there(item: FileToFetch) -> bool:
    try:
        if item.target.lstat().st_size != item.entry.size:
            return False
        found = files.describe(item.target)
    except OSError:
        return False
    return found.digest == item.entry.digest and found.mode == item.entry.mode


def _ranges_ahead(
    objects: Objects, uuid: str, todo: list[FileToFetch], patience: Patience, pool: ThreadPoolExecutor
) -> Iterator[memoryview]:
    """Give the ranges of all files in order, while those that follow are on their way."""
    ahead: deque[Future[memoryview]] = deque()
    for item in todo:
        for start in range(0, max(item.entry.size, 1), PART):
            if len(ahead) >= _AT_ONCE:
                yield ahead.popleft().result()
            ahead.append(pool.submit(_get, objects, uuid, item, start, patience))
    while ahead:
        yield ahead.popleft().result()


def _again(objects: Objects, uuid: str, item: FileToFetch, patience: Patience) -> Iterator[memoryview]:
    for start in range(0, max(item.entry.size, 1), PART):
        yield _get(objects, uuid, item, start, patience)


def _get(objects: Objects, uuid: str, item: FileToFetch, start: int, patience: Patience) -> memoryview:
    """Return one range, or what is there of it; the rest of a range whose connection broke is asked for alone."""
    end = min(item.entry.size, start + PART)
    what = f"the download of {item.name}"
    try:
        if item.entry.size == 0:
            size = patience.until_done(lambda: objects.head(item.key), what).size
            return memoryview(bytes(min(size, 1)))
        return patience.until_done(lambda: objects.get_range(item.key, start, end), what)
    except ObjectMissing as error:
        raise CheckpointMissing(f"{item.name} of checkpoint {uuid} is not there: {error.message}") from error
    except StorageError as error:
        if _is_beyond(error):
            return memoryview(b"")
        raise


def _is_beyond(error: StorageError) -> bool:
    return any(words in error.message for words in ("InvalidRange", "416", "Range Not Satisfiable"))


def _fetch(
    item: FileToFetch, uuid: str, ranges: Iterator[memoryview], again: Callable[[], Iterator[memoryview]]
) -> None:
    item.target.parent.mkdir(parents=True, exist_ok=True)
    partial = files.partial_of(item.target)
    try:
        error = _write(item, uuid, partial, ranges)
        if error is not None:  # what was altered on its way is right the next time
            logger.warning("%s: it is fetched once more", error.message)
            error = _write(item, uuid, partial, again())
        if error is not None:
            raise error
        partial.replace(item.target)
    finally:
        partial.unlink(missing_ok=True)


def _write(item: FileToFetch, uuid: str, partial: Path, ranges: Iterator[memoryview]) -> CheckpointError | None:
    checksum, size = _Digest(), 0
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(0, max(item.entry.size, 1), PART):
            block = next(ranges)
            checksum.update(block)
            size += len(block)
            while block:
                block = block[os.write(descriptor, block) :]
        os.fchmod(descriptor, item.entry.mode | stat.S_IRUSR)
    finally:
        os.close(descriptor)
    if size != item.entry.size:
        return CheckpointError(
            f"{item.name} of checkpoint {uuid} is altered: {size} bytes, {item.entry.size} were stored"
        )
    digest = checksum.text()
    if digest != item.entry.digest:
        return CheckpointError(
            f"{item.name} of checkpoint {uuid} is altered: its digest is {digest}, stored was {item.entry.digest}"
        )
    return None


class ObjectReader(io.RawIOBase):
    """One object as a file that is read at any position, by ranges; wrap it in `io.BufferedReader`.

    Reading on from where the last range ended fetches a larger one, so that a whole file takes few requests and a
    look at its head takes little.

    Args:
        objects: The client.
        key: The object.
        size: Its bytes.
        patience: While the store is away.
    """

    _FIRST = 256 * 1024

    def __init__(self, objects: Objects, key: str, size: int, patience: Patience) -> None:
        super().__init__()
        self._objects, self._key, self._size, self._patience = objects, key, size, patience
        self._at = 0
        self._block: tuple[int, memoryview] = (0, memoryview(b""))
        self._next = self._FIRST

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def seekable(self) -> bool:
        """Whether it can be read at any position: yes."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position; nothing is fetched."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader gives
        """Fill a buffer with what is at the position, and return how many bytes that were."""
        if self._at >= self._size or not len(buffer):
            return 0
        start, block = self._block
        if not start <= self._at < start + len(block):
            start, block = self._fetch(len(buffer))
        piece = block[self._at - start : self._at - start + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fetch(self, wanted: int) -> tuple[int, memoryview]:
        start, block = self._block
        follows = bool(block) and self._at == start + len(block)
        self._next = min(PART, self._next * 4) if follows else self._FIRST
        end = min(self._size, self._at + max(self._next, wanted))
        found = self._patience.until_done(lambda: self._objects.get_range(self._key, self._at, end), "reading")
        if not found:
            raise CheckpointError(f"{self._objects.where}/{self._key} ends at byte {self._at}, not at {self._size}")
        self._block = (self._at, found)
        return self._block
