"""Formats by bytes: every kind of file is known by what it holds, never by its name, and no pickle in it runs."""

from __future__ import annotations

import bz2
import collections
import gzip
import io
import json
import lzma
import os
import pickle
import pickletools
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save as safetensors_bytes

from detlab.errors import CheckpointError
from detlab.storage.formats import Format, folder_format, format_of, pickled_names, why_refused, word_for

TENSORS = {"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "bias": torch.zeros(2)}


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def saved(value: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def scripted() -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():  # torch advises against new ones; there are many old ones
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(torch.nn.Linear(3, 2), torch.zeros(1, 3)), stream)
    return stream.getvalue()


def exported() -> bytes:
    stream = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), stream)
    return stream.getvalue()


def numpy_bytes(value: Any, *, archive: bool = False) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(2), b=value) if archive else np.save(stream, value)
    return stream.getvalue()


def dumped_by_joblib(value: Any, compress: Any = 0) -> bytes:
    stream = io.BytesIO()
    joblib.dump(value, stream, compress=compress)
    return stream.getvalue()


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def onnx(graph: bytes = b"\x0a\x03abc" * 100) -> bytes:
    """The outermost fields of an ONNX model: version, producer, graph, operators."""
    return b"\x08\x08\x12\x07pytorch" + b"\x3a" + varint(len(graph)) + graph + b"\x42\x04\x0a\x00\x10\x11"


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return stream.getvalue()


OBJECTS = np.array([{"a": 1}, None], dtype=object)
NESTED = np.zeros(2, dtype=[("x", "f4"), ("y", [("z", "O")])])
KINDS: dict[str, tuple[bytes, Format]] = {
    "safetensors": (safetensors_bytes(TENSORS), Format.SAFETENSORS),
    "safetensors without tensors": (safetensors_bytes({}), Format.SAFETENSORS),
    "torch.save": (saved(TENSORS), Format.TORCH_PICKLE),
    "torch.save before 1.6": (saved(TENSORS, _use_new_zipfile_serialization=False), Format.TORCH_PICKLE),
    "torch.jit.save": (scripted(), Format.TORCHSCRIPT),
    "torch.export.save": (exported(), Format.TORCH_EXPORT),
    "numpy": (numpy_bytes(np.zeros((2, 3))), Format.NUMPY),
    "numpy records": (numpy_bytes(np.zeros(2, dtype=[("x", "f4"), ("y", "i8", (2,))])), Format.NUMPY),
    "numpy objects": (numpy_bytes(OBJECTS), Format.NUMPY_PICKLE),
    "numpy objects within records": (numpy_bytes(NESTED), Format.NUMPY_PICKLE),
    "npz": (numpy_bytes(np.ones(3), archive=True), Format.NUMPY),
    "npz with objects": (numpy_bytes(OBJECTS, archive=True), Format.NUMPY_PICKLE),
    "joblib": (dumped_by_joblib({"w": np.zeros(3)}), Format.JOBLIB),
    "joblib, zlib": (dumped_by_joblib({"w": np.zeros(3)}, 3), Format.JOBLIB),
    "joblib, gzip": (dumped_by_joblib({"w": np.zeros(3)}, ("gzip", 3)), Format.JOBLIB),
    "joblib, lzma": (dumped_by_joblib({"w": np.zeros(3)}, ("lzma", 3)), Format.JOBLIB),
    "pickle, bz2": (bz2.compress(pickle.dumps({"a": 1})), Format.PICKLE),
    "pickle, xz": (lzma.compress(pickle.dumps({"a": 1})), Format.PICKLE),
    "pickle in a zip": (zipped(model__weights=b"x", model__m=b"", **{"a.pkl": pickle.dumps(1)}), Format.PICKLE),
    "json": (b' {"layers": [1, 2]}\n', Format.JSON),
    "json list": (b"[1, 2]", Format.JSON),
    "cut json": (b'{"layers": [1, 2', Format.TEXT),
    "yaml": ("größe: 3\nclass: net\n".encode(), Format.TEXT),
    "long text": ("ä".encode() * 50_001, Format.TEXT),
    "onnx": (onnx(), Format.ONNX),
    "gguf": (b"GGUF\x03\x00\x00\x00" + bytes(16), Format.GGUF),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), Format.HDF5),
    "keras": (zipped(**{"config.json": b"{}", "metadata.json": b"{}", "model.weights.h5": b""}), Format.KERAS),
    "zip": (zipped(**{"readme.txt": b"hello"}), Format.ZIP),
    "cut zip": (saved(TENSORS)[:200], Format.OTHER),
    "gzip of text": (gzip.compress(b"hello"), Format.OTHER),
    "cut gzip": (gzip.compress(pickle.dumps(list(range(1000))))[:9], Format.OTHER),
    "empty": (b"", Format.EMPTY),
    "noise": (bytes(range(256)) * 3, Format.OTHER),
}


