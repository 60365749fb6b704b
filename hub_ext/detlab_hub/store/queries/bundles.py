"""Bundles: which users have uploaded which, and who may read an object that runs one."""

from __future__ import annotations

from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from detlab_hub.core.rights import Kind, Person
from detlab_hub.store.queries.rights import visible, ways
from detlab_hub.store.queries.statements import insert_or_ignore
from detlab_hub.store.tables import BundleRow, BundleUpload, ExperimentRow, TaskRow, clean_text

_BUNDLES: Table = BundleRow.__table__
_UPLOADS: Table = BundleUpload.__table__


def note_upload(s: Session, digest: str, size: int, user: str, now: float) -> bool:
    """Note that a user has uploaded a bundle; return False if they had done so before.

    Two users may upload the same bundle at the same time, each in a separate transaction.
    """
    if s.get(BundleUpload, (digest, clean_text(user))) is not None:
        return False
    s.execute(insert_or_ignore(s, _BUNDLES).values(digest=digest, size=size, owner=user, created_at=now))
    s.execute(insert_or_ignore(s, _UPLOADS).values(digest=digest, name=user, created_at=now))
    return True


def is_stored(s: Session, digest: str) -> bool:
    """Whether any user has uploaded a bundle."""
    return s.get(BundleRow, digest) is not None


def is_sent_by(s: Session, digest: str, who: Person) -> bool:
    """Whether a user has uploaded a bundle."""
    return s.get(BundleUpload, (digest, who.name)) is not None


def experiment_with(s: Session, digest: str, who: Person) -> ExperimentRow | None:
    """Return an experiment that runs a bundle and that a user may read; None if there is none."""
    runs = select(ExperimentRow).where(ExperimentRow.bundle == digest).limit(1)
    # A statement each: one with OR would read all experiments of the cluster, where no index has both.
    for way in ways(Kind.EXPERIMENT, who, owner=ExperimentRow.owner, experiment_id=ExperimentRow.id):
        found = s.scalar(runs.where(way))
        if found is not None:
            return found
    return None


def task_with(s: Session, digest: str, who: Person) -> TaskRow | None:
    """Return a user task that runs a bundle and that a user may read; None if there is none."""
    runs = select(TaskRow).where(TaskRow.bundle == digest).limit(1)
    return s.scalar(runs.where(visible(Kind.TASK, who, owner=TaskRow.owner)))
