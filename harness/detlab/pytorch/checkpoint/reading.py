"""What a checkpoint's files hold, for people: `Checkpoint.load()` of the client, once it has chosen the files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint.decoding import PickleRefused
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.checkpoint.tensor_files import TensorReader


def read(
    folder: Path, kind: str, files: Sequence[str], *, map_location: Any = "cpu", allow_pickle: bool = False
) -> dict[str, Any]:
    """Return what files hold.

    Args:
        folder: Of the checkpoint.
        kind: `state`, `tensors`, `values` or `pickles`.
        files: Relative paths.
        map_location: The device that tensors go to.
        allow_pickle: Whether unpickling, which can run any code, is allowed.

    Raises:
        CheckpointError: A file is missing or damaged, or two files give one tensor.
        PickleRefused: A value in the state was pickled.
    """
    if kind == "state":
        found: dict[str, Any] = _moved(_state(folder, allow_pickle=allow_pickle), map_location)
        return found
    if kind == "tensors":
        return _tensors(folder, files, map_location)
    if kind == "pickles":
        if not allow_pickle:
            raise PickleRefused(f"{', '.join(files)} in {folder}: unpickling runs code, and was not allowed")
        return {name: _pickle(folder / name, map_location) for name in files}
    return {name: _json(folder / name) for name in files}


def _state(folder: Path, *, allow_pickle: bool) -> dict[str, Any]:
    try:
        return read_state(folder, allow_pickle=allow_pickle)
    except PickleRefused as error:
        raise PickleRefused(
            f"{error.message} (in trainer.json)",
            hint="If you trust whoever wrote the checkpoint: load(allow_pickle=True). Its models alone need none: "
            "load(globs=['model_*.safetensors']).",
        ) from None


def _tensors(folder: Path, files: Sequence[str], map_location: Any) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    givers: dict[str, str] = {}
    for file in files:
        reader = TensorReader(folder / file)
        for name in sorted(reader.names):
            if name in found:
                raise CheckpointError(
                    f"{givers[name]} and {file} both hold a tensor {name!r}",
                    hint=f"Load one of them: load(globs=[{file!r}])",
                )
            found[name], givers[name] = reader.tensor(name).to(map_location), file
    return found


def _pickle(path: Path, map_location: Any) -> Any:
    """Open what the caller has allowed: as tensors and plain values if that is all there is, else as anything."""
    loads: tuple[Callable[[], Any], ...] = (
        lambda: torch.load(path, map_location=map_location, weights_only=True),
        lambda: torch.load(path, map_location=map_location, weights_only=False),
        lambda: pickle.loads(path.read_bytes()),  # noqa: S301 - the caller allowed it
    )
    failure: Exception | None = None
    for load in loads:
        try:
            return load()
        except Exception as error:  # whatever a foreign class's own code raises
            failure = error
    raise CheckpointError(
        f"{path} cannot be read: {type(failure).__name__}: {failure}",
        hint="Its classes must be importable under the names they had when it was written.",
    ) from failure


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: it is cut off or damaged ({error})") from error


def _moved(value: Any, device: Any) -> Any:
    """Return a tree with its tensors on a device; what holds none of them stays the same object."""
    if device in (None, "cpu"):
        return value  # where it is
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: _moved(item, device) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_moved(item, device) for item in value)
    return value
