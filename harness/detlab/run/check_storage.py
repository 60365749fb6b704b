"""The task that compares its owner's storages with what the master knows: `python -m detlab.run.check_storage`.

It lists what is there with its owner's rights, asks the master about each checkpoint, and, when it was told to, removes
what the master knows never to have become one. What is another's, or nobody's that can be told, it leaves alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Protocol

from detlab.core.checkpoint.abandoned import ask
from detlab.core.session import TaskSession
from detlab.core.task_storage import open_storage
from detlab.errors import DetlabError, NotInCluster
from detlab.info import get_cluster_info
from detlab.run.outputs import TaskOutputs, say
from detlab.schemas.taskwire import (
    MOST_ASKED,
    STORAGE_REPORT,
    ExpectedPage,
    FoundItem,
    StorageCheckView,
    StorageFound,
    StorageReport,
)
from detlab.storage.base import StorageManager
from detlab.storage.inventory import StoredCheckpoint, Uploads, inventory, remove
from detlab.storage.own_folders import is_clusters_own, is_event_files
from detlab.storage.unfinished import is_uuid

LISTED = 1000


class Knows(Protocol):
    """What is asked of the master."""

    def verdicts(self, items: Sequence[StoredCheckpoint]) -> Mapping[str, str]:
        """Return what it knows of some checkpoints."""

    def expected(self, place: int) -> Iterable[tuple[str, int]]:
        """Give the checkpoints that are to be in a storage, with the bytes of their files."""


class StorageCheckClient:
    """Asks the master by the task's token.

    Args:
        session: Calls it.
        place: Index of the storage that is looked at.
    """

    def __init__(self, session: TaskSession, place: int) -> None:
        self._session = session
        self._place = place

    def verdicts(self, items: Sequence[StoredCheckpoint]) -> Mapping[str, str]:
        """Return what it knows of some checkpoints."""
        return ask(self._session, items, self._place)

    def expected(self, place: int) -> Iterable[tuple[str, int]]:
        """Give the checkpoints that are to be in a storage, with the bytes of their files."""
        after, more = "", True
        while more:
            path = f"task/storage-check/expected?place={place}&after={after}"
            page = ExpectedPage.model_validate(self._session.get(path))
            yield from zip_longest(page.items, page.sizes[: len(page.items)], fillvalue=0)
            after, more = (page.items[-1] if page.items else ""), page.more and bool(page.items)


def check(store: StorageManager, where: str, place: int, master: Knows, uploads: Uploads | None, *, repair: bool,
          say: Callable[[str], None] = say) -> StorageFound:  # fmt: skip
    """Compare a storage with what the master knows, both ways, and repair it if asked to.

    Raises:
        DetlabError: The storage cannot be looked at, or the master does not answer.
    """
    found, never = StorageFound(where=where), list[StoredCheckpoint]()
    verdicts: dict[str, str] = {}
    missing = dict(master.expected(place))  # first: what is committed meanwhile is there
    items = iter(inventory(store))
    while page := list(islice(items, MOST_ASKED)):
        said = master.verdicts(page)
        verdicts.update(said)
        for one in page:
            committed = missing.pop(one.uuid, 0) if one.published else 0
            _count(found, one, said.get(one.uuid, "unknown"), never)
            if one.content < committed:
                found.damaged_count += 1
                found.damaged += [one.uuid] if len(found.damaged) < LISTED else []
    found.missing_count, found.missing = len(missing), sorted(missing)[:LISTED]
    if repair:
        for one in never:
            _repair(found, store, one, say)
    if uploads is not None:
        _look_at_uploads(found, uploads, verdicts, master, repair=repair)
    return found


def _count(found: StorageFound, one: StoredCheckpoint, verdict: str, never: list[StoredCheckpoint]) -> None:
    item = FoundItem(uuid=one.uuid, bytes=one.bytes, published=one.published)
    if verdict == "never":
        never.append(one)
        found.never_count, found.never_bytes = found.never_count + 1, found.never_bytes + one.bytes
        found.never += [item] if len(found.never) < LISTED else []
    elif verdict == "kept":
        found.kept, found.kept_bytes = found.kept + 1, found.kept_bytes + one.bytes
    elif verdict == "unknown" and is_event_files(one.uuid):
        found.events, found.events_bytes = found.events + 1, found.events_bytes + one.bytes
    elif verdict == "unknown":
        found.unknown_count, found.unknown_bytes = found.unknown_count + 1, found.unknown_bytes + one.bytes
        found.unknown += [item] if len(found.unknown) < LISTED else []
    else:
        found.others, found.others_bytes = found.others + 1, found.others_bytes + one.bytes


def _repair(found: StorageFound, store: StorageManager, one: StoredCheckpoint, say: Callable[[str], None]) -> None:
    try:
        remove(store, one)
    except (DetlabError, OSError) as error:
        found.not_repaired = f"{error}"[:1000]
        say(f"{one.uuid} stays: {error}")
        return
    found.repaired, found.repaired_bytes = found.repaired + 1, found.repaired_bytes + one.bytes
    say(f"{one.uuid}: {one.bytes} bytes are gone")


def _look_at_uploads(
    found: StorageFound, uploads: Uploads, known: dict[str, str], master: Knows, *, repair: bool
) -> None:
    try:
        listed = uploads.list()
        # Others may begin uploads of any name in a bucket that they share.
        new = sorted({one.uuid for one in listed if is_uuid(one.uuid)} - known.keys())
        for start in range(0, len(new), MOST_ASKED):
            known.update(master.verdicts([StoredCheckpoint(uuid) for uuid in new[start : start + MOST_ASKED]]))
        for one in listed:
            verdict = known.get(one.uuid, "unknown")
            if verdict in {"never", "kept"}:  # of a committed checkpoint all uploads have ended
                found.uploads, found.uploads_bytes = found.uploads + 1, found.uploads_bytes + one.bytes
                if repair:
                    uploads.abort(one)
                    found.repaired, found.repaired_bytes = found.repaired + 1, found.repaired_bytes + one.bytes
            elif is_clusters_own(one.uuid):
                found.uploads_own += 1
            elif verdict == "unknown":
                found.uploads_unknown += 1
    except DetlabError as error:
        found.uploads_note = f"{error}"[:1000]


def _uploads(block: Mapping[str, Any]) -> tuple[Uploads | None, str]:
    if block.get("type") != "s3":
        return None, ""
    try:
        return Uploads(block), ""
    except DetlabError as error:
        return None, f"{error}"


def main() -> int:
    """Compare what this task is to compare."""
    info = get_cluster_info()
    if info is None:
        raise NotInCluster("this program runs inside a task that the master starts: DET_TASK_DIR is not set")
    session = TaskSession.from_info(info)
    report = StorageReport()
    try:
        wanted = StorageCheckView.model_validate(session.get("task/storage-check"))
        for place, block in enumerate(wanted.storages):
            where = _where(block)
            try:
                store = open_storage(block, session, info)
                uploads, note = _uploads(block)
                found = check(store, where, place, StorageCheckClient(session, place), uploads, repair=wanted.repair)
                found.uploads_note = found.uploads_note or note
            except DetlabError as error:
                found = StorageFound(where=where, failure=f"{error}"[:1000])
                say(f"{where}: {error}")
            report.storages.append(found)
        TaskOutputs(info).put(STORAGE_REPORT, report.model_dump_json().encode())
    except DetlabError as error:
        say(f"{error}")
        return 1
    finally:
        session.close()
    return 0


def _where(block: Mapping[str, Any]) -> str:
    """Return the address of a storage, without credentials."""
    place = next((str(block[key]) for key in ("host_path", "container_path", "url") if block.get(key)), "")
    name = block.get("bucket") or block.get("container")
    base = f"{block.get('type')}://{name}" if name else place.partition("?")[0]
    more = str(block.get("prefix") or block.get("storage_path") or "").strip("/")
    return f"{base}/{more}" if more else base


if __name__ == "__main__":
    sys.exit(main())
