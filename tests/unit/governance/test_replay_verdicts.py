"""What a replay says: which tensor differs first, by how much, and the likely causes; without torch."""

from __future__ import annotations

import array
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import CheckpointError
from detlab.governance.replaying import judge, likely_causes, weights_in

Weights = dict[str, tuple[str, list[int], bytes]]
SEGMENT: dict[str, Any] = {
    "policy_hash": "p",
    "s_hash": "s",
    "roster": "r",
    "counts": {"web": 3},
    "order": [{"epoch": 0, "digest": "d"}],
    "canaries": "",
    "world_size": 1,
    "versions": {"torch": "2.13", "detlab": "1", "threads": "2", "processor": "x86_64 AVX2"},
}
NAMES = ["body.w", "head.w"]


def floats(*values: float, kind: str = "f") -> bytes:
    return array.array(kind, values).tobytes()


WEIGHTS: Weights = {"head.w": ("F32", [2], floats(1, 2)), "body.w": ("F32", [2], floats(3, 4))}


def write(folder: Path, weights: Weights, name: str = "model_0") -> Path:
    folder.mkdir(exist_ok=True)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for tensor, (dtype, shape, raw) in weights.items():
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def verdict(tmp_path: Path, again: Weights, **now: Any) -> Any:
    first, second = write(tmp_path / "was", WEIGHTS), write(tmp_path / "now", again)
    return judge(first, second, NAMES, [SEGMENT], [{**SEGMENT, **now}])


def test_equal_weights_and_facts_are_equal_in_whatever_order_they_lie(tmp_path: Path) -> None:
    found = verdict(tmp_path, dict(reversed(WEIGHTS.items())))
    assert (found.equal, found.tensors, found.differing, found.how, found.causes) == (True, 2, [], "", [])


def test_one_bit_is_enough_and_the_first_parameter_of_the_model_is_named(tmp_path: Path) -> None:
    changed = {**WEIGHTS, "head.w": ("F32", [2], floats(1.5, 2)), "body.w": ("F32", [2], floats(3, 4.25))}
    found = verdict(tmp_path, changed)
    assert found.differing == ["body.w", "head.w"]
    assert found.how == "body.w is not bit-equal: the largest difference in it is 0.25"
    negative_zero = write(tmp_path / "z", {"w": ("F32", [1], floats(-0.0))})
    assert not judge(write(tmp_path / "y", {"w": ("F32", [1], floats(0.0))}), negative_zero, ["w"], [], []).equal


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ({"head.w": WEIGHTS["head.w"]}, "body.w is in the recorded weights alone"),
        ({**WEIGHTS, "extra": WEIGHTS["head.w"]}, "extra is in the replayed weights alone"),
        ({**WEIGHTS, "body.w": ("F64", [2], floats(3, 4, kind="d"))}, "body.w was F32 [2], and is F64 [2]"),
        ({**WEIGHTS, "body.w": ("F32", [2, 1], floats(3, 4))}, "body.w was F32 [2], and is F32 [2, 1]"),
    ],
)
def test_other_names_kinds_and_shapes_are_said(tmp_path: Path, again: Weights, said: str) -> None:
    assert verdict(tmp_path, again).how == said


@pytest.mark.parametrize(
    ("dtype", "was", "now", "far"),
    [
        ("F64", floats(1, 2, kind="d"), floats(1, 2.5, kind="d"), 0.5),
        ("F16", b"\x00\x3c", b"\x00\x40", 1.0),
        ("BF16", b"\x80\x3f", b"\x00\x40", 1.0),
        ("F32", floats(1), floats(float("nan")), math.inf),
        ("F32", floats(float("nan"), 1), floats(float("nan"), 2), 1.0),
        ("F32", floats(math.inf, 1), floats(math.inf, 2), 1.0),
        ("F32", floats(1), floats(math.inf), math.inf),
        ("I64", b"\x01" + bytes(7), b"\x02" + bytes(7), math.inf),
    ],
)
def test_how_far_weights_are_off_is_computed_of_all_kinds_of_floats(tmp_path, dtype, was, now, far) -> None:
    first, second = ({"w": (dtype, [1], raw)} for raw in (was, now))
    found = judge(write(tmp_path / "was", first), write(tmp_path / "now", second), ["w"], [], [])
    assert found.largest == far
    assert ("largest" in found.how) == math.isfinite(far)


