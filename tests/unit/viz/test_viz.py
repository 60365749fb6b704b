"""Figures of a search and of a trial, from plain views."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from detlab import viz
from detlab.schemas.wire import BestView, CurvesView, EndReason, ExperimentState, ExperimentView, SeriesView, TrialView
from detlab.viz import kinds
from detlab.viz.drawing import BEST, FAILED, GREY, safe
from detlab.viz.seeds import points_of

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "layers": {"type": "int", "minval": 1, "maxval": 4},
    "optimizer": {"name": {"type": "categorical", "vals": ["sgd", "adam"]}},
    "seed": 1,
}
TRIED = [(1e-4, 1, "adam", 0.9), (1e-2, 2, "sgd", 0.2), (1e-1, 4, "adam", math.nan), (1e-3, 3, "adam", None)]


def trial(index: int, hparams: dict[str, Any], best: float | None, **more: Any) -> TrialView:
    return TrialView.model_validate(
        {
            "id": 10 + index,
            "index": index,
            "experiment_id": 7,
            "request_id": str(index),
            "state": "COMPLETED",
            "hparams": hparams,
            "best_validation": best,
            **more,
        }
    )


def curve(trial_id: int, values: list[float], *, name: str = "loss", group: str = "validation") -> SeriesView:
    return SeriesView(
        trial_id=trial_id, group=group, name=name, steps=[100 * at for at in range(1, len(values) + 1)], values=values
    )


def snapshot(
    trials: list[TrialView], curves: list[SeriesView] | None = None, *, smaller: bool = True, **more: Any
) -> CurvesView:
    experiment = ExperimentView(
        id=7, name="n", owner="ann", state=ExperimentState.ACTIVE, metric="loss", smaller_is_better=smaller, **more
    )
    return CurvesView(cursor=1, experiment=experiment, trials=trials, curves=curves or [])


def tried(**more: Any) -> CurvesView:
    trials = [
        trial(at, {"lr": lr, "layers": layers, "optimizer": {"name": name}, "seed": 1}, best)
        for at, (lr, layers, name, best) in enumerate(TRIED)
    ]
    return snapshot(trials, [curve(10, [1.0, 0.9]), curve(11, [0.8, 0.2])], config={"hyperparameters": SPACE}, **more)


def said(figure: Any) -> list[str]:
    """The texts that lie in a figure."""
    return [note.text for note in figure.layout.annotations]


def test_learning_curves_have_a_line_per_trial_and_the_best_on_top() -> None:
    figure = viz.learning_curves(tried(best=BestView(trial_id=10, trial_index=0, steps_completed=200, value=0.9)))
    assert [line.name for line in figure.data] == ["trial 11", "trial 10, best"]
    assert list(figure.data[1].x) == [100, 200]
    assert list(figure.data[1].y) == [1.0, 0.9]
    assert figure.data[1].line.color == BEST
    assert figure.data[1].line.width > figure.data[0].line.width
    assert figure.layout.xaxis.title.text == "steps"
    assert figure.layout.yaxis.title.text == "loss"
    assert figure.layout.title.subtitle.text == "best 0.9 (trial 10)"
    assert "optimizer.name = adam" in figure.data[1].hovertemplate


@pytest.mark.parametrize(("smaller", "best"), [(True, "trial 11, best"), (False, "trial 10, best")])
def test_without_a_best_of_the_master_the_best_validation_counts(smaller: bool, best: str) -> None:
    assert viz.learning_curves(tried(smaller=smaller)).data[-1].name == best


def test_learning_curves_of_another_metric_highlight_nothing() -> None:
    trials = [trial(0, {}, 0.1), trial(1, {}, 0.2)]
    curves = [curve(10, [1.0], name="acc", group="training"), curve(11, [2.0, 3.0], name="acc", group="training")]
    figure = viz.learning_curves(snapshot(trials, curves), metric="acc", group="training", log_y=True)
    assert [line.name for line in figure.data] == ["trial 10", "trial 11"]
    assert [line.mode for line in figure.data] == ["lines+markers", "lines"]  # a line of one point is not seen
    assert figure.layout.yaxis.type == "log"


def test_stopped_trials_are_grey_and_failed_ones_have_a_colour_of_their_own() -> None:
    trials = [
        trial(0, {}, 0.5, end_reason=EndReason.STOPPED, progress=0.25),
        trial(1, {}, 0.4, state="ERROR"),
        trial(2, {}, 0.6, end_reason=EndReason.STOPPED, progress=1.0),  # of the top rung: it was through
        trial(3, {}, 0.1),
    ]
    figure = viz.learning_curves(snapshot(trials, [curve(10 + at, [0.5]) for at in range(4)]))
    assert [line.line.color for line in figure.data][:2] == [GREY, FAILED]
    assert not {line.line.color for line in figure.data[2:]} & {GREY, FAILED}
    assert figure.data[1].name == "trial 11, failed"


def test_a_legend_of_very_many_trials_is_left_out() -> None:
    trials = [trial(at, {}, None) for at in range(21)]
    curves = [curve(10 + at, [0.5]) for at in range(21)]
    assert viz.learning_curves(snapshot(trials, curves)).layout.showlegend is False
    assert viz.learning_curves(snapshot(trials[:20], curves[:20])).layout.showlegend is True


def test_parallel_coordinates_draw_log_int_and_choice_axes() -> None:
    figure = viz.parallel_coordinates(tried())
    (lines,) = figure.data
    assert [one.label for one in lines.dimensions] == ["layers", "lr", "optimizer.name", "loss"]  # the seed is constant
    layers, rate, optimizer, loss = lines.dimensions
    assert list(layers["values"]) == [1, 2]
    assert list(rate["values"]) == pytest.approx([-4, -2])
    assert rate.ticktext == ("0.0001", "0.001", "0.01")
    assert list(rate.tickvals) == pytest.approx([-4, -3, -2])
    assert list(optimizer["values"]) == [1, 0]
    assert optimizer.ticktext == ("sgd", "adam")  # in the order of the config
    assert list(loss["values"]) == [0.9, 0.2]
    assert lines.line.reversescale is True
    assert figure.layout.title.subtitle.text == "2 trials without a value left out"
    assert viz.parallel_coordinates(tried(smaller=False)).data[0].line.reversescale is False


def test_small_multiples_draw_the_metric_by_each_hyperparameter() -> None:
    figure = viz.metric_by_hyperparameter(tried())
    assert len(figure.data) == 3
    assert [list(panel.y) for panel in figure.data] == [[0.9, 0.2]] * 3
    layers, rate, optimizer = figure.data
    assert (list(layers.x), list(rate.x), list(optimizer.x)) == ([1, 2], [1e-4, 1e-2], [1, 0])
    assert figure.layout.xaxis2.type == "log"
    assert figure.layout.xaxis3.ticktext == ("sgd", "adam")
    assert list(rate.marker.color)[1] == BEST
    assert figure.layout.yaxis2.matches == "y"


def test_an_axis_of_which_the_config_says_nothing_is_logarithmic_if_it_spans_much() -> None:
    trials = [trial(at, {"a": 10.0**at, "b": at + 1, "c": 10.0**at - 1}, 0.1 * at) for at in range(4)]
    figure = viz.metric_by_hyperparameter(snapshot(trials))
    assert [figure.layout[name].type for name in ("xaxis", "xaxis2", "xaxis3")] == ["log", "linear", "linear"]


def test_choices_that_look_like_numbers_stay_choices() -> None:
    config = {"hyperparameters": {"a": {"type": "categorical", "vals": [10, 9, True, None]}}}
    trials = [trial(at, {"a": value}, 0.1) for at, value in enumerate([9, 10, True])]
    figure = viz.metric_by_hyperparameter(snapshot(trials, config=config))
    assert figure.layout.xaxis.ticktext == ("10", "9", "true")
    assert list(figure.data[0].x) == [1, 0, 2]


def test_a_hyperparameter_that_some_trials_lack() -> None:
    trials = [trial(0, {"a": 1, "b": 2}, 0.1), trial(1, {"a": 2}, 0.2), trial(2, {"a": 3, "b": 4}, 0.3)]
    assert list(viz.parallel_coordinates(snapshot(trials)).data[0].dimensions[0]["values"]) == [1, 3]
    panels = viz.metric_by_hyperparameter(snapshot(trials)).data
    assert [list(panel.x) for panel in panels] == [[1, 2, 3], [2, 4]]


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ([], "No trials yet."),
        ([trial(0, {}, 0.1)], "This experiment has no hyperparameters."),
        ([trial(0, {"a": 1}, 0.1)], "Only one trial so far: nothing to compare."),
        (
            [trial(at, {}, None, point_due=True) for at in (0, 1)],
            "No trial has hyperparameters yet: they are drawn when trials start.",
        ),
        (
            [trial(0, {"a": 1}, 0.1), trial(1, {}, None, point_due=True)],
            "Only one trial so far: nothing to compare.",
        ),
        ([trial(0, {"a": 1}, 0.1), trial(1, {"a": 1}, 0.2)], "All trials have the same hyperparameters."),
        ([trial(0, {"a": 1}, None), trial(1, {"a": 2}, math.nan)], "No trial has reported loss yet."),
    ],
)
@pytest.mark.parametrize("draw", [viz.parallel_coordinates, viz.metric_by_hyperparameter])
def test_nothing_to_compare_is_said(draw: Any, trials: list[TrialView], reason: str) -> None:
    figure = draw(snapshot(trials))
    assert said(figure) == [reason]
    assert not figure.data
    assert figure.layout.xaxis.visible is False


def test_trials_without_hyperparameters_yet_are_no_seeds_of_one_point() -> None:
    due = [trial(at, {}, None, point_due=True) for at in (0, 1)]
    assert [len(one.trials) for one in points_of([*due, trial(2, {"a": 1}, 0.1), trial(3, {"a": 1}, 0.2)])] == [1, 1, 2]


def test_learning_curves_of_nothing_say_why() -> None:
    assert said(viz.learning_curves(snapshot([]))) == ["No trials yet."]
    nothing = viz.learning_curves(snapshot([trial(0, {}, None)], [curve(10, [])]))
    assert said(nothing) == ["No trial has reported loss in group validation yet."]


def test_metrics_of_a_trial_have_a_panel_each_and_a_line_per_group() -> None:
    curves = [curve(3, [1.0, 2.0], group="training"), curve(3, [1.5]), curve(3, [0.5], name="acc")]
    figure = viz.trial_metrics(curves)
    assert said(figure) == ["acc", "loss"]
    assert [(line.name, line.showlegend) for line in figure.data] == [
        ("validation", True),
        ("training", True),
        ("validation", False),
    ]
    assert figure.data[0].line.color == figure.data[2].line.color != figure.data[1].line.color
    assert figure.layout.title.text == "Metrics of trial 3"
    assert said(viz.trial_metrics(curves, names=["loss"])) == ["loss"]
    assert said(viz.trial_metrics(curves, names=["nope"])) == ["No reports of nope yet."]
    assert said(viz.trial_metrics([])) == ["No reports yet."]


def test_restarts_of_a_trial_are_dotted_lines_in_each_panel() -> None:
    curves = [curve(3, [1.0, 2.0]), curve(3, [0.5], name="acc")]
    figure = viz.trial_metrics(curves, restarts=[20, 10, 10])
    assert [(line.x0, line.x1, line.line.dash) for line in figure.layout.shapes] == [
        (10, 10, "dot"),
        (20, 20, "dot"),
    ] * 2
    assert not viz.trial_metrics(curves).layout.shapes


def test_metrics_beyond_what_can_be_read_are_counted() -> None:
    figure = viz.trial_metrics([curve(3, [1.0], name=f"m{at:02}") for at in range(30)])
    assert len(figure.data) == 24
    assert figure.layout.title.text == "Metrics of trial 3 (24 of 30)"


def test_names_of_users_are_no_markup() -> None:
    assert safe("<a href='x'>$x$ %{y}\x1b\n") == "&lt;a href=&#x27;x&#x27;&gt;&#36;x&#36; &#37;{y}⟨U+001B⟩⟨U+000A⟩"
    assert safe("x" * 100) == "x" * 59 + "…"
    bad = "<b>%{x}</b>"
    trials = [trial(at, {bad: f"<i>{at}"}, 0.1) for at in range(2)]
    view = snapshot(trials, [curve(10, [1.0], name=bad, group=bad)])
    figures = [
        viz.learning_curves(view, metric=bad, group=bad),
        viz.parallel_coordinates(view),
        viz.metric_by_hyperparameter(view),
        viz.trial_metrics(view.curves),
    ]
    for figure in figures:
        shown = json.dumps(figure.to_plotly_json(), default=str)
        assert "%{x}</b>" not in shown
        assert "<i>0" not in shown


def test_figures_keep_the_template_that_the_user_chose() -> None:
    import plotly.io as pio

    before = pio.templates.default
    pio.templates.default = "plotly_dark"
    try:
        for figure in (viz.learning_curves(tried()), viz.trial_metrics([curve(3, [1.0])])):
            assert figure.layout.template == pio.templates["plotly_dark"]
            assert figure.layout.paper_bgcolor is None
    finally:
        pio.templates.default = before


def test_a_figure_is_chosen_by_its_name() -> None:
    bare = tried().model_copy(update={"experiment": snapshot([]).experiment})
    config = {"hyperparameters": {**SPACE, "layers": {"type": "categorical", "vals": [4, 3, 2, 1]}}}
    figure = kinds.plot(bare, "parallel_coordinates", config=config)
    assert figure.data[0].dimensions[0].ticktext == ("4", "3", "2", "1")
    with pytest.raises(ValueError, match="no figure 'pie': choose one of best_so_far, learning_curves"):
        kinds.plot(bare, "pie", config=None)


def test_only_the_curves_that_are_drawn_are_asked_for() -> None:
    assert kinds.request("learning_curves", "loss", log_y=True) == {
        "group": "validation",
        "name": "loss",
        "max_trials": 100,
    }
    assert kinds.request("learning_curves", "loss", metric="a,b", group="training", max_trials=3) == {
        "group": "training",
        "name": None,
        "max_trials": 3,
    }
    assert kinds.request("parallel_coordinates", "loss")["group"] == "-"


MISSING = """
import sys
sys.modules["plotly"] = None  # as if it were not installed
import detlab
from detlab import viz
try:
    viz.trial_metrics([])
except detlab.errors.DetlabError as error:
    print(error)
"""


def test_without_plotly_the_error_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert "pip install 'detlab[kernel]'" in done.stdout


def test_importing_the_figures_imports_no_plotly() -> None:
    code = (
        "import sys, detlab.viz, detlab.client; print([m for m in ('plotly', 'pandas', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
