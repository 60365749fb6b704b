"""A checkpoint store that is away, slow or says no when a test wants it to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detlab.errors import StorageAway
from detlab.storage import DirectoryStorage, Manifest, ManifestPart
from detlab.storage.base import Selector


class AwayStorage(DirectoryStorage):
    """A directory that can be away: then each call raises `StorageAway`, as an object store's client does.

    Args:
        root: The directory.

    Attributes:
        slow: Seconds that each upload takes.
        fail_after: By method (`upload`, `seal`, `publish`): how many of its next calls do their work and then fail, as
            where only the answer is lost.
        calls: How often each method was called.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.slow = 0.0
        self.fail_after: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._away = threading.Event()

    def leave(self) -> None:
        """Be away from now on."""
        self._away.set()

    def come_back(self) -> None:
        """Answer again."""
        self._away.clear()

    def upload(self, source: Path, uuid: str, *, selector: Selector | None = None) -> ManifestPart:
        """See `StorageManager.upload`."""
        return self._call("upload", lambda: super(AwayStorage, self).upload(source, uuid, selector=selector))

    def seal(self, uuid: str, *, node: int = 0) -> ManifestPart:
        """See `StorageManager.seal`."""
        return self._call("seal", lambda: super(AwayStorage, self).seal(uuid, node=node))

    def publish(self, uuid: str, metadata: Mapping[str, Any], part: ManifestPart | None = None) -> Manifest:
        """See `StorageManager.publish`; what was published by a call whose answer was lost is found again."""

        def publish() -> Manifest:
            if uuid in self.uuids():
                return super(AwayStorage, self).manifest(uuid)
            return super(AwayStorage, self).publish(uuid, metadata, part)

        return self._call("publish", publish)

    def manifest(self, uuid: str) -> Manifest:
        """See `StorageManager.manifest`."""
        return self._call("manifest", lambda: super(AwayStorage, self).manifest(uuid))

    def discard(self, uuid: str) -> None:
        """See `StorageManager.discard`."""
        self._call("discard", lambda: super(AwayStorage, self).discard(uuid))

    def check(self) -> None:
        """See `StorageManager.check`."""
        self._call("check", super().check)

    def _call(self, name: str, work: Callable[[], Any]) -> Any:
        self.calls[name] += 1
        if name in {"upload", "seal"}:
            time.sleep(self.slow)
        if self._away.is_set():
            raise StorageAway("503 Service Unavailable")
        done = work()
        if self.fail_after[name]:
            self.fail_after[name] -= 1
            raise StorageAway("connection reset by peer")
        return done
