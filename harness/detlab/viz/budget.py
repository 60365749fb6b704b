"""Figures of what a search spent: the best value so far against its budget, and its trials on slots over time."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from detlab.schemas.wire import AttemptSpan, CurvesView, TrialState, TrialView
from detlab.viz.data import ExperimentLike, SearchData, curves_wanted, search_of, stopped_or_failed, trials_wanted
from detlab.viz.drawing import BEST, COLOURS, FAILED, GREY, axis_type, duration_unit, empty, finite, plotly_module, safe
from detlab.viz.marks import MOST_TRIALS, described, error_bars, named, titled

BUDGETS = ("trials", "time", "slot_time")
MOST_ROWS = 64
"""Slots among the rows of a timeline."""
MOST_BARS = 3000
"""Attempts of a timeline: the newest."""
_POINTS = 50
"""Points of each trial's curve from which the best value at a time is known."""
_FEW = 10
_ROW_HEIGHT = 26
_EDGE = "rgba(127,127,127,0.9)"


def best_so_far(
    source: ExperimentLike | CurvesView,
    *,
    against: str = "trials",
    log_y: bool = False,
    max_trials: int = MOST_TRIALS,
) -> Any:
    """Draw the best value of the searcher metric against what the search had spent when it was found.

    Args:
        source: An experiment, or a snapshot that its `curves(history=True)` returned.
        against: `trials` in the order of their creation; `time` since the search began; or `slot_time`, the time that
            slots were held, added up over all slots.
        log_y: Whether the metric's axis is logarithmic.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`: a point per trial at its best value, and the best so far as a stepped line.

    Raises:
        ValueError: There is no such budget.
        DetlabError: plotly is not installed.
    """
    if against not in BUDGETS:
        raise ValueError(f"no budget {against!r}: choose one of {', '.join(BUDGETS)}")
    name = (source.experiment if isinstance(source, CurvesView) else source.view).metric
    search = search_of(source, wanted(name, max_trials=max_trials))
    title = f"Best {safe(search.metric)} so far in experiment {search.experiment.id}"
    merged = search.by_point()
    values = merged.ranked()
    if not values:
        return empty(title, f"No trial has reported {safe(search.metric)} yet." if search.snapshot.trials else _NONE)
    trials = {trial.id: trial for trial in search.snapshot.trials}
    found = _found(search, merged, against)
    if not found:
        return empty(title, _UNKNOWN[against])
    found.sort(key=lambda event: event[0])
    divisor, unit = (1.0, "") if against == "trials" else duration_unit(found[-1][0])
    figure = plotly_module("graph_objects").Figure()
    figure.add_scatter(**_dots(merged, found, divisor, trials))
    figure.add_scatter(**_steps(search, found, divisor))
    left_out = len(merged.snapshot.trials) - len({key for _, _, key in found})
    figure.update_layout(title=titled(title, merged, left_out=left_out))
    few = {"dtick": 1} if against == "trials" and found[-1][0] <= _FEW else {}  # no half trials
    figure.update_xaxes(title=_AXES[against].format(unit=unit), rangemode="tozero", **few)
    figure.update_yaxes(title=named(merged), **axis_type(log=log_y))
    return figure


def wanted(metric: str, *, max_trials: int = MOST_TRIALS) -> dict[str, Any]:
    """Return the arguments of `curves()` for `best_so_far`."""
    return curves_wanted(metric, group="validation", max_trials=max_trials, max_points=_POINTS, history=True)


_NONE = "No trials yet."
_AXES = {"trials": "trials", "time": "time since the start ({unit})", "slot_time": "slot time ({unit})"}
_UNKNOWN = {
    "trials": _NONE,
    "time": "It is not known when the values were reported: draw it against trials.",
    "slot_time": "It is not known which slots the trials held: draw it against trials.",
}


def _found(search: SearchData, merged: SearchData, against: str) -> list[tuple[float, float, int]]:
    """Return (spent, value, trial) of each value that is known with its place on the budget's axis.

    With seeds the mean of a point, where the last of its trials reached its best value.
    """
    found = _by_trial(search, against)
    if not merged.points:
        return found
    reached = _first_best(search, found)
    means = merged.ranked()
    return [
        (max(reached[one.id][0] for one in point.trials if one.id in reached), means[key], key)
        for key, point in merged.points.items()
        if key in means and any(one.id in reached for one in point.trials)
    ]


