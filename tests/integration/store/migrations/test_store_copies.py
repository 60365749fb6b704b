"""Before its schema changes a database is copied, and a copy can be put back: SQLite and PostgreSQL."""

from __future__ import annotations

import gzip
import os
import sqlite3
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from detlab_hub.store import CannotCopy, CopyPolicy, Store, StoreError, copies, migrate
from detlab_hub.store.engine import parse_url
from testbed.databases import postgres
from testbed.databases.store_rows import add_experiment
from testbed.small_disks import CannotRun, small_disk

UPGRADES = Path(__file__).parents[2] / "services" / "upgrades"
OLD = "0008"
NEWEST = migrate.revisions()[-1]


def unpacked(name: str) -> str:
    return gzip.decompress((UPGRADES / f"{name}.gz").read_bytes()).decode()


def load(name: str, url: str, folder: Path, server: postgres.Server) -> None:
    script = folder / "dump.sql"
    script.write_text(unpacked(name), encoding="utf-8")
    server.load(url.rpartition("/")[2], script)


@pytest.fixture
def old_db_url(empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A database that an earlier master wrote."""
    if empty_db_url.startswith("sqlite"):
        with sqlite3.connect(empty_db_url.removeprefix("sqlite:///")) as connection:
            connection.executescript(unpacked(f"{OLD}.sqlite.sql"))
        connection.close()
    else:
        load(f"{OLD}.postgresql.sql", empty_db_url, tmp_path, request.getfixturevalue("postgres_server"))
    return empty_db_url


def folder_of(url: str, tmp_path: Path) -> Path:
    """Where the copies of a database go."""
    if url.startswith("sqlite"):
        return Path(url.removeprefix("sqlite:///")).parent
    (tmp_path / "db").mkdir(exist_ok=True)
    return tmp_path / "db"


def policy_of(url: str, tmp_path: Path, **more) -> CopyPolicy:
    return CopyPolicy(folder_of(url, tmp_path), **more)


def open_and_close(url: str, **more) -> None:
    Store.open(url, holder="test", clock=lambda: time.time() + 1e9, **more).close()


def ask(url: str, statement: str) -> list[tuple]:
    with create_engine(parse_url(url), poolclass=NullPool).connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def before_copies(folder: Path) -> list[Path]:
    return sorted(folder.glob("before-*"))


# --- before a migration


def test_an_older_database_is_copied_before_its_schema_changes(old_db_url: str, tmp_path: Path) -> None:
    rows = ask(old_db_url, "SELECT id, state FROM trials ORDER BY id")
    open_and_close(old_db_url, copies=policy_of(old_db_url, tmp_path))
    assert ask(old_db_url, "SELECT version_num FROM alembic_version") == [(NEWEST,)]
    (copy,) = before_copies(folder_of(old_db_url, tmp_path))
    assert copy.name.startswith(f"before-{NEWEST}-")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert len(rows) > 1
    if old_db_url.startswith("sqlite"):
        kept = f"sqlite:///{copy}"
        assert ask(kept, "SELECT version_num FROM alembic_version") == [(OLD,)]
        assert ask(kept, "SELECT id, state FROM trials ORDER BY id") == rows
    else:
        listed = subprocess.run(
            [copies.find_program("pg_restore"), "--data-only", "--table=alembic_version", "--file=-", str(copy)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"\n{OLD}\n" in listed


def test_the_copy_takes_the_place_of_a_database_whose_upgrade_was_regretted(old_db_url: str, tmp_path: Path) -> None:
    rows = ask(old_db_url, "SELECT id, state FROM trials ORDER BY id")
    open_and_close(old_db_url, copies=policy_of(old_db_url, tmp_path))
    (copy,) = before_copies(folder_of(old_db_url, tmp_path))
    url = parse_url(old_db_url)
    if old_db_url.startswith("sqlite"):
        copy.replace(old_db_url.removeprefix("sqlite:///"))
    else:
        copies.put_back(url, copy, copies.occupant(url, time.time()))
    assert ask(old_db_url, "SELECT version_num FROM alembic_version") == [(OLD,)]
    assert ask(old_db_url, "SELECT id, state FROM trials ORDER BY id") == rows


def test_a_new_or_current_database_is_not_copied(empty_db_url: str, tmp_path: Path) -> None:
    policy = policy_of(empty_db_url, tmp_path)
    open_and_close(empty_db_url, copies=policy)
    open_and_close(empty_db_url, copies=policy)
    assert before_copies(folder_of(empty_db_url, tmp_path)) == []


@pytest.mark.postgres
def test_without_a_copy_the_schema_is_not_changed(
    postgres_server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server.database("without_a_copy") as url:
        load(f"{OLD}.postgresql.sql", url, tmp_path, postgres_server)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CannotCopy, match="pg_dump is not installed") as refused:
            open_and_close(url, copies=policy_of(url, tmp_path))
        assert "postgresql-client" in str(refused.value.hint)
        assert "migrate_without_copy" in str(refused.value.hint)
        assert ask(url, "SELECT version_num FROM alembic_version") == [(OLD,)]
        open_and_close(url, copies=policy_of(url, tmp_path, required=False))
        assert ask(url, "SELECT version_num FROM alembic_version") == [(NEWEST,)]


def test_a_disk_without_room_for_a_copy_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 12, 0o700) as disk:
            path = disk.folder / "detlab.sqlite"
            with sqlite3.connect(path) as connection:
                connection.executescript(unpacked(f"{OLD}.sqlite.sql"))
            connection.close()
            needed = path.stat().st_size + (16 << 20)
            with pytest.raises(CannotCopy, match=f"needs {needed} bytes of room"):
                open_and_close(f"sqlite:///{path}", copies=CopyPolicy(disk.folder))
            assert ask(f"sqlite:///{path}", "SELECT version_num FROM alembic_version") == [(OLD,)]
            assert list(disk.folder.glob("*before-*")) == []
    except CannotRun as error:
        pytest.skip(str(error))


def test_a_migration_that_fails_says_where_the_copy_is(old_db_url: str, tmp_path: Path) -> None:
    """A table of the name that the next migration makes is in its way."""
    with create_engine(parse_url(old_db_url), poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE TABLE bundle_uploads (id INTEGER)"))
    with pytest.raises(StoreError, match="bundle_uploads") as failed:
        open_and_close(old_db_url, copies=policy_of(old_db_url, tmp_path))
    (copy,) = before_copies(folder_of(old_db_url, tmp_path))
    assert str(copy) in failed.value.message
    assert "The change was undone" in failed.value.message
    assert ask(old_db_url, "SELECT version_num FROM alembic_version") == [(OLD,)]


def test_the_last_copies_of_different_schemas_are_kept(old_db_url: str, tmp_path: Path) -> None:
    folder = folder_of(old_db_url, tmp_path)
    ending = copies.suffix(parse_url(old_db_url))
    for age, schema in enumerate(["0007", "0006", "0005", NEWEST], start=1):
        earlier = folder / f"before-{schema}-2026010{age}-000000{ending}"
        earlier.touch(mode=0o600)
        os.utime(earlier, (1_700_000_000 - age, 1_700_000_000 - age))
    (folder / f"before-0004-notes{ending}").touch()
    (folder / f".before-{NEWEST}-x.partial").touch()
    open_and_close(old_db_url, copies=policy_of(old_db_url, tmp_path))
    schemas = [path.name.split("-")[1] for path in before_copies(folder)]
    assert schemas == ["0004", "0006", "0007", NEWEST], "what is not ours stays; one of each schema"
    assert not list(folder.glob("*.partial"))


# --- a copy beside a master that writes


def test_a_copy_is_one_snapshot_beside_a_writer(db_url: str, tmp_path: Path) -> None:
    """Two tables that grow in step have the same number of rows in every copy, and the writer goes on."""
    with create_engine(parse_url(db_url), poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE TABLE one (n INTEGER)"))
        connection.execute(text("CREATE TABLE two (n INTEGER)"))
    store = Store.open(db_url, holder="writer")
    stop = threading.Event()
    written = [0]

    def write() -> None:
        while not stop.is_set():
            number = written[0]

            def both(session, number=number) -> None:
                session.execute(text("INSERT INTO one VALUES (:n)"), {"n": number})
                session.execute(text("INSERT INTO two VALUES (:n)"), {"n": number})

            store.write_sync(both)
            written[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        url, counts = parse_url(db_url), []
        for number in range(3):
            target = tmp_path / f"copy-{number}{copies.suffix(url)}"
            before = written[0]
            copies.copy_database(url, target)
            counts.append((before, *rows_of(target)))
    finally:
        stop.set()
        thread.join()
        store.close()
    for before, one, two in counts:
        assert one == two >= before
    assert written[0] > counts[-1][0], "the writer was not held up"


def rows_of(copy: Path) -> tuple[int, int]:
    if copy.suffix == ".sqlite":
        return tuple(ask(f"sqlite:///{copy}", f"SELECT count(*) FROM {name}")[0][0] for name in ("one", "two"))
    counts = []
    for name in ("one", "two"):
        command = [copies.find_program("pg_restore"), "--data-only", f"--table={name}", "--file=-", str(copy)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        data = said.partition("COPY ")[2].partition("\n")[2].partition("\\.\n")[0]
        counts.append(len(data.splitlines()))
    return counts[0], counts[1]


# --- putting back


@pytest.mark.postgres
def test_a_dump_is_put_into_an_empty_and_into_another_database(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    with (
        postgres_server.database("copied_from") as source,
        postgres_server.database("copied_to") as target,
    ):
        store = Store.open(source, holder="first")
        store.write_sync(add_experiment)
        dump = tmp_path / "x.dump"
        copies.copy_database(parse_url(source), dump)
        epoch = store.epoch
        store.close()
        url = parse_url(target)
        assert copies.occupant(url, time.time()) == copies.Occupant()
        copies.put_back(url, dump, copies.occupant(url, time.time()))
        assert ask(target, "SELECT count(*) FROM experiments") == [(1,)]
        assert ask(target, "SELECT epoch, expires_at FROM lease") == [(epoch + 1, 0.0)]

        old = Store.open(target, holder="an old master")
        old.write_sync(add_experiment)
        before = copies.occupant(url, time.time())
        assert before.holder == "an old master"
        copies.put_back(url, dump, before)
        with pytest.raises(Exception, match=r"lost its lease|epoch"):
            old.write_sync(add_experiment)
        old.close(release=False)
        assert ask(target, "SELECT count(*) FROM experiments") == [(1,)]
        new = Store.open(target, holder="the next one")
        assert new.epoch > old.epoch
        new.close()


@pytest.mark.postgres
def test_a_dump_that_cannot_be_put_back_leaves_the_database_as_it_was(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    with postgres_server.database("left_alone") as target:
        open_and_close(target)
        dump = tmp_path / "x.dump"
        dump.write_bytes(b"PGDMP is not enough")
        url = parse_url(target)
        before = copies.occupant(url, time.time())
        with pytest.raises(CannotCopy, match="not a dump that pg_restore reads"):
            copies.put_back(url, dump, before)
        assert copies.occupant(url, time.time()).tables == before.tables


def test_no_password_is_in_a_command_line_or_message(tmp_path: Path) -> None:
    url = parse_url("postgresql://ada:verysecret@127.0.0.1:1/x?sslmode=disable")
    with pytest.raises(CannotCopy) as failed:
        copies.copy_database(url, tmp_path / "x.dump")
    assert "verysecret" not in f"{failed.value.message} {failed.value.hint}"
    address, environment = copies._address(url)
    assert "verysecret" not in address
    assert "sslmode=disable" in address
    assert environment["PGPASSWORD"] == "verysecret"


def test_a_damaged_copy_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    open_and_close(f"sqlite:///{path}")
    copies.check_sqlite(path)
    path.write_bytes(path.read_bytes()[:8192] + os.urandom(8192))
    with pytest.raises(StoreError, match="damaged"):
        copies.check_sqlite(path)
