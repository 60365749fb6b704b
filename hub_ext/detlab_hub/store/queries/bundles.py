"""Bundles: who has uploaded which, and who may read an object that runs it."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.grants import granted_ids
from detlab_hub.store.queries.statements import insert_or_ignore
from detlab_hub.store.tables import BundleRow, BundleUpload, ExperimentRow, TaskRow, clean_text

_BUNDLES: Table = BundleRow.__table__
_UPLOADS: Table = BundleUpload.__table__


def note_upload(s: Session, digest: str, size: int, user: str, now: float) -> bool:
    """Note that a user has sent a bundle; False: they had sent it before.

    Two may send the same at once, each in a transaction of its own.
    """
    if s.get(BundleUpload, (digest, clean_text(user))) is not None:
        return False
    s.execute(insert_or_ignore(s, _BUNDLES).values(digest=digest, size=size, owner=user, created_at=now))
    s.execute(insert_or_ignore(s, _UPLOADS).values(digest=digest, name=user, created_at=now))
    return True


def is_stored(s: Session, digest: str) -> bool:
    """Whether anybody has sent a bundle."""
    return s.get(BundleRow, digest) is not None


def is_known_to(s: Session, digest: str, user: str, groups: Collection[str]) -> bool:
    """Whether a user has uploaded a bundle, or may read an experiment or task that runs it.

    What others have sent is asked nowhere, so that not even the time that an answer takes depends on it.
    """
    if s.get(BundleUpload, (digest, clean_text(user))) is not None:
        return True
    runs = select(ExperimentRow.id).where(ExperimentRow.bundle == digest).limit(1)
    # Three statements: one with OR would read all experiments of the cluster, where no index has both.
    return (
        s.scalar(runs.where(ExperimentRow.owner == clean_text(user))) is not None
        or s.scalar(runs.where(ExperimentRow.id.in_(granted_ids(user, groups)))) is not None
        or s.scalar(select(TaskRow.id).where(TaskRow.owner == clean_text(user), TaskRow.bundle == digest).limit(1))
        is not None
    )
