"""What a classifier did, how values are spread, where points lie: computed where the run is, stored as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from detlab.media import kinds
from detlab.media.base import Media, MediaError, as_json, numbers_of, plain_array

MOST_BINS, MOST_CLASSES, MOST_CURVES, MOST_POINTS = 512, 200, 20, 500
MOST_IN_SPACE = 50_000
"""Points of a cloud; of more, each n-th is kept."""


class Histogram(Media):
    """How values are spread.

    Args:
        values: A list, an array or a tensor of any shape; values that are not finite are counted beside it.
        bins: How many bins, or the edges of counts.
        counts: Counts between the edges, if they are known already; `values` is then None and `bins` are the edges.
        caption: A line for people, shown below it.
    """

    kind = kinds.HISTOGRAM

    def __init__(
        self, values: Any = None, bins: int | Sequence[float] = 64, *, counts: Any = None, caption: str = ""
    ) -> None:
        super().__init__(caption)
        self._values, self._bins, self._counts = values, bins, counts

    def _encode(self) -> tuple[str, bytes]:
        if self._counts is not None:
            if isinstance(self._bins, int):
                raise MediaError("counts need the edges between which they are", hint="det.Histogram(bins=edges, …)")
            edges, counts = numbers_of(self._bins, "edges"), numbers_of(self._counts, "counts")
            if len(edges) != len(counts) + 1 or not 0 < len(counts) <= MOST_BINS or not all(map(math.isfinite, edges)):
                raise MediaError(
                    f"{len(counts)} counts need {len(counts) + 1} finite edges, and there are at most {MOST_BINS}"
                )
            return kinds.JSON, as_json({"edges": edges, "counts": counts, "not_finite": 0})
        if not isinstance(self._bins, int) or not 0 < self._bins <= MOST_BINS:
            raise MediaError(f"a histogram has 1 to {MOST_BINS} bins")
        values = numbers_of(self._values, "values")
        finite = [one for one in values if math.isfinite(one)]
        return kinds.JSON, as_json(_counted(finite, self._bins) | {"not_finite": len(values) - len(finite)})


def _counted(values: Sequence[float], bins: int) -> dict[str, Any]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = high / bins - low / bins
    edges = [low * (1 - place / bins) + high * (place / bins) for place in range(bins)] + [high]
    counts = [0] * bins
    for one in values:
        counts[min(bins - 1, max(0, int(one / width - low / width)) if width > 0 else 0)] += 1
    return {"edges": edges, "counts": counts}


class ConfusionMatrix(Media):
    """Which class was taken for which.

    Args:
        y_true: The true class of each sample, by number or name.
        y_pred: The predicted one.
        labels: Names of the classes; of numbers, that of class 0 first.
        matrix: The counts, a row for each true class, if they are known already: y_true and y_pred are then None.
        caption: A line for people, shown below it.
    """

    kind = kinds.CONFUSION

    def __init__(
        self,
        y_true: Any = None,
        y_pred: Any = None,
        labels: Sequence[str] | None = None,
        *,
        matrix: Any = None,
        caption: str = "",
    ) -> None:
        super().__init__(caption)
        self._true, self._predicted, self._matrix = y_true, y_pred, matrix
        self._labels = None if labels is None else [str(one)[:100] for one in labels]

    def _encode(self) -> tuple[str, bytes]:
        counts, labels = self._given() if self._matrix is not None else self._counted()
        return kinds.JSON, as_json({"labels": labels, "counts": counts})

    def _given(self) -> tuple[list[list[float]], list[str]]:
        array = plain_array(self._matrix)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or not 0 < len(array) <= MOST_CLASSES:
            raise MediaError(f"a confusion matrix is square, of 1 to {MOST_CLASSES} classes, not {tuple(array.shape)}")
        labels = self._labels or [str(place) for place in range(len(array))]
        if len(labels) != len(array):
            raise MediaError(f"{len(labels)} labels name {len(array)} classes")
        counts = [[float(one) for one in row] for row in array.tolist()]
        if not all(math.isfinite(one) for row in counts for one in row):
            raise MediaError("a count is not finite")
        return counts, labels

    def _counted(self) -> tuple[list[list[float]], list[str]]:
        true, predicted = _classes(self._true, "y_true"), _classes(self._predicted, "y_pred")
        if len(true) != len(predicted):
            raise MediaError(f"y_true has {len(true):,} samples, y_pred {len(predicted):,}")
        numbered = all(isinstance(one, int) for one in (*true, *predicted))
        if numbered:
            count = max([len(self._labels or []), *(one + 1 for one in (*true, *predicted))])
            names: list[int | str] = list(range(min(count, MOST_CLASSES + 1)))
            labels = (self._labels or []) + [str(one) for one in names[len(self._labels or []) :]]
        else:
            known = self._labels or sorted({str(one) for one in (*true, *predicted)})
            names, labels = list(known), known
            true, predicted = [str(one) for one in true], [str(one) for one in predicted]
        if not 0 < len(names) <= MOST_CLASSES:
            raise MediaError(f"there are more than {MOST_CLASSES} classes, or none")
        place = {name: number for number, name in enumerate(names)}
        unknown = next((one for one in (*true, *predicted) if one not in place), None)
        if unknown is not None:
            raise MediaError(f"class {str(unknown)[:80]!r} is none of the labels")
        counts = [[0.0] * len(names) for _ in names]
        for one, other in zip(true, predicted, strict=True):
            counts[place[one]][place[other]] += 1
        return counts, labels


def _classes(values: Any, what: str) -> list[Any]:
    if isinstance(values, list | tuple) and any(isinstance(one, str) for one in values):
        return list(values)
    found = numbers_of(values, what)
    if not all(one.is_integer() and one >= 0 for one in found):
        raise MediaError(f"{what} has class numbers from 0 on, or names", hint="of scores: scores.argmax(axis=1)")
    return [int(one) for one in found]


class _ScoreCurve(Media):
    """Base of curves over all thresholds of a score.

    Args:
        y_true: Of two classes, 0 or 1 for each sample; of several, the number of its class.
        scores: The score of class 1 for each sample; of several classes, one for each class: (samples, classes).
        labels: Names of the classes.
        caption: A line for people, shown below it.
    """

    kind = kinds.CURVES
    name = ""

    def __init__(self, y_true: Any, scores: Any, labels: Sequence[str] | None = None, caption: str = "") -> None:
        super().__init__(caption)
        self._true, self._scores = y_true, scores
        self._labels = None if labels is None else [str(one)[:100] for one in labels]

    def _encode(self) -> tuple[str, bytes]:
        true = _classes(self._true, "y_true")
        scores = plain_array(self._scores)
        if len(scores) != len(true) or scores.ndim not in {1, 2} or not len(true):
            raise MediaError(f"{len(true):,} samples need scores of as many, not of the shape {tuple(scores.shape)}")
        if scores.ndim == 1:
            columns, classes = [scores], [1]
        else:
            columns, classes = list(scores.T), list(range(scores.shape[1]))
        if len(columns) > MOST_CURVES:
            raise MediaError(f"there are {len(columns)} classes; curves of at most {MOST_CURVES} can be told apart")
        labels = self._labels or [str(one) for one in classes]
        if len(labels) != len(classes):
            raise MediaError(f"{len(labels)} labels name {len(classes)} curves")
        series = []
        for label, number, column in zip(labels, classes, columns, strict=True):
            values = numbers_of(column, "scores")
            if not all(map(math.isfinite, values)):
                raise MediaError("a score is not finite")
            points, area = self._points(values, [one == number for one in true])
            series.append({"name": label, "points": _thinned(points), "area": area})
        return kinds.JSON, as_json({"curve": self.name, "series": series})

    def _points(self, scores: list[float], positive: list[bool]) -> tuple[list[tuple[float, float]], float]:
        raise NotImplementedError


def _steps(scores: list[float], positive: list[bool]) -> list[tuple[int, int]]:
    """Return (true positives, false positives) at each threshold, the highest first."""
    hits = misses = 0
    found = []
    ordered = sorted(zip(scores, positive, strict=True), key=lambda one: -one[0])
    for place, (score, is_hit) in enumerate(ordered):
        hits, misses = hits + is_hit, misses + (not is_hit)
        if place + 1 == len(ordered) or ordered[place + 1][0] != score:
            found.append((hits, misses))
    return found


def _thinned(points: list[tuple[float, float]]) -> list[list[float]]:
    step = max(1, math.ceil(len(points) / MOST_POINTS))
    kept = points[::step] if (len(points) - 1) % step == 0 else [*points[::step], points[-1]]
    return [[x, y] for x, y in kept]


class ROCCurve(_ScoreCurve):
    """The true positive rate over the false positive rate, and the area below it."""

    name = "roc"

    def _points(self, scores: list[float], positive: list[bool]) -> tuple[list[tuple[float, float]], float]:
        hits, misses = sum(positive) or 1, (len(positive) - sum(positive)) or 1
        points = [(0.0, 0.0), *((miss / misses, hit / hits) for hit, miss in _steps(scores, positive))]
        area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
        return points, area


class PRCurve(_ScoreCurve):
    """The precision over the recall, and the average precision."""

    name = "pr"

    def _points(self, scores: list[float], positive: list[bool]) -> tuple[list[tuple[float, float]], float]:
        hits = sum(positive) or 1
        points = [(hit / hits, hit / (hit + miss)) for hit, miss in _steps(scores, positive)]
        before = [0.0, *(recall for recall, _ in points)]
        area = sum((recall - last) * precision for (recall, precision), last in zip(points, before, strict=False))
        return [(0.0, points[0][1]), *points], area


class Points3D(Media):
    """Points in space: a cloud, an embedding in three dimensions.

    Args:
        points: Of the shape (points, 3), or (points, 6) with a colour for each: red, green and blue, 0 to 255.
        caption: A line for people, shown below it.
    """

    kind = kinds.POINTS

    def __init__(self, points: Any, caption: str = "") -> None:
        super().__init__(caption)
        self._points = points

    def _encode(self) -> tuple[str, bytes]:
        array = plain_array(self._points)
        if array.ndim != 2 or array.shape[1] not in {3, 6} or not len(array):
            raise MediaError(
                f"points have the shape (points, 3), or (points, 6) with colours, not {tuple(array.shape)}"
            )
        each = math.ceil(len(array) / MOST_IN_SPACE)
        rows = [[float(one) for one in row] for row in array[::each].tolist()]
        if not all(math.isfinite(one) for row in rows for one in row):
            raise MediaError("a coordinate is not finite", hint="leave such points out")
        colours = [[min(255, max(0, round(one))) for one in row[3:]] for row in rows] if array.shape[1] == 6 else []
        places = [[float(f"{one:.6g}") for one in row[:3]] for row in rows]
        return kinds.JSON, as_json({"points": places, "colours": colours, "left_out": len(array) - len(rows)})
