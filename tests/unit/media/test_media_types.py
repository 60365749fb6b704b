"""What each type of media becomes, and what it refuses with words that help."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import wave
import zlib
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detlab as det
from detlab.media import EncodedMedia, Media, MediaError, kinds, media_of
from detlab.media.headers import read_header


def pixels(encoded: EncodedMedia) -> tuple[int, int, bytes]:
    """Return the size and the pixels of a PNG of ours."""
    found = read_header(io.BytesIO(encoded.body))
    assert found is not None
    assert encoded.media_type == kinds.PNG
    at = encoded.body.index(b"IDAT")
    length = int.from_bytes(encoded.body[at - 4 : at], "big")
    return found.width, found.height, zlib.decompress(encoded.body[at + 4 : at + 4 + length])


def content(media: Media) -> Any:
    return json.loads(media.encode().body)


def test_importing_detlab_imports_no_media_and_no_numpy() -> None:
    code = "import sys, detlab, detlab.core; detlab.Image; assert not {'numpy', 'PIL', 'pandas'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("array", "size", "first"),
    [
        (np.array([[0, 128], [255, 1]], np.uint8), (2, 2), b"\0\x00\x80\0\xff\x01"),
        (np.array([[0.0, 0.5], [1.0, float("nan")]]), (2, 2), b"\0\x00\x80\0\xff\x00"),
        (np.array([[0.0, 100.0], [255.0, 51.0]]), (2, 2), b"\0\x00\x64\0\xff\x33"),
        (np.array([[-1.0, 1.0]]), (2, 1), b"\0\x00\xff"),
        (np.array([[True, False]]), (2, 1), b"\0\xff\x00"),
        ([[0, 255]], (2, 1), b"\0\x00\xff"),
        (np.zeros((3, 5, 7), np.uint8), (7, 5), b"\0" * 22),
        (np.zeros((5, 7, 3), np.uint8), (7, 5), b"\0" * 22),
        (np.zeros((1, 5, 7), np.float32), (7, 5), b"\0" * 8),
        (np.zeros((5, 7, 4), np.uint8), (7, 5), b"\0" * 29),
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_arrays_are_images(array: Any, size: tuple[int, int], first: bytes) -> None:
    width, height, data = pixels(det.Image(array).encode())
    assert (width, height) == size
    assert data.startswith(first)


def test_tensors_are_images() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.rand(3, 4, 5, requires_grad=True).to(torch.bfloat16)
    assert pixels(det.Image(tensor).encode())[:2] == (5, 4)


def test_images_of_pil_and_files_are_taken_as_they_are(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    picture = pil.new("CMYK", (4, 3))
    assert pixels(det.Image(picture).encode())[:2] == (4, 3)
    picture.save(tmp_path / "a.jpg")
    encoded = det.Image(tmp_path / "a.jpg", caption="c").encode()
    assert (encoded.media_type, encoded.caption, encoded.suffix) == (kinds.JPEG, "c", ".jpg")
    assert encoded.body == (tmp_path / "a.jpg").read_bytes()


@pytest.mark.parametrize(
    ("media", "says"),
    [
        (det.Image(np.zeros((40_000, 40_000), np.bool_)), "40,000 x 40,000 pixels"),
        (det.Image(np.zeros((2, 3, 4, 5))), "of a batch, log a list"),
        (det.Image(np.zeros((0, 4))), r"not \(0, 4\)"),
        (det.Image(np.array([[300, -1]])), "integers of an image are 0 to 255"),
        (det.Image(np.array([["a"]])), "holds no numbers"),
        (det.Image(np.array([[1j]])), "holds no numbers"),
        (det.Image(object()), "holds no numbers"),
        (det.Image("/nowhere/../x.png"), "there is no file"),
        (det.Image("a\0b"), "there is no file"),
        (det.Image(b"<html>"), "by its first bytes it is nothing that is known"),
        (det.Image(b"RIFF\0\0\0\0WAVE"), "audio/wav, and image is one of png"),
        (det.Audio(np.zeros(5)), "needs its rate"),
        (det.Audio(np.zeros((50, 50)), 8000), "a sound has the shape"),
        (det.Audio(np.zeros(5, np.int64), 8000), "not of int64"),
        (det.Video(np.zeros((2, 2))), "frames have the shape"),
        (det.Text("x" * (kinds.MB + 1)), "text may have 1,048,576"),
        (det.Text(b"x"), "a text is a str"),  # type: ignore[arg-type]
        (det.Html(5), "HTML is a str"),  # type: ignore[arg-type]
        (det.Table([[1], [1, 2]]), "row 0 has 1 values, and there are 2 columns"),
        (det.Table("abc"), "a table is a data frame"),
        (det.Table([{"a": 1}, [2]]), "rows are all lists of values, or all dicts"),
        (det.Table([list(range(300))]), "it has 300 columns"),
        (det.Histogram([1], bins=0), "1 to 512 bins"),
        (det.Histogram(bins=[0, 1, 2], counts=[1]), "1 counts need 2 finite edges"),
        (det.ConfusionMatrix([0, 1], [0]), "y_true has 2 samples, y_pred 1"),
        (det.ConfusionMatrix(["cat"], ["cow"], ["cat", "dog"]), "class 'cow' is none of the labels"),
        (det.ConfusionMatrix([0.5], [1]), "y_true has class numbers"),
        (det.ConfusionMatrix([10**9], [1]), "more than 200 classes"),
        (det.ConfusionMatrix(matrix=[[1, 2]]), "is square"),
        (det.ROCCurve([0, 1], [0.1]), "2 samples need scores"),
        (det.PRCurve([0, 1], [0.1, float("nan")]), "a score is not finite"),
        (det.Points3D([[1, 2]]), "points have the shape"),
        (det.Points3D([[1, 2, float("nan")]]), "a coordinate is not finite"),
        (det.Plot(5), "a plot is a figure of matplotlib or plotly"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_logged_says_why(media: Media, says: str) -> None:
    with pytest.raises(MediaError, match=says):
        media.encode()


def test_sound_is_a_wave_file() -> None:
    encoded = det.Audio(np.array([[0.0, 1.0, -2.0] * 4, [0.5] * 12]), 8000).encode()
    with wave.open(io.BytesIO(encoded.body)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, 8000, 12)
        assert np.frombuffer(file.readframes(3), "<i2").tolist() == [0, 16384, 32767, 16384, -32767, 16384]


def test_frames_are_a_gif() -> None:
    pytest.importorskip("PIL")
    encoded = det.Video(np.random.default_rng(1).random((3, 4, 5, 3))).encode()
    assert (encoded.kind, encoded.media_type, encoded.suffix) == ("video", kinds.GIF, ".gif")


class Frame:
    """As much of a data frame as is asked of one of pandas."""

    columns = ("a", "b")

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def head(self, most: int) -> Frame:
        return Frame(self._rows[:most])

    def itertuples(self, *, index: bool, name: None) -> list[tuple[Any, ...]]:
        assert (index, name) == (False, None)
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)


def test_tables_come_of_rows_dicts_and_data_frames() -> None:
    odd = [float("nan"), 2**60, "x" * 3000, None, True, np.float32(0.5), b"\xff", {"k": 1}]
    told = content(det.Table([odd]))
    assert told["rows"][0][:2] == ["nan", str(2**60)]
    assert told["rows"][0][2] == "x" * 2000
    assert told["rows"][0][3:] == [None, True, 0.5, "b'\\xff'", "{'k': 1}"]
    assert content(det.Table([{"a": 1}, {"b": 2}])) == {
        "columns": ["a", "b"],
        "rows": [[1, None], [None, 2]],
        "left_out": 0,
    }
    assert content(det.Table([[1, 2]], columns=["x", "y"]))["columns"] == ["x", "y"]
    point = namedtuple("point", "x y")
    assert content(det.Table([point(1, 2)]))["rows"] == [[1, 2]]
    assert content(media_of(Frame([(1, "x")] * 20_000)))["left_out"] == 10_000
    assert content(det.Table([]))["rows"] == []


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_real_data_frames_are_tables(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"a": [1, 2], "b": ["x", "<b>"]})
    assert content(media_of(frame)) == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "<b>"]], "left_out": 0}
    assert content(det.Table(frame, columns=["b"]))["rows"] == [["x"], ["<b>"]]


def test_a_table_over_its_bytes_leaves_rows_out_and_says_how_many() -> None:
    encoded = det.Table([["x" * 2000] * 10] * 5000).encode()
    told = json.loads(encoded.body)
    assert len(encoded.body) <= kinds.MOST_BYTES["table"]
    assert len(told["rows"]) + told["left_out"] == 5000
    assert told["rows"]


def test_histograms_count_all_values() -> None:
    told = content(det.Histogram([0, 1, 2, 3, float("inf")], bins=2))
    assert told == {"edges": [0.0, 1.5, 3.0], "counts": [2, 2], "not_finite": 1}
    assert sum(content(det.Histogram(np.full(1000, 3.0)))["counts"]) == 1000
    assert sum(content(det.Histogram([1e308, -1e308]))["counts"]) == 2
    assert content(det.Histogram([]))["counts"] == [0] * 64


def test_confusion_counts_pairs() -> None:
    assert content(det.ConfusionMatrix([0, 1, 1, 2], [0, 1, 2, 2], ["a", "b"]))["labels"] == ["a", "b", "2"]
    told = content(det.ConfusionMatrix(["cat", "dog", "dog"], ["cat", "dog", "cat"]))
    assert told == {"labels": ["cat", "dog"], "counts": [[1.0, 0.0], [1.0, 1.0]]}


def test_curves_have_the_areas_that_scikit_learn_gives() -> None:
    """The example of its documentation: y = 0 0 1 1, scores 0.1 0.4 0.35 0.8."""
    true, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    (roc,) = content(det.ROCCurve(true, scores))["series"]
    (precision,) = content(det.PRCurve(true, scores))["series"]
    assert roc["area"] == pytest.approx(0.75)
    assert precision["area"] == pytest.approx(0.8333333)
    assert (roc["points"][0], roc["points"][-1]) == ([0.0, 0.0], [1.0, 1.0])
    several = content(det.ROCCurve([0, 1, 2], np.eye(3), labels=["a", "b", "c"]))["series"]
    assert [(one["name"], one["area"]) for one in several] == [("a", 1.0), ("b", 1.0), ("c", 1.0)]
    many = np.random.default_rng(2).random(50_000)
    assert len(content(det.ROCCurve((many > 0.5).astype(int), many))["series"][0]["points"]) <= 502


def test_points_in_space_are_thinned_to_what_a_page_draws() -> None:
    told = content(det.Points3D([[1, 2, 3, 300, -5, 7]]))
    assert told == {"points": [[1.0, 2.0, 3.0]], "colours": [[255, 0, 7]], "left_out": 0}
    many = content(det.Points3D(np.random.default_rng(3).random((120_000, 3))))
    assert (len(many["points"]), many["left_out"], many["colours"]) == (40_000, 80_000, [])


def test_plots_of_matplotlib_are_images() -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2])
    assert pixels_of(media_of(figure)) == (100, 50)
    figure.set_size_inches(1000, 1000)
    with pytest.raises(MediaError, match="make the figure smaller"):
        det.Plot(figure).encode()


def pixels_of(media: Media) -> tuple[int, int]:
    found = read_header(io.BytesIO(media.encode().body))
    assert found is not None
    return found.width, found.height


def test_plots_of_plotly_stay_data() -> None:
    objects = pytest.importorskip("plotly.graph_objects")
    told = content(media_of(objects.Figure(objects.Scatter(x=[1, 2], y=[float("nan"), 3]))))
    assert told.keys() == {"data", "layout"}
    assert told["data"][0]["type"] == "scatter"


def test_what_may_be_many_things_has_to_be_named() -> None:
    assert media_of("text").kind == "text"
    for value in (np.zeros((2, 2)), 5, None, [1], {"a": 1}, object()):
        with pytest.raises(MediaError, match="does not say how it is"):
            media_of(value)
