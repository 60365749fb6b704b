"""Which trial started from whose checkpoint: the family tree of population-based training."""

from __future__ import annotations

import math
from typing import Any

from detlab.schemas.wire import CurvesView, ParentView, TrialView
from detlab.viz.data import ExperimentLike, SearchData, flatten, search_of, trials_wanted
from detlab.viz.drawing import BEST, GOODNESS, GREY, empty, number, plotly_module, safe
from detlab.viz.marks import MOST_TRIALS, described, titled

MOST_LANES = 200
"""Trials of one figure: whole families, that of the best trial first."""
_LANE_HEIGHT = 16


def lineage(source: ExperimentLike | CurvesView, *, max_trials: int = MOST_TRIALS) -> Any:
    """Draw each trial as a line over its steps that begins at the checkpoint of its parent.

    Lines are coloured by the best value of the searcher metric; the ancestors of the best trial are thick. Hover over
    the end of a line for the hyperparameters, and what changed from the parent's.

    Args:
        source: An experiment, or a snapshot that its `curves(history=True)` returned.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        DetlabError: plotly is not installed.
    """
    search = search_of(source, trials_wanted(max_trials, history=True))
    title = f"Lineage of the trials of experiment {search.experiment.id}"
    trials = {trial.id: trial for trial in search.snapshot.trials}
    parents = {one.trial_id: one for one in search.snapshot.parents if one.trial_id in trials}
    if not trials:
        return empty(title, "No trials yet.")
    if not parents:
        return empty(title, "No trial started from another's checkpoint, as population-based search lets them.")
    order = _order(search, trials, parents)
    lanes = {key: at for at, key in enumerate(order[:MOST_LANES])}
    line_of_best = _ancestors(search.best, parents)
    figure = plotly_module("graph_objects").Figure()
    figure.add_scatter(**_lines(lanes, trials, parents, set(), width=2, colour=GREY, name="other trials"))
    figure.add_scatter(
        **_lines(lanes, trials, parents, line_of_best, width=4, colour=BEST, name="ancestors of the best"),
    )
    figure.add_scatter(**_ends(search, lanes, trials, parents))
    more = len(order) - len(lanes)
    heading = titled(title, search)
    if more > 0:
        heading["subtitle"] = {"text": f"{more} more trials are left out"}
    figure.update_layout(title=heading, height=max(360, 180 + _LANE_HEIGHT * len(lanes)), showlegend=False)
    figure.update_xaxes(title="steps", rangemode="tozero")
    figure.update_yaxes(title="trial", autorange="reversed", **_ticks(lanes))
    return figure


def _order(search: SearchData, trials: dict[int, TrialView], parents: dict[int, ParentView]) -> list[int]:
    """Return the trials so that each stands below its parent: the best trial's family first, then by creation."""
    children: dict[int, list[int]] = {}
    for key, parent in parents.items():
        if parent.parent_id in trials:
            children.setdefault(parent.parent_id, []).append(key)
    roots = [key for key in trials if key not in parents or parents[key].parent_id not in trials]
    founder = next((key for key in reversed(_path(search.best, parents)) if key in trials), None)
    # those without family say nothing here, and come last
    roots.sort(key=lambda key: (key != founder, key not in children and key not in parents, trials[key].index))
    order: list[int] = []
    waiting = list(reversed(roots))
    while waiting:
        key = waiting.pop()
        order.append(key)
        waiting.extend(sorted(children.get(key, ()), key=lambda child: -trials[child].index))
    return order


def _path(trial: int | None, parents: dict[int, ParentView]) -> list[int]:
    """Return a trial and its ancestors, the nearest first."""
    path: list[int] = []
    while trial is not None and trial not in path:
        path.append(trial)
        above = parents.get(trial)
        trial = above.parent_id if above else None
    return path


def _ancestors(best: int | None, parents: dict[int, ParentView]) -> set[int]:
    return set(_path(best, parents))


def _lines(
    lanes: dict[int, int],
    trials: dict[int, TrialView],
    parents: dict[int, ParentView],
    only: set[int],
    *,
    width: int,
    colour: str,
    name: str,
) -> dict[str, Any]:
    """One broken line for all trials of a kind: down from the parent's lane, then along its own."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for key, lane in lanes.items():
        if only and key not in only:
            continue
        parent = parents.get(key)
        start = parent.steps_completed if parent else 0
        if parent and parent.parent_id in lanes:
            xs.append(start)
            ys.append(lanes[parent.parent_id])
        xs += [start, max(start, trials[key].steps_completed), None]
        ys += [lane, lane, None]
    return {
        "x": xs,
        "y": ys,
        "name": name,
        "mode": "lines",
        "line": {"color": colour, "width": width},
        "hoverinfo": "skip",
    }


def _ends(
    search: SearchData, lanes: dict[int, int], trials: dict[int, TrialView], parents: dict[int, ParentView]
) -> dict[str, Any]:
    values = search.ranked()
    starts = {key: parents[key].steps_completed if key in parents else 0 for key in lanes}
    marker: dict[str, Any] = {
        "size": [13 if key == search.best else 9 for key in lanes],
        "line": {"color": BEST, "width": [2 if key == search.best else 0 for key in lanes]},
        "color": [values.get(key, math.nan) for key in lanes] if any(key in values for key in lanes) else GREY,
    }
    if marker["color"] != GREY:
        marker |= {
            "colorscale": [list(stop) for stop in GOODNESS],
            "reversescale": search.experiment.smaller_is_better,
            "colorbar": {"title": {"text": safe(search.metric, 24)}, "thickness": 14},
        }
    return {
        "x": [max(starts[key], trials[key].steps_completed) for key in lanes],
        "y": list(lanes.values()),
        "mode": "markers",
        "marker": marker,
        "text": [_text(search, trials, parents.get(key), key, values.get(key)) for key in lanes],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _text(
    search: SearchData, trials: dict[int, TrialView], parent: ParentView | None, key: int, value: float | None
) -> str:
    lines = [described(trials[key]), f"best {safe(search.metric)} {number(value)}"]
    if parent is None:
        return "<br>".join(lines)
    lines.append(f"from trial {parent.parent_id} at batch {parent.steps_completed}")
    if parent.parent_id in trials:
        before, after = flatten(trials[parent.parent_id].hparams), flatten(trials[key].hparams)
        changed = [name for name in after if name in before and before[name] != after[name]]
        lines += [f"{safe(n)}: {_shown(before[n])} → {_shown(after[n])}" for n in changed[:8]]
    return "<br>".join(lines)


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else safe(value, 24)


def _ticks(lanes: dict[int, int]) -> dict[str, Any]:
    every = max(1, len(lanes) // 40)
    shown = [(lane, str(key)) for key, lane in lanes.items() if lane % every == 0]
    return {"tickvals": [lane for lane, _ in shown], "ticktext": [text for _, text in shown]}
