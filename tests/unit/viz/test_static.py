"""Static pictures of figures: SVG that needs neither a browser nor another library."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ET
from typing import Any

import plotly.graph_objects as go
import pytest

from detlab import viz
from detlab.schemas.wire import ParentView
from detlab.viz import kinds, static
from unit.viz.test_search_figures import limited, reported, span
from unit.viz.test_viz import SPACE, snapshot, trial, tried

PATH = "{http://www.w3.org/2000/svg}path"
TEXT = "{http://www.w3.org/2000/svg}text"
MARKS = {"importance": 3}
"""Points, bars and cells of a figure of twelve trials; others have one for each trial."""


def drawn(figure: Any) -> ET.Element:
    return ET.fromstring(static.svg(figure))


def texts(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


def marks(root: ET.Element, name: str) -> int:
    return sum(1 for _ in root.iter(f"{{http://www.w3.org/2000/svg}}{name}"))


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_kind_has_a_small_picture_without_scripts(kind: str) -> None:
    evil = "<script>alert(1)</script>"
    trials = [
        trial(at, {"lr": 0.1 / (at + 1), "n": at % 3, "name": evil * (at % 2)}, at + 0.5, steps_completed=at)
        for at in range(12)
    ]
    curves = [reported(one.id, [1.0, 2.0], [1.0, 2.0], name) for one in trials for name in ("loss", evil)]
    config = {"hyperparameters": SPACE, "searcher": {"metrics": [{"name": "loss"}, {"name": evil}]}}
    shown = snapshot(trials, curves, started_at=0.0)
    shown.attempts.extend(span(one.id, one.id, 90.0, [evil]) for one in trials)
    shown.parents.append(ParentView(trial_id=11, parent_id=10, steps_completed=1))
    figure = kinds.plot(shown, kind, config=config)
    root = drawn(figure)
    assert marks(root, "script") == 0
    if kind == "parallel_coordinates":
        assert "This figure has no static picture." in texts(root)
    elif kind == "learning_curves":
        assert sum(one.get("fill") == "none" and one.get("stroke-width") is not None for one in root.iter(PATH)) == 12
    else:
        assert marks(root, "circle") + marks(root, "rect") >= MARKS.get(kind, 12)
    assert len(static.svg(figure)) < 300_000
    assert "experiment 7" in static.text(figure)


def test_points_lines_and_ticks_are_where_the_values_are() -> None:
    root = drawn(viz.best_so_far(snapshot([trial(0, {}, 4.0), trial(1, {}, 1.0), trial(2, {}, 2.0)])))
    places = [
        (float(one.get("cx", 0)), float(one.get("cy", 0))) for one in root.iter("{http://www.w3.org/2000/svg}circle")
    ]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert places[0][1] < places[2][1] < places[1][1]  # 4 stands above 2, and 2 above 1
    assert {"trials", "loss", "best so far"} - set(texts(root)) == {"best so far"}


def test_trials_that_break_a_constraint_are_faint_crosses() -> None:
    root = drawn(viz.pareto_front(limited([(0.3, 5.0), (0.5, 4.0), (0.1, 50.0)], most=10)))
    faint = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("opacity")]
    assert len(faint) == 1
    assert float(faint[0].get("opacity", 1)) == 0.5
    assert marks(root, "circle") == 2


def test_an_empty_figure_says_why_and_one_that_cannot_be_static_says_so() -> None:
    assert "No trials yet." in texts(drawn(viz.timeline(snapshot([]))))
    assert static.text(viz.timeline(snapshot([]))).splitlines()[-1] == "No trials yet."
    assert "This figure has no static picture." in texts(drawn(viz.parallel_coordinates(tried())))


def test_each_panel_has_its_title_above_it() -> None:
    """Pictures of several metrics did not say which is which."""
    names = ["<b>loss</b>", "accuracy", "f1"]
    root = drawn(viz.trial_metrics([reported(1, [1.0, 2.0], [1.0, 2.0], name) for name in names]))
    titles = [one for one in root.iter("{http://www.w3.org/2000/svg}text") if one.text in names]
    assert [one.text for one in titles] == sorted(names)
    places = [(float(one.get("x", 0)), float(one.get("y", 0))) for one in titles]
    assert places[0][1] == places[1][1] < places[2][1]
    assert places[0][0] == places[2][0] < places[1][0]


@pytest.mark.parametrize(
    "values", [[-0.5, -0.500000009], [-1.23456789, -1.23456799], [0.5, 0.500000008], [-2.01e10, -2.02e10], [1e33, 2e33]]
)
def test_no_number_beside_an_axis_is_cut_or_shortened(values: list[float]) -> None:
    """A label without its first characters, or its last ones, is another number."""
    figure = go.Figure(go.Scatter(x=[1, 2], y=values, mode="lines"))
    labels = [one for one in drawn(figure).iter(TEXT) if one.get("text-anchor") == "end"]
    assert len(labels) > 2
    for one in labels:
        assert float(one.get("x", "0")) - len(one.text or "") * static.DIGIT >= 0, one.text
        assert min(values) - 1e-9 * abs(values[0]) <= float(one.text or "") <= max(values) + abs(values[0] - values[1])
    assert len({one.text for one in labels}) == len(labels)


CIRCLE = "{http://www.w3.org/2000/svg}circle"
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "dots"),
    [
        ([1.0, NAN, 2.0, NAN, 3.0, 4.0], 2),
        ([NAN, 1.0, NAN], 1),
        ([1.0, INF, 2.0, -INF, 3.0], 3),
        ([1.0, 2.0, 3.0], 0),
        ([NAN, INF], 0),
        ([NAN, NAN, 1.0, 2.0, NAN, 3.0], 1),
    ],
)
def test_values_between_those_that_have_no_place_are_drawn(values: list[float], dots: int) -> None:
    """A line through one point has no extent: three of four finite values were not to be seen."""
    own = go.Figure(go.Scatter(x=list(range(len(values))), y=values, mode="lines"))
    assert marks(drawn(own), "circle") == dots
    known = [trial(0, {}, 1.0)]
    for figure in (
        viz.learning_curves(snapshot(known, [reported(10, values, list(range(len(values))))])),
        viz.trial_metrics([reported(1, values, list(range(len(values))))]),
    ):
        assert marks(drawn(figure), "circle") == dots
        sizes = figure.data[0].marker.size or ()  # what plotly itself draws
        assert sum(map(bool, sizes)) == dots
        assert ("markers" in figure.data[0].mode) == (dots > 0)


def test_on_a_logarithmic_axis_a_value_between_zeros_is_drawn() -> None:
    figure = viz.trial_metrics([reported(1, [1.0, 0.0, 2.0, -1.0, 3.0, 4.0], [1.0] * 6)], log_y=True)
    assert marks(drawn(figure), "circle") == 2
    dot = next(drawn(figure).iter(CIRCLE))
    assert dot.get("fill") == figure.data[0].line.color


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([2.0, 6.0], ["2", "3", "5"]),
        ([0.021, 0.049], ["0.02", "0.03", "0.05"]),
        ([1.95, 2.25], ["1.8", "2", "2.2", "2.4"]),
        ([3.0, 40.0], ["5", "10", "20"]),
        ([0.001, 10.0], ["0.001", "0.01", "0.1", "1", "10"]),
        ([1e-300, 1e300], [f"1e{at:+d}" if at else "1" for at in range(-300, 301, 100)]),
    ],
)
def test_a_logarithmic_axis_of_any_range_has_round_ticks(values: list[float], labels: list[str]) -> None:
    """Within one decade it had none, or the ends of the range."""
    figure = go.Figure(go.Scatter(x=[1, 2], y=values)).update_yaxes(type="log")
    assert [one.text for one in drawn(figure).iter(TEXT) if one.get("text-anchor") == "end"] == labels


def test_plotly_writes_the_whole_number_at_ticks_between_powers_of_ten() -> None:
    """It wrote 2 for 0.02."""
    figure = viz.trial_metrics([reported(1, [0.02, 0.05], [1.0, 2.0])], log_y=True)
    assert figure.layout.yaxis.tickformat == ".6~g"


@pytest.mark.parametrize("kind", ["linear", "log"])
@pytest.mark.parametrize(
    "values",
    [
        [5e-324, 1e-323],
        [5e-324, 1e-310],
        [0.0, 5e-324, 1.0],
        [5e-324, sys.float_info.max],
        [1e308, sys.float_info.max],
        [-sys.float_info.max, sys.float_info.max],
        [0.0, -1.0],
    ],
)
def test_the_smallest_and_the_largest_numbers_have_pictures(values: list[float], kind: str) -> None:
    """A distance below 1e-308 had no ticks, and no picture."""
    x = list(range(len(values)))
    figure = go.Figure(go.Scatter(x=x, y=values, mode="markers")).update_yaxes(type=kind)
    root = drawn(figure)
    places = [float(one.get("cy", "nan")) for one in root.iter(CIRCLE)]
    assert len(places) == sum(value > 0 or kind == "linear" for value in values)
    assert all(static.TOP <= place <= 420 - static.BOTTOM for place in places)
    assert places == sorted(places, reverse=values[0] <= values[-1])
