"""From a tree of Python values to JSON and named tensors, and back, without pickle.

    structure, tensors = encode(tree)          # structure: what `json.dumps` takes; tensors: the live ones, uncopied
    tree = decode(structure, tensors)

Plain values are encoded as they are, all else as an object whose key `$` says what it is. The tree comes back equal and
in order, to the bit for floats, with these differences: tensors come back on the CPU, a named tuple whose class is not
loaded as a tuple, a list or dict that occurs twice as two. A tensor that occurs twice is kept once and comes back as
one tensor; two views of one storage that are not the same view come back as two tensors.

What is of a class that is not known here is pickled as the last resort, with a warning that names it; `decode`
unpickles only if it is allowed to.
"""

from __future__ import annotations

import base64
import datetime
import logging
import pickle
import struct
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

import numpy as np
import torch

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint.decoding import FACTORIES, TAG, Decoder, PickleRefused

__all__ = ["STORABLE", "PickleRefused", "decode", "describe", "encode", "printable"]

logger = logging.getLogger("detlab.pytorch")

_INLINE_BYTES = 1024  # longer byte strings go to the tensors: base64 in JSON is slow to read
_LARGEST = 2**63  # beyond it other readers of JSON lose digits, and CPython refuses very long decimals

STORABLE = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.complex64: "C64",
}
"""The dtypes that go into a safetensors file as they are, with their names there (safetensors 0.7). Other complex ones
go in as pairs of reals, the rest as bytes."""

TreePath = tuple[Any, ...]
Place = Callable[[TreePath], str | None]
"""Given the path of a tensor in the tree, the key it must be found under, even if it is there under another already."""

_FACTORY_NAMES = {factory: name for name, factory in FACTORIES.items()}
_warned: set[tuple[str, type]] = set()


def encode(tree: Any, *, place: Place | None = None, prefix: str = "") -> tuple[Any, dict[str, torch.Tensor]]:
    """Take a tree apart.

    Args:
        tree: Any nesting of the values that the module's docstring describes.
        place: Gives keys to tensors at certain paths; all others are named after their path.
        prefix: Of the keys of those others.

    Returns:
        What `json.dumps` takes, sharing nothing with the tree; and the tensors by key, detached but not copied,
        on the devices they are on. Keys that must be there under two names have the same tensor object.

    Raises:
        CheckpointError: A value can neither be encoded nor pickled, or the tree contains itself; the path is named.
    """
    encoder = _Encoder(place, prefix)
    try:
        return encoder.value(tree, ()), encoder.tensors
    except RecursionError as error:
        raise CheckpointError(
            "the state to be checkpointed is nested too deep, or contains itself",
            hint="Check what state_dict() of your callbacks and schedulers returns.",
        ) from error


def decode(structure: Any, tensors: Mapping[str, torch.Tensor], *, allow_pickle: bool = False) -> Any:
    """Put a tree together again.

    Args:
        structure: What `encode` gave, perhaps after a trip through JSON.
        tensors: By key, on the CPU; they become part of the tree.
        allow_pickle: Whether to unpickle values of foreign classes, which can run any code.

    Raises:
        PickleRefused: There is such a value, and it is not allowed.
        CheckpointError: The structure is damaged, a tensor is missing, or a class cannot be unpickled.
    """
    try:
        return Decoder(tensors, allow_pickle).value(structure)
    except CheckpointError:
        raise
    except Exception as error:  # what a damaged node happens to raise, down to struct and zoneinfo
        raise CheckpointError(f"the structure of the checkpoint is damaged: {type(error).__name__}: {error}") from error


def describe(path: TreePath) -> str:
    """Return a path in the tree as text: `callbacks/best/history`."""
    return "/".join(map(str, path)) or "(the tree itself)"


