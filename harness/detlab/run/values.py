"""Variables between a notebook and a task, as files: plain data, arrays, tables and tensors without pickle.

A value is a zip archive (stored, not compressed): `value.json` holds its shape, `<n>.npy` and `<n>.bin` what is long.
Containers keep their kind (tuple, set, a dict with any keys). A value with anything else in it is pickled as a whole,
which keeps what its parts share; reading a pickle runs code, so only the owner's own kernel and tasks ever do that.

    name                   is
    value.json             {"tree": …}, or {"pickle": "<type>", "modules": […]}
    0.npy, 1.npy …         arrays, written with allow_pickle=False
    0.bin …                the bytes of a tensor
    value.pickle           the pickle

NumPy, pandas and torch are imported only if a value is of theirs.
"""

from __future__ import annotations

import base64
import collections
import io
import json
import pickle
import pickletools
import zipfile
from dataclasses import dataclass
from typing import Any

MOST_DEPTH = 100
_PLAIN = (bool, int, float, str, type(None))
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPINGS: dict[type, str] = {dict: "dict", collections.OrderedDict: "ordered"}


class ValueProblem(Exception):
    """A variable that cannot be sent; the message says why and what to do."""


class _NotPlain(Exception):
    """Something that the safe formats do not know."""


@dataclass(frozen=True)
class EncodedVariable:
    """A variable as bytes.

    Attributes:
        data: The archive.
        pickled: Its type's name if it had to be pickled, else None.
        modules: Top-level modules that unpickling it needs.
    """

    data: bytes
    pickled: str | None = None
    modules: tuple[str, ...] = ()


def encode(value: Any, name: str = "the value") -> EncodedVariable:
    """Return a value as bytes.

    Args:
        value: Anything.
        name: What the variable is called, in errors.

    Raises:
        ValueProblem: It cannot be pickled either, or its class is in `__main__`, where no other process finds it.
    """
    writer = _Writer()
    try:
        head: dict[str, Any] = {"tree": writer.tree(value)}
    except _NotPlain:
        return _pickled(value, name)
    return EncodedVariable(_archive(head, writer.parts))


