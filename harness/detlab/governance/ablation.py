"""Take an isolated source out of a checkpoint: its own parameters become zeros, with what optimizers keep of them.

The files are those of `detlab.pytorch.checkpoint.files`, changed in place and without torch: zeros of all dtypes are
zero bytes. With zeros a module gives zeros, as it does for other samples: the model is that which never saw the source.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from detlab.errors import CheckpointError

RECORD = "ablation.json"
"""What was done, beside the files."""
STRUCTURE, TRAINER = "trainer.json", "trainer.safetensors"
_TAG = "$"
_MOST_HEADER = 100 * 1024**2


@dataclasses.dataclass(frozen=True, slots=True)
class Ablation:
    """What was taken out.

    Attributes:
        source: The source.
        zeroed: Parameters and buffers that are zeros now.
        forgotten: Parameters of which optimizers keep nothing now.
        kept: Tensors that no policy governs, such as frozen ones and averages; they are as they were.
        digests: SHA-256 of each file that was changed, by its path.
    """

    source: str
    zeroed: list[str]
    forgotten: list[str]
    kept: list[str]
    digests: dict[str, str]


def ablate(folder: Path, source: str, own: Collection[str], trained: Collection[str]) -> Ablation:
    """Take a source out of the files of a checkpoint, which are changed; `ablation.json` is written beside them.

    Args:
        folder: A copy of the checkpoint.
        source: The name of the source.
        own: What it alone has trained; see `own_parameters`.
        trained: All parameters that were trained.

    Raises:
        CheckpointError: The files are of another kind or model, or hold gradients of an unfinished step.
    """
    structure = _read(folder / STRUCTURE)
    tree = structure.get("tree")
    if not isinstance(tree, dict):
        raise CheckpointError(f"{folder / STRUCTURE} does not hold the state of a trial")
    if any(isinstance(one, dict) and one.get("gradients") is not None for one in tree.get("ranks") or []):
        raise CheckpointError(
            "the checkpoint holds gradients of a step that was not finished, with those of all sources",
            hint="take one that was saved after a whole step: det checkpoint list EXPERIMENT",
        )
    try:  # everything is looked at before a byte is changed
        states = _optimizer_entries(tree, set(own))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{folder / STRUCTURE} has an optimizer of a kind that is not known") from error
    models = sorted(folder.glob("model_*.safetensors"))
    names = {path: tensor_places(path) for path in models}
    many = len(models) > 1
    taken = {path: _of_source(path, found, own, trained, many=many) for path, found in names.items()}
    missing = set(own) - {name for found in taken.values() for name in found.values()}
    if missing:
        raise CheckpointError(f"the checkpoint has no parameter {min(missing)}: it is of another model")
    _zero(folder / TRAINER, {key for one in states for key in one.tensors}, prefix="trainer/")
    for one in states:
        one.pairs.remove(one.pair)
    (folder / STRUCTURE).write_text(json.dumps(structure))
    kept = []
    for path, found in names.items():
        _zero(path, taken[path])
        full = (_full(path, name, many=many) for name in found if name not in taken[path])
        kept += [name for name in full if name not in trained]
    changed = [*models, folder / STRUCTURE, *([folder / TRAINER] if (folder / TRAINER).exists() else [])]
    zeroed = sorted(name for found in taken.values() for name in found.values())
    done = Ablation(
        source, zeroed, sorted({one.name for one in states}), kept, {one.name: _sha(one) for one in changed}
    )
    (folder / RECORD).write_text(json.dumps(dataclasses.asdict(done), indent=1))
    return done


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}", hint="is it a checkpoint of a PyTorchTrial?"
        ) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} does not hold the state of a trial")
    return found


def tensor_places(path: Path) -> dict[str, tuple[int, int]]:
    """Return where in a safetensors file the bytes of each tensor begin and end.

    Raises:
        CheckpointError: It is none.
    """
    try:
        with path.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            if size > _MOST_HEADER:
                raise ValueError(f"its header would have {size} bytes")
            header = json.loads(stream.read(size))
        begin, end = 8 + size, path.stat().st_size
        found = {
            name: (begin + int(one["data_offsets"][0]), begin + int(one["data_offsets"][1]))
            for name, one in header.items()
            if name != "__metadata__"
        }
        if any(not begin <= first <= last <= end for first, last in found.values()):
            raise ValueError("a tensor is outside of the file")
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return found


def _full(path: Path, name: str, *, many: bool) -> str:
    return f"{path.stem}.{name}" if many else name


def _of_source(
    path: Path, names: Mapping[str, tuple[int, int]], own: Collection[str], trained: Collection[str], *, many: bool
) -> dict[str, str]:
    """Return what of one model's file is a source's own: its parameters, other tensors of the same layers, and further
    names of tied parameters, which are told by their bytes."""
    layers = {name.rpartition(".")[0] for name in own}
    full = {name: _full(path, name, many=many) for name in names}
    with path.open("rb") as stream:
        held = {name: _bytes_of(stream, names[name]) for name, one in full.items() if one in own or one not in trained}
    contents = {held[name] for name, one in full.items() if one in own}
    return {
        name: one
        for name, one in full.items()
        if one in own or (one not in trained and (one.rpartition(".")[0] in layers or held[name] in contents))
    }


def _bytes_of(stream: Any, place: tuple[int, int]) -> str:
    stream.seek(place[0])
    return hashlib.sha256(stream.read(place[1] - place[0])).hexdigest()


def _zero(path: Path, names: Collection[str], *, prefix: str = "") -> None:
    if not names:
        return
    places = {prefix + name: place for name, place in tensor_places(path).items()}
    if lost := [name for name in names if name not in places]:
        raise CheckpointError(f"{path.name} has no tensor {lost[0]}")
    with path.open("r+b") as stream:
        for name in names:
            first, last = places[name]
            stream.seek(first)
            stream.write(bytes(last - first))


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """What an optimizer keeps of one parameter: its pair in the tree, and the tensors that it names."""

    name: str
    pairs: list[Any]
    pair: Any
    tensors: list[str]


def _optimizer_entries(tree: Mapping[str, Any], own: Collection[str]) -> list[_Entry]:
    """Return what optimizers keep of a source's own parameters.

    Raises:
        CheckpointError: It is not known which state is of which parameter.
    """
    optimizers = tree.get("optimizers_state_dict") or []
    listed = tree.get("optimizer_parameters") or []
    if optimizers and len(listed) != len(optimizers):
        message = "the checkpoint does not say which parameters its optimizers have: it was saved without a policy"
        raise CheckpointError(message)
    found = []
    for optimizer, names in zip(optimizers, listed, strict=True):
        keys = [key for group in optimizer["param_groups"] for key in group["params"]]
        if len(keys) != len(names):
            raise CheckpointError(f"an optimizer has {len(keys)} parameters, and {len(names)} names")
        name_of = dict(zip(keys, names, strict=True))
        pairs = optimizer["state"].get("v", []) if optimizer["state"].get(_TAG) == "dict" else []
        found += [
            _Entry(name_of[pair[0]], pairs, pair, list(_keys(pair[1]))) for pair in pairs if name_of.get(pair[0]) in own
        ]
    return found


def _keys(node: Any) -> Iterator[str]:
    """Yield the tensors that a part of the tree names."""
    if isinstance(node, list):
        for one in node:
            yield from _keys(one)
    elif isinstance(node, dict):
        if isinstance(node.get(_TAG), str) and isinstance(node.get("k"), str):
            yield node["k"]
        for one in node.values():
            yield from _keys(one)


def _sha(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return f"sha256:{digest.hexdigest()}"