def _by_trial(search: SearchData, against: str) -> list[tuple[float, float, int]]:
    values = search.ranked()
    if against == "trials":
        return [(t.index + 1.0, values[t.id], t.id) for t in search.snapshot.trials if t.id in values]
    reported = _reports(search, values)
    if against == "time":
        began = search.experiment.started_at
        if began is None:
            began = min((when for when, _, _ in reported), default=0.0)
        return [(max(0.0, when - began), value, key) for when, value, key in reported]
    spent = slot_seconds(search.snapshot.attempts, [when for when, _, _ in reported])
    return [(s, value, key) for s, (_, value, key) in zip(spent, reported, strict=True)] if any(spent) else []


def _reports(search: SearchData, values: dict[int, float]) -> list[tuple[float, float, int]]:
    """Return (time, value, trial) of each report, from the end of the trial where its curve has no times."""
    found = []
    timed = set()
    for trial, curve in search.curves(search.metric, "validation"):
        for when, value in zip(curve.times, curve.values, strict=False):
            if finite(when) and finite(value):
                found.append((when, value, trial.id))
                timed.add(trial.id)
    for trial in search.snapshot.trials:
        if trial.id in values and trial.id not in timed and trial.ended_at is not None:
            found.append((trial.ended_at, values[trial.id], trial.id))
    return found


def slot_seconds(attempts: Sequence[AttemptSpan], times: Sequence[float]) -> list[float]:
    """Return how many slot-seconds the attempts had used up at each of the times."""
    changes: list[tuple[float, int]] = []
    for attempt in attempts:
        changes.append((attempt.started_at, len(attempt.slots)))
        if attempt.ended_at is not None:
            changes.append((max(attempt.started_at, attempt.ended_at), -len(attempt.slots)))
    changes.sort()
    starts: list[float] = []
    used, held = [0.0], [0]
    for at, change in changes:
        used.append(used[-1] + (held[-1] * (at - starts[-1]) if starts else 0.0))
        starts.append(at)
        held.append(held[-1] + change)
    found = []
    for moment in times:
        place = bisect_right(starts, moment)
        found.append(used[place] + held[place] * (moment - starts[place - 1]) if place else 0.0)
    return found


def _first_best(search: SearchData, found: list[tuple[float, float, int]]) -> dict[int, tuple[float, float]]:
    """Return (spent, value) of each trial's best value, where it was first reported."""
    smaller = search.experiment.smaller_is_better
    best: dict[int, tuple[float, float]] = {}
    for spent, value, key in sorted(found, key=lambda event: event[0]):
        if key not in best or (value < best[key][1] if smaller else value > best[key][1]):
            best[key] = (spent, value)
    return best


def _dots(
    search: SearchData, found: list[tuple[float, float, int]], divisor: float, trials: dict[int, TrialView]
) -> dict[str, Any]:
    """Draw a point per trial at its best value, where that was first reported."""
    best = _first_best(search, found)
    shown = list(best)
    return {
        "x": [best[key][0] / divisor for key in shown],
        "y": [best[key][1] for key in shown],
        "name": "mean of each point" if search.points else "best of each trial",
        "mode": "markers",
        "marker": {
            "color": [GREY if stopped_or_failed(trials[key]) else COLOURS[0] for key in shown],
            "size": 6,
            "opacity": 0.75,
        },
        "text": [described(trials[key], search.points.get(key)) for key in shown],
        "hovertemplate": "%{text}<br>%{y:.6g}<extra></extra>",
        **error_bars(search, [trials[key] for key in shown]),
    }


def _steps(search: SearchData, found: list[tuple[float, float, int]], divisor: float) -> dict[str, Any]:
    smaller = search.experiment.smaller_is_better
    xs: list[float] = []
    ys: list[float] = []
    for spent, value, _ in found:
        if not ys or (value < ys[-1] if smaller else value > ys[-1]):
            xs.append(spent / divisor)
            ys.append(value)
    xs.append(found[-1][0] / divisor)
    ys.append(ys[-1])
    return {
        "x": xs,
        "y": ys,
        "name": "best so far",
        "mode": "lines",
        "line": {"color": BEST, "width": 3, "shape": "hv"},
        "hovertemplate": "best so far %{y:.6g}<extra></extra>",
    }


