"""Bring a database to the schema of this code, or refuse with the reason.

Alembic is imported only if there is something to migrate: importing it takes longer than everything else that a start
does with a database, and most databases have the newest schema.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, create_engine, inspect, select, table
from sqlalchemy.engine import URL

from detlab.pasted import word
from detlab_hub.store.engine import hint_of, sqlite_path
from detlab_hub.store.errors import StoreDamaged, StoreError, StoreTooNew
from detlab_hub.store.tables import Base

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
QUICK_CHECK_BYTES = 64 << 20
_MAGIC = b"SQLite format 3\x00"
_VERSION = table("alembic_version", column("version_num"))


def alembic_config(connection: Connection | None = None) -> Config:
    """Return alembic's configuration for the migrations of this package (there is no alembic.ini)."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def check_file(url: URL) -> None:
    """Check an SQLite file before SQLite opens it, which would take an empty file for a new database.

    Raises:
        StoreError: The folder is missing or cannot be used.
        StoreDamaged: The file is not a sound database.
    """
    path = sqlite_path(url)
    if path is None:
        return
    if not path.parent.is_dir():
        raise StoreError(
            f"the folder of the database {path} does not exist", hint=f"mkdir -p {word(path.parent)}, then start again"
        )
    wal = path.with_name(path.name + "-wal")
    size = path.stat().st_size if path.exists() else 0
    if size == 0:
        if wal.exists() and wal.stat().st_size > 0:
            raise _damaged(path, f"it is empty or gone, but its journal {wal.name} is not")
        _create(path)
        return
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(f"the database {path} cannot be read: {error.strerror}", hint=f"ls -l {word(path)}") from error
    if head != _MAGIC:
        raise _damaged(path, "it is not an SQLite database")
    if size <= QUICK_CHECK_BYTES:
        _quick_check(path, url)


def _create(path: Path) -> None:
    """Make the file private before SQLite makes it readable to all; its journal files follow its mode."""
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"the database {path} cannot be made: {error.strerror}",
            hint=f"ls -ld {word(path.parent)}; df -h {word(path.parent)}",
        ) from error


def _quick_check(path: Path, url: URL) -> None:
    try:
        connection = sqlite3.connect(path, timeout=5)
        try:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:  # a full disk, a lock: it says nothing of the file
        hint = (
            hint_of(error, url)
            or f"see that its disk is sound and no other process uses it: ls -l {word(path)}*; dmesg"
        )
        raise StoreError(f"the database {path} cannot be opened: {error}", hint=hint) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error
    if verdict != "ok":
        raise _damaged(path, str(verdict))


def _damaged(path: Path, why: str) -> StoreDamaged:
    aside = f"mv {word(path)} {word(f'{path}.damaged')}"
    return StoreDamaged(
        f"the database {path} is damaged: {why}. It was not touched",
        hint=f"restore it from a backup, or give it up and start empty: {aside} && det up",
    )


def revision(connection: Connection) -> str | None:
    """Return the schema revision of the database; None if it has none."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalars(select(_VERSION.c.version_num)).one_or_none()


def revisions() -> list[str]:
    """Return the revisions that this code knows, oldest first: each file is named after its own."""
    return sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def check_schema(connection: Connection, where: str) -> str | None:
    """Return the revision of a database that this code can use or upgrade; None if it is empty.

    Raises:
        StoreTooNew: A newer detlab has written it.
        StoreDamaged: It has tables, but not those of detlab.
    """
    current = revision(connection)
    if current is None:
        ours = set(Base.metadata.tables) & set(inspect(connection).get_table_names())
        if ours:
            raise StoreDamaged(
                f"the database {where} has tables named {', '.join(sorted(ours)[:3])} but no schema version: "
                "it is not (or not wholly) detlab's. It was not touched",
                hint="give detlab a database of its own: c.DetHub.db_url in detlab_config.py",
            )
        return None
    if current not in revisions():
        raise StoreTooNew(
            f"the database {where} has schema {current!r}, which this version of detlab does not know: "
            "a newer version has written it. It was not touched",
            hint="upgrade: pip install --upgrade 'detlab[hub]', then det up",
        )
    return current


def upgrade(connection: Connection) -> None:
    """Run the migrations that are missing, inside the connection's transaction."""
    if revision(connection) == revisions()[-1]:
        return
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def new_revision(message: str, name: str, folder: Path = MIGRATIONS / "versions") -> None:
    """Write a migration from the schema of the existing migrations to that of the tables now; review it before use.

        python -c 'from detlab_hub.store.migrate import new_revision as n; n("what changes", "0004")'

    Args:
        message: One line; becomes the docstring and the file name.
        name: The revision, one more than the last.
        folder: Where it is written.
    """
    from alembic import command

    with create_engine("sqlite://").begin() as connection:
        upgrade(connection)
        config = alembic_config(connection)
        config.set_main_option("path_separator", "os")
        config.set_main_option("version_locations", os.pathsep.join({str(MIGRATIONS / "versions"), str(folder)}))
        command.revision(config, message, autogenerate=True, rev_id=name, version_path=str(folder))
