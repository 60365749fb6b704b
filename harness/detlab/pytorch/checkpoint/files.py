"""The files of a trial's state, without executable pickles.

model_0.safetensors    each model's parameters and buffers under their own names: `safetensors.torch.load_file` and
                       `load_state_dict` take it; tied weights are in it under each of their names
trainer.safetensors    all other tensors and arrays, named after their place in the tree
trainer.json           everything else, and which tensor belongs where; written last
load_data.json, code/  what `load_trial_from_checkpoint_path` needs
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint import source_code, tensor_files
from detlab.pytorch.checkpoint.codec import TreePath, decode, encode, printable
from detlab.pytorch.checkpoint.matching import StateMismatch, check_state, load_models, load_optimizers

__all__ = [
    "EncodedState",
    "StateMismatch",
    "check_state",
    "encode_state",
    "load_models",
    "load_optimizers",
    "read_state",
    "write_encoded",
    "write_state",
]

STRUCTURE_FILE = "trainer.json"
LOAD_DATA_FILE = "load_data.json"
DETERMINED_FILE = "state_dict.pth"
MODELS = "models_state_dict"
FORMAT = 1

_TRAINER = "trainer"
_MODEL_KEY = re.compile(r"model_\d+")


@dataclasses.dataclass(frozen=True)
class EncodedState:
    """A state that is ready to be written.

    Attributes:
        structure: What goes to `trainer.json` under `tree`.
        tensors: By key `model_<i>/<name>` or `trainer/<path>`; the same object under two keys for tied weights.
        models: How many model files there are.
    """

    structure: Any
    tensors: dict[str, torch.Tensor]
    models: int


def encode_state(tree: Mapping[str, Any]) -> EncodedState:
    """Take a trial's state apart, without copying a tensor.

    Raises:
        CheckpointError: A value in it cannot be stored; its path is named.
    """
    structure, tensors = encode(dict(tree), place=_place, prefix=f"{_TRAINER}/")
    return EncodedState(structure, tensors, len(tree.get(MODELS) or []))


def _place(path: TreePath) -> str | None:
    """Give the parameters and buffers of models their own names in their own file."""
    if len(path) != 3 or path[0] != MODELS:
        return None
    _, index, name = path
    return f"model_{index}/{name}" if type(name) is str and printable(name) == name else None


def write_state(
    directory: Path, tree: Mapping[str, Any], *, load_data: dict[str, Any] | None = None, code: Path | None = None
) -> None:
    """Write a trial's state into an existing, empty directory.

    Args:
        directory: Where to.
        tree: The state; see `codec` for what it may hold. `models_state_dict` is a list of models' state dicts.
        load_data: Content of `load_data.json`; no file if None.
        code: Directory whose source files are copied to `code/`; none if None.

    Raises:
        CheckpointError: A value cannot be stored.
        OSError: The directory cannot be written.
    """
    sources = None if code is None else source_code.collect(code)
    write_encoded(directory, encode_state(tree), load_data=load_data, code=sources)


def write_encoded(
    directory: Path,
    encoded: EncodedState,
    *,
    load_data: dict[str, Any] | None = None,
    code: dict[str, bytes] | None = None,
) -> None:
    """Write an encoded state straight from its tensors' memory; else as `write_state`."""
    files: dict[str, dict[str, torch.Tensor]] = {f"model_{index}": {} for index in range(encoded.models)}
    files[_TRAINER] = {}
    for key, tensor in encoded.tensors.items():
        file, _, name = key.partition("/")
        files[file][name] = tensor
    for file, tensors in files.items():
        tensor_files.write(directory / f"{file}.safetensors", tensors)
    if code is not None:
        source_code.write(code, directory / "code")
    if load_data is not None:
        (directory / LOAD_DATA_FILE).write_text(json.dumps(load_data, indent=1, default=str))
    document = {
        "format": FORMAT,
        "detlab": version("detlab"),
        "torch": str(torch.__version__),
        "models": encoded.models,
        "tree": encoded.structure,
    }
    (directory / STRUCTURE_FILE).write_text(json.dumps(document, allow_nan=False))


