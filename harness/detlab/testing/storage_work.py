"""One piece of work on a store, for a process that is killed in the middle of it.

python -m detlab.testing.storage_work BLOCK VERB UUID FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal, cast

from detlab.storage import StorageManager, from_config

Verb = Literal["upload", "stage", "download", "delete"]
METADATA = {"steps_completed": 10, "note": "füße"}


def perform(store: StorageManager, verb: Verb, uuid: str, folder: Path) -> None:
    """Do it.

    Args:
        store: The store.
        verb: What: write a checkpoint, from a directory or by its stage; download or delete it.
        uuid: The checkpoint.
        folder: Where files are written to first, or downloaded to; it does not matter for `delete`.
    """
    if verb == "stage":
        write_small_files(store.stage(uuid))
        store.publish(uuid, METADATA, store.seal(uuid))
    elif verb == "upload":
        store.publish(uuid, METADATA, store.upload(folder, uuid))
    elif verb == "download":
        store.download(uuid, folder, store.manifest(uuid))
    else:
        store.delete(uuid)


def write_small_files(folder: Path) -> Path:
    """Write two files, one of them in a folder."""
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"w" * 5000)
    (folder / "state").write_bytes(b"s")
    return folder


def command(block: dict[str, object], verb: Verb, uuid: str, folder: Path) -> list[str]:
    """Return the command of a process that does this on the store of a block."""
    return [sys.executable, "-m", __name__, json.dumps(block), verb, uuid, str(folder)]


if __name__ == "__main__":
    block, verb, uuid, folder = sys.argv[1:]
    perform(from_config(json.loads(block)), cast(Verb, verb), uuid, Path(folder))