@pytest.mark.parametrize("name", KINDS)
def test_formats_are_told_by_their_bytes(name: str, tmp_path: Path) -> None:
    data, kind = KINDS[name]
    path = tmp_path / "model.safetensors"  # whatever it is
    path.write_bytes(data)
    assert format_of(path) is kind
    stream = io.BytesIO(data)
    stream.seek(min(3, len(data)))
    assert format_of(stream) is kind
    assert stream.tell() == min(3, len(data))
    assert (why_refused(path) is None) == (not kind.pickled)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol_are_pickles_and_their_calls_are_named(protocol: int, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    path = tmp_path / "weights.bin"
    path.write_bytes(pickle.dumps({"w": [1.0], "x": Calls(os.system, f"touch {trap}")}, protocol))
    assert format_of(path) is Format.PICKLE
    found = pickled_names(path)
    assert found.alarming == ("os.system",)
    assert found.complete
    assert why_refused(path, "weights.bin") == (
        "weights.bin is a pickle: opening it would import, and may call, os.system"
    )
    assert not trap.exists()


def test_what_torch_archives_joblib_and_numpy_hide_is_named(tmp_path: Path) -> None:
    bad = Calls(eval, "1")
    for data, phrase in (
        (saved({"w": TENSORS, "x": bad}), "a pickle of torch.save"),
        (saved({"w": TENSORS, "x": bad}, _use_new_zipfile_serialization=False), "a pickle of torch.save"),
        (dumped_by_joblib({"a": bad, "w": np.zeros(3)}, 3), "a pickle of joblib"),
        (numpy_bytes(np.array([bad], dtype=object)), "NumPy arrays of objects, which are pickles"),
        (numpy_bytes(np.array([bad], dtype=object), archive=True), "NumPy arrays of objects, which are pickles"),
        (gzip.compress(pickle.dumps(bad)), "a pickle"),
        (zipped(**{"a.txt": b"", "sub__a.pkl": pickle.dumps(bad)}), "a pickle"),
    ):
        path = tmp_path / "file"
        path.write_bytes(data)
        assert pickled_names(path).alarming == ("builtins.eval",), phrase
        said = why_refused(path, "f") or ""
        assert said.startswith(f"f is {phrase}: opening it would import, and may call, builtins.eval")


def test_pickles_of_weights_alone_alarm_nobody_and_are_still_pickles() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    for value in (
        TENSORS,
        network.state_dict(),
        {"p": torch.nn.Parameter(torch.zeros(2)), "s": torch.Size([1]), "d": torch.device("cpu"), "t": torch.int64},
        {"a": np.zeros(3), "n": np.float32(3), "o": collections.OrderedDict(a=1), "set": {1, 2}},
    ):
        found = pickled_names(io.BytesIO(saved(value)))
        assert found.alarming == ()
        assert "names only tensors" in found.sentence()


def test_whatever_torch_would_unpickle_in_a_graph_is_looked_into() -> None:
    clean = exported()
    assert pickled_names(io.BytesIO(clean)).alarming == ()
    assert pickled_names(io.BytesIO(clean)).complete
    for member in (pickle.dumps(Calls(eval, "1")), pickle.dumps(Calls(eval, "1"), 0), saved(Calls(eval, "1"))):
        stream = io.BytesIO(clean)
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr("archive/data/constants/custom_obj_0", member)
        assert format_of(stream) is Format.TORCH_EXPORT
        assert pickled_names(stream).alarming == ("builtins.eval",)
        assert "a graph of torch.export: opening it would import, and may call, builtins.eval" in (
            why_refused(stream, "m") or ""
        )


def test_names_by_way_of_the_memo_or_made_at_load_time_are_not_missed() -> None:
    unicode = lambda text: b"\x8c" + bytes([len(text)]) + text.encode()  # noqa: E731
    through_memo = b"\x80\x04" + unicode("system") + b"q\x05" + unicode("os") + b"h\x05\x93."
    assert pickled_names(io.BytesIO(through_memo)).names == ("os.system",)
    swapped = b"\x80\x04(" + unicode("x") + b"1" + unicode("posix") + unicode("system") + b"\x93."
    assert pickled_names(io.BytesIO(swapped)).alarming == ("os.system",)
    doubled = b"\x80\x04" + unicode("this") + b"2\x93."
    assert pickled_names(io.BytesIO(doubled)).names == ("this.this",)
    made = b"\x80\x04cbuiltins\nstr\n" + unicode("os") + b"\x85R" + unicode("system") + b"\x93."
    assert any("put together while it is opened" in name for name in pickled_names(io.BytesIO(made)).alarming)
    instance = b"(S'ls'\nios\nsystem\n."
    assert pickled_names(io.BytesIO(instance)).alarming == ("os.system",)
    numbered = b"\x80\x02\x82\x07."
    assert pickled_names(io.BytesIO(numbered)).alarming == ("number 7 of copyreg's extensions",)


def test_a_dotted_name_does_not_pass_for_a_harmless_one() -> None:
    for module, name in (
        ("torch._utils", "_rebuild_tensor.__globals__"),
        ("torch", "serialization.os.system"),
        ("torch.serialization", "os.FakeStorage"),
        ("collections", "OrderedDict.fromkeys"),
        ("torch", "int_exec"),
    ):
        data = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(name)]) + name.encode()
        assert pickled_names(io.BytesIO(data + b"\x93.")).alarming == (f"{module}.{name}",)


