"""Operations that change what people wrote about experiments and checkpoints, and remove files of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from detlab.client.operations.experiments import new_key, one
from detlab.client.transport.calls import Call, Flow, field_of, model, valid_request
from detlab.schemas.wire import (
    CheckpointView,
    EditCheckpoint,
    EditExperiment,
    ExperimentView,
    RemoveFiles,
    SeriesView,
)
from detlab.schemas.wire.continuing import ContinueExperiment


def experiment(experiment_id: int, **changes: Any) -> Flow[ExperimentView]:
    """Change fields of `EditExperiment`; each names the wanted result, so this can safely be repeated."""
    with valid_request():
        body = EditExperiment(**changes)
    return one(Call("POST", f"experiments/{int(experiment_id)}/edit", json=body, parse=model(ExperimentView)))


def go_on(experiment_id: int, **wanted: Any) -> Flow[ExperimentView]:
    """Continue an experiment that has ended, by fields of `ContinueExperiment`; it has a key, so that it happens once.

    Raises:
        ConfigError: A field is wrong.
    """
    with valid_request("it cannot be continued like this"):
        body = ContinueExperiment(idempotency_key=new_key(), **wanted)
    return one(Call("POST", f"experiments/{int(experiment_id)}/continue", json=body, parse=model(ExperimentView)))


def checkpoint(uuid: str, **changes: Any) -> Flow[CheckpointView]:
    """Change fields of `EditCheckpoint`; can safely be repeated."""
    with valid_request():
        body = EditCheckpoint(**changes)
    return one(Call("POST", f"{_path(uuid)}/edit", json=body, parse=model(CheckpointView)))


def delete_checkpoint(uuid: str, *, now: bool = False) -> Flow[CheckpointView]:
    """Put a checkpoint into the trash, or delete its files at once; can safely be repeated."""
    return one(Call("DELETE", _path(uuid), params={"now": "true"} if now else {}, parse=model(CheckpointView)))


def remove_files(uuid: str, globs: Sequence[str]) -> Flow[CheckpointView]:
    """Delete some files of a checkpoint; can safely be repeated."""
    with valid_request():
        body = RemoveFiles(globs=list(globs))
    return one(Call("POST", f"{_path(uuid)}/remove-files", json=body, parse=model(CheckpointView)))


def checkpoint_metrics(uuid: str, group: str | None = None) -> Flow[list[SeriesView]]:
    """Fetch what the trial of a checkpoint reported at its step: curves of one point each."""
    path = f"{_path(uuid)}/metrics"
    return one(Call("GET", path, params={"group": group}, parse=field_of("items", list[SeriesView])))


def _path(uuid: str) -> str:
    return f"checkpoints/{quote(uuid, safe='')}"
