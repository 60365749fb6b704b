"""What the kernel sends to the widget: a snapshot for late comers, then only what changed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas.wire import EndReason, TrialState, encode_floats
from detlab_magics.view.state import Curve, ViewState
from detlab_magics.view.text import notices, plain, progress_line, state_word, table

MAX_ROWS = 50


@dataclass
class FrameWriter:
    """Turns states into frames; remembers what was sent so that the next frame carries only the rest."""

    url: str | None = None
    sent: dict[int, tuple[list[int], list[float], list[int]]] = field(default_factory=dict)

    def snapshot(self, state: ViewState, now: float | None = None) -> dict[str, Any]:
        """Return a frame that needs no earlier one."""
        curves = [_part(trial.id, curve, 0) for trial, curve in state.drawn_curves()]
        return self._frame(state, curves, now)

    def increment(self, state: ViewState, now: float | None = None) -> dict[str, Any]:
        """Return a frame with what changed since the last increment."""
        curves = []
        for trial, curve in state.drawn_curves():
            steps, values, gaps = self.sent.get(trial.id, ([], [], []))
            if (steps, values, gaps) == (curve.steps, curve.values, curve.resumed_at):
                continue
            curves.append(_part(trial.id, curve, _common(steps, values, curve)))
            self.sent[trial.id] = (list(curve.steps), list(curve.values), list(curve.resumed_at))
        return self._frame(state, curves, now)

    def _frame(self, state: ViewState, curves: list[dict[str, Any]], now: float | None) -> dict[str, Any]:
        now = time.time() if now is None else now
        header, rows = table(state, MAX_ROWS)
        shown = state.ordered_trials()[: len(rows)]
        rest = [t for t, _ in state.drawn_curves() if t.id not in {s.id for s in shown}]
        trials = [
            {
                "id": t.id,
                "index": t.index,
                "cells": cells,
                "grey": t.end_reason is EndReason.STOPPED or t.state in (TrialState.ERROR, TrialState.CANCELED),
                "running": t.display_state == "RUNNING",
            }
            for t, cells in [*zip(shown, rows, strict=True), *((t, [str(t.id)]) for t in rest)]
        ]
        frame = {
            "experiment": self._experiment(state, now),
            "header": header,
            "trials": trials,
            "curves": curves,
        }
        return encode_floats(frame)

    def _experiment(self, state: ViewState, now: float) -> dict[str, Any]:
        e = state.experiment
        best = {"trial": e.best.trial_id, "step": e.best.steps_completed, "value": e.best.value} if e.best else None
        return {
            "id": e.id,
            "name": plain(e.name),
            "state": state_word(e),
            "ended": state.ended,
            "metric": plain(e.metric, 60),
            "progress": e.progress,
            "line": progress_line(state, now),
            "url": self.url,
            "best": best,
            "smallerIsBetter": e.smaller_is_better,
            "notices": notices(state),
        }


def _part(trial_id: int, curve: Curve, start: int) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "from": start,
        "steps": curve.steps[start:],
        "values": [float(f"{v:.6g}") for v in curve.values[start:]],
        "gaps": list(curve.resumed_at),
    }


def _common(steps: list[int], values: list[float], curve: Curve) -> int:
    n = 0
    for old_step, old, step, new in zip(steps, values, curve.steps, curve.values, strict=False):
        if old_step != step or old != new:
            break
        n += 1
    return n


__all__ = ["FrameWriter"]