def test_damaged_and_long_pickles_say_that_not_all_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pickle.dumps([Calls(os.system, "true"), *map(str, range(1000))])
    cut = pickled_names(io.BytesIO(whole[:-100]))
    assert cut.names == ("os.system",)
    assert not cut.complete
    assert "not all of it" in cut.sentence()
    monkeypatch.setattr("detlab.storage.pickled.OPCODES", 50)
    assert not pickled_names(io.BytesIO(whole)).complete
    monkeypatch.undo()
    monkeypatch.setattr("detlab.storage.pickled.PICKLE_BYTES", 60)
    assert not pickled_names(io.BytesIO(whole)).complete


def test_names_with_control_characters_are_shown_escaped_and_many_are_counted() -> None:
    name = "sys\x1b[31mtem"
    data = b"\x80\x04\x8c\x02os\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    assert "os.sys\\x1b[31mtem" in pickled_names(io.BytesIO(data)).sentence()
    many = b"\x80\x02" + b"".join(f"cmod{i}\nf\n0".encode() for i in range(9)) + b"N."
    assert pickled_names(io.BytesIO(many)).sentence().endswith("mod4.f and 4 more")


def test_a_safetensors_header_must_account_for_every_byte() -> None:
    good = safetensors_bytes(TENSORS)
    assert format_of(io.BytesIO(good + b"x")) is not Format.SAFETENSORS
    assert format_of(io.BytesIO(good[:-1])) is not Format.SAFETENSORS
    header = json.dumps({"w": {"dtype": "F32", "shape": [1]}}).encode()
    assert format_of(io.BytesIO(struct.pack("<Q", len(header)) + header)) is not Format.SAFETENSORS
    assert format_of(io.BytesIO(struct.pack("<Q", 2**62) + b"{" + bytes(100))) is not Format.SAFETENSORS
    deep = b"[" * 100_000
    assert format_of(io.BytesIO(struct.pack("<Q", len(deep) + 1) + b"{" + deep)) is not Format.SAFETENSORS


def test_links_fifos_and_folders_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError, match=r"symbolic links|regular file|directory"):
            format_of(tmp_path / name)


def test_a_folder_is_what_its_most_dangerous_file_is(tmp_path: Path) -> None:
    assert folder_format(tmp_path) == "other"
    (tmp_path / "deep").mkdir()
    (tmp_path / "config.json").write_text("{}")
    assert folder_format(tmp_path) == "other"
    (tmp_path / "deep" / "model.bin").write_bytes(safetensors_bytes(TENSORS))
    assert folder_format(tmp_path) == "safetensors"
    (tmp_path / "deep" / "optimizer.safetensors").write_bytes(saved(TENSORS))
    assert folder_format(tmp_path) == "pickle"
    with pytest.raises(CheckpointError, match="over 2 files"):
        folder_format(tmp_path, limit=2)
    assert word_for([Format.JSON, Format.ONNX]) == "onnx"


@given(st.binary(max_size=300))
def test_any_bytes_have_a_format_and_end(data: bytes) -> None:
    for start in (b"", b"\x80\x04", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x1f\x8b\x08", b"\x08\x08", b"x\x9c"):
        stream = io.BytesIO(start + data)
        assert format_of(stream) in Format
        pickled_names(stream)
        why_refused(stream, "x")


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.tuples(inner, inner)))
def test_plain_values_import_nothing_at_any_protocol(value: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickletools.optimize(pickle.dumps([value, [value]], protocol))
        assert pickled_names(io.BytesIO(data)).alarming == ()


def test_compressed_bombs_are_read_in_part() -> None:
    bomb = zlib.compress(pickle.dumps(b"\x00" * 50_000_000))
    assert format_of(io.BytesIO(bomb)) is Format.PICKLE
    assert pickled_names(io.BytesIO(bomb)).names == ()
