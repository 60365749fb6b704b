"""The view in words: the progress line, the table's cells, the plain-text card."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection
from typing import Any

from detlab.client.facts import without_result
from detlab.schemas.wire import BudgetView, EndReason, ExperimentState, ExperimentView, TrialState, TrialView
from detlab.schemas.wire.searches import level_of
from detlab.viz.fronts import shown_names
from detlab_magics.plaintext import in_notebook, name_cells, plain
from detlab_magics.view.state import ViewState, first_failed, stopped_early

MAX_ROWS = 24
WHY = "why"
PARETO = "yes"
"""The column that says why trials were stopped; it is there if one was."""
MAX_HPARAMS = 6
"""Hyperparameters that have columns."""
SILENT_SECONDS = 10.0
"""Seconds for which a failed connection is shown; attempts follow one another more quickly."""
_MADE_UP = re.compile(r"Experiment \(([\w-]+)\)")
_STATE_WORDS = {
    ExperimentState.ACTIVE: "running",
    ExperimentState.STOPPING_COMPLETED: "finishing",
    ExperimentState.STOPPING_CANCELED: "canceling",
    ExperimentState.STOPPING_KILLED: "being killed",
    ExperimentState.STOPPING_ERROR: "failing",
    ExperimentState.ERROR: "failed",
}


def number(value: float | None) -> str:
    """Format a metric value as the page and the panel do: see `significant`."""
    return "–" if value is None else significant(value, zeros=True)


def significant(value: float, *, zeros: bool) -> str:
    """Format a number as the front ends do (`components/common/format.ts`).

    Whole numbers below a million stay as they are, others have four significant digits: as a decimal from 0.001 to a
    million, as `1.234e-5` outside. `zeros` keeps zeros at the end, so that a column of measured values lines up.
    """
    size = abs(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"  # noqa: RUF001  the sign of the front ends
    if value and (size < 1e-3 or size >= 1e6):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if value == int(value) or size >= 1e4:
        return str(round(value))
    digits = f"{value:#.4g}"
    return digits if zeros else digits.rstrip("0").rstrip(".")


def duration(seconds: float) -> str:
    """Format seconds as 42 s, 3:07 or 2:05:11."""
    s = max(round(seconds), 0)
    if s < 60:
        return f"{s} s"
    hours, rest = divmod(s, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def best_value(trial: TrialView) -> str:
    """Return a trial's best validation; of one that reported no number, what it reported last."""
    last = trial.latest_validation
    diverged = trial.best_validation is None and last is not None and not math.isfinite(last)
    return number(last if diverged else trial.best_validation)


def title(experiment: ExperimentView) -> str:
    """Return the view's heading; a name that was made up by the master is not repeated."""
    made_up = _MADE_UP.fullmatch(experiment.name)
    if made_up:
        return f"Experiment {experiment.id} ({plain(made_up.group(1), 60)})"
    return f"Experiment {experiment.id} · {plain(experiment.name)}"


def state_word(experiment: ExperimentView) -> str:
    """Return the state in one lower-case word."""
    return _STATE_WORDS.get(experiment.state, experiment.state.value.lower())


def eta(state: ViewState, now: float) -> float | None:
    """Estimate the seconds left from the searcher's progress, or None while that says too little."""
    e = state.experiment
    begun = e.started_at or e.created_at
    if e.state is not ExperimentState.ACTIVE or not begun or e.progress < 0.03:
        return None
    return max((now - begun - e.paused_seconds) * (1 - e.progress) / e.progress, 0.0)


def shown_state(state: ViewState) -> str:
    """Return the state as the pages show it: an active experiment that waits, and runs nothing, is queued."""
    e = state.experiment
    waits = e.state is ExperimentState.ACTIVE and e.pending_reason and not state.counted()[1]
    return "QUEUED" if waits else e.state.value


def progress_line(state: ViewState, now: float | None = None) -> str:
    """Return the one progress line: done/total, running, best, time."""
    e = state.experiment
    now = time.time() if now is None else now
    done, running, known = state.counted()
    if state.silent_since is not None and now - state.silent_since < SILENT_SECONDS and not state.ended:
        return f"{done}/{max(e.trials_total or 0, known)} trials · no answer from the cluster, trying again"
    parts = [f"{done}/{max(e.trials_total or 0, known)} trials"]
    if e.state is ExperimentState.ACTIVE:
        parts.append(f"{running} running")
    else:
        parts += [state_word(e), *([e.held] if e.held and not state.ended else [])]
    if failed := e.trials.get(TrialState.ERROR.value, 0):
        parts.append(f"{failed} failed")
    if without_result(e) is not None:
        parts.append(f"no result: {plain(without_result(e) or '', 120)}")
    if e.best is not None:
        parts.append(f"best {plain(e.metric, 40)} {number(e.best.value)} ({e.best.told})")
    parts += [budget_left(one) for one in e.budgets if not state.ended]
    left = eta(state, now)
    if left is not None:
        parts.append(f"about {duration(left)} left")
    elif state.ended and e.ended_at and e.created_at:
        parts.append(f"took {duration(e.ended_at - e.created_at if e.took is None else e.took)}")
    elif e.pending_reason and not running:
        parts.append(plain(e.pending_reason))
    return " · ".join(parts)


