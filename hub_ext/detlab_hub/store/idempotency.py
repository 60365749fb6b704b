"""Idempotency keys of submits: what an earlier submit of the same user with the same key has made.

All requests that create something carry the key in the field `idempotency_key`. A key is looked up in the transaction
that would make the row, and a constraint of the database allows one row of a kind per owner and key (I1).
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Problem
from detlab_hub.store.tables import ExperimentRow, Idempotency, TaskRow, clean_text

KEY_CHARS = 300


def key_problems(key: str | None) -> list[Problem]:
    """Return what is wrong with a key in a request."""
    if len(key or "") <= KEY_CHARS:
        return []
    return [Problem("idempotency_key", f"has more than {KEY_CHARS} characters")]


def known_experiment(s: Session, owner: str, key: str | None) -> ExperimentRow | None:
    """Return the experiment that this owner's submit with this key made; None without a key, too."""
    if not key:
        return None
    return s.scalar(
        select(ExperimentRow)
        .join(Idempotency, Idempotency.experiment_id == ExperimentRow.id)
        .where(Idempotency.owner == clean_text(owner), Idempotency.key == clean_text(key))
    )


def note_experiment(s: Session, owner: str, key: str | None, experiment_id: int | None, now: float) -> None:
    """Note which experiment a submit makes, if it has a key and there is one; a task's row holds its own."""
    if key and experiment_id is not None:
        s.add(Idempotency(owner=owner, key=key, experiment_id=experiment_id, created_at=now))


def known_task(s: Session, owner: str, key: str | None) -> TaskRow | None:
    """Return the task that this owner's request with this key made; None without a key, too."""
    if not key:
        return None
    return s.scalar(select(TaskRow).where(TaskRow.owner == clean_text(owner), TaskRow.key == clean_text(key)))
