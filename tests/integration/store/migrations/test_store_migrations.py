from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, inspect

from detlab_hub.store import Store, migrate
from detlab_hub.store.engine import parse_url
from detlab_hub.store.tables import Base


def test_what_tests_start_from_is_what_the_migrations_make(db_url: str) -> None:
    """And no more: no lease, no name; what one master makes is not shared by the tests of others."""
    newest = max(path.name[:4] for path in (migrate.MIGRATIONS / "versions").glob("[0-9]*.py"))
    with create_engine(parse_url(db_url), poolclass=NullPool).begin() as connection:
        tables = inspect(connection).get_table_names()
        rows = {name: connection.exec_driver_sql(f"SELECT * FROM {name}").fetchall() for name in tables}
    assert set(rows) == {*Base.metadata.tables, "alembic_version"}
    assert {name: found for name, found in rows.items() if found} == {"alembic_version": [(newest,)]}


def test_models_and_migrations_agree(empty_db_url: str) -> None:
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        migrate.upgrade(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrated_and_created_tables_have_the_same_columns_and_keys(empty_db_url: str) -> None:
    def shape(connection: Connection) -> dict[str, object]:
        look = inspect(connection)
        return {
            table: (
                sorted((c["name"], str(c["type"]), c["nullable"]) for c in look.get_columns(table)),
                look.get_pk_constraint(table)["constrained_columns"],
                sorted((k["constrained_columns"], k["referred_table"]) for k in look.get_foreign_keys(table)),
                sorted((i["column_names"], i["unique"]) for i in look.get_indexes(table)),
            )
            for table in sorted(Base.metadata.tables)
        }

    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        migrate.upgrade(connection)
        migrated = shape(connection)
        Base.metadata.drop_all(connection)
        Base.metadata.create_all(connection)
        assert shape(connection) == migrated


def test_down_and_up_again(empty_db_url: str) -> None:
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        migrate.upgrade(connection)
        command.downgrade(migrate.alembic_config(connection), "base")
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
        migrate.upgrade(connection)


def test_migrations_lie_inside_the_package() -> None:
    # They are found in an installed wheel as in a checkout, without any alembic.ini.
    package = Path(migrate.__file__).parent
    assert migrate.MIGRATIONS.is_relative_to(package)
    assert (migrate.MIGRATIONS / "env.py").is_file()
    assert (migrate.MIGRATIONS / "script.py.mako").is_file()
    assert list((migrate.MIGRATIONS / "versions").glob("0001_*.py"))


def test_the_files_of_migrations_are_named_after_their_revisions_in_their_order() -> None:
    """So that a start need not import alembic to know which is the newest."""
    walked = [script.revision for script in ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions()]
    assert migrate.revisions() == walked[::-1]


def test_a_database_of_the_newest_schema_is_opened_without_alembic(db_url: str) -> None:
    look = f"""
import sys
from detlab_hub.store import Store
Store.open({db_url!r}, holder="test").close()
print(sorted(name for name in sys.modules if name.partition(".")[0] in {{"alembic", "mako"}}))
"""
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_sqlite_never_uses_an_id_again(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/x.db", holder="test")
    try:
        tables = store.read_sync(
            lambda s: dict(s.connection().exec_driver_sql("SELECT name, sql FROM sqlite_master").fetchall())
        )
    finally:
        store.close()
    for name in ("experiments", "trials", "events", "log_chunks"):
        assert "AUTOINCREMENT" in tables[name]
    assert "WITHOUT ROWID" in tables["points"]


def test_a_new_revision_of_unchanged_tables_is_empty(tmp_path: Path) -> None:
    migrate.new_revision("nothing changes", "9999", tmp_path)
    (made,) = tmp_path.glob("*.py")
    assert made.name == "9999_nothing_changes.py"
    text = made.read_text()
    newest = max(path.name[:4] for path in (migrate.MIGRATIONS / "versions").glob("[0-9]*.py"))
    assert f"down_revision = '{newest}'" in text or f'down_revision = "{newest}"' in text
    assert "op." not in text.partition("def upgrade")[2]