def decode(data: bytes, name: str = "the value", *, own: bool = True) -> Any:
    """Return the value in `encode`'s bytes.

    Args:
        data: The bytes.
        name: What the variable is called, in errors.
        own: Whether they are the caller's own, so that a pickle in them may be read: that runs code.

    Raises:
        ValueProblem: They are damaged, need a module or class that is missing here, or hold another user's pickle.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_sizes(archive, len(data))
            head = json.loads(archive.read("value.json"))
            if "pickle" in head and not own:
                raise ValueProblem(f"{name} is a pickle of another user: reading it would run their code here")
            if "pickle" in head:
                return _unpickled(archive.read("value.pickle"), head, name)
            return _Reader(archive).tree(head["tree"])
    except ValueProblem:
        raise
    except ImportError as error:
        raise ValueProblem(f"{name} needs a package that is not installed here: {error}") from error
    except Exception as error:  # the readers of hostile bytes raise what they like: a MemoryError, of a shape
        raise ValueProblem(f"{name} cannot be read: {type(error).__name__}: {error}") from error


def _check_sizes(archive: zipfile.ZipFile, most: int) -> None:
    """Check that reading all parts needs no more memory than there are bytes.

    Raises:
        ValueError: Parts are compressed or overlap, as no value's do: a few bytes could be gigabytes.
    """
    parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or sum(part.file_size for part in parts) > most:
        raise ValueError("its parts are larger than the whole")


def _archive(head: dict[str, Any], parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in [("value.json", json.dumps(head).encode()), *parts.items()]:
            # A fixed date: the same value is the same bytes, so that it is stored once.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


# --- plain data -------------------------------------------------------------------------------------------


class _Writer:
    """Turns a value into JSON with references to parts."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self._above: set[int] = set()

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return self._scalar(value)
        if kind in {bytes, bytearray, complex}:
            return _small(value)
        if kind in _SEQUENCES or kind in _MAPPINGS:
            return self._container(value)
        module = kind.__module__.partition(".")[0]
        if module == "numpy":
            return self._numpy(value)
        if module == "torch":
            return self._torch(value)
        if module == "pandas":
            return self._pandas(value)
        raise _NotPlain

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:  # a lone surrogate: JSON would carry it, other readers would not
                raise _NotPlain from None
        return value

    def _container(self, value: Any) -> Any:
        if id(value) in self._above or len(self._above) >= MOST_DEPTH:
            raise _NotPlain  # a circle, or as good as one
        self._above.add(id(value))
        try:
            if type(value) in _MAPPINGS:
                items = [[self.tree(key), self.tree(item)] for key, item in value.items()]
                return {"$": _MAPPINGS[type(value)], "items": items}
            found = [self.tree(item) for item in value]
            return found if type(value) is list else {"$": _SEQUENCES[type(value)], "items": found}
        finally:
            self._above.discard(id(value))

    def _part(self, suffix: str, content: bytes) -> str:
        name = f"{len(self.parts)}.{suffix}"
        self.parts[name] = content
        return name

    def _array(self, array: Any) -> str:
        import numpy as np

        if array.dtype.hasobject or array.dtype.names is not None:
            raise _NotPlain
        out = io.BytesIO()
        np.lib.format.write_array(out, array, allow_pickle=False)
        return self._part("npy", out.getvalue())

    def _numpy(self, value: Any) -> Any:
        import numpy as np

        if type(value) is np.ndarray:
            return {"$": "array", "part": self._array(value)}
        if isinstance(value, np.generic):
            return {"$": "numpy", "part": self._array(np.asarray(value))}
        if isinstance(value, np.dtype) and not value.hasobject and value.names is None:
            return {"$": "dtype", "name": value.str}
        raise _NotPlain

    def _torch(self, value: Any) -> Any:
        import torch

        if type(value) is torch.Size:
            return {"$": "size", "items": list(value)}
        if type(value) not in {torch.Tensor, torch.nn.Parameter}:
            raise _NotPlain
        if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
            raise _NotPlain
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {
            "$": "parameter" if isinstance(value, torch.nn.Parameter) else "tensor",
            "part": self._part("bin", content),
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "grad": bool(value.requires_grad),
        }

    def _pandas(self, value: Any) -> Any:
        import pandas as pd

        if type(value) is pd.DataFrame:
            columns = [self._column(value.iloc[:, place]) for place in range(value.shape[1])]
            return {
                "$": "frame",
                "columns": columns,
                "names": self._index(value.columns),
                "index": self._index(value.index),
            }
        if type(value) is pd.Series:
            return {
                "$": "series",
                "column": self._column(value),
                "name": self.tree(value.name),
                "index": self._index(value.index),
            }
        raise _NotPlain

    def _column(self, column: Any) -> Any:
        """Encode a column: as an array if its dtype is NumPy's, else as its values with the dtype's name."""
        import numpy as np

        if isinstance(column.dtype, np.dtype) and not column.dtype.hasobject:
            return {"array": self._array(column.to_numpy())}
        name = str(column.dtype)
        if name not in {"object", "str", "string", "boolean", "Int64", "Float64"}:
            raise _NotPlain  # categories, time zones, intervals …
        missing = [bool(flag) for flag in column.isna()]
        values = [None if gone else self.tree(item) for item, gone in zip(column.tolist(), missing, strict=True)]
        if name == "object" and any(
            gone and item is not None for item, gone in zip(column.tolist(), missing, strict=True)
        ):
            raise _NotPlain  # which kind of nothing it was would be lost
        return {"values": values, "dtype": name}

    def _index(self, index: Any) -> Any:
        import pandas as pd

        if type(index) is pd.RangeIndex:
            return {"range": [index.start, index.stop, index.step], "name": self.tree(index.name)}
        if type(index) is not pd.Index:
            raise _NotPlain
        return {"column": self._column(index.to_series()), "name": self.tree(index.name)}


def _small(value: Any) -> Any:
    if isinstance(value, complex):
        return {"$": "complex", "items": [value.real, value.imag]}
    kind = "bytearray" if isinstance(value, bytearray) else "bytes"
    return {"$": kind, "text": base64.b64encode(value).decode()}


