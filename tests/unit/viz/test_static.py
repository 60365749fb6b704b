"""Static pictures of figures: SVG that needs neither a browser nor another library."""

from __future__ import annotations

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
