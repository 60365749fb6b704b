"""The config of an experiment or a user task as it is now: what was submitted, with all that was changed since."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab_hub.core.searchers import ConcurrencySet, Extended, PointsAdded, SpaceEdited
from detlab_hub.core.searchers.journal import event_from_json
from detlab_hub.services.base.configs.parts import at, put
from detlab_hub.services.base.warm_start import as_asked
from detlab_hub.store.queries.experiments import journal_page
from detlab_hub.store.tables import ExperimentRow, TaskRow

_MOST_ACTS = 10_000
"""Acts of users on one search that are looked at."""
_LENGTHS = ("max_time", "max_length")


def current_config(row: ExperimentRow | TaskRow) -> dict[str, Any]:
    """Return the config with texts, labels, place in the queue and retention as they are now; see `steered` too."""
    config = as_asked(row.config)
    config = put(config, ("resources", "priority"), row.priority)
    if row.resource_pool != at(config, ("resources", "resource_pool")):
        config = put(config, ("resources", "resource_pool"), row.resource_pool)
    if isinstance(row, TaskRow):
        return config
    config = put(put(config, ("resources", "max_slots"), row.max_slots), ("resources", "weight"), row.weight)
    if row.edited_at is not None:
        config |= {"name": row.name, "description": row.description, "labels": list(row.labels)}
    if row.log_retention_days is not None or at(config, ("retention_policy", "log_retention_days")) is not None:
        config = put(config, ("retention_policy", "log_retention_days"), row.log_retention_days)
    for key, value in (row.gc_policy or {}).items():
        config = put(config, ("checkpoint_storage", key), value)
    return config


def steered(s: Session, row: ExperimentRow, config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with what users have changed of the search since: trials, lengths, bounds, concurrency."""
    searcher = dict(config.get("searcher") or {})
    for entry in journal_page(s, row.id, -1, _MOST_ACTS, acts=True):
        match event_from_json(entry.event):
            case Extended(trials, units):
                _more(searcher, "max_trials", trials)
                for key in _LENGTHS if units else ():
                    _more(searcher, key, units)
            case PointsAdded(points):
                _more(searcher, "max_trials", len(points))
            case ConcurrencySet(limit):
                searcher["max_concurrent_trials"] = limit
            case SpaceEdited(space):
                config = {**config, "hyperparameters": space}
            case _:
                pass
    return {**config, "searcher": searcher}


def _more(searcher: dict[str, Any], key: str, by: int) -> None:
    before = searcher.get(key)
    if isinstance(before, dict):
        searcher[key] = {unit: value + by for unit, value in before.items()}
    elif by and (before is not None or key == "max_trials"):
        searcher[key] = (before or 0) + by
