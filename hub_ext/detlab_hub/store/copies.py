"""Copies of a whole database, and restoring one: SQLite by its backup interface, PostgreSQL by `pg_dump`.

A copy is one consistent snapshot, taken beside a master that keeps writing. It is a file for its owner alone, is
there whole or not at all, and holds everything that the database does, secrets included.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, func, inspect, literal_column, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from detlab.pasted import word
from detlab_hub.store.engine import sqlite_path
from detlab_hub.store.errors import StoreDamaged, StoreError
from detlab_hub.store.lease import LEASE_ID

_SLACK = 16 << 20
"""Bytes that must remain free."""
_NEWER_SETTING = "SET transaction_timeout = 0;"
"""Written by a `pg_dump` of PostgreSQL 17, and refused by older servers."""
_NAME = re.compile(r"before-(?P<schema>[0-9]+)-[0-9]{8}-[0-9]{6}\.(sqlite|dump)")
_CONNECT_SECONDS = 10


class CannotCopy(StoreError):
    """A copy of the database cannot be made or restored; the database is unchanged."""

    default_code = "store.cannot_copy"


@dataclass(frozen=True)
class CopyPolicy:
    """Copies that are made before the schema of a database changes.

    Attributes:
        folder: For copies of a PostgreSQL database; those of an SQLite file lie beside it.
        required: Whether a migration is refused where no copy can be made.
        keep: How many are kept, one for each schema.
    """

    folder: Path
    required: bool = True
    keep: int = 3


def suffix(url: URL) -> str:
    """Return the ending of a copy's file name."""
    return ".sqlite" if url.get_backend_name() == "sqlite" else ".dump"


