"""The view: a function of (experiment, cursor), small, and safe with hostile text."""

import json
import math
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.wire import (
    BestView,
    BudgetView,
    CurvesView,
    EndReason,
    Event,
    ExperimentState,
    ExperimentView,
    FailureView,
    SeriesView,
    TrialState,
    TrialView,
)
from detlab.viz.ticks import tick_texts
from detlab_magics.tables import Listing
from detlab_magics.view import ViewState, mimebundle
from detlab_magics.view.frames import FrameWriter
from detlab_magics.view.render import MAX_BYTES
from detlab_magics.view.state import MAX_POINTS, MAX_TRIALS, thin
from detlab_magics.view.svg import color_of, focused
from detlab_magics.view.text import duration, number, progress_line, state_word, table, title, trial_outcome

HOSTILE = "<img src=x onerror=alert(1)>"


def experiment(**changes):
    values = {
        "id": 7, "name": "digits", "owner": "ada", "state": "ACTIVE", "metric": "loss", "trials_total": 4,
        "created_at": 1000.0, "started_at": 1000.0,
    }  # fmt: skip
    return ExperimentView(**{**values, **changes})


def trial(i, **changes):
    values = {
        "id": i,
        "index": i - 1,
        "experiment_id": 7,
        "request_id": f"r{i}",
        "state": "ACTIVE",
        "hparams": {"lr": i},
    }
    return TrialView(**{**values, **changes})


def metrics(event_id, trial_id, step, value, run=1):
    data = {"group": "validation", "steps_completed": step, "run": run, "metrics": {"loss": value}}
    return Event(id=event_id, kind="metrics", experiment_id=7, trial_id=trial_id, data=data)


def start(**changes):
    return ViewState.start(CurvesView(cursor=10, experiment=experiment(**changes), trials=[trial(1), trial(2)]))


def test_a_search_without_a_finite_value_is_marked_in_every_form():
    said = "no finite value of 'loss' was reported"
    state = start(state="COMPLETED", warnings=[said])
    state.trials[1] = trial(1, state="COMPLETED", latest_validation=math.nan)
    bundle = mimebundle(state)
    assert f"no result: {said}" in progress_line(state)
    assert "no result: no finite value of" in bundle["text/html"]
    frame = FrameWriter().increment(state)
    assert frame["experiment"]["warning"] == said
    assert frame["trials"][0]["cells"][1] == "NaN"
    assert FrameWriter().increment(start())["experiment"]["warning"] is None


def test_events_at_or_before_the_cursor_change_nothing():
    state = start()
    assert not state.apply([metrics(10, 1, 5, 0.5)])
    assert state.apply([metrics(11, 1, 5, 0.5)])
    assert not state.apply([metrics(11, 1, 6, 0.4)])
    assert (state.curves[1].steps, state.cursor) == ([5], 11)


@given(cut=st.integers(0, 12), chunks=st.integers(1, 5))
def test_the_view_depends_only_on_experiment_and_cursor(cut, chunks):
    events = [metrics(11 + i, 1 + i % 2, 1 + i // 2, 1.0 / (1 + i)) for i in range(12)]
    whole, parts = start(), start()
    whole.apply(events)
    for at in range(0, 12, chunks):
        parts.apply(events[max(at - 2, 0) : at + chunks])  # overlapping deliveries, as after a reconnect
    assert whole.curves == parts.curves
    first = start()
    first.apply(events[:cut])
    series = [
        SeriesView(trial_id=i, group="validation", name="loss", steps=c.steps, values=c.values)
        for i, c in first.curves.items()
    ]
    snapshot = CurvesView(cursor=first.cursor, experiment=experiment(), trials=[trial(1), trial(2)], curves=series)
    reopened = ViewState.start(snapshot)
    reopened.apply(events)
    assert {i: (c.steps, c.values) for i, c in reopened.curves.items()} == {
        i: (c.steps, c.values) for i, c in whole.curves.items()
    }


def test_a_restarted_trial_leaves_no_double_points_and_marks_the_gap():
    state = start()
    state.apply([metrics(11 + i, 1, i + 1, 1.0) for i in range(5)])
    state.apply([metrics(20, 1, 4, 0.7, run=2), metrics(21, 1, 5, 0.6, run=2)])
    assert state.curves[1].steps == [1, 2, 3, 4, 5]
    assert state.curves[1].values == [1.0, 1.0, 1.0, 0.7, 0.6]
    assert state.curves[1].resumed_at == [3]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400), st.integers(4, 90))
