"""Warm starts: the checkpoint of another trial that an experiment's trials start from, fixed at submission.

`source_trial_id` means that trial's latest checkpoint at submission. The stored config then has it as
`source_checkpoint_uuid` beside the submitted key, a combination that no submitted config may have; views of the config
and the trial show the submitted key. So all trials of a search start from the same weights, and a user whose grant was
withdrawn keeps what was readable then, and nothing that came later.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem
from detlab_hub.services.kernel.access import may_read
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.tables import CheckpointRow, TrialRow

_TRIAL, _UUID = "source_trial_id", "source_checkpoint_uuid"


def check_source(s: Session, caller: Caller, config: dict[str, Any]) -> None:
    """Check that the warm-start source exists, and that the caller may use it.

    Raises:
        ConfigError: If it is not there for this caller.
    """
    uuid, trial_id = _said(config)
    if uuid:
        checkpoint = s.get(CheckpointRow, str(uuid))
        usable = checkpoint is not None and checkpoint.state == "COMPLETED"
        if checkpoint is None or not usable or not may_read(s, caller, checkpoint.experiment_id):
            raise ConfigError([Problem(f"searcher.{_UUID}", f"there is no checkpoint {uuid}")])
    if trial_id is not None:
        trial = s.get(TrialRow, int(trial_id))
        if trial is None or not may_read(s, caller, trial.experiment_id):
            raise ConfigError([Problem(f"searcher.{_TRIAL}", f"there is no trial {trial_id}")])
        if checkpoints.latest(s, trial.id) is None:
            raise ConfigError([Problem(f"searcher.{_TRIAL}", f"trial {trial_id} has no checkpoint")])


def with_source(s: Session, config: dict[str, Any]) -> dict[str, Any]:
    """Return the config to store: `source_trial_id`, which was checked, with the checkpoint that it means now."""
    uuid, trial_id = _said(config)
    found = None if uuid or trial_id is None else checkpoints.latest(s, int(trial_id))
    return config if found is None else {**config, "searcher": {**config["searcher"], _UUID: found.uuid}}


def as_asked(config: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config as it was submitted; see `with_source`."""
    uuid, trial_id = _said(config)
    if not uuid or trial_id is None:
        return config
    return {**config, "searcher": {**config["searcher"], _UUID: None}}


def source_of(s: Session, config: dict[str, Any]) -> CheckpointRow | None:
    """Load the checkpoint that a stored config starts from; None if it names none, or if the checkpoint was deleted."""
    uuid, trial_id = _said(config)
    if uuid:
        found = s.get(CheckpointRow, str(uuid))
        return found if found is not None and found.state == "COMPLETED" else None
    # Submitted to a master that did not fix it.
    return None if trial_id is None else checkpoints.latest(s, int(trial_id))


def lost_source(s: Session, config: dict[str, Any]) -> str | None:
    """Return the uuid of the checkpoint that a stored config names and that no longer exists; None if there is none."""
    uuid, _ = _said(config)
    return str(uuid) if uuid and source_of(s, config) is None else None


def is_source(config: dict[str, Any], row: CheckpointRow) -> bool:
    """Whether a stored config starts from this checkpoint, or may (one that an earlier master stored)."""
    uuid, trial_id = _said(config)
    if uuid:
        return row.uuid == uuid
    return trial_id is not None and row.trial_id == int(trial_id)


def _said(config: dict[str, Any]) -> tuple[Any, Any]:
    searcher = config.get("searcher") or {}
    return searcher.get(_UUID), searcher.get(_TRIAL)