def read_state(
    directory: Path,
    *,
    allow_pickle: bool = True,
    only: Collection[str] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Read a trial's state; all tensors are on the CPU and in memory of their own.

    Of a checkpoint that Determined wrote (`state_dict.pth`), what has a place in detlab's state comes back under
    detlab's keys.

    Args:
        directory: Of the checkpoint.
        allow_pickle: Whether values of foreign classes may be unpickled, which can run any code.
        only: Top-level keys to read; all if None.
        torch_load_kwargs: For `torch.load`, when Determined wrote the checkpoint.

    Raises:
        CheckpointError: A file is missing or damaged, or holds what may not be unpickled.
    """
    directory = Path(directory)
    if not (directory / STRUCTURE_FILE).exists() and (directory / DETERMINED_FILE).exists():
        tree = _read_determined(directory / DETERMINED_FILE, dict(torch_load_kwargs or {}))
        return {key: value for key, value in tree.items() if only is None or key in only}
    document = _read_document(directory)
    structure = document["tree"]
    if only is not None:
        structure = {key: node for key, node in structure.items() if key in only}
    tree = decode(structure, _Files(directory), allow_pickle=allow_pickle)
    if not isinstance(tree, dict):
        raise CheckpointError(f"{directory / STRUCTURE_FILE} does not hold the state of a trial")
    return tree


def _read_document(directory: Path) -> dict[str, Any]:
    path = directory / STRUCTURE_FILE
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} holds no state of a PyTorchTrial: neither {STRUCTURE_FILE} nor {DETERMINED_FILE} is in it",
            hint=_what_is_there(directory),
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: it is cut off or damaged ({error})") from error
    if not isinstance(document, dict) or not isinstance(document.get("tree"), dict):
        raise CheckpointError(f"{path} is damaged: it does not hold the state of a trial")
    if document.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {document.get('format')!r}, this release reads format {FORMAT}",
            hint=f"It was written by detlab {document.get('detlab')}: read it with that release or a newer one.",
        )
    return document


def _what_is_there(directory: Path) -> str:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        return f"The directory cannot be listed: {error}"
    if not names:
        return "The directory is empty."
    more = ", …" if len(names) > 10 else ""
    return f"It holds {', '.join(names[:10])}{more}: perhaps a checkpoint of code that uses the Core API."


class _Files(Mapping[str, torch.Tensor]):
    """The tensors of a checkpoint by key; each file is opened, and each tensor read, when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readers: dict[str, tensor_files.TensorReader] = {}
        self._tensors: dict[str, torch.Tensor] = {}

    def __getitem__(self, key: str) -> torch.Tensor:
        if key not in self._tensors:
            file, _, name = key.partition("/")
            reader = self._reader(file)
            if name not in reader.names:
                raise CheckpointError(f"{file}.safetensors in {self._directory} lacks the tensor {name}")
            self._tensors[key] = reader.tensor(name)
        return self._tensors[key]

    def _reader(self, file: str) -> tensor_files.TensorReader:
        if file != _TRAINER and not _MODEL_KEY.fullmatch(file):
            raise CheckpointError(f"{STRUCTURE_FILE} in {self._directory} is damaged: it names a file {file!r}")
        if file not in self._readers:
            self._readers[file] = tensor_files.TensorReader(self._directory / f"{file}.safetensors")
        return self._readers[file]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _read_determined(path: Path, torch_load_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Read `state_dict.pth`. Determined keeps NumPy's random state in it, whose (harmless) classes are let through."""
    options = {"map_location": "cpu", "weights_only": True, **torch_load_kwargs}
    try:
        with torch.serialization.safe_globals(_numpy_classes()):
            saved = torch.load(path, **options)
    except pickle.UnpicklingError as error:
        if not options["weights_only"]:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        raise CheckpointError(
            f"{path} holds more than tensors and plain values, and reading that would run code: {_refused(error)}",
            hint="If you trust the checkpoint: load_trial_from_checkpoint_path(path, torch_load_kwargs="
            '{"weights_only": False}), with the classes that it holds importable.',
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, AttributeError, ImportError) as error:
        raise CheckpointError(f"{path} cannot be read: it is cut off or damaged ({error})") from error
    if not isinstance(saved, dict):
        raise CheckpointError(f"{path} holds a {type(saved).__name__}, not the state of a trial")
    return _from_determined(saved, path)


def _refused(error: Exception) -> str:
    found = re.search(r"GLOBAL (\S+)|class (\S+)", str(error))
    return next((group for group in found.groups() if group), "") if found else str(error).splitlines()[0]


def _numpy_classes() -> list[Any]:
    array = np.array([0], dtype=np.uint32)
    rebuild = array.__reduce__()[0]
    names = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
    return [*((rebuild, name) for name in names), np.ndarray, np.dtype, type(array.dtype)]


def _from_determined(saved: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a state of Determined under detlab's keys; its oldest releases had one model and one optimizer."""
    tree: dict[str, Any] = {}
    for key, old in (
        (MODELS, "model_state_dict"),
        ("optimizers_state_dict", "optimizer_state_dict"),
        ("lr_schedulers_state_dict", "lr_scheduler"),
    ):
        if key in saved:
            tree[key] = list(saved[key])
        elif saved.get(old) is not None:
            tree[key] = [saved[old]]
    if MODELS not in tree:
        raise CheckpointError(f"{path} is not of a PyTorchTrial: it holds {', '.join(map(str, saved))}")
    tree |= {key: saved[key] for key in ("scaler_state_dict", "callbacks") if key in saved}
    if isinstance(saved.get("rng_state"), dict):
        rng = saved["rng_state"]
        tree["ranks"] = [
            {
                "rng": {
                    "torch": rng.get("cpu_rng_state"),
                    "cuda": rng.get("gpu_rng_state"),
                    "numpy": rng.get("np_rng_state"),
                    "python": rng.get("rand_rng_state"),
                },
                "gradients": None,
            }
        ]
    return tree
