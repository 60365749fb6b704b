"""The task that removes collected checkpoints, and event files: `python -m detlab.run.collect`.

It asks the master what to remove, removes it with its owner's rights through `detlab.storage`, sees that the files are
gone, and reports each checkpoint. What could not be removed is reported, too, and tried again by a later task.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from detlab.core.session import TaskSession
from detlab.core.task_storage import open_storage
from detlab.errors import DetlabError, NotInCluster, StaleAttempt
from detlab.info import get_cluster_info
from detlab.run.outputs import TaskRequests, say
from detlab.storage import from_config
from detlab.storage.base import StorageManager
from detlab.storage.clearing import clear_checkpoint, clear_folders

PER_REPORT = 20
"""Checkpoints after which the master is told: of those a task that is killed has told nothing yet."""


class CollectionClient(TaskRequests):
    """The two requests to the master."""

    def list(self) -> dict[str, Any]:
        """Return what is to be removed."""
        return self.request("task/collection")

    def report(
        self, items: Sequence[Mapping[str, Any]], event_files: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Report what became of some checkpoints, or of event files; return what is still to be removed."""
        told = {} if event_files is None else {"event_files": dict(event_files)}
        return self.request("task/collection", {"items": list(items), **told})


class Orders(Protocol):
    """Whom a collector asks and tells: the master."""

    def list(self) -> dict[str, Any]:
        """Return what is to be removed."""

    def report(
        self, items: Sequence[Mapping[str, Any]], event_files: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Report what became of some checkpoints, or of event files; return what is still to be removed."""


class Collector:
    """Removes checkpoints, and remembers the stores that it has opened.

    Args:
        master: Whom to ask and to tell.
        open_store: Makes the store of a `checkpoint_storage` block.
        say: Takes each line for people.
    """

    def __init__(
        self,
        master: Orders,
        open_store: Callable[[Mapping[str, Any]], StorageManager] = from_config,
        say: Callable[[str], None] = say,
    ) -> None:
        self._say = say
        self._master = master
        self._open = open_store
        self._stores: dict[str, StorageManager] = {}
        self.removed = 0
        self.freed = 0
        self.failed = 0

    def run(self) -> int:
        """Remove until nothing is left to do; return the exit code of the task."""
        found = self._master.list()
        while found["items"] or found.get("event_files"):
            if found["items"]:
                found = self._master.report([self._remove(item) for item in found["items"][:PER_REPORT]])
            else:
                found = self._master.report([], self._remove_folders(found["event_files"]))
        self._say(f"{self.removed} checkpoints removed and seen to be gone, {self.freed} bytes; {self.failed} failed")
        return 1 if self.failed and not self.removed else 0

    def _remove(self, item: Mapping[str, Any]) -> dict[str, Any]:
        uuid, paths = item["uuid"], item["paths"]
        report = {"uuid": uuid, "paths": paths, "failure": ""}
        try:
            freed = clear_checkpoint(self._store(item["storage"]), uuid, item["files"], paths)
        except (DetlabError, OSError) as error:
            report["failure"] = f"{error}"[:2000] or type(error).__name__
            self.failed += 1
            self._say(f"checkpoint {uuid} stays: {report['failure']}")
            return report
        self.removed += 1
        self.freed += freed
        self._say(f"checkpoint {uuid}: {freed} bytes are gone")
        return report

    def _remove_folders(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        try:
            freed = clear_folders(self._store(wanted["storage"]), wanted["names"])
        except (DetlabError, OSError) as error:
            failure = f"{error}"[:2000] or type(error).__name__
            self.failed += 1
            self._say(f"event files stay: {failure}")
            return {"failure": failure, "freed": 0}
        self.freed += freed
        self._say(f"event files of {len(wanted['names'])} trials: {freed} bytes are gone")
        return {"failure": "", "freed": freed}

    def _store(self, block: Mapping[str, Any]) -> StorageManager:
        key = json.dumps(block, sort_keys=True)
        if key not in self._stores:
            self._stores[key] = self._open(block)
        return self._stores[key]


def main() -> int:
    """Remove what this task is to remove."""
    info = get_cluster_info()
    if info is None:
        raise NotInCluster("this program runs inside a task that the master starts: DET_TASK_DIR is not set")
    session = TaskSession.from_info(info)  # asked for short-lived credentials, if the store needs some
    try:
        return Collector(CollectionClient(info), lambda block: open_storage(block, session, info)).run()
    except StaleAttempt as error:  # another attempt goes on
        say(f"{error}")
        return 0
    except DetlabError as error:
        say(f"{error}")
        return 1
    finally:
        session.close()


if __name__ == "__main__":
    sys.exit(main())
