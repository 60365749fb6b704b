"""Rows that tests of the store hang other things on."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy.orm import Session

from detlab_hub.store import ProcessIdentity
from detlab_hub.store.queries import trials
from detlab_hub.store.tables import ExperimentRow, TrialRow

DEAD = replace(ProcessIdentity.current(), pid=2**22 + 1)
"""A process that is gone: its lease can be taken at once."""


def add_experiment(s: Session, owner: str = "ada", name: str = "digits") -> int:
    row = ExperimentRow(name=name, owner=owner, state="ACTIVE")
    s.add(row)
    s.flush()
    return row.id


def add_trial(s: Session, experiment_id: int) -> int:
    idx = trials.next_index(s, experiment_id)
    row = TrialRow(experiment_id=experiment_id, idx=idx, request_id=f"request-{idx}", state="ACTIVE")
    s.add(row)
    s.flush()
    return row.id