def test_a_tolerance_is_for_weights_alone(tmp_path: Path) -> None:
    near = {**WEIGHTS, "body.w": ("F32", [2], floats(3, 4.25))}
    found = verdict(tmp_path, near)
    assert (found.holds(0.25), found.holds(0.2), found.equal) == (True, False, False)
    assert not verdict(tmp_path, near, order=[]).holds(1.0)
    assert not verdict(tmp_path, {"head.w": WEIGHTS["head.w"]}).holds(1.0)
    assert verdict(tmp_path, WEIGHTS).holds(0.0)


def test_several_models_have_the_names_of_the_policy(tmp_path: Path) -> None:
    folder = write(write(tmp_path / "two", WEIGHTS), WEIGHTS, "model_1")
    assert set(weights_in(folder)) == {f"model_{at}.{name}" for at in (0, 1) for name in NAMES}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"order": []}, "samples came in another order"),
        ({"counts": {"web": 4}}, "each source has given another number of samples"),
        ({"roster": "x"}, "the data set has other samples, or other sources of them"),
        ({"s_hash": "x"}, "the parameters of the model have other names or shapes"),
        ({"canaries": "sha256:x"}, "other canaries were planted"),
        ({"world_size": 2}, "it was trained by another number of processes"),
    ],
)
def test_what_was_recorded_otherwise_is_no_equality_even_with_equal_weights(tmp_path, now, said) -> None:
    found = verdict(tmp_path, WEIGHTS, **now)
    assert not found.equal
    assert found.causes[0].startswith(said)


def test_of_several_segments_it_is_said_which_one_differs(tmp_path: Path) -> None:
    was = [{**SEGMENT, "first_step": 0, "step": 3}, {**SEGMENT, "first_step": 3, "step": 6}]
    now = [was[0], {**was[1], "order": [], "versions": {**SEGMENT["versions"], "torch": "3"}}]
    folder = write(tmp_path / "was", WEIGHTS)
    assert judge(folder, folder, NAMES, was, now).causes == [
        "batches 3 to 6: samples came in another order",
        "torch: 2.13 when it was recorded, 3 here",
    ]


def test_what_rounding_depends_on_is_named_and_what_is_not_known_is_said() -> None:
    there = SEGMENT["versions"]
    here = {**there, "threads": "4", "gpu": "NVIDIA H200"}
    assert likely_causes([SEGMENT], [{"versions": here}], []) == [
        "threads of torch: 2 when it was recorded, 4 here",
        "the GPU: none when it was recorded, NVIDIA H200 here",
    ]
    old = {"versions": {"torch": "2.13", "detlab": "1"}}
    (said,) = likely_causes([old], [SEGMENT], [])
    assert said == "not recorded, and perhaps other ones: threads of torch, the processor"
    same = likely_causes([SEGMENT], [SEGMENT], [])
    assert "draws random numbers of its own" in same[0]
    assert "do not come from the recorded training" in same[-1]
    on_gpu = {"versions": here}
    assert "changing order" in likely_causes([on_gpu], [on_gpu], [])[0]


@pytest.mark.parametrize("raw", [b"", b"12345678", struct.pack("<Q", 5) + b"abcde", struct.pack("<Q", 1 << 40)])
def test_files_that_are_damaged_are_refused(tmp_path: Path, raw: bytes) -> None:
    folder = write(tmp_path / "was", WEIGHTS)
    (tmp_path / "now").mkdir()
    with pytest.raises(CheckpointError, match="no weights of a PyTorchTrial"):
        judge(folder, tmp_path / "now", NAMES, [], [])
    (tmp_path / "now" / "model_0.safetensors").write_bytes(raw)
    with pytest.raises(CheckpointError, match="cannot be read"):
        judge(folder, tmp_path / "now", NAMES, [], [])
