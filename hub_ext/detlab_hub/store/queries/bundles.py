"""Bundles: which users have uploaded which, and who may read an object that runs one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Table, delete, select, update
from sqlalchemy.orm import Session

from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.queries.rights import visible, ways_to_experiments
from detlab_hub.store.queries.statements import chunks, insert_or_ignore
from detlab_hub.store.tables import BundleRow, BundleUpload, ExperimentRow, ScheduleRow, TaskRow, clean_text

_BUNDLES: Table = BundleRow.__table__
_UPLOADS: Table = BundleUpload.__table__


def note_upload(s: Session, digest: str, size: int, user: str, now: float) -> bool:
    """Note that a user has uploaded a bundle; return False if they had done so before.

    Two users may upload the same bundle at the same time, each in a separate transaction.
    """
    again = update(BundleRow).where(BundleRow.digest == digest, BundleRow.unused_since.is_not(None))
    s.execute(again.values(unused_since=None).execution_options(synchronize_session="fetch"))
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
    for way in ways_to_experiments(who):
        found = s.scalar(runs.where(way))
        if found is not None:
            return found
    return None


def task_with(s: Session, digest: str, who: Person) -> TaskRow | None:
    """Return a user task that runs a bundle and that a user may read; None if there is none."""
    runs = select(TaskRow).where(TaskRow.bundle == digest).limit(1)
    return s.scalar(runs.where(visible(ObjectKind.TASK, who, owner=TaskRow.owner)))


_NAMED = (ExperimentRow.bundle, ExperimentRow.search_bundle, TaskRow.bundle, ScheduleRow.bundle)


def unused(s: Session) -> tuple[list[str], list[str]]:
    """Return the bundles that nothing names and that were not known as such, and those that something names again."""
    idle = [BundleRow.digest.not_in(select(column).where(column.is_not(None))) for column in _NAMED]
    found = set(s.scalars(select(BundleRow.digest).where(*idle)))
    known = set(s.scalars(select(BundleRow.digest).where(BundleRow.unused_since.is_not(None))))
    return sorted(found - known), sorted(known - found)


def note_unused(s: Session, digests: Sequence[str], since: float | None) -> None:
    """Note since when nothing names some bundles; None: something does."""
    for part in chunks(digests):
        changes = update(BundleRow).where(BundleRow.digest.in_(part)).values(unused_since=since)
        s.execute(changes.execution_options(synchronize_session="fetch"))


def unused_since(s: Session, digests: Sequence[str] | None = None) -> dict[str, float]:
    """Return digest -> since when nothing names it, of all bundles or of some."""
    query = select(BundleRow.digest, BundleRow.unused_since).where(BundleRow.unused_since.is_not(None))
    if digests is not None:
        query = query.where(BundleRow.digest.in_(digests))
    return {digest: since for digest, since in s.execute(query) if since is not None}


def named(s: Session, digests: Sequence[str]) -> set[str]:
    """Return those of some bundles that an experiment, a task or a schedule names."""
    return {found for column in _NAMED for found in s.scalars(select(column).where(column.in_(digests))) if found}


def known(s: Session) -> list[str]:
    """Return all bundles."""
    return list(s.scalars(select(BundleRow.digest)))


def forget(s: Session, digests: Sequence[str]) -> None:
    """Remove the rows of some bundles."""
    for table in (BundleUpload, BundleRow):
        s.execute(delete(table).where(table.digest.in_(digests)).execution_options(synchronize_session="fetch"))
