"""`%det_compare`: runs side by side in a notebook, a figure of their curves and tables below it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from detlab.viz.comparing import MOST_PANELS, compared_curves, run_names
from detlab_magics.errors import MagicError
from detlab_magics.plaintext import plain
from detlab_magics.tables import html_table, text_table

if TYPE_CHECKING:
    from detlab.schemas.wire.comparison import RunComparison
    from detlab_magics.kernel import KernelSession

MOST_ROWS = 40
"""Rows of each table."""
_CHARS = 60


class ComparisonTables:
    """What differs between runs, and their metrics, as a notebook shows it.

    Args:
        found: The comparison.
    """

    def __init__(self, found: RunComparison) -> None:
        self.found = found

    def _tables(self) -> list[tuple[list[str], list[list[str]]]]:
        names = run_names(self.found.runs)
        facts = [["name", *(plain(run.name, _CHARS) for run in self.found.runs)]]
        facts.append(["state", *(run.state for run in self.found.runs)])
        facts.append(["steps", *(str(run.steps_completed) for run in self.found.runs)])
        metrics = [
            [plain(f"{row.group}.{row.name}", _CHARS), *map(_summary, row.values)]
            for row in self.found.metrics[:MOST_ROWS]
        ]
        settings = [
            [plain(row.name, _CHARS), *("" if one is None else plain(str(one), _CHARS) for one in row.values)]
            for row in self.found.hyperparameters
            if not row.same
        ]
        parts = (("Run", facts), ("Metric (best, last)", metrics), ("Hyperparameter", settings[:MOST_ROWS]))
        return [([title, *names], rows) for title, rows in parts if rows]

    def _notes(self) -> list[str]:
        absent = (
            ("trial", self.found.absent_trials),
            ("experiment", self.found.absent_experiments),
            ("run", [plain(one, _CHARS) for one in self.found.absent_runs]),
        )
        said = [f"{kind} {', '.join(map(str, ids))}: not there, or not yours to see" for kind, ids in absent if ids]
        left = max(0, len(self.found.metrics) - MOST_ROWS) + self.found.metrics_left_out
        return [*said, f"{left} more metrics: name them by --metric"] if left else said

    def __repr__(self) -> str:
        """Return the text form."""
        return "\n\n".join([*(text_table(*one) for one in self._tables()), *self._notes()])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(said)}</p>" for said in self._notes())
        return "".join(html_table(*one) for one in self._tables()) + notes


def compare(
    session: KernelSession,
    ids: Sequence[int],
    *,
    trials: bool = False,
    runs: Sequence[str] = (),
    metrics: Sequence[str] = (),
    group: str | None = None,
    log_y: bool = False,
    against: Any = "steps",
) -> tuple[Any, ComparisonTables]:
    """Return the figure and the tables of a comparison.

    Raises:
        MagicError: Nothing is named, or nothing of it is there for the caller.
    """
    if not ids and not runs:
        raise MagicError("name what is to be compared", hint="%det_compare 12 15, or %det_compare --run RUN")
    client = session.client()
    found = client.compare(*(() if trials else ids), trials=ids if trials else (), runs=runs, metrics=metrics)
    if not found.runs:
        kind = "trials" if trials else "experiments"
        what = ", ".join(filter(None, [f"{kind} {', '.join(map(str, ids))}" if ids else "", _runs_said(runs)]))
        raise MagicError(
            f"none of the {what} is there, or yours to see",
            hint="%det_list shows experiments; --trials takes the ids for those of trials; det run list shows runs",
        )
    names, group = _drawn(found, metrics, group)
    shown = list(dict.fromkeys(trial for run in found.runs for trial in run.trial_ids))
    tracked = [run.run_id for run in found.runs if run.kind == "run"]
    curves = client.compare_curves(shown, runs=tracked, metrics=names, group=group) if shown or tracked else []
    figure = compared_curves(found, curves, metrics=names, group=group, x=against, log_y=log_y)
    return figure, ComparisonTables(found)


def _runs_said(runs: Sequence[str]) -> str:
    return f"runs {plain(', '.join(runs), 4 * _CHARS)}" if runs else ""


def _drawn(found: RunComparison, metrics: Sequence[str], group: str | None) -> tuple[list[str], str]:
    """Return which metrics are drawn, and of which group: those that are named, those of searches, else the first."""
    searched = list(dict.fromkeys(run.metric for run in found.runs if run.metric))
    names = list(metrics) or searched
    there = [row for row in found.metrics if not names or row.name in names]
    if group is None:
        group = "validation" if searched or not there else there[0].group
    return names or [row.name for row in there if row.group == group][:MOST_PANELS], group


def _summary(one: Any) -> str:
    if one is None:
        return ""
    best = "–" if one.best is None else f"{one.best:.6g}" + ("" if one.deviation is None else f" ± {one.deviation:.2g}")
    return best if one.last is None else f"{best}, {one.last:.6g}"
