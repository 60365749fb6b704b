"""Which format a file has, by its bytes, and what a pickle would call: nothing is unpickled, no code of a file runs.

    format_of("model.bin")            Format.TORCH_PICKLE
    pickled_names("model.bin").alarming    ("os.system",)
    why_refused("model.bin")          "… is a pickle of torch.save: opening it would import os.system"

Names of files say nothing: a pickle may be called `model.safetensors`. So a reader asks here first, opens what is
`Format.safe`, and refuses the rest unless its user allowed pickles.
"""

from __future__ import annotations

import ast
import bz2
import contextlib
import enum
import gzip
import io
import json
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import CheckpointError
from detlab.storage.files import open_regular
from detlab.storage.pickled import Pickled, legacy_torch, looks_pickled, scan

__all__ = ["Format", "Pickled", "folder_format", "format_of", "pickled_names", "why_refused"]

HEADER_BYTES = 100 * 1000 * 1000
"""Longest header of a safetensors file, as its library has it."""
_HEAD = 64 * 1024
_JSON_BYTES = 16 * 1024 * 1024
_MEMBERS = 100_000
_ONNX_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}


class Format(enum.StrEnum):
    """What a file is; the value is the word for it in views."""

    SAFETENSORS = "safetensors"
    NUMPY = "numpy"
    """`.npy` or `.npz` without object arrays."""
    JSON = "json"
    TEXT = "text"
    ONNX = "onnx"
    GGUF = "gguf"
    TORCHSCRIPT = "torchscript"
    """A program for torch's own interpreter, which runs when the model is called; none of Python's pickles."""
    TORCH_EXPORT = "torch_export"
    """A graph of `torch.export.save` (`.pt2`). It is JSON and tensors, and `torch.export.load` unpickles what in it
    claims to be a pickle, without `weights_only`."""
    TORCH_PICKLE = "torch_pickle"
    """Of `torch.save`: a pickle beside its tensors."""
    PICKLE = "pickle"
    JOBLIB = "joblib"
    NUMPY_PICKLE = "numpy_pickle"
    """`.npy` or `.npz` with object arrays, which are pickles."""
    HDF5 = "hdf5"
    """Also of Keras, whose `Lambda` layers are code."""
    KERAS = "keras"
    ZIP = "zip"
    EMPTY = "empty"
    OTHER = "other"

    @property
    def pickled(self) -> bool:
        """Whether its usual reader unpickles, which runs any code that the file's author put into it."""
        return self in _PICKLED

    @property
    def safe(self) -> bool:
        """Whether its usual reader takes numbers and names from it, and nothing in it can run."""
        return self in _SAFE

    @property
    def phrase(self) -> str:
        """What it is called in messages: `a pickle of torch.save`."""
        return _PHRASES.get(self, f"a file of the format {self.value}")


_PICKLED = frozenset({Format.PICKLE, Format.TORCH_PICKLE, Format.TORCH_EXPORT, Format.JOBLIB, Format.NUMPY_PICKLE})
_SAFE = frozenset({Format.SAFETENSORS, Format.NUMPY, Format.JSON, Format.TEXT, Format.ONNX, Format.GGUF, Format.EMPTY})
_PHRASES = {
    Format.PICKLE: "a pickle",
    Format.TORCH_PICKLE: "a pickle of torch.save",
    Format.JOBLIB: "a pickle of joblib",
    Format.NUMPY_PICKLE: "NumPy arrays of objects, which are pickles",
    Format.TORCHSCRIPT: "a TorchScript program",
    Format.TORCH_EXPORT: "a graph of torch.export",
    Format.EMPTY: "an empty file",
    Format.OTHER: "of no known format",
}
_MODELS = (Format.SAFETENSORS, Format.TORCHSCRIPT, Format.TORCH_EXPORT, Format.ONNX, Format.GGUF, Format.NUMPY)


def format_of(source: str | Path | BinaryIO) -> Format:
    """Return the format of a file by its bytes.

    Args:
        source: A path, or a stream that can seek; its position is kept.

    Raises:
        OSError: The file cannot be read, or is a link or not a regular file.
    """
    with _opened(source) as stream:
        size = stream.seek(0, os.SEEK_END)
        head = _at(stream, 0, _HEAD)
        if not head:
            return Format.EMPTY
        for found in (_binary(stream, head, size), _compressed(stream, head), _text(stream, head, size)):
            if found is not None:
                return found
        return Format.OTHER


