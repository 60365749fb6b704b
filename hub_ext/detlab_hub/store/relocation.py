"""What a database that was put into another place has to be told, and what it can tell of the one it replaces."""

from __future__ import annotations

from typing import Any

from sqlalchemy import NullPool, create_engine, inspect, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from detlab_hub.store.engine import sqlite_path
from detlab_hub.store.tables import CheckpointRow, ExperimentRow

_PATHS = ("host_path", "container_path")


def move_storage(url: URL, old: str, new: str) -> None:
    """Have experiments and checkpoints that were stored in one directory be found in another.

    Args:
        url: A database that no master uses.
        old: The directory as configurations name it.
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
    """The storage block with the new directory; None if it does not name the old one."""
    if not isinstance(storage, dict):
        return None
    found = {key: new for key in _PATHS if storage.get(key) == old}
    return {**storage, **found} if found else None


def uids_in(url: URL) -> dict[str, int]:
    """Return the uid of each user as far as a database says it; empty where there is none, or an older one."""
    path = sqlite_path(url)
    if path is not None and not path.is_file():
        return {}
    try:
        with create_engine(url, poolclass=NullPool).connect() as connection:
            if not inspect(connection).has_table("user_uids"):
                return {}
            return {str(owner): int(uid) for owner, uid in connection.execute(text("SELECT owner, uid FROM user_uids"))}
    except DBAPIError:
        return {}  # a damaged one is a reason to restore