def budget_left(one: BudgetView) -> str:
    """Say what is left of a budget."""
    left = max(0.0, one.limit - one.used)
    if one.name == "wall_clock":
        return f"{duration(left)} of {duration(one.limit)} left to use"
    return f"{significant(left, zeros=False)} of {one.limit:g} {plain(one.name, 30).replace('_', ' ')} left"


def trial_outcome(trial: TrialView) -> str:
    """Return a trial's state or how it ended, in a word or two."""
    if not trial.state.terminal:
        return (trial.display_state or trial.state.value).lower()
    if stopped_early(trial):
        return "stopped early"
    if trial.end_reason is EndReason.NO_METRICS:
        return "no metrics"
    if trial.end_reason is EndReason.INVALID_HP:
        return "invalid hparams"
    return "failed" if trial.state is TrialState.ERROR else trial.state.value.lower()


def flat_hparams(hparams: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested hyperparameters to `a.b` -> short text."""
    flat: dict[str, str] = {}
    for name, value in hparams.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            flat.update(flat_hparams(value, key + "."))
        else:
            flat[key] = significant(value, zeros=False) if isinstance(value, float) else plain(str(value), 24)
    return flat


def table(state: ViewState, limit: int = MAX_ROWS) -> tuple[list[str], list[list[str]]]:
    """Return (header, rows) of the trials, best first, at most `limit`; constant hyperparameters are left out.

    Metrics that were asked for, and all objectives of a search by several, follow the state with their last values.
    The last column says why trials were stopped, if one was.
    """
    trials = state.ordered_trials()
    flats = {t.id: flat_hparams(t.hparams) for t in trials}
    varied = _varied(flats.values())[:MAX_HPARAMS]
    why = any(t.why_stopped for t in trials[:limit])
    front = state.front()
    several = len(shown_names(state.config)) > 1
    header = [
        "trial",
        f"best {plain(state.experiment.metric, 32) or 'metric'}",
        "steps",
        "state",
        *(f"last {plain(n, 24)}" for n in state.metrics),
        *(["pareto"] if several else []),
    ]
    header += [f"hp.{n}" if n in header else n for n in (plain(n, 24) for n in varied)]
    header += [WHY] if why else []
    rows = [
        [str(t.id), best_value(t), str(t.steps_completed), trial_outcome(t)]
        + [number(state.latest.get(t.id, {}).get(name)) for name in state.metrics]
        + ([PARETO if t.id in front else ""] if several else [])
        + [flats[t.id].get(n, "–") for n in varied]
        + ([plain(t.why_stopped, 80)] if why else [])
        for t in trials[:limit]
    ]
    return header, rows


def _varied(flats: Collection[dict[str, str]]) -> list[str]:
    """Return the names of the hyperparameters in which trials differ; of a single trial, all."""
    names = sorted({name for flat in flats for name in flat})
    return [name for name in names if len(flats) < 2 or len({flat.get(name) for flat in flats}) > 1]


def left_out(state: ViewState, rows: int) -> list[str]:
    """Return what a table of so many rows does not show: trials and hyperparameters."""
    trials = state.counted()[2] - rows
    hparams = len(_varied([flat_hparams(t.hparams) for t in state.ordered_trials()])) - MAX_HPARAMS
    return [
        f"… and {count} more {noun}{'' if count == 1 else 's'}"
        for count, noun in ((trials, "trial"), (hparams, "hyperparameter"))
        if count > 0
    ]


def notices(state: ViewState) -> list[str]:
    """Return what must not be overlooked: warnings and the failure, in words."""
    e = state.experiment
    lines = [f"{level_of(w)}: {plain(w, 300)}" for w in e.warnings[:5]]
    f = e.card or e.failure
    first = first_failed(state) if f is None else None
    if first is not None and first.failure is not None:
        f, failed = first.failure, e.trials.get(TrialState.ERROR.value, 0)
        lines.append(f"trial {first.id} failed" + (f", the first of {failed}" if failed > 1 else ""))
    if f is not None:
        where = f" at {plain(f.where, 120)}" if f.where else ""
        rank = f", rank {f.rank}" if f.rank is not None else ""
        head = "stopped" if f.kind == "user_stop" else "failed"
        lines.append(f"{head} ({plain(f.kind, 30)}{rank}){where}: {plain(f.message, 400)}")
        cells = e.source.get("cells") or {}
        lines += [f"    {plain(name_cells(line.expandtabs(), cells), 200)}" for line in f.log_tail[-20:]]
        if f.hint:
            lines.append(f"next: {plain(in_notebook(f.hint), 300)}")
        if f.command and f.command not in (f.hint or ""):
            lines.append(f"      {plain(in_notebook(f.command), 300)}")
    return lines


def card(state: ViewState, now: float | None = None) -> str:
    """Return the whole view as plain text."""
    e = state.experiment
    header, rows = table(state)
    lines = [title(e), progress_line(state, now), *notices(state)]
    if rows:
        widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
        lines += ["  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in [header, *rows]]
        lines += left_out(state, len(rows))
    return "\n".join(lines)