def pickled_names(source: str | Path | BinaryIO) -> Pickled:
    """Return what the pickles in a file would import if they were opened; nothing of it is imported.

    Args:
        source: As for `format_of`; compressed files, archives of torch and of NumPy are looked into.

    Raises:
        OSError: As for `format_of`.
    """
    found = Pickled()
    with _opened(source) as stream:
        head = _at(stream, 0, _HEAD)
        with contextlib.suppress(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
            for part in _pickles(stream, head):
                found = found.and_also(scan(part))
            return found
        return found.and_also(Pickled(complete=False))


def why_refused(source: str | Path | BinaryIO, name: str | None = None) -> str | None:
    """Return why a file is not opened without `allow_pickle=True`; None if opening it is safe in this respect.

    Args:
        source: As for `format_of`.
        name: What to call it; its path by default.
    """
    kind = format_of(source)
    if not kind.pickled:
        return None
    named = name if name is not None else str(source)
    return f"{named} is {kind.phrase}: {pickled_names(source).sentence()}"


def folder_format(folder: Path, *, limit: int = 10_000) -> str:
    """Return one word for all files of a model: `pickle` if one is, else the format that its weights have, or `other`.

    Args:
        folder: Of a checkpoint or a foreign model; links in it are not followed.
        limit: Most files to look at.

    Raises:
        CheckpointError: It has more files than that.
        OSError: A file cannot be read.
    """
    kinds: set[Format] = set()
    for count, path in enumerate(_files(folder), start=1):
        if count > limit:
            raise CheckpointError(
                f"{folder} has over {limit} files: too many to look into each",
                hint="Pack them, or name a folder in it.",
            )
        kinds.add(format_of(path))
    return word_for(kinds)


def word_for(kinds: Iterable[Format]) -> str:
    """Return one word for a model whose files have these formats, as `VersionView.format` has it."""
    kinds = set(kinds)
    if any(kind.pickled for kind in kinds):
        return "pickle"
    return next((kind.value for kind in _MODELS if kind in kinds), "other")


def _files(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        yield from (path for name in sorted(names) if not (path := Path(here, name)).is_symlink() and path.is_file())


@contextlib.contextmanager
def _opened(source: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    if isinstance(source, str | Path):
        with os.fdopen(open_regular(Path(source)), "rb") as stream:
            yield stream
        return
    before = source.tell()
    try:
        yield source
    finally:
        source.seek(before)


def _at(stream: BinaryIO, offset: int, size: int) -> bytes:
    stream.seek(offset)
    return stream.read(size)


def _binary(stream: BinaryIO, head: bytes, size: int) -> Format | None:
    if _is_safetensors(stream, head, size):
        return Format.SAFETENSORS
    if head.startswith(b"PK\x03\x04"):
        return _archive(stream)
    if head.startswith(b"\x93NUMPY"):
        return Format.NUMPY_PICKLE if _objects(head) else Format.NUMPY
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return Format.HDF5
    if head.startswith(b"GGUF"):
        return Format.GGUF
    if legacy_torch(head):
        return Format.TORCH_PICKLE
    if looks_pickled(head, whole=size <= len(head)):
        stream.seek(0)
        return _kind_of_pickle(stream)
    return Format.ONNX if _is_onnx(stream, head, size) else None


def _kind_of_pickle(stream: BinaryIO) -> Format:
    names = scan(stream).names
    return Format.JOBLIB if any(name.startswith("joblib.") for name in names) else Format.PICKLE


def _is_safetensors(stream: BinaryIO, head: bytes, size: int) -> bool:
    """Check the header as the library does: JSON of tensors whose bytes fill the rest of the file exactly."""
    if len(head) < 10 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", head[:8])
    if not 2 <= length <= min(HEADER_BYTES, size - 8):
        return False
    try:
        header = json.loads(_at(stream, 8, length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return max(ends, default=0) == size - 8 - length
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return False


def _archive(stream: BinaryIO) -> Format:
    stream.seek(0)
    try:
        with zipfile.ZipFile(stream) as archive:
            names = archive.namelist()[:_MEMBERS]
            inside = {name.split("/", 1)[-1] for name in names} | set(names)
            if "archive_format" in inside or "serialized_exported_program.json" in inside:
                return Format.TORCH_EXPORT
            if "constants.pkl" in inside and any(name.startswith("code/") for name in inside):
                return Format.TORCHSCRIPT
            if "data.pkl" in inside:
                return Format.TORCH_PICKLE
            if names and all(name.endswith(".npy") for name in names):
                objects = any(_objects(_first_bytes(archive, name)) for name in names)
                return Format.NUMPY_PICKLE if objects else Format.NUMPY
            if {"config.json", "metadata.json"} <= inside:
                return Format.KERAS
            pickled = any(name.endswith((".pkl", ".pickle")) for name in names)
            return Format.PICKLE if pickled else Format.ZIP
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, zlib.error, EOFError, ValueError):
        return Format.OTHER


def _first_bytes(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        return member.read(_HEAD)


def _objects(head: bytes) -> bool:
    """Tell whether the header of a `.npy` file says that its elements are Python objects; a damaged one counts."""
    wide = head[6:7] != b"\x01"
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    try:
        header = ast.literal_eval(head[start : start + length].decode("latin-1").strip())
        return "O" in _codes(header["descr"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        return True


def _codes(descr: object) -> str:
    """Return the letters of a dtype's description, of all its fields."""
    if isinstance(descr, str):
        return descr
    if isinstance(descr, list):
        return "".join(_codes(field[1]) for field in descr)
    if isinstance(descr, tuple):
        return _codes(descr[0])
    raise TypeError(f"no description of a dtype: {descr!r}")


def _is_onnx(stream: BinaryIO, head: bytes, size: int) -> bool:
    """Walk the top fields of a protobuf: those of ONNX's ModelProto, a version first, with a graph, to the very end."""
    if head[0] != 0x08:
        return False
    offset, graph, stop = 0, False, 10_000
    while offset < size and stop:
        stop -= 1
        tag, offset = _varint(stream, offset)
        field, wire = tag >> 3, tag & 7
        if field not in _ONNX_FIELDS or wire not in (0, 2):
            return False
        value, offset = _varint(stream, offset)
        if wire == 2:
            offset += value
            graph = graph or field == 7
    return graph and offset == size


def _varint(stream: BinaryIO, offset: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(_at(stream, offset, 10)):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, offset + index + 1
    return 0, offset


def _unpacked(stream: BinaryIO, head: bytes) -> Any:
    """Return what a compressed file holds, as joblib and pandas compress; None if it is not compressed."""
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    if head.startswith((b"\xfd7zXZ", b"\x5d\x00\x00")):
        return lzma.LZMAFile(stream)
    if head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0:
        with contextlib.suppress(zlib.error):
            return io.BytesIO(zlib.decompressobj().decompress(stream.read(_JSON_BYTES), _JSON_BYTES))
    return None


def _compressed(stream: BinaryIO, head: bytes) -> Format | None:
    try:
        inside = _unpacked(stream, head)
        if inside is None:
            return None
        start = inside.read(_HEAD)
        if not looks_pickled(start, whole=False):
            return None
        return _kind_of_pickle(io.BytesIO(start + inside.read(_JSON_BYTES)))
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return None


def _text(stream: BinaryIO, head: bytes, size: int) -> Format | None:
    if b"\x00" in head:
        return None
    if head.lstrip()[:1] in (b"{", b"[") and size <= _JSON_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(_at(stream, 0, size))
            return Format.JSON
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if size <= len(head) or error.start < len(head) - 4:
            return None
    return Format.TEXT


def _pickles(stream: BinaryIO, head: bytes) -> Iterator[Any]:
    """Yield each pickle of a file, from its start on."""
    stream.seek(0)
    if head.startswith(b"PK\x03\x04"):
        graph = _archive(stream) is Format.TORCH_EXPORT
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist()[:_MEMBERS]:
                yield from _of_graph(archive, name) if graph else _of_archive(archive, name)
    elif head.startswith(b"\x93NUMPY"):
        if _objects(head):
            yield _after_numpy(stream)
    else:
        inside = _unpacked(stream, head)
        if inside is None:
            stream.seek(0)
        yield inside if inside is not None else stream


def _of_archive(archive: zipfile.ZipFile, name: str) -> Iterator[Any]:
    if name.endswith((".pkl", ".pickle")):
        with archive.open(name) as member:
            yield member
    elif name.endswith(".npy") and _objects(_first_bytes(archive, name)):
        with archive.open(name) as member:
            yield _after_numpy(member)


def _of_graph(archive: zipfile.ZipFile, name: str) -> Iterator[Any]:
    """Yield the pickles in a graph of torch.export, some of them in files of torch.save within it."""
    head = _first_bytes(archive, name)
    if head.startswith(b"PK\x03\x04"):
        with archive.open(name) as member, zipfile.ZipFile(member) as nested:
            for inner in nested.namelist()[:_MEMBERS]:
                yield from _of_archive(nested, inner)
    elif looks_pickled(head, whole=len(head) < _HEAD):
        with archive.open(name) as member:
            yield member


def _after_numpy(stream: Any) -> Any:
    """Move a stream of a `.npy` file behind its header."""
    start = stream.read(8)
    width = 2 if start[6:7] == b"\x01" else 4
    stream.read(int.from_bytes(stream.read(width), "little"))
    return stream