def copy_database(url: URL, target: Path) -> None:
    """Write a snapshot of a database into a new file of mode 0600.

    Args:
        url: The database; it is an error if it does not exist.
        target: The file; its folder must exist. It appears once it is complete and on the disk.

    Raises:
        CannotCopy: There is no room, no `pg_dump`, or the database cannot be read.
    """
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", suffix=".partial", dir=target.parent)
    os.close(handle)
    partial = Path(name)
    try:
        path = sqlite_path(url)
        if path is not None:
            _copy_sqlite(path, partial)
        else:
            _dump(url, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _copy_sqlite(path: Path, target: Path) -> None:
    if not path.is_file():
        raise CannotCopy(f"there is no database {path}", hint=f"ls -l {word(path.parent)}")
    _check_room(path.stat().st_size + _size(path.with_name(path.name + "-wal")), target.parent, path)
    try:
        # All pages in one step: one read transaction, beside which the writer continues.
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as source:
            with contextlib.closing(sqlite3.connect(target)) as copy:
                copy.execute("PRAGMA synchronous=OFF")
                source.backup(copy)
            check_sqlite(target)
    except sqlite3.Error as error:
        raise CannotCopy(
            f"the database {path} cannot be copied to {target.parent}: {error}",
            hint=f"see that both disks have room and are sound: df -h {word(path.parent)} {word(target.parent)}",
        ) from error


def check_sqlite(path: Path) -> None:
    """Check that a copy, which no process uses, is a sound database.

    Raises:
        StoreDamaged: It is not.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as copy:
            (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict != "ok":
        raise StoreDamaged(f"the copy {path} of a database is damaged: {verdict}", hint="take another copy")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_room(needed: int, folder: Path, what: object) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + _SLACK:
        raise CannotCopy(
            f"a copy of the database {what} needs {needed + _SLACK} bytes of room in {folder}, and {free} are free",
            hint=f"make room: df -h {word(folder)}; ls -lh {word(folder)}",
        )


# --- PostgreSQL -------------------------------------------------------------------------------------------


def find_program(name: str) -> str:
    """Return the path of one of PostgreSQL's client programs.

    Raises:
        CannotCopy: It is not on PATH.
    """
    found = shutil.which(name)
    if found is not None:
        return found
    raise CannotCopy(
        f"{name} is not installed here, and a PostgreSQL database is copied by it",
        hint="install PostgreSQL's client programs, of the server's version or a newer one"
        " (Debian: apt-get install postgresql-client)",
    )


def _address(url: URL) -> tuple[str, Mapping[str, str]]:
    """Return the database's address for a client program, and its environment: the password is in no command line."""
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    environment = {**os.environ, "PGCONNECT_TIMEOUT": str(_CONNECT_SECONDS)}
    if url.password is not None:
        environment["PGPASSWORD"] = str(url.password)
    return plain.render_as_string(hide_password=False), environment


def _run(url: URL, program: str, *arguments: str) -> None:
    address, environment = _address(url)
    command = [find_program(program), *arguments, "--no-password", f"--dbname={address}"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise CannotCopy(
            f"{program} failed for the database {url.render_as_string()}: {said or f'status {done.returncode}'}",
            hint="a program older than the server refuses it: see the versions in the message; and df -h",
        )


def _dump(url: URL, target: Path) -> None:
    find_program("pg_dump")
    with _connected(url) as connection:
        size = connection.scalar(select(func.pg_database_size(func.current_database())))
    # Compressed and without its indices it takes less than half.
    _check_room(int(size or 0) // 2, target.parent, url.render_as_string())
    _run(url, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={target}")


@contextlib.contextmanager
def _connected(url: URL) -> Iterator[Connection]:
    arguments = {"connect_timeout": _CONNECT_SECONDS} if url.get_backend_name() == "postgresql" else {}
    try:
        with create_engine(url, poolclass=NullPool, connect_args=arguments).begin() as connection:
            yield connection
    except DBAPIError as error:
        raise CannotCopy(
            f"the database {url.render_as_string()} cannot be used: {str(error.orig).strip()}",
            hint="check c.DetHub.db_url and that the database runs",
        ) from error


@dataclass(frozen=True)
class Occupant:
    """The content of a database into which a copy is to be restored.

    Attributes:
        tables: Names of its tables.
        epoch: Epoch of its lease; 0 where there is none.
        holder: The master that holds the lease now; None if none does.
    """

    tables: tuple[str, ...] = ()
    epoch: int = 0
    holder: str | None = None


def occupant(url: URL, now: float) -> Occupant:
    """Inspect a PostgreSQL database.

    Raises:
        CannotCopy: It cannot be reached.
    """
    with _connected(url) as connection:
        tables = tuple(sorted(inspect(connection).get_table_names()))
        if "lease" not in tables:
            return Occupant(tables)
        query = text("SELECT epoch, holder, expires_at FROM lease WHERE id = :id")
        row = connection.execute(query, {"id": LEASE_ID}).one_or_none()
    if row is None:
        return Occupant(tables)
    return Occupant(tables, int(row.epoch), str(row.holder) if row.expires_at > now else None)


def put_back(url: URL, dump: Path, before: Occupant, *, leased: bool = True) -> None:
    """Restore a dump into a PostgreSQL database in one transaction, in place of the existing tables.

    The lease is free afterwards, with an epoch above all earlier ones: a master that still uses the database is fenced.

    Args:
        url: The database.
        dump: The file that `copy_database` wrote.
        before: The present content of the database.
        leased: Whether it is a master's database, with a lease.

    Raises:
        CannotCopy: It failed; the database is unchanged.
    """
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=dump.parent) as made:
        folder = Path(made)
        first, script, last = folder / "first.sql", folder / "script.sql", folder / "last.sql"
        first.write_text("".join(f"DROP TABLE {_quoted(name)} CASCADE;\n" for name in before.tables), encoding="utf-8")
        _write_script(dump, folder / "raw.sql", script)
        free = "UPDATE public.lease SET expires_at = 0, process = '', epoch = 1 + GREATEST(epoch, "
        last.write_text(f"{free}{before.epoch});\n" if leased else "", encoding="utf-8")
        files = [f"--file={path}" for path in (first, script, last)]
        _run(url, "psql", "-Xq", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null", *files)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write_script(dump: Path, raw: Path, script: Path) -> None:
    command = [find_program("pg_restore"), "--no-owner", "--no-privileges", f"--file={raw}", str(dump)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise CannotCopy(f"{dump} is not a dump that pg_restore reads: {done.stderr.decode(errors='replace').strip()}")
    with raw.open("rb") as source, script.open("wb") as target:
        for line in source:
            if line.rstrip() != _NEWER_SETTING.encode():
                target.write(line)
            if line.startswith(b"COPY "):
                break  # what follows is data
        else:
            return
        shutil.copyfileobj(source, target)


# --- what a copy says of itself ---------------------------------------------------------------------------


def free_lease(copy: Path) -> None:
    """Release the lease in a copy of an SQLite database, under an epoch that no master has had."""
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE lease SET epoch = epoch + 1, expires_at = 0, process = ''")


def schema_of(url: URL) -> str | None:
    """Return the schema revision of a database; None if it has none.

    Raises:
        CannotCopy: It cannot be read.
    """
    with _connected(url) as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.scalar(select(literal_column("version_num")).select_from(text("alembic_version")))


# --- before a migration -----------------------------------------------------------------------------------


def copy_before_migration(url: URL, schema: str, policy: CopyPolicy, warn: Callable[[str], None]) -> Path | None:
    """Copy a database whose schema is about to change, and remove the oldest copies of earlier changes.

    Args:
        url: The database.
        schema: The schema that it will have.
        policy: Where to, and how many are kept.
        warn: Called with the reason if there is no copy and none is required.

    Returns:
        The copy; None if none can be made and none is required, or the database is in memory.

    Raises:
        CannotCopy: None can be made.
    """
    path = sqlite_path(url)
    if url.get_backend_name() == "sqlite" and path is None:
        return None
    folder = path.parent if path is not None else policy.folder
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = folder / f"before-{schema}-{stamp}{suffix(url)}"
    for left in folder.glob(".before-*.partial"):
        left.unlink(missing_ok=True)
    try:
        copy_database(url, target)
    except CannotCopy as error:
        if policy.required:
            raise CannotCopy(
                f"the schema of the database was not changed, since no copy of it can be made first: {error.message}",
                hint=f"{error.hint}. To do without a copy: c.DetHub.migrate_without_copy = True",
            ) from error
        warn(f"the schema of the database is changed without a copy from before: {error.message}")
        return None
    _prune(folder, target, policy.keep)
    return target


def _prune(folder: Path, newest: Path, keep: int) -> None:
    """Keep one copy for each of the last few schemas: a migration that fails repeatedly replaces only its own."""
    schemas: set[str] = set()
    copies = [(path, found["schema"]) for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))]
    copies.sort(key=lambda item: (item[0] == newest, item[0].stat().st_mtime_ns), reverse=True)
    for path, schema in copies:
        if schema in schemas or len(schemas) == keep:
            path.unlink(missing_ok=True)
        else:
            schemas.add(schema)
