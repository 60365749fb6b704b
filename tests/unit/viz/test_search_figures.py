"""Figures of a search beyond its curves: budget, importance, slice, contour, Pareto front, timeline, lineage."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from detlab import viz
from detlab.schemas.wire import AttemptSpan, BestView, CurvesView, ParentView, SeriesView, TrialView
from detlab.viz import importances, kinds, static
from detlab.viz.budget import slot_seconds
from detlab.viz.data import SearchData
from detlab.viz.drawing import BEST, GREY
from detlab.viz.fronts import Objective, frontier, judge, marked
from unit.viz.test_viz import SPACE, said, snapshot, trial


def reported(trial_id: int, values: list[float], times: list[float], name: str = "loss") -> SeriesView:
    steps = [100 * at for at in range(1, len(values) + 1)]
    return SeriesView(trial_id=trial_id, group="validation", name=name, steps=steps, values=values, times=times)


def span(trial_id: int, began: float, ended: float | None, slots: list[str], run: int = 1) -> AttemptSpan:
    return AttemptSpan(trial_id=trial_id, run=run, agent_id="a", slots=slots, started_at=began, ended_at=ended)


def spent() -> CurvesView:
    """Trial 10 from 0 s to 100 s on one slot, trial 11 from 50 s on two; 12 has no value."""
    trials = [trial(0, {"lr": 0.1}, 0.5), trial(1, {"lr": 0.2}, 0.3), trial(2, {"lr": 0.3}, None)]
    curves = [reported(10, [0.9, 0.5], [10.0, 90.0]), reported(11, [0.6, 0.3], [70.0, 100.0])]
    shown = snapshot(trials, curves, started_at=0.0)
    return shown.model_copy(update={"attempts": [span(10, 0, 100, ["0"]), span(11, 50, None, ["1", "2"])]})


def grid(count: int, **more: Any) -> CurvesView:
    """Trials whose value depends on `lr` alone."""
    trials = [
        trial(
            at,
            {"lr": 10 ** -(1 + at % 7 / 2), "layers": 1 + at * 5 % 4, "optimizer": {"name": "ab"[at % 2]}},
            at % 7 / 7,
        )
        for at in range(count)
    ]
    return snapshot(trials, config={"hyperparameters": SPACE}, **more)


def line(figure: Any, name: str = "best so far") -> Any:
    (found,) = [trace for trace in figure.data if trace.name == name]
    return found


def test_the_best_so_far_by_trials_ends_at_the_last_value() -> None:
    figure = viz.best_so_far(spent())
    assert (list(line(figure).x), list(line(figure).y)) == ([1, 2, 2], [0.5, 0.3, 0.3])
    assert list(line(figure, "best of each trial").y) == [0.5, 0.3]
    assert figure.layout.title.subtitle.text == "1 trial without a value left out"


def test_the_best_so_far_by_time_takes_each_report_when_it_came() -> None:
    figure = viz.best_so_far(spent(), against="time")
    assert list(line(figure).x) == [10, 70, 90, 100, 100]
    assert list(line(figure).y) == [0.9, 0.6, 0.5, 0.3, 0.3]
    assert figure.layout.xaxis.title.text == "time since the start (seconds)"
    assert list(line(figure, "best of each trial").x) == [90, 100]


def test_slot_time_counts_all_slots_that_were_held() -> None:
    figure = viz.best_so_far(spent(), against="slot_time")
    assert [60 * x for x in line(figure).x] == [
        10,
        110,
        170,
        200,
        200,
    ]  # at 70 s: 70 of the one slot, 2 × 20 of the others
    assert slot_seconds([span(1, 10, 20, ["0"])], [5, 10, 15, 20, 99]) == [0, 0, 5, 10, 10]


def test_where_greater_is_better_the_best_so_far_rises_and_an_odd_budget_is_refused() -> None:
    trials = [trial(0, {}, 0.5), trial(1, {}, math.nan), trial(2, {}, 0.4), trial(3, {}, 0.9)]
    assert list(line(viz.best_so_far(snapshot(trials, smaller=False))).y) == [0.5, 0.9, 0.9]
    with pytest.raises(ValueError, match="no budget 'money': choose one of trials, time, slot_time"):
        viz.best_so_far(snapshot(trials), against="money")


@pytest.mark.parametrize(
    ("against", "reason"), [("time", "It is not known when"), ("slot_time", "It is not known which slots")]
)
def test_a_budget_that_is_not_known_is_said(against: str, reason: str) -> None:
    (text,) = said(viz.best_so_far(snapshot([trial(0, {}, 0.5)]), against=against))
    assert text.startswith(reason)


@pytest.mark.parametrize("method", importances.METHODS)
def test_importance_finds_the_hyperparameter_that_the_value_depends_on(method: str) -> None:
    figure = viz.importance(grid(60), method=method)
    assert figure.data[0].customdata[-1] == "lr"
    assert figure.data[0].x[-1] > 0.5
    assert sum(figure.data[0].x) == pytest.approx(1)
    assert figure.layout.title.subtitle.text.endswith("of 60 trials")


def test_fanova_without_scikit_learn_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    figure = viz.importance(grid(30), method="fanova")
    assert "fANOVA needs scikit-learn" in figure.layout.title.subtitle.text
    assert figure.data[0].customdata[-1] == "lr"


def test_importance_leaves_out_what_not_all_trials_have_and_needs_ten_values() -> None:
    some = grid(20)
    some.trials[0].hparams["momentum"] = 0.9
    some.trials[1].hparams["momentum"] = 0.5
    found, _ = importances.importances(SearchData(some, some.experiment.config or {}))
    assert set(found) == {"lr", "layers", "optimizer.name"}
    assert said(viz.importance(grid(9))) == ["Importance needs 10 trials with a value; there are 9."]
    with pytest.raises(ValueError, match="no method 'shap'"):
        viz.importance(grid(9), method="shap")


def test_a_slice_is_coloured_by_the_order_of_the_trials() -> None:
    figure = viz.slice_plot(grid(8), params=["lr", "layers"])
    assert [figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text] == ["lr", "layers"]
    assert list(figure.data[0].marker.color) == list(range(8))
    assert figure.layout.xaxis.type == "log"
    assert "No hyperparameter depth that differs" in said(viz.slice_plot(grid(8), params=["depth"]))[0]


def test_a_contour_takes_the_two_named_or_the_most_important() -> None:
    figure = viz.contour(grid(30), params=["optimizer.name", "lr"])
    surface, dots = figure.data
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("optimizer.name", "lr")
    assert list(figure.layout.xaxis.ticktext) == ["a", "b"]
    assert set(dots.x) == {0, 1}
    low = [row[0] for row in surface.z if row[0] is not None]
    assert 0 <= min(low) < max(low) <= 6 / 7
    assert "lr" in {viz.contour(grid(30)).layout.xaxis.title.text, viz.contour(grid(30)).layout.yaxis.title.text}
    with pytest.raises(ValueError, match="a contour has two hyperparameters, not lr"):
        viz.contour(grid(30), params=["lr"])


def test_a_contour_is_open_where_no_trial_is_near() -> None:
    corners = [(0.0, 0.0), (0.05, 0.0), (1.0, 1.0)]
    trials = [trial(at, {"x": x, "y": y}, float(at)) for at, (x, y) in enumerate(corners)]
    space = {"x": {"type": "double"}, "y": {"type": "double"}}
    figure = viz.contour(snapshot(trials, config={"hyperparameters": space}), params=["x", "y"])
    assert figure.data[0].z[0][-1] is None
    assert figure.data[0].z[-1][-1] == pytest.approx(2, abs=0.1)


def test_the_front_is_what_no_other_trial_beats() -> None:
    aims = [Objective("loss"), Objective("accuracy", smaller_is_better=False)]
    points = {1: [0.1, 0.5], 2: [0.2, 0.9], 3: [0.3, 0.8], 4: [0.1, 0.5], 5: [0.4, 0.95]}
    assert frontier(points, aims) == [1, 4, 2, 5]


def two_metrics(values: list[tuple[float, float]], **more: Any) -> CurvesView:
    trials = [trial(at, {"lr": 0.1 * (at + 1)}, loss) for at, (loss, _) in enumerate(values)]
    curves = [
        curve
        for at, (loss, size) in enumerate(values)
        for curve in (reported(10 + at, [9.0, loss], []), reported(10 + at, [99.0, size], [], "size"))
    ]
    return snapshot(trials, curves, **more)


def test_a_pareto_front_of_named_metrics_and_of_the_config() -> None:
    values = [(0.1, 5.0), (0.2, 3.0), (0.3, 4.0), (math.nan, 1.0)]
    figure = viz.pareto_front(two_metrics(values), metrics=["loss", "size"])
    assert list(line(figure, "Pareto front").x) == [0.1, 0.2]
    assert list(line(figure, "dominated").x) == [0.3, 9.0]  # the last report with both: before the NaN
    assert figure.layout.xaxis.title.text == "loss (smaller is better)"
    greater = viz.pareto_front(two_metrics(values), metrics=["loss", "size"], maximize=["size"])
    assert list(line(greater, "Pareto front").y) == [5.0, 99.0]
    metrics = [{"name": "loss"}, {"name": "size", "smaller_is_better": False}]
    of_config = viz.pareto_front(two_metrics(values, config={"searcher": {"metrics": metrics}}))
    assert of_config.layout.yaxis.title.text == "size (greater is better)"


def limited(values: list[tuple[float, float]], most: float) -> CurvesView:
    metrics = [{"name": "loss"}, {"name": "size"}]
    constraints = {"size": {"max": most}}
    return two_metrics(values, config={"searcher": {"metrics": metrics, "constraints": constraints}})


def test_trials_that_break_a_constraint_are_faint_and_never_on_the_front() -> None:
    shown = limited([(0.3, 5.0), (0.5, 4.0), (0.1, 50.0), (0.6, 5.0)], most=10)
    figure = viz.pareto_front(shown)
    assert list(line(figure, "Pareto front").x) == [0.3, 0.5]
    assert list(line(figure, "dominated").x) == [0.6]
    broken = line(figure, "breaks a constraint")
    assert list(broken.x) == [0.1]
    assert broken.marker.opacity < 1
    assert broken.text[0].endswith("loss 0.1<br>size 50<br>breaks a constraint")
    assert figure.layout.title.subtitle.text == "2 of 4 trials are on the front · 1 breaks a constraint"
    none = viz.pareto_front(limited([(0.3, 5.0), (0.5, 4.0)], most=1))
    assert none.layout.title.subtitle.text == "0 of 2 trials are on the front · all break a constraint"


def test_a_front_is_made_of_the_last_reports_with_all_metrics() -> None:
    shown = limited([(0.3, 5.0), (math.nan, 4.0), (0.1, 50.0)], most=99)
    found = judge(SearchData(shown, shown.experiment.config or {}))
    assert [(key, found.points[key].step) for key in found.front] == [(12, 200), (10, 200)]
    assert found.metrics(12) == {"loss": 0.1, "size": 50.0}
    other = judge(SearchData(shown, {}), ["loss", "size"], ["size"])
    assert other.metrics(other.front[-1]) == {"loss": 9.0, "size": 99.0}  # the report before the one with NaN


def test_a_constraint_on_a_metric_that_is_no_objective_counts() -> None:
    shown = two_metrics([(0.1, 5.0), (0.2, 3.0)])
    shown.curves.extend(reported(10 + at, [1.0, 9.0 - 5 * at], [], "time") for at in range(2))
    config = {"searcher": {"metrics": [{"name": "loss"}, {"name": "size"}], "constraints": {"time": {"max": 5}}}}
    found = judge(SearchData(shown, config))
    assert found.front == [11]
    assert found.metrics(11) == {"loss": 0.2, "size": 3.0, "time": 4.0}
    assert kinds.request("pareto_front", "loss", config=config)["name"] == "loss,size,time"


def test_three_metrics_have_a_panel_per_pair_and_reasons_are_given() -> None:
    shown = two_metrics([(0.1, 5.0), (0.2, 3.0)])
    shown.curves.extend(reported(10 + at, [1.0, float(at)], [], "time") for at in range(2))
    figure = viz.pareto_front(shown, metrics=["loss", "size", "time"])
    axes = [figure.layout[f"xaxis{at}"].title.text.split()[0] for at in ("", 2, 3)]
    assert axes == ["loss", "loss", "size"]
    assert said(viz.pareto_front(shown, metrics=["loss", "speed"])) == [
        "No trial has reported speed in a validation yet."
    ]
    assert "This search has one metric" in said(viz.pareto_front(shown))[0]
    with pytest.raises(ValueError, match="two or three metrics, not loss"):
        viz.pareto_front(shown, metrics=["loss"])


def test_a_timeline_has_a_row_per_slot_and_a_colour_per_outcome() -> None:
    trials = [
        trial(0, {}, 0.5, run=2),
        trial(1, {}, 0.4, state="ACTIVE", run=1),
        trial(2, {}, 0.6, end_reason="stopped", progress=0.5, run=1),
    ]
    best = BestView(trial_id=10, trial_index=0, steps_completed=1, value=0.5)
    spans = [
        span(10, 0, 60, ["gpu2"]),
        span(12, 0, 30, ["gpu10"]),
        span(11, 60, None, ["gpu2"]),
        span(10, 60, 90, ["gpu10"], 2),
    ]
    shown = snapshot(trials, best=best).model_copy(update={"attempts": spans})
    figure = viz.timeline(shown, now=180.0)
    assert list(figure.layout.yaxis.ticktext) == ["a/gpu2", "a/gpu10"]
    assert {bar.name: list(bar.x) for bar in figure.data} == {
        "best": [0.5],
        "running": [2],
        "left its slots": [1],
        "stopped early": [0.5],
    }
    assert line(figure, "best").base[0] == 1
    assert line(figure, "running").customdata[0].endswith("120 s so far")
    assert said(viz.timeline(snapshot(trials))) == ["No trial has started yet."]


def family() -> CurvesView:
    trials = [trial(at, {"lr": 0.1 * (at + 1)}, 1.0 / (at + 1), steps_completed=100 * (at + 1)) for at in range(4)]
    parents = [
        ParentView(trial_id=12, parent_id=10, steps_completed=100),
        ParentView(trial_id=13, parent_id=12, steps_completed=250),
    ]
    return snapshot(trials).model_copy(update={"parents": parents})


def test_a_lineage_stands_children_below_parents_and_marks_the_best_ones_line() -> None:
    figure = viz.lineage(family())
    others, ancestors, ends = figure.data
    assert list(figure.layout.yaxis.ticktext) == ["10", "12", "13", "11"]
    assert ancestors.line.color == BEST
    assert list(ancestors.x) == [0, 100, None, 100, 100, 300, None, 250, 250, 400, None]
    assert list(ancestors.y) == [0, 0, None, 0, 1, 1, None, 1, 2, 2, None]
    assert others.line.color == GREY
    assert "from trial 12 at batch 250" in ends.text[2]
    assert "lr: 0.3 → 0.4" in ends.text[2]


def test_a_lineage_has_a_place_for_a_trial_that_has_reported_nothing() -> None:
    shown = family()
    silent = shown.trials[3].model_copy(update={"best_validation": None, "latest_validation": None})
    figure = viz.lineage(shown.model_copy(update={"trials": [*shown.trials[:3], silent]}))
    ends = figure.data[-1]
    assert [math.isnan(value) for value in ends.marker.color].count(True) == 1
    assert static.svg(figure).count("<circle") == 4


def test_a_lineage_survives_a_parent_that_is_not_shown_and_a_circle() -> None:
    shown = family()
    stray = [*shown.parents, ParentView(trial_id=11, parent_id=99, steps_completed=50)]
    assert set(viz.lineage(shown.model_copy(update={"parents": stray})).layout.yaxis.ticktext) == {
        "10",
        "11",
        "12",
        "13",
    }
    circle = [
        ParentView(trial_id=12, parent_id=13, steps_completed=1),
        ParentView(trial_id=13, parent_id=12, steps_completed=1),
    ]
    assert viz.lineage(shown.model_copy(update={"parents": circle})).layout.yaxis.ticktext[0] == "10"
    assert "No trial started from another" in said(viz.lineage(snapshot(shown.trials)))[0]


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_figure_gives_a_reason_without_trials_and_escapes_hostile_names(kind: str) -> None:
    (reason,) = said(kinds.plot(snapshot([]), kind, config=None))
    assert reason
    evil = "<img src=x onerror=alert(1)>"
    trials = [trial(at, {evil: at, f"{evil}b": evil * (1 + at % 2)}, float(at), steps_completed=9) for at in range(12)]
    curves = [reported(one.id, [1.0, 2.0], [1.0, 2.0], name) for one in trials for name in (evil, "size")]
    shown = snapshot(trials, curves, started_at=0.0)
    shown.experiment.metric = evil
    shown.attempts.extend(span(one.id, 0, 9, [evil]) for one in trials)
    shown.parents.append(ParentView(trial_id=11, parent_id=10, steps_completed=1))
    config = {"searcher": {"metrics": [{"name": evil}, {"name": "size"}]}}
    drawn = kinds.plot(shown, kind, config=config).to_json()
    assert "&lt;img" in drawn
    assert "<img" not in drawn
    assert "\\u003cimg" not in drawn


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_thousand_trials_are_drawn_in_seconds_and_a_few_megabytes(kind: str) -> None:
    trials: list[TrialView] = [
        trial(
            at, {"lr": 10 ** -(1 + at % 97 / 40), "n": at % 13, "o": "abc"[at % 3]}, at % 101 / 101, steps_completed=at
        )
        for at in range(1000)
    ]
    curves = [reported(one.id, [1.0, one.best_validation or 0.0], [one.id, one.id + 1.0]) for one in trials]
    curves += [reported(one.id, [1.0, 1.0 * (one.id % 7)], [one.id, one.id + 1.0], "size") for one in trials]
    shown = snapshot(trials, curves, started_at=0.0)
    shown.attempts.extend(span(one.id, one.id, one.id + 9.0, [str(one.id % 100)]) for one in trials)
    shown.parents.extend(ParentView(trial_id=11 + at, parent_id=10 + at // 2, steps_completed=at) for at in range(900))
    config = {"searcher": {"metrics": [{"name": "loss"}, {"name": "size"}]}}
    began = time.process_time()
    figure = kinds.plot(shown, kind, config=config)
    text = figure.to_json()
    assert time.process_time() - began < 20
    assert not said(figure) or kind == "learning_curves"
    assert len(text) < 4_000_000
    json.loads(text)


def seeded(**more: Any) -> CurvesView:
    """Points of two seeds: 0.5 +- 0.57 with the best trial, 0.3 +- 0.07, and one whose second seed has no value yet."""
    values = [0.1, 0.9, 0.25, 0.35, 0.01, None]
    trials = [
        trial(at, {"lr": 10.0 ** -(1 + at // 2), "layers": at // 2}, value, state="COMPLETED")
        for at, value in enumerate(values)
    ]
    config = {"hyperparameters": SPACE, "searcher": {"name": "random", "seeds": 2}}
    return snapshot(
        trials, config=config, best=BestView(trial_id=14, trial_index=4, steps_completed=1, value=0.01), **more
    )


def test_seeds_of_a_point_are_one_mark_with_their_deviation() -> None:
    figure = viz.best_so_far(seeded())
    dots = line(figure, "mean of each point")
    assert (list(dots.x), list(dots.y)) == ([2, 4, 5], pytest.approx([0.5, 0.3, 0.01]))
    assert list(dots.error_y.array) == pytest.approx([0.5657, 0.0707, 0.0], abs=1e-4)
    assert "0.3 ± 0.071 over 2 seeds (trials 12, 13)" in dots.text[1]
    assert "best point 0.3 ± 0.071" in figure.layout.title.subtitle.text
    for panels in (viz.slice_plot(seeded()), viz.metric_by_hyperparameter(seeded())):
        assert [len(trace.x) for trace in panels.data] == [3, 3]
        assert [max(trace.marker.size) == trace.marker.size[1] for trace in panels.data] == [True, True]
    lines = viz.parallel_coordinates(seeded()).data[0]
    assert list(lines.dimensions[-1].values) == pytest.approx([0.5, 0.3, 0.01])


def test_learning_curves_are_the_means_of_seeds_with_a_band() -> None:
    """Regression: each trial of a point had a line of its own, and the luckiest seed was the best one."""
    curves = [reported(10, [0.4, 0.1], [5.0, 9.0]), reported(11, [0.6, 0.9], [5.0, 9.0]), reported(12, [0.25], [5.0])]
    figure = viz.learning_curves(seeded().model_copy(update={"curves": [*curves, reported(13, [0.35], [5.0])]}))
    named = {trace.name: trace for trace in figure.data if trace.name}
    assert list(named) == ["trials 10, 11", "trials 12, 13, best"], "without a report, the last point has no line"
    assert list(named["trials 10, 11"].y) == pytest.approx([0.5, 0.5])
    assert list(named["trials 12, 13, best"].y) == pytest.approx([0.3])
    bands = [trace for trace in figure.data if trace.fill == "tonexty"]
    assert list(bands[0].y) == pytest.approx([0.5 + 0.2 / 2**0.5, 0.5 + 0.8 / 2**0.5])


def test_a_pareto_front_of_seeds_is_that_of_their_means() -> None:
    """Regression: one lucky seed put its point on the front."""
    values = [(0.1, 9.0), (0.9, 9.0), (0.3, 5.0), (0.3, 5.0)]
    shown = two_metrics(values)
    config = {"searcher": {"metrics": [{"name": "loss"}, {"name": "size"}], "seeds": 2}}
    trials = [one.model_copy(update={"hparams": {"lr": at // 2}}) for at, one in enumerate(shown.trials)]
    experiment = shown.experiment.model_copy(update={"config": config})
    seeds = shown.model_copy(update={"trials": trials, "experiment": experiment})
    found = judge(SearchData(seeds, config))
    first, other = trials[0].id, trials[2].id
    assert {key: point.values for key, point in found.points.items()} == {first: (0.5, 9.0), other: (0.3, 5.0)}
    assert (found.front, found.on_front) == ([other], {other, trials[3].id})
    figure = viz.pareto_front(seeds)
    assert figure.layout.title.subtitle.text == "1 of 2 points, means of their seeds, are on the front"
    latest = {trial.id: {"loss": loss, "size": size} for trial, (loss, size) in zip(trials, values, strict=True)}
    assert marked(config, latest, trials) == found.on_front
    assert marked({"searcher": {"metrics": config["searcher"]["metrics"]}}, latest, trials) >= {first, other}


def test_deviations_are_in_a_still_picture() -> None:
    drawn = static.svg(viz.best_so_far(seeded()))
    assert drawn.count('stroke="#888888"') == 2


def test_without_seeds_equal_points_stay_trials_of_their_own() -> None:
    shown = seeded()
    shown = shown.model_copy(update={"experiment": shown.experiment.model_copy(update={"config": {}})})
    assert len(line(viz.best_so_far(shown), "best of each trial").x) == 5


def test_a_mean_over_time_is_known_when_the_last_seed_is() -> None:
    curves = [
        reported(10, [0.4, 0.1], [5.0, 10.0]),
        reported(11, [0.9], [30.0]),
        reported(12, [0.25], [20.0]),
        reported(13, [0.35], [25.0]),
    ]
    shown = seeded(started_at=0.0).model_copy(update={"curves": curves})
    dots = line(viz.best_so_far(shown, against="time"), "mean of each point")
    assert dict(zip(dots.x, dots.y, strict=True)) == pytest.approx({25.0: 0.3, 30.0: 0.5})
