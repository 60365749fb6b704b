"""Loading a checkpoint without fear: which of its files are read, and which are not opened without being asked for.

Tensors come from safetensors and plain values from JSON, neither of which can run code. A pickle can run any code when
it is opened, so that one is opened only if the caller allows it. What a file is its bytes say, not its name:
`model.bin` may hold safetensors, and `model.safetensors` a pickle. So what could be a pickle by its name is downloaded
and looked at, and the refusal says what it would import; it is refused by its name alone if it is large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from detlab.errors import CheckpointError, DetlabError
from detlab.storage.formats import Format, format_of, why_refused

STATE_FILE = "trainer.json"
PICKLES = (".pth", ".pt", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
"""Endings of files that most libraries write as pickles."""
LOOKED_AT_BYTES = 2 * 1024**3
"""Pickles by their names of up to this size in all are downloaded, only to say what they are and would import."""
_OURS = frozenset({"metadata.json", "manifest.json"})
_SHOWN = 5
_REASONS = 3


class PickleNotAllowed(CheckpointError):
    """What one wants of the checkpoint is a pickle, and opening one can run any code: nobody has allowed it."""

    default_code = "checkpoint.pickled"


class CheckpointFormat(StrEnum):
    """How a checkpoint's files are read."""

    STATE = "state"
    TENSORS = "tensors"
    PICKLES = "pickles"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """What to read of a checkpoint.

    Attributes:
        kind: How.
        files: Relative paths of what has to be there, sorted.
    """

    kind: CheckpointFormat
    files: tuple[str, ...]


def plan(names: Iterable[str], what: str, *, allow_pickle: bool) -> LoadingPlan:
    """Decide by their names what to read of the files of a checkpoint.

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
        return LoadingPlan(
            CheckpointFormat.STATE, tuple(name for name in found if "/" not in name and name.endswith(_STATE))
        )
    tensors = [name for name in found if name.endswith(".safetensors")]
    if tensors:
        return LoadingPlan(CheckpointFormat.TENSORS, tuple(tensors))
    pickles = [name for name in found if _is_pickle(name)]
    if pickles and not allow_pickle:
        raise PickleNotAllowed(
            f"{_shown(pickles)} of {what} may be a pickle: opening one can run any code that its author put in, with "
            "your rights",
            hint="If you trust whoever wrote it: load(allow_pickle=True). Else download() it and open nothing.",
        )
    if pickles:
        return LoadingPlan(CheckpointFormat.PICKLES, tuple(pickles))
    if values := _values(found):
        return LoadingPlan(CheckpointFormat.VALUES, values)
    raise _nothing(found, what)


_STATE = (".safetensors", ".json", ".pth")


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def may_be_looked_at(sizes: Mapping[str, int]) -> bool:
    """Whether files that are pickles by their names are small enough to be downloaded before they are refused."""
    return sum(size for name, size in sizes.items() if name.lower().endswith(PICKLES)) <= LOOKED_AT_BYTES


def plan_of_folder(folder: Path, what: str, *, allow_pickle: bool) -> LoadingPlan:
    """Decide by their bytes what to read of the files in a folder; none of them is opened by what could run its code.

    Args:
        folder: Of the checkpoint.
        what: The checkpoint, for errors.
        allow_pickle: Whether pickles may be opened.

    Raises:
        PickleNotAllowed: As for `plan`; it says what the pickles would import.
        CheckpointError: There is nothing that could be read.
        OSError: A file cannot be read.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if STATE_FILE in names:
        return plan(names, what, allow_pickle=allow_pickle)
    kinds = {name: _format(folder / name) for name in names}
    named = [name for name in names if name.endswith(".safetensors")]
    disguised = [name for name in named if kinds[name].pickled]
    tensors = [name for name in names if kinds[name] is Format.SAFETENSORS or (name in named and name not in disguised)]
    pickles = [name for name in names if kinds[name].pickled or (_is_pickle(name) and not kinds[name].safe)]
    refused = pickles if not tensors else disguised
    if refused and not allow_pickle:
        raise PickleNotAllowed(
            f"{what} is not loaded: {_reasons(folder, kinds, refused)}",
            hint="If you trust whoever wrote it: load(allow_pickle=True). Else download() it and open nothing.",
        )
    if tensors:
        return LoadingPlan(CheckpointFormat.TENSORS, tuple(tensors))
    if pickles:
        return LoadingPlan(CheckpointFormat.PICKLES, tuple(pickles))
    values = _values(names)
    if not values:
        raise _nothing(names, what)
    return LoadingPlan(CheckpointFormat.VALUES, values)


def _values(names: list[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.endswith(".json") and name not in _OURS)


def _nothing(names: list[str], what: str) -> CheckpointError:
    return CheckpointError(
        f"{what} holds neither safetensors nor JSON: {_shown(names) or 'no files'}",
        hint="download() gives its files; load them with the library that wrote them.",
    )


def _is_pickle(name: str) -> bool:
    return name.lower().endswith(PICKLES)


def _format(path: Path) -> Format:
    with path.open("rb") as file:  # a folder of one's own may be made of links, as Hugging Face's cache is
        return format_of(file)


def _reasons(folder: Path, kinds: Mapping[str, Format], names: list[str]) -> str:
    found = []
    for name in names[:_REASONS]:
        with (folder / name).open("rb") as file:
            found.append(why_refused(file, name) or f"{name} is {kinds[name].phrase}: it may run code")
    return "; ".join(found) + (f"; and {len(names) - _REASONS} more" if len(names) > _REASONS else "")


def cache_folder(uuid: str, files: Iterable[str]) -> Path:
    """Return where these files of a checkpoint are kept for this user; they are verified each time they are used."""
    name = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:12]
    return user_cache_path("detlab") / "checkpoints" / uuid / name


def load_folder(
    folder: Path,
    *,
    map_location: Any = "cpu",
    allow_pickle: bool = False,
    what: str | None = None,
    alone: bool = False,
) -> Any:
    """Return what the files of a checkpoint hold; for a folder from anywhere.

    Args:
        folder: Of the checkpoint's files.
        map_location: The device that tensors go to.
        allow_pickle: Whether a pickle may be opened, which can run any code.
        what: The checkpoint, for errors; the folder if None.
        alone: Whether of one pickle, or of one JSON file, its content is returned, and not a dict with it.

    Returns:
        Of a trial of `detlab.pytorch` its state; of other safetensors files each tensor by its name; else the content
        of each JSON file, or of each pickle, by its path.

    Raises:
        PickleNotAllowed: Something in it is a pickle, and `allow_pickle` is false.
        CheckpointError: A file is missing, damaged, or nothing can be read.
        DetlabError: PyTorch or safetensors is not installed.
    """
    chosen = plan_of_folder(folder, what or str(folder), allow_pickle=allow_pickle)
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
    if alone and chosen.kind in {CheckpointFormat.PICKLES, CheckpointFormat.VALUES} and len(chosen.files) == 1:
        return loaded[chosen.files[0]]
    return loaded