class _Encoder:
    def __init__(self, place: Place | None, prefix: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._place = place
        self._prefix = prefix
        self._at: dict[int, list[str]] = {}

    def value(self, value: Any, path: TreePath) -> Any:
        kind = type(value)
        if kind is str or kind is bool or value is None:
            return value
        if kind is int:
            return value if -_LARGEST <= value < _LARGEST else {TAG: "int", "v": hex(value)}
        if kind is float:
            return _real(value)
        known = _KINDS.get(kind)
        if known is not None:
            return known(self, value, path)
        return self._of_a_family(value, path)

    def _of_a_family(self, value: Any, path: TreePath) -> Any:
        if isinstance(value, np.generic):
            return self._scalar(value, path)
        if isinstance(value, np.dtype):
            return self._numpy_dtype(value, path)
        if isinstance(value, PurePath):
            return {TAG: "path", "v": str(value), "kind": _path_kind(value)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kind = type(value)
            named = {TAG: "namedtuple", "class": [kind.__module__, kind.__qualname__], "fields": list(value._fields)}
            return {**named, "v": self._list(value, path)}
        if isinstance(value, tuple) and hasattr(value, "n_fields"):
            return self._sequence(tuple(value), path)
        return self._pickled(value, path)

    def _dict(self, value: dict[Any, Any], path: TreePath) -> Any:
        for key in value:  # thousands of small dicts: a generator would be slow
            if type(key) is not str or key == TAG:
                return {TAG: "dict", "v": self._pairs(value, path)}
        encode_value = self.value
        return {key: encode_value(item, (*path, key)) for key, item in value.items()}

    def _pairs(self, value: Mapping[Any, Any], path: TreePath) -> list[Any]:
        return [[self.value(key, (*path, key)), self.value(item, (*path, key))] for key, item in value.items()]

    def _list(self, value: Any, path: TreePath) -> list[Any]:
        encode_value = self.value
        return [encode_value(item, (*path, index)) for index, item in enumerate(value)]

    def _sequence(self, value: Any, path: TreePath) -> Any:
        return {TAG: type(value).__name__, "v": self._list(value, path)}

    def _deque(self, value: deque[Any], path: TreePath) -> Any:
        return {TAG: "deque", "v": self._list(value, path), "maxlen": value.maxlen}

    def _ordered_dict(self, value: OrderedDict[Any, Any], path: TreePath) -> Any:
        encoded = {TAG: "OrderedDict", "v": self._pairs(value, path)}
        metadata = getattr(value, "_metadata", None)  # of a module's state dict: versions, which its hooks look at
        if metadata is not None:
            encoded["metadata"] = self.value(metadata, (*path, "_metadata"))
        return encoded

    def _defaultdict(self, value: defaultdict[Any, Any], path: TreePath) -> Any:
        factory = value.default_factory
        if not isinstance(factory, type | None) or factory not in _FACTORY_NAMES:
            return self._pickled(value, path)
        return {TAG: "defaultdict", "v": self._pairs(value, path), "factory": _FACTORY_NAMES[factory]}

    def _counter(self, value: Counter[Any], path: TreePath) -> Any:
        return {TAG: "Counter", "v": self._pairs(value, path)}

    def _bytes(self, value: bytes | bytearray, path: TreePath) -> Any:
        kind = type(value).__name__
        if len(value) <= _INLINE_BYTES:
            return {TAG: kind, "v": base64.b64encode(value).decode()}
        return {TAG: kind, "k": self._keep(torch.frombuffer(bytearray(value), dtype=torch.uint8), path)}

    def _tensor(self, value: torch.Tensor, path: TreePath) -> Any:
        if value.dtype not in STORABLE or value.layout is not torch.strided or value.is_meta:
            return self._unusual_tensor(value, path)
        reference: dict[str, Any] = {TAG: "tensor"}
        if value.requires_grad:
            reference["grad"] = True
            value = value.detach()
        if value.is_neg() or value.is_conj():
            value = value.resolve_conj().resolve_neg()
        reference["k"] = self._keep(value, path, None if self._place is None else self._place(path))
        return reference

    def _unusual_tensor(self, value: torch.Tensor, path: TreePath) -> Any:
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            return self._pickled(value, path)
        plain = value.detach().resolve_conj().resolve_neg()
        plain = torch.view_as_real(plain) if plain.is_complex() else plain.reshape(-1).view(torch.uint8)
        reference = {
            TAG: "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "k": self._keep(plain, path),
        }
        return {**reference, "grad": True} if value.requires_grad else reference

    def _parameter(self, value: torch.Tensor, path: TreePath) -> Any:
        encoded = self._tensor(value.data, path)
        if encoded[TAG] != "tensor":
            return encoded
        return {**encoded, "parameter": value.requires_grad}

    def _keep(self, tensor: torch.Tensor, path: TreePath, placed: str | None = None) -> str:
        """Return the key of a tensor that is kept, under its own path or where the same view was met before."""
        address = tensor.data_ptr()  # 0 if there is no element
        known = self._same_view(address, tensor) if address in self._at else None
        if known is not None and placed is None:
            return known
        key = self._free(self._prefix + printable(describe(path))) if placed is None else placed
        # Everything kept stays alive in `tensors`, so that an address cannot come to mean another tensor.
        self.tensors[key] = tensor if known is None else self.tensors[known]
        if known is None and address:
            self._at.setdefault(address, []).append(key)
        return known or key

    def _same_view(self, address: int, tensor: torch.Tensor) -> str | None:
        for key in self._at[address]:
            kept = self.tensors[key]
            if (kept.dtype, kept.shape, kept.stride()) == (tensor.dtype, tensor.shape, tensor.stride()):
                return key
        return None

    def _free(self, key: str) -> str:
        """Return a key that is not in use: paths such as ("a/b",) and ("a", "b") read the same."""
        if key not in self.tensors:
            return key
        number = 2
        while f"{key}#{number}" in self.tensors:
            number += 1
        return f"{key}#{number}"

    def _array(self, value: np.ndarray[Any, Any], path: TreePath) -> Any:
        described = self._descr(value.dtype, path)
        if described is None:
            return self._pickled(value, path)
        encoded = {TAG: "ndarray", "dtype": described, "shape": list(value.shape)}
        if value.dtype.hasobject:
            encoded["v"] = self._list(value.ravel(order="C").tolist(), path)
        elif value.nbytes:
            flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            encoded["k"] = self._keep(torch.from_numpy(flat if flat.flags.writeable else flat.copy()), path)
        return encoded

    def _scalar(self, value: np.generic, path: TreePath) -> Any:
        described = self._descr(value.dtype, path)
        if described is None or value.dtype.hasobject:
            return self._pickled(value, path)
        return {TAG: "scalar", "dtype": described, "v": base64.b64encode(value.tobytes()).decode()}

    def _numpy_dtype(self, value: np.dtype[Any], path: TreePath) -> Any:
        described = self._descr(value, path)
        return self._pickled(value, path) if described is None else {TAG: "npdtype", "v": described}

    def _descr(self, dtype: np.dtype[Any], path: TreePath) -> Any:
        """Return a dtype as the .npy format describes it, or None if that does not say all of it."""
        if dtype.kind not in "biufcSUVmMO" or dtype.isbuiltin == 2 or dtype.metadata:
            return None
        if dtype.hasobject and dtype.fields is not None:
            return None
        description = np.lib.format.dtype_to_descr(dtype)
        if np.lib.format.descr_to_dtype(description) != dtype:
            return None
        return self.value(description, path)

    def _torch_name(self, value: Any, path: TreePath) -> Any:
        if isinstance(value, torch.device):
            return {TAG: "device", "v": str(value)}
        return {TAG: "torch", "v": str(value).removeprefix("torch.")}

    def _datetime(self, value: datetime.datetime | datetime.time, path: TreePath) -> Any:
        return {
            TAG: type(value).__name__,
            "v": value.replace(tzinfo=None, fold=0).isoformat(),
            "fold": value.fold,
            "zone": self.value(value.tzinfo, (*path, "tzinfo")),
        }

    def _timezone(self, value: datetime.timezone, path: TreePath) -> Any:
        return {TAG: "timezone", "v": self.value(value.utcoffset(None), path), "name": value.tzname(None)}

    def _zone(self, value: zoneinfo.ZoneInfo, path: TreePath) -> Any:
        return self._pickled(value, path) if value.key is None else {TAG: "zone", "v": value.key}

    def _pickled(self, value: Any, path: TreePath) -> Any:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        where = describe(path)
        try:
            data = pickle.dumps(value)
        except Exception as error:  # whatever a foreign class's own code raises
            raise CheckpointError(
                f"{where} in the state to be checkpointed is a {kind}, which cannot be stored: {error}",
                hint="Return numbers, strings, tensors, lists and dicts from state_dict().",
            ) from error
        if (where, type(value)) not in _warned:
            _warned.add((where, type(value)))
            logger.warning(
                "%s in the checkpoint is a %s, which has to be pickled: reading it runs code, and needs that class. "
                "Return numbers, strings, tensors, lists and dicts instead.",
                where,
                kind,
            )
        return {TAG: "pickle", "type": kind, "at": where, "v": self._bytes(data, (*path, "pickle"))}


# Not bound to an encoder: one that refers to itself would keep the trial's tensors alive until the next collection.
_KINDS: dict[type, Callable[[_Encoder, Any, TreePath], Any]] = {
    dict: _Encoder._dict,
    list: _Encoder._list,
    torch.Tensor: _Encoder._tensor,
    torch.nn.Parameter: _Encoder._parameter,
    tuple: _Encoder._sequence,
    set: _Encoder._sequence,
    frozenset: _Encoder._sequence,
    OrderedDict: _Encoder._ordered_dict,
    defaultdict: _Encoder._defaultdict,
    Counter: _Encoder._counter,
    deque: _Encoder._deque,
    torch.Size: lambda _, value, path: {TAG: "size", "v": list(value)},
    bytes: _Encoder._bytes,
    bytearray: _Encoder._bytes,
    complex: lambda _, value, path: {TAG: "complex", "v": [_real(value.real), _real(value.imag)]},
    np.ndarray: _Encoder._array,
    np.memmap: _Encoder._array,
    range: lambda _, value, path: {TAG: "range", "v": [value.start, value.stop, value.step]},
    **dict.fromkeys((torch.dtype, torch.device, torch.layout, torch.memory_format), _Encoder._torch_name),
    datetime.datetime: _Encoder._datetime,
    datetime.time: _Encoder._datetime,
    datetime.date: lambda _, value, path: {TAG: "date", "v": value.isoformat()},
    datetime.timedelta: lambda _, value, path: {
        TAG: "timedelta",
        "v": [value.days, value.seconds, value.microseconds],
    },
    datetime.timezone: _Encoder._timezone,
    zoneinfo.ZoneInfo: _Encoder._zone,
}


def _real(value: float) -> Any:
    # JSON has no infinities; of a nan, sign and payload are kept too.
    if value - value == 0:
        return value
    return {TAG: "float", "v": struct.pack(">d", value).hex()}


def printable(name: str) -> str:
    """Return a name that can be UTF-8, and is not the one that the safetensors format keeps for itself."""
    text = name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
    return "__metadata__#1" if text == "__metadata__" else text


def _path_kind(value: PurePath) -> str:
    if isinstance(value, Path):
        return "Path"
    return "PureWindowsPath" if isinstance(value, PureWindowsPath) else "PurePosixPath"
