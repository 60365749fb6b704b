"""Which installation of the cluster this database is: the original, or a copy that was not told to take over.

Copies of a database know the same checkpoints. What tells them apart is where the database lies: a copied file has
another inode, a copied database of PostgreSQL another oid. A restored archive says so itself (`det restore`).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from detlab_hub.store.engine import parse_url, sqlite_path
from detlab_hub.store.tables import Meta

_KEY = "installation"
_READ = text("SELECT value FROM meta WHERE key = :key")


@dataclass(frozen=True)
class Installation:
    """An installation of a cluster; see `detlab.schemas.storage_types.StorageHolder`.

    Attributes:
        instance: Made when it began, and anew when it took over.
        epoch: Higher for each that takes over.
        place: Where its database was; empty: it is at home wherever it is opened next.
        is_copy: Whether it is a copy that was not told to take over.
    """

    instance: str
    epoch: int = 0
    place: str = ""
    is_copy: bool = False

    def dump(self) -> str:
        """Return it as text."""
        return json.dumps(vars(self), sort_keys=True)


def parse(value: str | None) -> Installation | None:
    """Return what `dump` wrote; what cannot be read is none, and so a copy of nobody."""
    if value is None:
        return None
    found = json.loads(value)
    return Installation(str(found["instance"]), int(found["epoch"]), str(found["place"]), bool(found["is_copy"]))


def settle(session: Session, url: str, now: float, *, take_over: bool) -> Installation:
    """Find out, and write down, which installation this is.

    Args:
        session: A writing one.
        url: The database's address.
        now: Seconds since the epoch.
        take_over: Whether a copy becomes the one that owns the checkpoints.
    """
    place, row = _place(session, url), session.get(Meta, _KEY)
    known = None if row is None else parse(row.value)
    if known is None:
        found = Installation(secrets.token_hex(8), 1, place)
    elif known.is_copy or (known.place and place and known.place != place):
        found = Installation(known.instance, known.epoch, place, is_copy=True)
        if take_over:
            found = Installation(secrets.token_hex(8), max(known.epoch + 1, int(now)), place)
    elif take_over:  # the original again, after a copy of it had taken over
        found = Installation(known.instance, max(known.epoch + 1, int(now)), place)
    else:
        found = Installation(known.instance, known.epoch, place or known.place)
    if row is None:
        session.add(Meta(key=_KEY, value=found.dump()))
    else:
        row.value = found.dump()
    return found


def _place(session: Session, url: str) -> str:
    """Return what a copy of this database has not: the file's inode, or the database's ids; empty: not known."""
    path = sqlite_path(parse_url(url))
    if path is not None:
        return f"inode {path.stat().st_ino}" if path.is_file() else ""
    if session.get_bind().dialect.name != "postgresql":
        return ""
    oid = session.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    system = session.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    return f"system {system}, database {oid}"


def read(url: URL) -> Installation | None:
    """Return the installation in a database that no master uses; None: there is none, or an older version's."""
    path = sqlite_path(url)
    if path is not None and not Path(path).is_file():
        return None
    try:
        with create_engine(url, poolclass=NullPool).connect() as connection:
            if not inspect(connection).has_table("meta"):
                return None
            return parse(connection.scalar(_READ, {"key": _KEY}))
    except DBAPIError:
        return None  # a damaged one is a reason to restore


def write(url: URL, installation: Installation) -> None:
    """Write the installation into a database that no master uses."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(text("DELETE FROM meta WHERE key = :key"), {"key": _KEY})
        values = {"key": _KEY, "value": installation.dump()}
        connection.execute(text("INSERT INTO meta (key, value) VALUES (:key, :value)"), values)


def restored(archived: Installation | None, replaced: Installation | None) -> Installation:
    """Return what a restored database is: the one that it replaces, or else a copy of the archived one."""
    if replaced is not None:
        return Installation(replaced.instance, replaced.epoch, "", replaced.is_copy)
    known = archived or Installation(secrets.token_hex(8))
    return Installation(known.instance, known.epoch, "", is_copy=True)
