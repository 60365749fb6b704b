"""Loading a checkpoint without fear: which of its files are read, and which are not opened without being asked for.

Tensors come from safetensors and plain values from JSON, neither of which can run code. A pickle can run any code when
it is opened, so that one is refused by its name, before it is downloaded, unless the caller allows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from detlab.errors import CheckpointError, DetlabError

STATE_FILE = "trainer.json"
PICKLES = (".pth", ".pt", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
"""Endings of files that most libraries write as pickles."""
_OURS = frozenset({"metadata.json", "manifest.json"})
_SHOWN = 5


class PickleNotAllowed(CheckpointError):
    """What one wants of the checkpoint is a pickle, and opening one can run any code: nobody has allowed it."""

    default_code = "checkpoint.pickled"


class Kind(StrEnum):
    """How a checkpoint's files are read."""

    STATE = "state"
    TENSORS = "tensors"
    PICKLES = "pickles"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read of a checkpoint.

    Attributes:
        kind: How.
        files: Relative paths of what has to be there, sorted.
    """

    kind: Kind
    files: tuple[str, ...]


def plan(names: Iterable[str], what: str, *, allow_pickle: bool) -> Plan:
    """Decide what to read of the files of a checkpoint.

    Args:
        names: Relative paths of its files.
        what: The checkpoint, for errors.
        allow_pickle: Whether pickles may be opened.

    Raises:
        PickleNotAllowed: There are pickles and nothing that could be read without opening one.
        CheckpointError: There is nothing that could be read.
    """
    found = sorted(set(names))
    if STATE_FILE in found:
        return Plan(Kind.STATE, tuple(name for name in found if "/" not in name and name.endswith(_STATE)))
    tensors = [name for name in found if name.endswith(".safetensors")]
    if tensors:
        return Plan(Kind.TENSORS, tuple(tensors))
    pickles = [name for name in found if name.lower().endswith(PICKLES)]
    if pickles and not allow_pickle:
        raise PickleNotAllowed(
            f"{_shown(pickles)} of {what} may be a pickle: opening one can run any code that its author put in, with "
            "your rights",
            hint="If you trust whoever wrote it: load(allow_pickle=True). Else download() it and open nothing.",
        )
    if pickles:
        return Plan(Kind.PICKLES, tuple(pickles))
    values = [name for name in found if name.endswith(".json") and name not in _OURS]
    if values:
        return Plan(Kind.VALUES, tuple(values))
    raise CheckpointError(
        f"{what} holds neither safetensors nor JSON: {_shown(found) or 'no files'}",
        hint="download() gives its files; load them with the library that wrote them.",
    )


_STATE = (".safetensors", ".json", ".pth")


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def cache_folder(uuid: str, files: Iterable[str]) -> Path:
    """Return where these files of a checkpoint are kept for this user; they are verified each time they are used."""
    name = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:12]
    return user_cache_path("detlab") / "checkpoints" / uuid / name


def load_folder(
    folder: Path, *, map_location: Any = "cpu", allow_pickle: bool = False, what: str | None = None
) -> dict[str, Any]:
    """Return what the files of a checkpoint hold; for a folder from anywhere.

    Args:
        folder: Of the checkpoint's files.
        map_location: The device that tensors go to.
        allow_pickle: Whether a pickle may be opened, which can run any code.
        what: The checkpoint, for errors; the folder if None.

    Returns:
        Of a trial of `detlab.pytorch` its state; of other safetensors files each tensor by its name; else the content
        of each JSON file, or of each pickle, by its path.

    Raises:
        PickleNotAllowed: Something in it is a pickle, and `allow_pickle` is false.
        CheckpointError: A file is missing, damaged, or nothing can be read.
        DetlabError: PyTorch or safetensors is not installed.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    chosen = plan(names, what or str(folder), allow_pickle=allow_pickle)
    try:
        # By name: the client stands below PyTorch, which is imported by those who load tensors alone.
        reading = import_module("detlab.pytorch.checkpoint.reading")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "detlab":
            raise
        raise DetlabError(
            f"loading a checkpoint needs {error.name}, which is not installed here",
            hint="pip install 'detlab[torch]'; or download() the checkpoint and load its files elsewhere",
        ) from None
    loaded: dict[str, Any] = reading.read(
        folder, chosen.kind.value, chosen.files, map_location=map_location, allow_pickle=allow_pickle
    )
    return loaded
