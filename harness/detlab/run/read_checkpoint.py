"""The task that reads a checkpoint for its owner: `python -m detlab.run.read_checkpoint`.

It asks the master what to read, opens the storage with its owner's rights, compares each file with its committed
digest, and hands over the files that are right and a report of the others.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from detlab.core.session import TaskSession
from detlab.core.task_storage import open_storage
from detlab.errors import DetlabError, NotInCluster
from detlab.info import get_cluster_info
from detlab.run.outputs import TaskOutputs, say
from detlab.schemas.taskwire import READING_REPORT, ReadingView
from detlab.storage.base import StorageManager

_BLOCK = 4 * 1024 * 1024


def read(
    wanted: ReadingView, store: StorageManager, put: Callable[[str, bytes | Path], None], say: Callable[[str], None]
) -> int:
    """Verify the files of a checkpoint and hand them over; return the number of bad ones.

    Args:
        wanted: What to read.
        store: Where it is.
        put: Hands over (name, content).
        say: Takes each line for people.
    """
    bad: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="detlab-read-") as folder:
        copy = Path(folder, "file")
        for path, file in sorted(wanted.files.items()):
            problem = _copied(store, wanted.uuid, path, file.size, file.digest, copy if wanted.hands_over else None)
            if problem is not None:
                bad.append({"path": path, "problem": problem[0], "detail": problem[1]})
                say(f"{path} is {problem[0]}: {problem[1]}")
            elif wanted.hands_over:
                put(file.digest.partition(":")[2], copy)
    put(READING_REPORT, json.dumps({"bad": bad}).encode())
    say(f"{len(wanted.files) - len(bad)} files as committed, {len(bad)} not")
    return len(bad)


def _copied(
    store: StorageManager, uuid: str, path: str, size: int, digest: str, target: Path | None
) -> tuple[str, str] | None:
    """Copy a file, or only read it; return its problem and what was found, or None."""
    found, done = hashlib.sha256(), 0
    try:
        with store.open_file(uuid, path) as source, (target or Path("/dev/null")).open("wb") as copy:
            while done <= size and (block := source.read(_BLOCK)):
                found.update(block)
                done += len(block)
                copy.write(block)
    except FileNotFoundError:
        return "missing", "there is no such file"
    except DetlabError as error:
        return ("unreadable" if error.code.startswith("storage") else "missing"), error.message[:500]
    if f"sha256:{found.hexdigest()}" != digest:
        return "altered", f"{done} bytes, {size} were stored" if done != size else "its digest is another"
    return None


def main() -> int:
    """Read what this task is to read."""
    info = get_cluster_info()
    if info is None:
        raise NotInCluster("this program runs inside a task that the master starts: DET_TASK_DIR is not set")
    session = TaskSession.from_info(info)
    try:
        wanted = ReadingView.model_validate(session.get("task/checkpoint"))
        read(wanted, open_storage(wanted.storage, session, info), TaskOutputs(info).put, say)
    except DetlabError as error:
        say(f"{error}")
        return 1
    finally:
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
