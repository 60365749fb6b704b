"""The figure of a comparison: a line for each run, a band where several trials stand for one."""

from __future__ import annotations

import math

import pytest

from detlab.schemas.wire import SeriesView
from detlab.schemas.wire.comparison import ComparedRun, RunComparison
from detlab.viz import static
from detlab.viz.comparing import compared_curves

HOSTILE = '<img src=x onerror="alert(1)">$x$%{y}'


def run(number: int, *trials: int) -> ComparedRun:
    return ComparedRun(kind="experiment", id=number, experiment_id=number, metric="loss", trial_ids=[*trials])


def curve(trial: int, values: list[float], name: str = "loss") -> SeriesView:
    steps = [10 * at for at in range(1, len(values) + 1)]
    times = [1000.0 * trial + step for step in steps]
    return SeriesView(trial_id=trial, group="validation", name=name, steps=steps, values=values, times=times)


BOTH = RunComparison(runs=[run(1, 11), run(2, 21, 22)])
CURVES = [curve(11, [0.9, 0.5]), curve(21, [1.0, 2.0, 3.0]), curve(22, [3.0, 2.0, math.nan])]


def test_a_line_for_each_run_and_the_mean_of_seeds_with_a_band() -> None:
    figure = compared_curves(BOTH, CURVES)
    lines = {trace.name: trace for trace in figure.data if trace.name}
    assert list(lines) == ["experiment 1", "experiment 2"]
    assert (list(lines["experiment 2"].x), list(lines["experiment 2"].y)) == ([10, 20], [2.0, 2.0])
    low, high = (trace for trace in figure.data if not trace.name)
    assert list(low.y) == pytest.approx([2 - 2**0.5, 2.0])
    assert list(high.y) == pytest.approx([2 + 2**0.5, 2.0])
    assert static.svg(figure).startswith("<svg")


def test_over_time_each_run_begins_at_zero() -> None:
    figure = compared_curves(BOTH, CURVES, x="time", log_y=True)
    assert [list(trace.x) for trace in figure.data if trace.name] == [[0, 10], [0, 10]]
    assert figure.layout.yaxis.type == "log"


def test_names_of_metrics_are_no_markup() -> None:
    figure = compared_curves(BOTH, [curve(11, [1.0], HOSTILE)], metrics=[HOSTILE])
    texts = figure.to_json()
    assert "<img" not in texts
    assert "$x$" not in texts
    assert "alert(1)" in texts


def test_nothing_to_draw_is_said() -> None:
    assert compared_curves(RunComparison(), []).layout.annotations[0].text == "There is nothing to compare."
    said = compared_curves(BOTH, [], metrics=[HOSTILE]).layout.annotations[0].text
    assert said.startswith("No run has reported &lt;img")