def test_thinning_keeps_the_ends_and_the_extremes(values, limit):
    steps = list(range(len(values)))
    kept_steps, kept = thin(steps, values, limit)
    assert len(kept) <= max(limit, 2)
    assert kept_steps[0] == 0
    assert kept_steps[-1] == steps[-1]
    assert kept_steps == sorted(set(kept_steps))
    inner = [v for v in values[1:-1] if math.isfinite(v)]
    if inner and len(values) > limit:
        assert min(inner) in kept
        assert max(inner) in kept


def test_a_long_curve_stays_bounded_and_its_last_value_exact():
    state = start()
    state.apply(metrics(11 + i, 1, i, i / 7) for i in range(5000))
    curve = state.curves[1]
    assert len(curve.steps) <= 2 * MAX_POINTS
    assert (curve.steps[-1], curve.values[-1]) == (4999, 4999 / 7)


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, [name for name, _ in attrs]))


def hostile_state():
    failure = FailureView(kind=HOSTILE, message=HOSTILE, where=HOSTILE, log_tail=[HOSTILE] * 20, hint=HOSTILE)
    view = experiment(name=HOSTILE, metric=HOSTILE, warnings=[HOSTILE], failure=failure, pending_reason=HOSTILE)
    view = view.model_copy(update={"best": BestView(trial_id=1, trial_index=0, steps_completed=3, value=0.5)})
    trials = [trial(1, hparams={HOSTILE: HOSTILE}, best_validation=0.5), trial(2, hparams={HOSTILE: "x"})]
    curves = [SeriesView(trial_id=1, group="validation", name=HOSTILE, steps=[1, 3], values=[0.7, 0.5])]
    return ViewState.start(CurvesView(cursor=1, experiment=view, trials=trials, curves=curves))


def test_a_search_that_has_gone_as_asked_is_no_warning():
    good = "the best trial was trained once more: 0.25, where it had 0.2; it keeps the constraints"
    bundle = mimebundle(start(warnings=[good]))
    assert f"note: {good}" in bundle["text/plain"]
    assert "warning" not in bundle["text/plain"]
    bad = good.replace("it keeps the constraints", "it breaks a constraint")
    assert f"warning: {bad}" in mimebundle(start(warnings=[bad]))["text/plain"]


def test_hostile_text_is_shown_as_text():
    bundle = mimebundle(hostile_state(), url='javascript:"><script>')
    elements = Elements()
    elements.feed(bundle["text/html"])
    assert {tag for tag, _ in elements.found} <= {"div", "a", "img", "pre", "table", "thead", "tbody", "tr", "th", "td"}
    assert not [attr for _, attrs in elements.found for attr in attrs if attr.startswith("on")]
    assert sum(tag == "img" for tag, _ in elements.found) == 1
    tags = {element.tag.split("}")[1] for element in ET.fromstring(bundle["image/svg+xml"]).iter()}
    assert tags <= {"svg", "style", "text", "path", "g", "title", "circle", "clipPath"}
    assert HOSTILE in bundle["text/plain"]


def test_control_characters_cannot_reach_a_terminal():
    state = start(name="a\x1b[2Jb\r\n")
    assert "\x1b" not in mimebundle(state)["text/plain"]


