"""Relocation of a restored database: stored paths and uids, and a check of the database that it replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import NullPool, create_engine, inspect, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from detlab_hub.store.engine import sqlite_path
from detlab_hub.store.tables import CheckpointRow, ExperimentRow

_PATHS = ("host_path", "container_path")
_REMOVALS = "checkpoint_removals"
_FOLLOWING = "uids/next"
"""Key of the next uid (`queries.uids`)."""


def move_storage(url: URL, old: str, new: str) -> None:
    """Make experiments and checkpoints refer to another directory than the one where they were stored.

    Args:
        url: A database that no master uses.
        old: The directory as named in configurations.
        new: Where its files are now.
    """
    with Session(create_engine(url, poolclass=NullPool)) as session, session.begin():
        for experiment_id, config in session.execute(select(ExperimentRow.id, ExperimentRow.config)).all():
            moved = _moved(config.get("checkpoint_storage"), old, new)
            if moved is not None:
                row = session.get_one(ExperimentRow, experiment_id)
                row.config = {**config, "checkpoint_storage": moved}
        for uuid, storage in session.execute(select(CheckpointRow.uuid, CheckpointRow.storage)).all():
            moved = _moved(storage, old, new)
            if moved is not None:
                session.get_one(CheckpointRow, uuid).storage = moved


def _moved(storage: Any, old: str, new: str) -> dict[str, Any] | None:
    """Return the storage block with the new directory; None if it does not name the old one."""
    if not isinstance(storage, dict):
        return None
    found = {key: new for key in _PATHS if storage.get(key) == old}
    return {**storage, **found} if found else None


def keep_trash(url: URL, away: float) -> None:
    """Give what is in the trash of a restored database as much time there as it had left when that was copied.

    What was taken out of the trash since would otherwise be removed at once: the copy does not know of that.

    Args:
        url: A database that no master uses.
        away: Seconds since it was copied.
    """
    if away <= 0:
        return
    with create_engine(url, poolclass=NullPool).begin() as connection:
        there = inspect(connection)
        if not there.has_table(_REMOVALS) or "begun_at" not in {one["name"] for one in there.get_columns(_REMOVALS)}:
            return  # of a version without trash
        later = text("UPDATE checkpoint_removals SET due_at = due_at + :away WHERE begun_at IS NULL")
        connection.execute(later, {"away": away})


@dataclass(frozen=True)
class Uids:
    """The uids under which users' tasks run.

    Attributes:
        rows: (user, uid, whether it is of an account, since when).
        following: The next uid to be assigned; 0 if none was yet.
    """

    rows: tuple[tuple[str, int, bool, float], ...] = ()
    following: int = 0


def uids_in(url: URL) -> Uids:
    """Return the uids in a database; empty if there is none, or an older one."""
    path = sqlite_path(url)
    if path is not None and not path.is_file():
        return Uids()
    try:
        with create_engine(url, poolclass=NullPool).connect() as connection:
            if not inspect(connection).has_table("user_uids"):
                return Uids()
            found = connection.execute(text("SELECT owner, uid, account, since FROM user_uids")).all()
            following = connection.scalar(text("SELECT value FROM meta WHERE key = :key"), {"key": _FOLLOWING})
    except DBAPIError:
        return Uids()  # a damaged one is a reason to restore
    rows = tuple((str(owner), int(uid), bool(account), float(since)) for owner, uid, account, since in found)
    return Uids(rows, int(following or 0))


def keep_uids(url: URL, kept: Uids) -> None:
    """Add missing users to a database that no master uses, and burn the uids that it would assign.

    A database that has not assigned any yet takes over `users.json` instead.
    """
    known = uids_in(url)
    if known.following == 0:
        return
    owners, taken = {row[0] for row in known.rows}, {row[1] for row in known.rows}
    new = [row for row in kept.rows if row[0] not in owners and row[1] not in taken]
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for row in new:
            connection.execute(
                text("INSERT INTO user_uids (owner, uid, account, since) VALUES (:owner, :uid, :account, :since)"),
                dict(zip(("owner", "uid", "account", "since"), row, strict=True)),
            )
        following = {"value": str(max(known.following, kept.following)), "key": _FOLLOWING}
        connection.execute(text("UPDATE meta SET value = :value WHERE key = :key"), following)
