"""Trials and metrics as rows: for a pandas frame, or for a CSV file. pandas is imported when a frame is asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from detlab.errors import DetlabError
from detlab.schemas.wire import SeriesView, TrialView
from detlab.visible import no_formula, visible

Row = dict[str, Any]
MOST_POINTS = 10_000
"""Of a curve, as far as the master gives them."""
TRIAL_COLUMNS = (
    "trial_id",
    "index",
    "state",
    "end_reason",
    "steps_completed",
    "best_validation",
    "latest_validation",
    "restarts",
    "seed",
    "started_at",
    "ended_at",
)
METRIC_COLUMNS = ("trial_id", "group", "name", "steps_completed", "value", "time")


def trial_rows(views: Iterable[TrialView]) -> list[Row]:
    """Return a row per trial; hyperparameters are columns `hparams.NAME`, those of groups `hparams.GROUP.NAME`."""
    return [
        {
            "trial_id": view.id,
            "index": view.index,
            "state": view.state.value,
            "end_reason": view.end_reason.value if view.end_reason else None,
            "steps_completed": view.steps_completed,
            "best_validation": view.best_validation,
            "latest_validation": view.latest_validation,
            "restarts": view.restarts,
            "seed": view.seed,
            "started_at": view.started_at,
            "ended_at": view.ended_at,
            **dict(_flat("hparams", view.hparams)),
        }
        for view in views
    ]


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{prefix}.{name}", value)
        else:
            yield f"{prefix}.{name}", value


def metric_rows(series: Iterable[SeriesView]) -> list[Row]:
    """Return a row per value: trial, group, name of the metric, step, value, time in seconds since the epoch."""
    return [
        {
            "trial_id": curve.trial_id,
            "group": curve.group,
            "name": curve.name,
            "steps_completed": step,
            "value": value,
            "time": curve.times[at] if at < len(curve.times) else None,
        }
        for curve in series
        for at, (step, value) in enumerate(zip(curve.steps, curve.values, strict=True))
    ]


def frame(rows: list[Row], columns: tuple[str, ...] = ()) -> Any:
    """Return rows as a pandas frame.

    Args:
        rows: The rows; one lacks what it has no value for.
        columns: The columns where there is no row.

    Raises:
        DetlabError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise DetlabError(
            "a frame needs pandas, which is not installed in this Python",
            hint="Install it: pip install 'detlab[pandas]'\nor write a CSV file: det experiment list-trials ID --csv",
        ) from error
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=list(columns))


def csv_text(rows: list[Row], columns: tuple[str, ...] = ()) -> str:
    """Return rows as CSV with a header; control characters in texts are made visible, since it may be a terminal.

    A spreadsheet takes no text for a formula: see `no_formula`.

    Args:
        rows: The rows; one lacks what it has no value for.
        columns: The first columns, there even if no row is.
    """
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return no_formula(visible(str(value), keep=""))