class _Reader:
    """Turns the JSON and the parts back into a value."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._unread = set(archive.namelist())

    def _part(self, name: str) -> bytes:
        self._unread.remove(name)  # each belongs to one place: named a thousand times it would be there as often
        return self._archive.read(name)

    def tree(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self.tree(item) for item in found]
        if not isinstance(found, dict):
            return found
        kind = found["$"]
        match kind:
            case "dict" | "ordered":
                pairs = [(self.tree(key), self.tree(item)) for key, item in found["items"]]
                return dict(pairs) if kind == "dict" else collections.OrderedDict(pairs)
            case "tuple" | "set" | "frozenset":
                make = {"tuple": tuple, "set": set, "frozenset": frozenset}[kind]
                return make(self.tree(item) for item in found["items"])
            case "complex":
                return complex(*found["items"])
            case "bytes" | "bytearray":
                content = base64.b64decode(found["text"])
                return content if kind == "bytes" else bytearray(content)
            case "array" | "numpy" | "dtype":
                return self._numpy(kind, found)
            case "tensor" | "parameter" | "size":
                return self._torch(kind, found)
            case "frame" | "series":
                return self._pandas(kind, found)
        raise ValueError(f"unknown kind {kind!r}")

    def _array(self, part: str) -> Any:
        import numpy as np

        return np.lib.format.read_array(io.BytesIO(self._part(part)), allow_pickle=False)

    def _numpy(self, kind: str, found: dict[str, Any]) -> Any:
        import numpy as np

        if kind == "dtype":
            return np.dtype(found["name"])
        array = self._array(found["part"])
        return array if kind == "array" else array[()]

    def _torch(self, kind: str, found: dict[str, Any]) -> Any:
        import torch

        if kind == "size":
            return torch.Size(found["items"])
        dtype = getattr(torch, found["dtype"])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"unknown dtype {found['dtype']!r}")
        content = bytearray(self._part(found["part"]))
        flat = torch.frombuffer(content, dtype=torch.uint8).view(dtype) if content else torch.empty(0, dtype=dtype)
        tensor = flat.reshape(found["shape"])
        if kind == "parameter":
            return torch.nn.Parameter(tensor, requires_grad=found["grad"])
        return tensor.requires_grad_(found["grad"])

    def _pandas(self, kind: str, found: dict[str, Any]) -> Any:
        import pandas as pd

        if kind == "series":
            name = self.tree(found["name"])
            return pd.Series(self._column(found["column"]), index=self._index(found["index"]), name=name)
        index = self._index(found["index"])
        columns = {place: self._column(column) for place, column in enumerate(found["columns"])}
        frame = pd.DataFrame(columns, index=index)
        frame.columns = self._index(found["names"])
        return frame

    def _column(self, found: dict[str, Any]) -> Any:
        import pandas as pd

        if "array" in found:
            return self._array(found["array"])
        return pd.array([self.tree(item) for item in found["values"]], dtype=found["dtype"])

    def _index(self, found: dict[str, Any]) -> Any:
        import pandas as pd

        name = self.tree(found["name"])
        if "range" in found:
            return pd.RangeIndex(*found["range"], name=name)
        return pd.Index(self._column(found["column"]), name=name)


# --- pickle -----------------------------------------------------------------------------------------------


def _pickled(value: Any, name: str) -> EncodedVariable:
    kind = type(value)
    shown = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        content = pickle.dumps(value, protocol=5)
    except Exception as error:  # whatever a user's class raises
        raise ValueProblem(f"{name} ({shown}) cannot be pickled: {type(error).__name__}: {error}") from error
    found = _globals_of(content)
    if "__main__" in {module for module, _ in found}:
        names = ", ".join(sorted({what for module, what in found if module == "__main__"}))
        raise ValueProblem(
            f"{name} ({shown}) needs {names}, defined in a cell or script of its own: only that process knows it."
            f" Put the definition in a module (in a notebook: a %%det_module cell) and import it from there"
        )
    modules = sorted({module.partition(".")[0] for module, _ in found})
    return EncodedVariable(
        _archive({"pickle": shown, "modules": modules}, {"value.pickle": content}), shown, tuple(modules)
    )


def _unpickled(content: bytes, head: dict[str, Any], name: str) -> Any:
    try:
        return pickle.loads(content)  # noqa: S301  (of the caller's own making; see the module's docstring)
    except Exception as error:  # whatever a user's class raises
        needs = ", ".join(str(module) for module in head.get("modules", []))
        raise ValueProblem(
            f"{name} ({head['pickle']}) cannot be unpickled here: {type(error).__name__}: {error}"
            + (f" (it needs {needs})" if needs else "")
        ) from error


def _globals_of(content: bytes) -> set[tuple[str, str]]:
    """Return (module, name) of what a pickle refers to, without running it."""
    found: set[tuple[str, str]] = set()
    texts: list[str] = []
    memo: dict[int, str] = {}
    for opcode, argument, _ in pickletools.genops(content):
        match opcode.name:
            case "GLOBAL":
                module, _, what = str(argument).partition(" ")
                found.add((module, what))
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8":
                texts.append(str(argument))
            case "MEMOIZE":
                memo[len(memo)] = texts[-1] if texts else ""
            case "BINGET" | "LONG_BINGET":
                texts.append(memo.get(argument or 0, ""))
            case "STACK_GLOBAL":
                found.add((texts[-2], texts[-1]))
    return found
