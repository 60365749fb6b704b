"""Names for completion and for hints: only those in experiments that the viewer may see, and only so many of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Text, case, func, select, tuple_, type_coerce
from sqlalchemy.orm import Session

from detlab_hub.core.filters.fields import MetricField
from detlab_hub.core.rights import Person
from detlab_hub.store.queries.rights import visible_experiments
from detlab_hub.store.queries.statements import text_holds
from detlab_hub.store.tables import (
    ExperimentMetric,
    ExperimentRow,
    MetricName,
    ProjectRow,
    TrialRow,
    WorkspaceRow,
    clean_text,
)

NEWEST = 200
"""Experiments whose names are looked at."""
HPARAMS_CHARS = 20_000
"""Of the hyperparameters of a trial; the names of those that have more are not read."""
METRICS = 30_000
"""Names of metrics that are looked at, of the newest experiments first."""


def newest_experiments(s: Session, viewer: Person) -> list[int]:
    """Return the newest experiments that a viewer may see."""
    query = select(ExperimentRow.id).where(visible_experiments(viewer)).order_by(ExperimentRow.id.desc()).limit(NEWEST)
    return list(s.scalars(query))


def metrics(s: Session, viewer: Person, text: str, limit: int) -> list[tuple[str, str]]:
    """Return (group, name) of metrics whose name, or group and name, hold a text."""
    seen = select(ExperimentMetric.group_name, ExperimentMetric.name_id)
    seen = seen.where(ExperimentMetric.experiment_id.in_(newest_experiments(s, viewer)))
    some = seen.order_by(ExperimentMetric.experiment_id.desc()).limit(METRICS).subquery()
    whole = some.c.group_name + "." + MetricName.name
    query = select(some.c.group_name, MetricName.name).distinct().join(MetricName, MetricName.id == some.c.name_id)
    query = query.where(text_holds(whole, text)) if text else query
    found = s.execute(query.limit(limit))
    return sorted((group, name) for group, name in found)


def hyperparameters(s: Session, viewer: Person) -> list[str]:
    """Return the paths of hyperparameters, their parts joined by NUL characters, which no name has."""
    found: dict[str, None] = {}
    ids = newest_experiments(s, viewer)
    size = func.length(type_coerce(TrialRow.hparams, Text))
    query = select(TrialRow.hparams).where(TrialRow.experiment_id.in_(ids), TrialRow.idx == 0, size < HPARAMS_CHARS)
    for hparams in s.scalars(query):
        found.update(dict.fromkeys(_paths(hparams)))
    return sorted(found)


def _paths(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[str]:
    for name, value in values.items():
        path = prefix + clean_text(str(name))
        if isinstance(value, Mapping) and value and depth < 8:
            yield from _paths(value, f"{path}\0", depth + 1)
        else:
            yield path


def labels(s: Session, viewer: Person) -> list[str]:
    """Return the labels of the newest experiments."""
    query = select(ExperimentRow.labels).where(ExperimentRow.id.in_(newest_experiments(s, viewer)))
    return sorted({label for some in s.scalars(query) for label in some})


def texts(s: Session, viewer: Person, column: str) -> list[str]:
    """Return the different values of a column of the newest experiments: owner, name, workspace, project and so on."""
    mine = ExperimentRow.id.in_(newest_experiments(s, viewer))
    query: Any
    match column:
        case "workspace":  # of others it is named with its owner
            mine_own = WorkspaceRow.owner == clean_text(viewer.name)
            shown = case((mine_own, WorkspaceRow.name), else_=WorkspaceRow.owner + "/" + WorkspaceRow.name)
            query = select(shown).distinct().join(ExperimentRow, ExperimentRow.workspace_id == WorkspaceRow.id)
        case "project":
            query = select(ProjectRow.name).distinct().join(ExperimentRow, ExperimentRow.project_id == ProjectRow.id)
        case "owner" | "name":
            query = select(getattr(ExperimentRow, column)).distinct()
        case "searcher":
            query = select(ExperimentRow.searcher_name).distinct()
        case "searcher_metric":
            query = select(ExperimentRow.metric).distinct()
        case "pool":
            query = select(ExperimentRow.resource_pool).distinct()
        case _:
            return []
    return sorted(text for text in s.scalars(query.where(mine)) if text)


def unknown_metrics(s: Session, viewer: Person, fields: Sequence[MetricField]) -> list[MetricField]:
    """Return those of some metrics that no experiment has which the viewer may see."""
    return [field for field in fields if not _is_known(s, viewer, field)]


def _is_known(s: Session, viewer: Person, field: MetricField) -> bool:
    ids: dict[str, int] = {}
    wanted = sorted({clean_text(name) for _, name in field.readings})
    ids.update(
        (name, key)
        for name, key in s.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(wanted)))
    )
    readings = [(clean_text(group), ids[clean_text(name)]) for group, name in field.readings if clean_text(name) in ids]
    if not readings:
        return False
    seen = select(ExperimentMetric.name_id).where(
        ExperimentMetric.experiment_id == ExperimentRow.id,
        tuple_(ExperimentMetric.group_name, ExperimentMetric.name_id).in_(readings),
    )
    query = select(ExperimentRow.id).where(visible_experiments(viewer), seen.correlate(ExperimentRow).exists()).limit(1)
    return s.scalar(query) is not None
