"""Decoding: from the structure and tensors that `codec.encode` made to the tree."""

from __future__ import annotations

import base64
import datetime
import pickle
import struct
import sys
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch

from detlab.errors import CheckpointError

TAG = "$"
"""The key that tells an encoded value from a plain dict."""

FACTORIES: dict[str, Any] = {
    "None": None,
    **{kind.__name__: kind for kind in (int, float, bool, str, list, dict, set, tuple, Counter, OrderedDict)},
}
"""What a `defaultdict` may make its values with, by name."""

_PATHS: dict[str, Any] = {"Path": Path, "PurePosixPath": PurePosixPath, "PureWindowsPath": PureWindowsPath}


class PickleRefused(CheckpointError):
    """A value in the checkpoint was pickled, and unpickling runs code: the reader did not allow it."""

    default_code = "checkpoint.pickled"


class Decoder:
    """Builds one tree.

    Args:
        tensors: By key.
        allow_pickle: Whether to unpickle.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], allow_pickle: bool) -> None:
        self._tensors = tensors
        self._allow_pickle = allow_pickle

    def value(self, node: Any) -> Any:
        """Decode a node; a damaged one may raise any exception."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        tag = node.get(TAG)
        if tag is None:
            return {key: self.value(item) for key, item in node.items()}
        return _KINDS[tag](self, node)

    def _pairs(self, node: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(self.value(key), self.value(item)) for key, item in node["v"]]

    def _ordered_dict(self, node: dict[str, Any]) -> OrderedDict[Any, Any]:
        result = OrderedDict(self._pairs(node))
        if "metadata" in node:
            result._metadata = self.value(node["metadata"])  # type: ignore[attr-defined]  # where torch keeps versions
        return result

    def _counter(self, node: dict[str, Any]) -> Counter[Any]:
        result: Counter[Any] = Counter()
        for key, count in self._pairs(node):
            result[key] = count
        return result

    def _named_tuple(self, node: dict[str, Any]) -> tuple[Any, ...]:
        """Make a named tuple of a class that is loaded and has these fields, else a plain one.

        Nothing is imported and no code of the class runs: a checkpoint names what it likes.
        """
        items = [self.value(item) for item in node["v"]]
        module, name = node["class"]
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, "__dict__", {}).get(part)
        fields = found.__dict__.get("_fields") if isinstance(found, type) and issubclass(found, tuple) else None
        if fields is None or list(fields) != node["fields"] or len(fields) != len(items):
            return tuple(items)
        return tuple.__new__(found, items)

    def _bytes(self, node: dict[str, Any]) -> bytes:
        if "k" in node:
            return bytes(self._find(node["k"]).numpy().tobytes())
        return base64.b64decode(node["v"], validate=True)

    def _find(self, key: str) -> torch.Tensor:
        try:
            return self._tensors[key]
        except KeyError:
            raise CheckpointError(f"the tensor {key} is missing from the checkpoint") from None

    def _tensor(self, node: dict[str, Any]) -> torch.Tensor:
        tensor = self._find(node["k"])
        if "dtype" in node:
            dtype = _torch_constant(node["dtype"])
            tensor = torch.view_as_complex(tensor) if dtype.is_complex else tensor.view(dtype).reshape(node["shape"])
        if "parameter" in node:
            return torch.nn.Parameter(tensor, requires_grad=node["parameter"])
        return tensor.detach().requires_grad_() if node.get("grad") else tensor

    def _dtype(self, node: Any) -> np.dtype[Any]:
        return np.lib.format.descr_to_dtype(self.value(node))

    def _array(self, node: dict[str, Any]) -> np.ndarray[Any, Any]:
        dtype, shape = self._dtype(node["dtype"]), tuple(node["shape"])
        if "v" in node:
            array = np.empty(len(node["v"]), dtype=object)
            for index, item in enumerate(node["v"]):
                array[index] = self.value(item)
            return array.reshape(shape)
        if "k" not in node:
            return np.zeros(shape, dtype)
        return np.frombuffer(bytearray(self._find(node["k"]).numpy()), dtype).reshape(shape)

    def _scalar(self, node: dict[str, Any]) -> Any:
        dtype, data = self._dtype(node["dtype"]), base64.b64decode(node["v"], validate=True)
        return np.frombuffer(data, dtype)[0] if data else dtype.type()

    def _moment(self, kind: Any, node: dict[str, Any]) -> Any:
        return kind.fromisoformat(node["v"]).replace(fold=node["fold"], tzinfo=self.value(node["zone"]))

    def _timezone(self, node: dict[str, Any]) -> datetime.timezone:
        zone = datetime.timezone(self.value(node["v"]), node["name"])
        return datetime.UTC if zone == datetime.UTC else zone

    def _pickled(self, node: dict[str, Any]) -> Any:
        where, kind = node["at"], node["type"]
        if not self._allow_pickle:
            raise PickleRefused(
                f"{where} in the checkpoint is a pickled {kind}; unpickling runs code, and was not allowed",
                hint="If you trust the checkpoint, read it with allow_pickle=True.",
            )
        try:
            return pickle.loads(self._bytes(node["v"]))  # noqa: S301 - the caller allowed it
        except Exception as error:  # whatever a foreign class's own code raises
            raise CheckpointError(
                f"{where} in the checkpoint is a pickled {kind} that cannot be read: {type(error).__name__}: {error}",
                hint="Its class must be importable under the name it had when the checkpoint was written.",
            ) from error


_KINDS: dict[str, Callable[[Decoder, dict[str, Any]], Any]] = {
    "dict": lambda self, node: dict(self._pairs(node)),
    "namedtuple": Decoder._named_tuple,
    "Counter": Decoder._counter,
    "OrderedDict": Decoder._ordered_dict,
    "defaultdict": lambda self, node: defaultdict(FACTORIES[node["factory"]], self._pairs(node)),
    "tuple": lambda self, node: tuple(self.value(node["v"])),
    "set": lambda self, node: set(self.value(node["v"])),
    "frozenset": lambda self, node: frozenset(self.value(node["v"])),
    "deque": lambda self, node: deque(self.value(node["v"]), maxlen=node["maxlen"]),
    "range": lambda self, node: range(*node["v"]),
    "int": lambda self, node: int(node["v"], 16),
    "float": lambda self, node: struct.unpack(">d", bytes.fromhex(node["v"]))[0],
    "complex": lambda self, node: complex(*self.value(node["v"])),
    "bytes": Decoder._bytes,
    "bytearray": lambda self, node: bytearray(self._bytes(node)),
    "tensor": Decoder._tensor,
    "ndarray": Decoder._array,
    "scalar": Decoder._scalar,
    "npdtype": lambda self, node: self._dtype(node["v"]),
    "size": lambda self, node: torch.Size(node["v"]),
    "device": lambda self, node: torch.device(node["v"]),
    "torch": lambda self, node: _torch_constant(node["v"]),
    "path": lambda self, node: _PATHS[node["kind"]](node["v"]),
    "datetime": lambda self, node: self._moment(datetime.datetime, node),
    "time": lambda self, node: self._moment(datetime.time, node),
    "date": lambda self, node: datetime.date.fromisoformat(node["v"]),
    "timedelta": lambda self, node: datetime.timedelta(*node["v"]),
    "timezone": Decoder._timezone,
    "zone": lambda self, node: zoneinfo.ZoneInfo(node["v"]),
    "pickle": Decoder._pickled,
}


def _torch_constant(name: str) -> Any:
    value = getattr(torch, name)
    if not isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        raise CheckpointError(f"torch.{name} is not a dtype, layout or memory format")
    return value
