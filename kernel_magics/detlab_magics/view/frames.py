"""What the kernel sends to the widget: a snapshot for late comers, then only what changed."""

from __future__ import annotations

import time
from typing import Any

from detlab.client.facts import without_result
from detlab.schemas.wire import TrialState, TrialView, encode_floats
from detlab_magics.plaintext import plain
from detlab_magics.view.state import Curve, ViewState, greyed
from detlab_magics.view.text import notices, progress_line, shown_state, table, title

MAX_ROWS = 50
Sent = dict[int, tuple[list[int], list[float], list[int]]]


class FrameWriter:
    """Turns states into frames; remembers what was sent, so that the next frame carries only the rest.

    Increments come from one thread. `snapshot` may be called from another: it is made of what was sent and not of
    the live state, so the increments that follow fit it.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._told: tuple[dict[str, Any], Sent] = ({}, {})

    def increment(self, state: ViewState, now: float | None = None) -> dict[str, Any]:
        """Return a frame with what changed since the last one."""
        before = self._told[1]
        sent: Sent = {}
        parts = []
        for trial, curve in state.drawn_curves():
            steps, values, gaps = before.get(trial.id, ([], [], []))
            if (steps, values, gaps) == (curve.steps, curve.values, curve.resumed_at):
                sent[trial.id] = before[trial.id]
                continue
            sent[trial.id] = (list(curve.steps), list(curve.values), list(curve.resumed_at))
            parts.append(_part(trial.id, sent[trial.id], _common(steps, values, curve)))
        frame = self._frame(state, sent, time.time() if now is None else now)
        self._told = (frame, sent)
        return {**frame, "curves": encode_floats(parts)}

    def snapshot(self) -> dict[str, Any]:
        """Return a frame that needs no earlier one: all that was sent so far."""
        frame, sent = self._told
        return {**frame, "curves": encode_floats([_part(trial, curve, 0) for trial, curve in sent.items()])}

    def _frame(self, state: ViewState, sent: Sent, now: float) -> dict[str, Any]:
        drawn = list(sent)
        header, rows = table(state, MAX_ROWS)
        shown = state.ordered_trials()[: len(rows)]
        ids = {t.id for t in shown}
        rest = [state.trials[i] for i in drawn if i not in ids]
        trials = [_trial(t, cells) for t, cells in [*zip(shown, rows, strict=True), *((t, [str(t.id)]) for t in rest)]]
        frame = {
            "experiment": self._experiment(state, now),
            "header": header,
            "trials": trials,
            "drawn": drawn,
            # A page that missed increments finds out even if no further point comes.
            "lengths": [len(steps) for steps, _, _ in sent.values()],
            "count": state.counted()[2],
        }
        encoded: dict[str, Any] = encode_floats(frame)
        return encoded

    def _experiment(self, state: ViewState, now: float) -> dict[str, Any]:
        e = state.experiment
        best = {"trial": e.best.trial_id, "step": e.best.steps_completed, "value": e.best.value} if e.best else None
        return {
            "id": e.id,
            "title": title(e),
            "state": e.state.value,
            "shown": shown_state(state),
            "warning": without_result(e),
            "ended": state.ended,
            "metric": plain(e.metric, 60),
            "progress": e.progress,
            "line": progress_line(state, now),
            "url": self._url,
            "best": best,
            "smallerIsBetter": e.smaller_is_better,
            "notices": notices(state),
        }


def _trial(trial: TrialView, cells: list[str]) -> dict[str, Any]:
    return {
        "id": trial.id,
        "index": trial.index,
        "cells": cells,
        "grey": greyed(trial),
        "failed": trial.state is TrialState.ERROR,
        "running": trial.display_state == "RUNNING",
    }


def _part(trial_id: int, curve: tuple[list[int], list[float], list[int]], start: int) -> dict[str, Any]:
    steps, values, gaps = curve
    return {
        "trial": trial_id,
        "from": start,
        "steps": steps[start:],
        "values": [float(f"{v:.6g}") for v in values[start:]],
        "gaps": gaps,
    }


def _common(steps: list[int], values: list[float], curve: Curve) -> int:
    """Return how many points at the beginning of a curve are as they were (NaN is never equal: sent again)."""
    n = 0
    for old_step, old, step, new in zip(steps, values, curve.steps, curve.values, strict=False):
        if old_step != step or old != new:
            break
        n += 1
    return n
