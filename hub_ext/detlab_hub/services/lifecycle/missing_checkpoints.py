"""Trials whose checkpoint is missing in the storage: an earlier one is used, or the trial is not restarted.

The task itself checks: the master may not reach the storage. Only if the task finds an earlier checkpoint are the newer
ones marked missing; if it finds none, the storage may just not be mounted on its node, and nothing is changed.
"""

from __future__ import annotations

from typing import Any

from detlab.schemas.wire import CheckpointGoneRecord, FailureView
from detlab_hub.core.lifecycle.trial import Retry
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures.diagnosis import is_missing_checkpoint
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.tables import AllocationRow, CheckpointRow, ExperimentRow, TrialRow

KIND = "checkpoint"
_GONE = "DELETED"


def note(unit: UnitOfWork, trial: TrialRow, row: AllocationRow, record: CheckpointGoneRecord) -> None:
    """Take what a task says of its checkpoints; only its trial's own are touched."""
    instead = unit.session.get(CheckpointRow, record.instead or "")
    if instead is None or not _is_there(trial, instead) or row.resume_step is None:
        return
    for uuid in record.gone:
        found = unit.session.get(CheckpointRow, uuid)
        if found is not None and _is_there(trial, found) and found.steps_completed > instead.steps_completed:
            found.state = _GONE
            warning = (
                f"the files of checkpoint {found.uuid} (step {found.steps_completed}) are gone from "
                f"{place_of(found.storage)}: an earlier checkpoint is used, of step {instead.steps_completed}"
            )
            trial.warnings = [*(said for said in trial.warnings if said != warning), warning]
    unit.session.flush()
    newest = checkpoints.latest(unit.session, trial.id)
    trial.latest_checkpoint = None if newest is None else newest.uuid
    unit.changed_trial(trial)


def check(
    unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow, row: AllocationRow, card: FailureView
) -> tuple[Retry, FailureView] | None:
    """Evaluate the end of an attempt without a checkpoint to continue from; None: it ended for another reason."""
    if not is_missing_checkpoint(card.message):
        return None
    newest = checkpoints.latest(unit.session, trial.id)
    if newest is not None and row.resume_step is not None and newest.steps_completed < row.resume_step:
        hint = (
            f"it continues from checkpoint {newest.uuid}, of step {newest.steps_completed};"
            " this does not count as a restart"
        )
        return Retry.FREE, card.model_copy(update={"kind": KIND, "hint": hint})
    return Retry.NEVER, card.model_copy(update={"kind": KIND, "hint": _hint(experiment, newest, card.message)})


def _is_there(trial: TrialRow, row: CheckpointRow) -> bool:
    return row.trial_id == trial.id and row.state == "COMPLETED"


def _hint(experiment: ExperimentRow, newest: CheckpointRow | None, message: str) -> str:
    storage = experiment.config.get("checkpoint_storage") or {}
    which = "the checkpoint that it was to start from"
    if newest is not None and newest.uuid in message:
        storage, which = newest.storage, f"checkpoint {newest.uuid} (step {newest.steps_completed})"
    return (
        f"{which} is not in {place_of(storage)}, and no earlier one either: see that the storage is mounted on the "
        "trial's node, or restore its files, and start a new experiment from it (searcher.source_checkpoint_uuid). Not "
        "restarted: it would fail in the same way each time"
    )


def place_of(storage: dict[str, Any]) -> str:
    """Return where a storage block keeps checkpoints, without its secrets."""
    path = storage.get("host_path") or storage.get("container_path")
    return f"{storage.get('type', 'storage')} {path}" if path else f"the storage ({storage.get('type', 'unknown')})"
