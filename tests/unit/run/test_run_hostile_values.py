"""Values that come back from elsewhere and would be larger than they are, or run code where they are read."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from detlab.run.values import ValueProblem, decode, encode

ARRAY = {"$": "array", "part": "0.npy"}


def packed(tree: object, parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        archive.writestr("value.json", json.dumps({"tree": tree}))
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_a_zip_bomb_is_not_unpacked():
    bomb = packed(ARRAY, {"0.npy": npy(np.zeros(5_000_000))}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(ValueProblem, match="larger than the whole"):
        decode(bomb)


def test_parts_that_overlap_are_refused():
    """One large part under many names, each of which would be read by itself."""
    data = packed([{"$": "array", "part": name} for name in "abc"], dict.fromkeys("abc", npy(np.zeros(1000))))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        first, *others = archive.infolist()[1:]
    directory = data.rindex(b"PK\x01\x02", 0, data.index(b"PK\x01\x02") + 4)
    tail = bytearray(data[directory:])
    for other in others:
        at = tail.index(other.header_offset.to_bytes(4, "little"))
        tail[at : at + 4] = first.header_offset.to_bytes(4, "little")
    end = tail.rindex(b"PK\x05\x06")
    tail[end + 16 : end + 20] = others[0].header_offset.to_bytes(4, "little")
    with pytest.raises(ValueProblem, match="larger than the whole"):
        decode(data[: others[0].header_offset] + bytes(tail))


def test_a_part_that_is_named_often_is_read_once():
    with pytest.raises(ValueProblem):
        decode(packed([ARRAY] * 1000, {"0.npy": npy(np.zeros(1000))}))


def test_an_array_of_objects_is_no_way_to_a_pickle(tmp_path: Path):
    mark = tmp_path / "mark"
    out = io.BytesIO()
    np.save(out, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    with pytest.raises(ValueProblem):
        decode(packed(ARRAY, {"0.npy": out.getvalue()}))
    assert not mark.exists()


@pytest.mark.parametrize(
    "shape", ["(1152921504606846975,)", "(1180591620717411303424,)", "(99999, 99999, 99999)", "(("]
)
def test_an_array_whose_header_lies_is_a_value_problem(shape: str):
    """The first raised MemoryError, which ended whoever read it."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    part = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
    with pytest.raises(ValueProblem, match="x cannot be read"):
        decode(packed(ARRAY, {"0.npy": part}), "x")


def test_a_pickle_bomb_of_somebody_else_is_not_read(tmp_path: Path):
    mark = tmp_path / "mark"
    data = encode(Bomb(mark)).data
    with pytest.raises(ValueProblem, match="a pickle of another user"):
        decode(data, own=False)
    assert not mark.exists()
    decode(data)
    assert mark.exists(), "it is one"


class Bomb:
    """What leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._mark),)