def timeline(source: ExperimentLike | CurvesView, *, max_trials: int = MOST_TRIALS, now: float | None = None) -> Any:
    """Draw which trial held which slot, and from when to when: a row per slot, a bar per attempt.

    Args:
        source: An experiment, or a snapshot that its `curves(history=True)` returned.
        max_trials: How many trials to ask an experiment for.
        now: Until when attempts that have not ended are drawn, in seconds since the epoch; default this moment.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        DetlabError: plotly is not installed.
    """
    search = search_of(source, trials_wanted(max_trials, history=True))
    title = f"Trials on slots in experiment {search.experiment.id}"
    trials = {trial.id: trial for trial in search.snapshot.trials}
    spans = [span for span in search.snapshot.attempts if span.trial_id in trials][-MOST_BARS:]
    if not spans:
        return empty(title, "No trial has started yet." if trials else _NONE)
    end = time.time() if now is None else now
    rows = sorted({row for span in spans for row in _rows(span)}, key=_natural)
    began = min(span.started_at for span in spans)
    last = max(span.ended_at if span.ended_at is not None else max(end, span.started_at) for span in spans)
    divisor, unit = duration_unit(last - began)
    figure = plotly_module("graph_objects").Figure()
    places = {row: at for at, row in enumerate(rows[:MOST_ROWS])}
    groups: dict[str, list[tuple[str, AttemptSpan]]] = {}
    for span in spans:
        bars = [(row, span) for row in _rows(span) if row in places]
        groups.setdefault(_outcome(search, trials[span.trial_id], span), []).extend(bars)
    for outcome, colour in _OUTCOMES.items():
        if groups.get(outcome):
            drawn = _bars(groups[outcome], (began, end, divisor), places, trials)
            figure.add_bar(name=outcome, **drawn, marker={"color": colour, "line": {"color": _EDGE, "width": 1}})
    more = len(rows) - MOST_ROWS
    heading = {"text": title, **({"subtitle": {"text": f"{more} more slots are left out"}} if more > 0 else {})}
    figure.update_layout(
        title=heading, barmode="overlay", bargap=0.25, height=max(300, 190 + _ROW_HEIGHT * len(places)), showlegend=True
    )
    figure.update_layout(legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"})
    figure.update_xaxes(title=f"time since the first start ({unit})", rangemode="tozero")
    texts = [safe(row, 28) for row in places]
    figure.update_yaxes(
        tickvals=list(range(len(texts))), ticktext=texts, range=[len(texts) - 0.5, -0.5], automargin=True
    )
    return figure


_OUTCOMES = {
    "best": BEST,
    "completed": COLOURS[0],
    "running": COLOURS[1],
    "left its slots": COLOURS[5],
    "stopped early": GREY,
    "failed": FAILED,
}
"""What became of an attempt -> the colour of its bars."""


def _outcome(search: SearchData, trial: TrialView, span: AttemptSpan) -> str:
    if span.ended_at is None:
        return "running"
    if span.run < trial.run:
        return "left its slots"  # for a pause, a preemption or a restart: a later attempt continued
    if trial.state is TrialState.ERROR:
        return "failed"
    if trial.id == search.best:
        return "best"
    if stopped_or_failed(trial):
        return "stopped early"
    return "completed" if trial.state.terminal else "left its slots"


def _rows(span: AttemptSpan) -> list[str]:
    agent = span.agent_id or "?"
    return [slot if "/" in slot else f"{agent}/{slot}" for slot in span.slots] or [f"{agent} (no slot)"]


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Sort `gpu10` after `gpu9`."""
    parts, number = [], ""
    for sign in f"{text}\0":
        if sign.isascii() and sign.isdigit():
            number += sign
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, sign))
    return parts


def _bars(
    bars: list[tuple[str, AttemptSpan]],
    clock: tuple[float, float, float],
    places: dict[str, int],
    trials: dict[int, TrialView],
) -> dict[str, Any]:
    began, now, divisor = clock
    ends = [max(now, span.started_at) if span.ended_at is None else span.ended_at for _, span in bars]
    return {
        "y": [places[row] for row, _ in bars],
        "base": [(span.started_at - began) / divisor for _, span in bars],
        "x": [max(0.0, end - span.started_at) / divisor for end, (_, span) in zip(ends, bars, strict=True)],
        "orientation": "h",
        "text": [str(span.trial_id) for _, span in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "constraintext": "inside",
        "customdata": [
            _hover(trials[span.trial_id], span, row, end) for end, (row, span) in zip(ends, bars, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _hover(trial: TrialView, span: AttemptSpan, row: str, end: float) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(span.started_at))
    seconds = max(0.0, end - span.started_at)
    so_far = " so far" if span.ended_at is None else ""
    return f"{described(trial)}<br>attempt {span.run} on {safe(row)}<br>{began}, {seconds:.0f} s{so_far}"