def test_the_frozen_view_of_a_large_search_is_under_100_kb():
    trials = [
        trial(i, state="COMPLETED", best_validation=i / 1000, hparams={f"parameter_{k}": i * k for k in range(12)})
        for i in range(1, 1001)
    ]
    curves = [
        SeriesView(
            trial_id=i,
            group="validation",
            name="loss",
            steps=list(range(500)),
            values=[math.sin(s * i) for s in range(500)],
        )
        for i in range(1, 301)
    ]
    view = experiment(state="COMPLETED", trials_total=1000, ended_at=2000.0, warnings=["w" * 900] * 50)
    state = ViewState.start(CurvesView(cursor=1, experiment=view, trials=trials, curves=curves))
    assert sum(len(text.encode()) for text in mimebundle(state).values()) < MAX_BYTES


def test_nothing_to_draw_says_what_it_waits_for():
    assert "waiting for the first report of" in mimebundle(start())["image/svg+xml"]
    ended = mimebundle(start(state="COMPLETED"))["image/svg+xml"]
    assert "no report of" in ended


def test_only_nan_reports_draw_nothing_and_do_not_fail():
    state = start()
    state.apply([metrics(11, 1, 1, "NaN"), metrics(12, 1, 2, "Infinity")])
    assert ET.fromstring(mimebundle(state)["image/svg+xml"]) is not None


@pytest.mark.parametrize(
    ("values", "dots"),
    [([1.0, "NaN", 2.0, "NaN", 3.0, 4.0], 3), (["NaN", 1.0, "Infinity", 2.0, "-Infinity"], 2), ([1.0, 2.0, 3.0], 1)],
)
def test_values_between_those_that_are_not_finite_are_in_the_picture(values, dots):
    """Three of four finite values were not to be seen: a line through one point has no extent."""
    state = start()
    state.apply([metrics(11 + at, 1, at, value) for at, value in enumerate(values)])
    picture = ET.fromstring(mimebundle(state)["image/svg+xml"])
    assert sum(one.get("r") == "2.2" for one in picture.iter("{http://www.w3.org/2000/svg}circle")) == dots


@pytest.mark.parametrize(
    "values", [[5e-324, 1e-323], [5e-324, 1e-310], [0.0, 5e-324], [-1.7e308, 1.7e308], [5e-323, 5e-323]]
)
def test_the_smallest_and_the_largest_numbers_have_a_picture(values):
    state = start()
    state.apply([metrics(11 + at, 1, at, value) for at, value in enumerate(values)])
    picture = mimebundle(state)["image/svg+xml"]
    assert ET.fromstring(picture) is not None
    assert "nan" not in picture
    assert "inf" not in picture


def test_frames_carry_only_what_changed_and_are_strict_json():
    state, frames = start(), FrameWriter()
    state.apply([metrics(11 + i, 1, i, float(i)) for i in range(50)])
    frames.increment(state)
    state.apply([metrics(90, 1, 50, "NaN")])
    frame = frames.increment(state)
    assert [(c["trial"], c["from"], c["steps"], c["values"]) for c in frame["curves"]] == [(1, 50, [50], ["NaN"])]
    json.loads(json.dumps(frame, allow_nan=False))
    assert len(json.dumps(frame)) < 2_000
    assert frames.snapshot()["curves"][0]["from"] == 0


def test_every_frame_tells_how_long_the_curves_are():
    """A page that missed the last points found out only when more came: after the end none do."""
    state, frames = start(), FrameWriter()
    state.apply([metrics(11 + i, 1, i, float(i)) for i in range(50)])
    frames.increment(state)
    state.apply([metrics(90, 2, 1, 0.5)])
    frames.increment(state)
    state.experiment = state.experiment.model_copy(update={"state": ExperimentState.COMPLETED})
    last = frames.increment(state)
    assert last["curves"] == []
    assert dict(zip(last["drawn"], last["lengths"], strict=True)) == {1: 50, 2: 1}
    assert frames.snapshot()["lengths"] == last["lengths"]


