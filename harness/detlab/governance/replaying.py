"""Segments that were trained anew, against what the evidence says of it: the weights bit by bit, and why they differ.

Weights are compared as the bytes of safetensors files, without torch; only a distance needs numpy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import CheckpointError
from detlab.governance.ablation import tensor_places

_FACTS = {
    "policy_hash": "the policy is another one",
    "s_hash": "the parameters of the model have other names or shapes, so that the policy gives another matrix",
    "roster": "the data set has other samples, or other sources of them",
    "counts": "each source has given another number of samples",
    "order": "samples came in another order",
    "canaries": "other canaries were planted",
    "world_size": "it was trained by another number of processes",
}
"""What a segment records, and what it means that it is not the same again."""
_COMPUTED = {
    "torch": "torch",
    "detlab": "detlab",
    "threads": "threads of torch",
    "processor": "the processor",
    "gpu": "the GPU",
}
_FORMATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Of what a distance can be computed, as numpy reads it."""
_PART = 1 << 24
"""Bytes that are compared at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in a file.

    Attributes:
        dtype: As safetensors names it.
        shape: Its sizes.
        digest: SHA-256 of its bytes.
        path: The file.
        place: Where in it the bytes begin and end.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str
    path: Path = dataclasses.field(compare=False)
    place: tuple[int, int] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """What came out.

    Attributes:
        tensors: How many were compared.
        differing: Names of those that are not bit-equal, in the order of the model.
        how: In what the first of them differs; empty: none does.
        largest: The largest difference of two numbers in them; infinite if it cannot be computed of one of them.
        facts: What else is not as it was recorded.
        causes: Why it is likely to be so, the likeliest first; none if all is equal.
    """

    tensors: int
    differing: list[str]
    how: str
    largest: float
    facts: list[str]
    causes: list[str]

    @property
    def equal(self) -> bool:
        """Whether weights and all that was recorded are the same again."""
        return not self.differing and not self.facts

    def holds(self, tolerance: float) -> bool:
        """Return whether no weight is further off, and all else that was recorded is the same again."""
        return not self.facts and self.largest <= tolerance


def weights_in(folder: Path) -> dict[str, StoredTensor]:
    """Return all tensors of the models in a checkpoint's folder, by the names that a policy has for them.

    Raises:
        CheckpointError: A file is damaged, or there is none.
    """
    models = sorted(folder.glob("model_*.safetensors"))
    if not models:
        raise CheckpointError(f"{folder} has no weights of a PyTorchTrial: no model_<i>.safetensors is in it")
    found: dict[str, StoredTensor] = {}
    for path in models:
        prefix = f"{path.stem}." if len(models) > 1 else ""
        found |= {prefix + name: one for name, one in _tensors_of(path).items()}
    return found


def _tensors_of(path: Path) -> dict[str, StoredTensor]:
    places = tensor_places(path)
    with path.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
        return {
            name: StoredTensor(
                str(header[name].get("dtype")),
                tuple(header[name].get("shape") or ()),
                _digest(stream, *place),
                path,
                place,
            )
            for name, place in sorted(places.items(), key=lambda one: one[1])
        }


def _digest(stream: BinaryIO, first: int, last: int) -> str:
    stream.seek(first)
    found, left = hashlib.sha256(), last - first
    while left > 0 and (part := stream.read(min(left, 1 << 20))):
        found.update(part)
        left -= len(part)
    return found.hexdigest()


def judge(
    recorded: Path,
    replayed: Path,
    parameters: Sequence[str],
    was: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
) -> ReplayVerdict:
    """Compare a checkpoint that was recorded with one that was trained anew.

    Args:
        recorded: Folder with the model files of the first.
        replayed: Folder of the second.
        parameters: Names of what is trained, in the order of the model.
        was: Entries of the segments that lead to it in the ledger, in order.
        now: The same segments as they were recorded again.

    Raises:
        CheckpointError: Files are damaged.
    """
    before, after = weights_in(recorded), weights_in(replayed)
    order = list(dict.fromkeys([*(one for one in parameters if one in before), *before, *after]))
    differing = [name for name in order if before.get(name) != after.get(name)]
    facts = [fact for then, again in zip(was, now, strict=True) for fact in _facts(then, again, alone=len(was) == 1)]
    far = {name: _distance(before.get(name), after.get(name)) for name in differing}
    how = _how(differing[0], before.get(differing[0]), after.get(differing[0]), far[differing[0]]) if differing else ""
    causes = likely_causes(was, now, facts) if differing or facts else []
    return ReplayVerdict(len(order), differing, how, max(far.values(), default=0.0), facts, causes)


def _facts(was: Mapping[str, Any], now: Mapping[str, Any], *, alone: bool) -> list[str]:
    where = "" if alone else f"batches {was.get('first_step')} to {was.get('step')}: "
    return [f"{where}{said}" for key, said in _FACTS.items() if was.get(key) != now.get(key)]


def likely_causes(
    was: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], facts: Iterable[str]
) -> list[str]:
    """Return why weights may differ, the likeliest first.

    Args:
        was: Entries of the segments in the ledger.
        now: The segments as they were recorded again.
        facts: What differs between them.
    """
    found, unknown, on_gpu = dict.fromkeys(facts), dict[str, None](), False
    for then, again in zip(was, now, strict=True):
        there, here = then.get("versions") or {}, again.get("versions") or {}
        on_gpu = on_gpu or "gpu" in here
        for key, name in _COMPUTED.items():
            if key in here and key not in there and key != "gpu":
                unknown[name] = None
            elif there.get(key) != here.get(key):
                found[f"{name}: {there.get(key) or 'none'} when it was recorded, {here.get(key) or 'none'} here"] = None
    if unknown:
        found[f"not recorded, and perhaps other ones: {', '.join(unknown)}"] = None
    if found:
        return list(found)
    kernels = "kernels of a GPU that add in changing order (torch.use_deterministic_algorithms)"
    return [
        *([kernels] if on_gpu else []),
        "code that draws random numbers of its own, or depends on the time, on files or on the network",
        "the recorded weights do not come from the recorded training",
    ]


def _how(name: str, first: StoredTensor | None, second: StoredTensor | None, far: float) -> str:
    if first is None or second is None:
        return f"{name} is in the {'replayed' if first is None else 'recorded'} weights alone"
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        said = [f"{one.dtype} {list(one.shape)}" for one in (first, second)]
        return f"{name} was {said[0]}, and is {said[1]}"
    return f"{name} is not bit-equal" + (f": the largest difference in it is {far:.3g}" if math.isfinite(far) else "")


def _distance(first: StoredTensor | None, second: StoredTensor | None) -> float:
    """Return the largest difference of two numbers in two tensors; infinite if it cannot be computed."""
    if first is None or second is None or (first.dtype, first.shape) != (second.dtype, second.shape):
        return math.inf
    if first.dtype not in _FORMATS:
        return math.inf
    parts = zip(_parts(first), _parts(second), strict=True)
    return max((_largest(a, b) for a, b in parts), default=0.0)


def _parts(tensor: StoredTensor) -> Iterator[Any]:
    """Yield the numbers of a tensor in parts, as float64."""
    import numpy as np

    first, last = tensor.place
    with tensor.path.open("rb") as stream:
        stream.seek(first)
        for begin in range(first, last, _PART):
            numbers = np.frombuffer(stream.read(min(_PART, last - begin)), _FORMATS[tensor.dtype])
            if tensor.dtype == "BF16":  # the upper half of a float32
                numbers = (numbers.astype("<u4") << 16).view("<f4")
            yield numbers.astype(np.float64)


def _largest(first: Any, second: Any) -> float:
    import numpy as np

    with np.errstate(invalid="ignore"):
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        apart = np.where(same, 0.0, np.abs(first - second))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))
