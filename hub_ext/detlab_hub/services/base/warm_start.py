"""Warm starts: the checkpoint of another trial that an experiment's trials start from, fixed at submission.

`source_trial_id` means that trial's latest checkpoint at submission. The stored config then has it as
`source_checkpoint_uuid` beside the submitted key, a combination that no submitted config may have; views of the config
and the trial show the submitted key. So all trials of a search start from the same weights, and a user whose grant was
withdrawn keeps what was readable then, and nothing that came later.

A search can begin with the results of earlier experiments, too: `searcher.warm_start`. They are fixed in the same way,
as `searcher.results` beside the submitted key, so that the search decides the same whenever it is replayed.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem
from detlab_hub.core.searchers.hyperparameters import make_space
from detlab_hub.services.base.access import is_deleting, may_read
from detlab_hub.services.base.callers import Caller
from detlab_hub.store.queries import checkpoints, trial_order
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TrialRow

_RESULTS = 1_000
"""Trials that a search may begin with: of each experiment an equal share, the best ones."""
_EARLIER, _GIVEN = "warm_start", "results"
_TRIAL, _UUID = "source_trial_id", "source_checkpoint_uuid"


def check_source(s: Session, caller: Caller, config: dict[str, Any]) -> None:
    """Check that the warm-start source exists, and that the caller may use it.

    Raises:
        ConfigError: If it is not there for this caller.
    """
    uuid, trial_id = _said(config)
    if uuid:
        checkpoint = s.get(CheckpointRow, str(uuid))
        usable = checkpoint is not None and checkpoint.state == "COMPLETED" and checkpoint.run_id is None
        usable = usable and checkpoint is not None and not is_deleting(s, checkpoint.experiment_id)
        if checkpoint is None or not usable or not may_read(s, caller, checkpoint.experiment_id):
            raise ConfigError([Problem(f"searcher.{_UUID}", f"there is no checkpoint {uuid}")])
    if trial_id is not None:
        trial = s.get(TrialRow, int(trial_id))
        if trial is None or not may_read(s, caller, trial.experiment_id):
            raise ConfigError([Problem(f"searcher.{_TRIAL}", f"there is no trial {trial_id}")])
        if checkpoints.latest(s, trial.id) is None or is_deleting(s, trial.experiment_id):
            raise ConfigError([Problem(f"searcher.{_TRIAL}", f"trial {trial_id} has no checkpoint")])


def with_source(s: Session, config: dict[str, Any]) -> dict[str, Any]:
    """Return the config to store: `source_trial_id`, which was checked, with the checkpoint that it means now."""
    uuid, trial_id = _said(config)
    found = None if uuid or trial_id is None else checkpoints.latest(s, int(trial_id))
    return config if found is None else {**config, "searcher": {**config["searcher"], _UUID: found.uuid}}


def check_results(s: Session, caller: Caller, config: dict[str, Any]) -> None:
    """Check that the experiments of `warm_start` are there, for this caller, and that the search can use their trials.

    Raises:
        ConfigError: With each that is not there, or of whose trials none can be used.
    """
    searcher, problems = config.get("searcher") or {}, []
    space = make_space(config.get("hyperparameters") or {}, searcher.get("require") or ())
    for place, experiment_id in enumerate(searcher.get(_EARLIER) or ()):
        path = f"searcher.{_EARLIER}[{place}]"
        if s.get(ExperimentRow, experiment_id) is None or not may_read(s, caller, experiment_id):
            problems.append(Problem(path, f"there is no experiment {experiment_id}"))
            continue
        found = _results(s, experiment_id, searcher, _RESULTS)
        if not found:
            message = f"no trial of experiment {experiment_id} has a finite validation metric {searcher['metric']!r}"
            problems.append(Problem(path, message, f"see `det experiment describe {experiment_id}`"))
        elif all(space.problems(one["hparams"], partial=False) for one in found):
            name, wrong = space.problems(found[0]["hparams"], partial=False)[0]
            message = f"no trial of experiment {experiment_id} is in this space; of one, {name or 'the point'} {wrong}"
            problems.append(Problem(path, message))
    if problems:
        raise ConfigError(problems)


def with_results(s: Session, config: dict[str, Any]) -> dict[str, Any]:
    """Return the config to store: with the results of the experiments of `warm_start`, which were checked."""
    searcher = config.get("searcher") or {}
    earlier = searcher.get(_EARLIER) or []
    share = max(1, _RESULTS // max(1, len(earlier)))
    found = [one for experiment_id in earlier for one in _results(s, experiment_id, searcher, share)]
    return {**config, "searcher": {**searcher, _GIVEN: found}} if found else config


def _results(s: Session, experiment_id: int, searcher: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """Return the hyperparameters and the best metric of an experiment's trials, best first."""
    descending = not searcher.get("smaller_is_better", True)
    order = trial_order.MetricOrder("validation", str(searcher["metric"]), descending)
    values = trial_order.values(s, experiment_id, order, most)
    return [{"hparams": hparams, "metric": value} for hparams, value in values if math.isfinite(value)]


def as_asked(config: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config as it was submitted; see `with_source`."""
    uuid, trial_id = _said(config)
    if uuid and trial_id is not None:
        config = {**config, "searcher": {**config["searcher"], _UUID: None}}
    if (config.get("searcher") or {}).get(_EARLIER):
        config = {**config, "searcher": {key: one for key, one in config["searcher"].items() if key != _GIVEN}}
    return config


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


def is_source(config: dict[str, Any], uuid: str, trial_id: int) -> bool:
    """Whether a stored config starts from this checkpoint of a trial, or may (one that an earlier master stored)."""
    said, trial = _said(config)
    return said == uuid if said else trial is not None and trial_id == int(trial)


def _said(config: dict[str, Any]) -> tuple[Any, Any]:
    searcher = config.get("searcher") or {}
    return searcher.get(_UUID), searcher.get(_TRIAL)