def test_the_progress_line_says_done_running_best_and_time():
    state = start(progress=0.5)
    state.trials[1] = trial(1, state=TrialState.COMPLETED, end_reason=EndReason.STOPPED)
    state.trials[2] = trial(2, display_state="RUNNING")
    state.experiment = state.experiment.model_copy(
        update={"best": BestView(trial_id=1, trial_index=0, steps_completed=3, value=0.25)}
    )
    line = progress_line(state, now=1100.0)
    assert line == "1/4 trials · 1 running · best loss 0.2500 (trial 1) · about 1:40 left"
    state.experiment = state.experiment.model_copy(update={"state": ExperimentState.PAUSED})
    assert "left" not in progress_line(state, now=1100.0), "it grew while the experiment was paused"
    state.experiment = state.experiment.model_copy(update={"state": ExperimentState.COMPLETED, "ended_at": 1065.0})
    assert progress_line(state).endswith("took 1:05")
    state.experiment = state.experiment.model_copy(update={"started_at": 1000.0, "paused_seconds": 20.0})
    assert progress_line(state).endswith("took 45 s"), "a pause does not count"
    paused = {"state": ExperimentState.PAUSED, "ended_at": None, "trials": {"ACTIVE": 1, "COMPLETED": 1, "RUNNING": 1}}
    state.experiment = state.experiment.model_copy(update=paused)
    assert progress_line(state, now=1100.0).startswith("1/4 trials · paused · 1 pausing · best"), "it leaves its slot"
    state.experiment = state.experiment.model_copy(update={"trials": {"PAUSED": 1, "COMPLETED": 1}})
    assert progress_line(state, now=1100.0).startswith("1/4 trials · paused · best")


def test_failed_trials_are_counted_with_the_first_cause_and_drawn_apart_from_stopped_ones():
    """The card said `6/6 trials · completed`; the curves of failed trials were those of stopped ones."""
    best = BestView(trial_id=2, trial_index=1, steps_completed=5, value=0.25, failed=True)
    state = start(state="COMPLETED", trials={"COMPLETED": 1, "ERROR": 2}, best=best)
    card = FailureView(kind="exception", message="ZeroDivisionError: division by zero")
    state.trials[1] = trial(1, state="ERROR", failure=FailureView(kind="oom", message="later"), ended_at=1020.0)
    state.trials[2] = trial(2, state="ERROR", failure=card, ended_at=1010.0, best_validation=0.25)
    state.trials[3] = trial(3, state="COMPLETED", end_reason=EndReason.STOPPED)
    assert "2 failed · best loss 0.2500 (trial 2, which failed)" in progress_line(state)
    text = mimebundle(state)["text/plain"]
    assert "trial 2 failed, the first of 2\nfailed (exception): ZeroDivisionError" in text
    assert color_of(state.trials[1]) != color_of(state.trials[3])
    sent = {one["id"]: (one["grey"], one["failed"]) for one in FrameWriter().increment(state)["trials"]}
    assert sent == {1: (True, True), 2: (True, True), 3: (True, False)}
    assert "3, 2 failed" in repr(Listing([state.experiment], active=False))


def test_a_search_that_waits_is_shown_as_queued_with_the_reason():
    """The card said running, while the pages said queued."""
    said = "Slurm job 7: Resources, expected to start 2026-11-27 16:00:00"
    state = start(pending_reason=said)
    shown = FrameWriter().increment(state)["experiment"]
    assert (shown["state"], shown["shown"]) == ("ACTIVE", "QUEUED")
    assert shown["line"].endswith(said)
    state.trials[1] = trial(1, display_state="RUNNING")
    shown = FrameWriter().increment(state)["experiment"]
    assert (shown["shown"], said in shown["line"]) == ("ACTIVE", False)


def test_the_progress_line_says_what_is_left_of_budgets():
    budgets = [
        BudgetView(name="slot_hours", limit=4, used=2.75),
        BudgetView(name="wall_clock", limit=7200, used=3600),
    ]
    state = ViewState.start(CurvesView(cursor=1, experiment=experiment(budgets=budgets), trials=[]))
    line = progress_line(state, 1001.0)
    assert "1.25 of 4 slot hours left" in line
    assert "1:00:00 of 2:00:00 left to use" in line


