"""The migration of workspaces: those of before had global names, and it gives nobody a right to anything of others."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, NullPool, create_engine, text

from detlab_hub.core.rights import ObjectKind, Person, Right, Thing, right_of
from detlab_hub.store import Store, migrate
from detlab_hub.store.engine import parse_url
from detlab_hub.store.queries import rights, workspaces
from detlab_hub.store.tables import ExperimentRow, MemberRow, ProjectRow, WorkspaceRow

COLUMNS = {
    "labels": "[]",
    "state": "COMPLETED",
    "config": "{}",
    "searcher_name": "single",
    "metric": "x",
    "source": "{}",
    "warnings": "[]",
    "notes": "",
    "owner_groups": "[]",
    "resource_pool": "default",
    "event_files_failure": "",
}
NUMBERS = {"seed": 0, "progress": 0.0, "priority": 42, "created_at": 1.0, "paused_seconds": 0.0, "weight": 1.0}
# (number, its owner, workspace, project), as any submit could make them
EXPERIMENTS = [
    (1, "ada", 1, 1),
    (2, "ben", 1, 1),
    (3, "ben", 2, 2),
    (4, "cas", 2, 2),
    (5, "cas", 2, 3),
    (6, "ben", 3, 4),
    (7, "ada", 4, 5),
    (8, "cas", 4, 5),
    (9, "ben", 6, 7),
]
WORKSPACES = {
    1: ("Uncategorized", "ada"),
    2: ("lab", "ada"),
    3: ("LAB", "ben"),
    4: ("a/b", "ada"),
    5: ("empty", "dan"),
    6: ("2", "ben"),
}
PROJECTS = {
    1: (1, "Uncategorized", "ada"),
    2: (2, "digits", "ada"),
    3: (2, "speech", "cas"),
    4: (3, "Digits", "ben"),
    5: (4, "x", "ada"),
    6: (2, "nothing", "ada"),
    7: (6, "1", "ben"),
}


def fill(connection: Connection) -> None:
    for key, (name, owner) in WORKSPACES.items():
        values = {"id": key, "name": name, "owner": owner}
        connection.execute(
            text("INSERT INTO workspaces (id, name, owner, created_at) VALUES (:id, :name, :owner, 1)"), values
        )
    for key, (place, name, owner) in PROJECTS.items():
        insert = (
            "INSERT INTO projects (id, workspace_id, name, owner, created_at) VALUES (:id, :place, :name, :owner, 1)"
        )
        connection.execute(text(insert), {"id": key, "place": place, "name": name, "owner": owner})
    for number, owner, workspace, project in EXPERIMENTS:
        values: dict[str, Any] = {**COLUMNS, **NUMBERS, "id": number, "name": f"e{number}", "owner": owner}
        values |= {"workspace_id": workspace, "project_id": project, "smaller_is_better": True, "units_added": 0}
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        connection.execute(text(f"INSERT INTO experiments ({names}) VALUES ({marks})"), values)
    if connection.dialect.name == "postgresql":
        for table in ("workspaces", "projects", "experiments"):
            connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), 100)"))


@pytest.fixture
def migrated(empty_db_url: str) -> Any:
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        command.upgrade(migrate.alembic_config(connection), "0019")
        fill(connection)
        migrate.upgrade(connection)
    store = Store.open(empty_db_url, holder="test")
    yield store
    store.close()


def where(s: Any, number: int) -> tuple[str, str, str]:
    row = s.get(ExperimentRow, number)
    place, folder = s.get(WorkspaceRow, row.workspace_id), s.get(ProjectRow, row.project_id)
    assert folder.workspace_id == place.id
    return place.path, place.name, folder.name


def test_each_owner_has_their_experiments_in_workspaces_of_their_own(migrated: Store) -> None:
    assert migrated.read_sync(lambda s: {number: where(s, number) for number, *_ in EXPERIMENTS}) == {
        1: ("ada/uncategorized", "Uncategorized", "Uncategorized"),
        2: ("ben/uncategorized", "Uncategorized", "Uncategorized"),
        3: ("ben/lab", "lab", "digits"),
        4: ("cas/lab", "lab", "digits"),
        5: ("cas/lab", "lab", "speech"),
        6: ("ben/lab", "lab", "digits"),  # `LAB` was another one by its case
        7: ("ada/a/b", "a/b", "x"),
        8: ("cas/a/b", "a/b", "x"),
        9: ("ben/workspace 2", "workspace 2", "project 1"),  # digits alone are an id
    }


def test_nobody_has_a_right_to_an_experiment_of_somebody_else_by_an_old_row(migrated: Store) -> None:
    def compare(s: Any) -> None:
        for name in ("ada", "ben", "cas", "dan", "lab"):
            viewer = Person(name, frozenset({"lab", "ada"}))
            mine = {number for number, owner, *_ in EXPERIMENTS if owner == name}
            found = {key for (key,) in s.query(ExperimentRow.id).where(rights.visible_experiments(viewer))}
            assert found == mine
            for row in s.query(ExperimentRow):
                members = rights.members_of_each(s, {row.workspace_id}).get(row.workspace_id, rights.NOBODY)
                thing = Thing(ObjectKind.EXPERIMENT, row.owner, members=members.users, member_groups=members.groups)
                assert (right_of(viewer, thing) > Right.NONE) is (row.owner == name)

    migrated.read_sync(compare)


def test_each_is_the_admin_of_what_they_have_and_personal_ones_have_no_members(migrated: Store) -> None:
    def look(s: Any) -> dict[str, list[tuple[str, str, str]]]:
        return {
            row.path: [(one.kind, one.name, one.role) for one in workspaces.members(s, row.id)]
            for row in s.query(WorkspaceRow)
        }

    found = migrated.read_sync(look)
    assert found == {
        "ada/uncategorized": [],
        "ben/uncategorized": [],
        "ben/lab": [("user", "ben", "admin")],
        "cas/lab": [("user", "cas", "admin")],
        "ada/a/b": [("user", "ada", "admin")],
        "cas/a/b": [("user", "cas", "admin")],
        "dan/empty": [("user", "dan", "admin")],
        "ben/workspace 2": [("user", "ben", "admin")],
    }
    assert migrated.read_sync(lambda s: s.query(MemberRow).count()) == 6


def test_a_name_of_before_that_has_a_slash_means_ones_own(migrated: Store) -> None:
    def look(s: Any) -> tuple[Any, Any, Any]:
        named = [
            workspaces.named(s, text, asker) for text, asker in (("a/b", "cas"), ("ada/a/b", "ben"), ("lab", "dan"))
        ]
        return tuple(None if row is None else row.path for row in named)

    assert migrated.read_sync(look) == ("cas/a/b", "ada/a/b", None)


def test_it_can_be_taken_back(migrated: Store, empty_db_url: str) -> None:
    migrated.close()
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        command.downgrade(migrate.alembic_config(connection), "0019")
        names = {name for (name,) in connection.execute(text("SELECT name FROM workspaces"))}
        assert {"ben/lab", "cas/lab", "ada/Uncategorized"} <= names
        migrate.upgrade(connection)
