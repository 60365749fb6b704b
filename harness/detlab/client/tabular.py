"""Trials and metrics as rows: for a pandas frame, or for a CSV file. pandas is imported when a frame is asked for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.schemas.wire import ExperimentView, SeriesView, TrialView, decode_float
from detlab.schemas.wire.finding import FoundTrials
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
FOUND_COLUMNS = (
    "trial_id",
    "experiment_id",
    "name",
    "owner",
    "labels",
    "state",
    "end_reason",
    "steps_completed",
    "best_validation",
    "created_at",
    "started_at",
    "ended_at",
)
EXPERIMENT_COLUMNS = (
    "experiment_id",
    "name",
    "owner",
    "labels",
    "state",
    "searcher",
    "metric",
    "best",
    "best_trial_id",
    "progress",
    "created_at",
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


def experiment_rows(views: Iterable[ExperimentView], columns: Sequence[str] = ()) -> list[Row]:
    """Return a row per experiment, with the columns that were asked for."""
    return [
        {
            "experiment_id": view.id,
            "name": view.name,
            "owner": view.owner,
            "labels": view.labels,
            "state": view.state.value,
            "searcher": view.searcher,
            "metric": view.metric,
            "best": view.best and view.best.value,
            "best_trial_id": view.best and view.best.trial_id,
            "progress": view.progress,
            "created_at": view.created_at,
            "started_at": view.started_at,
            "ended_at": view.ended_at,
            **dict(zip(columns, view.values, strict=False)),
        }
        for view in views
    ]


def found_rows(found: FoundTrials) -> list[Row]:
    """Return a row per found trial, with the columns that were asked for and the hyperparameters after them."""
    names = [(column.name, column.kind) for column in found.columns]
    return [
        {
            "trial_id": one.id,
            "experiment_id": one.experiment_id,
            "name": one.name,
            "owner": one.owner,
            "labels": one.labels,
            "state": one.state.value,
            "end_reason": one.end_reason.value if one.end_reason else None,
            "steps_completed": one.steps_completed,
            "best_validation": one.best_validation,
            "created_at": one.created_at,
            "started_at": one.started_at,
            "ended_at": one.ended_at,
            **{name: _valued(kind, value) for (name, kind), value in zip(names, one.values, strict=False)},
            **dict(_flat("hparams", one.hparams)),
        }
        for one in found.items
    ]


def _valued(kind: str, value: Any) -> Any:
    """Return a value of a column: JSON has names for NaN and the infinities."""
    return decode_float(value) if kind == "number" and isinstance(value, str) else value


def write_parquet(path: Path, rows: list[Row], columns: tuple[str, ...] = ()) -> None:
    """Write rows into a Parquet file; a column whose values are of several kinds becomes texts.

    Args:
        path: The file; one that is there is replaced.
        rows: The rows; one lacks what it has no value for.
        columns: The first columns, there even if no row is.

    Raises:
        DetlabError: pyarrow is not installed.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise DetlabError(
            "a Parquet file needs pyarrow, which is not installed in this Python",
            hint="Install it: pip install 'detlab[parquet]'\nor write a CSV file: --csv",
        ) from error
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    whole = {name: _arrow_column([row.get(name) for row in rows]) for name in names}
    parquet.write_table(arrow.table(whole) if whole else arrow.table({}), str(path))


def _arrow_column(values: list[Any]) -> list[Any]:
    """Return values that are of one kind: truths, whole numbers, numbers, or texts; None is of any."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or (kinds <= {int} and all(-(2**63) <= value < 2**63 for value in values if value is not None)):
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]


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
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return no_formula(visible(str(value), keep=""))