def test_numbers_and_durations_read_well():
    assert [number(v) for v in (None, 3.0, 0.98765, 0.0214, 1e-5, math.nan, math.inf, 1234567.8)] == [
        "–", "3", "0.9877", "0.02140", "1e-5", "NaN", "∞", "1.235e6",
    ]  # fmt: skip
    assert [duration(s) for s in (0.4, 59, 61, 3600, 7325)] == ["0 s", "59 s", "1:01", "1:00:00", "2:02:05"]


def test_a_few_hopeless_values_do_not_flatten_the_picture():
    good = [0.9 + i / 1000 for i in range(60)]
    low, high = focused([*good, 0.1, 0.2], smaller_is_better=False)
    assert low > 0.88
    assert high > max(good)
    low, high = focused([*good, 1e9], smaller_is_better=True)
    assert high < 1
    assert focused([*good, 0.8], smaller_is_better=False)[0] < 0.8, "what is only a little worse stays in the picture"
    assert focused([*good, 0.1], smaller_is_better=True)[0] < 0.1, "the best is never left out"
    low, high = focused([3.0], smaller_is_better=True)
    assert low < 3 < high


def test_a_picture_says_what_it_leaves_out():
    state = start(smaller_is_better=True)
    state.apply([metrics(11 + i, 1, i, 1.0 + i / 100) for i in range(60)])
    state.apply([metrics(99, 2, 1, 1e6)])
    assert "loss (1 of the worst values not drawn)" in mimebundle(state)["image/svg+xml"]


def test_counts_of_a_very_large_search_come_from_the_master_and_the_state_stays_small():
    state = start(trials_total=5000, trials={"COMPLETED": 900, "ACTIVE": 100, "RUNNING": 8})
    state.apply(
        Event(id=100 + i, kind="trial", experiment_id=7, trial_id=i, data=trial(i, state="COMPLETED").model_dump())
        for i in range(3, 1000)
    )
    assert len(state.trials) <= MAX_TRIALS
    assert progress_line(state, now=1100.0).startswith("900/5000 trials · 8 running")


def test_a_resumed_trial_looks_the_same_to_who_came_between():
    """The snapshot does not say which run gave its points, so the first report behind them means a resume."""
    events = [metrics(11 + i, 1, i + 1, 1.0) for i in range(5)]
    events += [metrics(20, 1, 4, 0.7, run=2), metrics(21, 1, 5, 0.6, run=2)]
    watcher = start()
    watcher.apply(events)
    before = start()
    before.apply(events[:5])
    series = [SeriesView(trial_id=1, group="validation", name="loss", steps=[1, 2, 3, 4, 5], values=[1.0] * 5)]
    snapshot = CurvesView(cursor=15, experiment=experiment(), trials=[trial(1, run=2), trial(2)], curves=series)
    comer = ViewState.start(snapshot)
    comer.apply(events)
    assert (comer.curves[1].steps, comer.curves[1].values) == (watcher.curves[1].steps, watcher.curves[1].values)
    assert comer.curves[1].resumed_at == watcher.curves[1].resumed_at == [3]


def test_a_late_page_can_go_on_from_the_snapshot_with_the_next_increment():
    """The snapshot is what was sent, not the live state: increments after it must fit."""
    state, frames = start(), FrameWriter()
    state.apply([metrics(11, 1, 1, 1.0), metrics(12, 2, 1, 1.0)])
    frames.increment(state)
    state.apply([metrics(13, 1, 2, 0.5)])  # known to the kernel, not yet sent
    late = {c["trial"]: c["steps"] for c in frames.snapshot()["curves"]}
    assert late == {1: [1], 2: [1]}
    part = frames.increment(state)["curves"]
    assert [(c["trial"], c["from"], c["steps"]) for c in part] == [(1, 1, [2])]


def test_a_name_made_up_by_the_master_is_not_repeated():
    assert title(experiment(name="Experiment (warmly-quiet-heron)")) == "Experiment 7 (warmly-quiet-heron)"
    assert title(experiment(name="mine")) == "Experiment 7 · mine"


def test_a_table_says_what_it_leaves_out():
    trials = [trial(i, hparams={f"parameter_{k}": i * k for k in range(300)}) for i in range(1, 41)]
    curves = CurvesView(cursor=1, experiment=experiment(trials_total=40, trials_completed=0), trials=trials)
    shown = mimebundle(ViewState.start(curves), now=1001.0)
    for form in ("text/html", "text/plain"):
        assert "… and 293 more hyperparameters" in shown[form]  # one of them is 0 in each trial
        assert "more trials" in shown[form]
        assert "parameter_77" not in shown[form]
    few = CurvesView(cursor=1, experiment=experiment(trials_total=2), trials=[trial(1), trial(2)])
    assert "… and" not in mimebundle(ViewState.start(few), now=1001.0)["text/plain"]


def test_a_table_says_why_trials_were_stopped_if_one_was():
    evil = "<b>0.5</b>, needed 0.4"
    trials = [trial(1, stop_evidence=evil), trial(2, would_stop=["above 0.3 (threshold)"]), trial(3)]
    shown = mimebundle(ViewState.start(CurvesView(cursor=1, experiment=experiment(), trials=trials)), now=1001.0)
    assert [line for line in shown["text/plain"].splitlines() if line.endswith("why")]
    assert "not stopped: above 0.3 (threshold)" in shown["text/plain"]
    assert "&lt;b&gt;0.5&lt;/b&gt;, needed 0.4" in shown["text/html"]
    plain = mimebundle(ViewState.start(CurvesView(cursor=1, experiment=experiment(), trials=[trial(3)])), now=1001.0)
    assert "why" not in plain["text/plain"]


def test_what_failed_has_the_word_that_the_panel_has():
    assert state_word(experiment(state=ExperimentState.ERROR)) == "failed"
    assert trial_outcome(trial(1, state=TrialState.ERROR, end_reason=EndReason.ERROR)) == "failed"


OBJECTIVES = {
    "searcher": {
        "metrics": [{"name": "loss"}, {"name": "acc", "smaller_is_better": False}],
        "constraints": {"size": {"max": 10.0}},
    }
}


def several(event_id, trial_id, **values):
    data = {"group": "validation", "steps_completed": event_id, "run": 1, "metrics": values}
    return Event(id=event_id, kind="metrics", experiment_id=7, trial_id=trial_id, data=data)


def test_all_objectives_and_metrics_that_were_asked_for_are_columns_and_the_front_is_marked():
    trials = [trial(number) for number in (1, 2, 3, 4)]
    snapshot = CurvesView(
        cursor=10,
        experiment=experiment(),
        trials=trials,
        curves=[SeriesView(trial_id=1, group="validation", name="acc", steps=[1, 2], values=[0.1, 0.5])],
    )
    state = ViewState.start(snapshot, ["loss", "acc", "f1"], OBJECTIVES)
    assert state.apply([several(11, 1, loss=0.5, size=1), several(12, 2, loss=0.4, acc=0.6, size=1, f1=0.25)])
    assert state.apply([several(13, 3, loss=0.1, acc=0.1, size=1), several(14, 4, loss=0.0, acc=1.0, size=99)])
    header, rows = table(state)
    assert header[:8] == ["trial", "best loss", "steps", "state", "last loss", "last acc", "last f1", "pareto"]
    assert len(header) == len(set(header))
    found = {row[0]: row[4:8] for row in rows}
    assert found == {
        "1": ["0.5000", "0.5000", "–", ""],
        "2": ["0.4000", "0.6000", "0.2500", "yes"],
        "3": ["0.1000", "0.1000", "–", "yes"],
        "4": ["0", "1", "–", ""],
    }
    assert [column for column in table(start())[0] if column in {"pareto", "acc"}] == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 0.25, 0.5], ["0", "0.25", "0.5"]),
        ([1234.5678, 1234.568, 1234.5682], ["1234.5678", "1234.568", "1234.5682"]),
        ([-20_100_000_000.0, -20_075_000_000.0], ["-2.01e+10", "-2.0075e+10"]),
        ([0.1 + 0.2], ["0.3"]),
        ([], []),
    ],
)
def test_ticks_that_lie_close_together_have_the_digits_that_tell_them_apart(values, said) -> None:
    assert tick_texts(values) == said
