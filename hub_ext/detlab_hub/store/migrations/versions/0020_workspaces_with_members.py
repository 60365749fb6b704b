"""Workspaces with members. Those that were there are split by owner, so that nobody gets a right by an old row."""

import unicodedata
from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOWHERE = "Uncategorized"
"""Where experiments lay that named no workspace."""
_WORKSPACES = sa.table(
    "workspaces", *map(sa.column, ("id", "path", "name", "owner", "kind", "description", "defaults", "created_at"))
)
_PROJECTS = sa.table(
    "projects",
    *map(sa.column, ("id", "workspace_id", "key", "name", "owner", "description", "notes", "created_at")),
)
_EXPERIMENTS = sa.table("experiments", *map(sa.column, ("id", "owner", "workspace_id", "project_id")))
_MEMBERS = sa.table(
    "workspace_members", *map(sa.column, ("workspace_id", "kind", "name", "role", "added_by", "created_at"))
)


def upgrade() -> None:
    # Renamed, not made anew: SQLite would check each reference to a table that is replaced.
    op.execute("ALTER TABLE workspaces RENAME COLUMN name TO path")
    op.execute("ALTER TABLE projects RENAME COLUMN name TO key")
    for table in ("workspaces", "projects"):
        op.add_column(table, sa.Column("name", sa.Text(), nullable=False, server_default=""))
        op.add_column(table, sa.Column("description", sa.Text(), nullable=False, server_default=""))
        op.add_column(table, sa.Column("archived_at", sa.Double(), nullable=True))
    op.add_column("workspaces", sa.Column("kind", sa.Text(), nullable=False, server_default="shared"))
    op.add_column("workspaces", sa.Column("defaults", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("projects", sa.Column("notes", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "workspace_members",
        sa.Column("workspace_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("added_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_members_workspace_id")),
        sa.PrimaryKeyConstraint("workspace_id", "kind", "name", name=op.f("pk_workspace_members")),
    )
    op.create_index(op.f("ix_workspace_members_kind_name"), "workspace_members", ["kind", "name"])
    op.add_column("models", sa.Column("workspace_id", sa.BigInteger(), nullable=True))
    op.create_index(op.f("ix_models_workspace_id"), "models", ["workspace_id"])
    _Split(op.get_bind()).run()
    op.create_index(op.f("ix_experiments_workspace_id_id"), "experiments", ["workspace_id", "id"])
    op.create_index(op.f("ix_experiments_project_id_id"), "experiments", ["project_id", "id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_experiments_project_id_id"), "experiments")
    op.drop_index(op.f("ix_experiments_workspace_id_id"), "experiments")
    op.drop_index(op.f("ix_models_workspace_id"), "models")
    op.drop_column("models", "workspace_id")
    op.drop_table("workspace_members")
    # Names were unique in the whole cluster.
    op.execute("UPDATE workspaces SET path = owner || '/' || name")
    op.execute("UPDATE projects SET key = name")
    for table, columns in (("projects", ("notes",)), ("workspaces", ("defaults", "kind"))):
        for column in (*columns, "archived_at", "description", "name"):
            op.drop_column(table, column)
    op.execute("ALTER TABLE projects RENAME COLUMN key TO name")
    op.execute("ALTER TABLE workspaces RENAME COLUMN path TO name")


def _key(name: str) -> str:
    """Return what names have in common that differ only in case, in Unicode's form or in spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def _named(name: str, what: str) -> str:
    """Return the name of what was named so: digits alone are an id now."""
    return f"{what} {name}" if name.isdigit() else name


class _Split:
    """Gives each owner workspaces and projects of their own, where they had experiments in common ones."""

    def __init__(self, connection: sa.Connection) -> None:
        self._db = connection
        self._homes: dict[tuple[str, str], int] = {}
        """(owner, key) -> workspace."""
        self._folders: dict[tuple[int, str], int] = {}
        """(workspace, key) -> project."""

    def run(self) -> None:
        """Split all workspaces, then all projects; each experiment follows."""
        rows = list(self._db.execute(sa.select(_WORKSPACES).order_by(_WORKSPACES.c.id)))
        projects = list(self._db.execute(sa.select(_PROJECTS).order_by(_PROJECTS.c.id)))
        owners = self._owners(_EXPERIMENTS.c.workspace_id)
        owners_of_projects = self._owners(_EXPERIMENTS.c.project_id)
        for row in rows:  # so that no name is taken while they are given anew
            self._set(_WORKSPACES, row.id, path=f"old {row.id}")
        for row in projects:
            self._set(_PROJECTS, row.id, key=f"old {row.id}")
        left = {row.id for row in rows}
        for row in rows:
            for owner in self._in_order(row, owners[row.id]):
                self._home(row, owner, left)
        by_id = {row.id: row for row in rows}
        unused = {row.id for row in projects}
        for row in projects:
            for owner in self._in_order(row, owners_of_projects[row.id]):
                self._folder(row, by_id[row.workspace_id], owner, unused)
        for number in unused:
            self._db.execute(sa.delete(_PROJECTS).where(_PROJECTS.c.id == number))
        for number in left:  # all that lay in it lies in one of the same key now
            self._db.execute(sa.delete(_WORKSPACES).where(_WORKSPACES.c.id == number))

    def _owners(self, column: sa.ColumnElement[int]) -> defaultdict[int, set[str]]:
        found: defaultdict[int, set[str]] = defaultdict(set)
        pairs = sa.select(column, _EXPERIMENTS.c.owner).where(column.is_not(None)).distinct()
        for number, owner in self._db.execute(pairs):
            found[number].add(owner)
        return found

    @staticmethod
    def _in_order(row: sa.Row[Any], owners: set[str]) -> list[str]:
        """Return whose it becomes: of those with experiments in it, who made it comes first and keeps the row."""
        return sorted(owners or {row.owner}, key=lambda owner: (owner != row.owner, owner))

    def _home(self, row: sa.Row[Any], owner: str, left: set[int]) -> None:
        name = _named(row.path, "workspace")
        key = (owner, _key(name))
        if key in self._homes:
            return
        kind = "personal" if name == _NOWHERE else "shared"
        values = {"path": f"{owner}/{key[1]}", "name": name, "owner": owner, "kind": kind}
        if row.id in left:
            left.discard(row.id)
            self._set(_WORKSPACES, row.id, **values)
            self._homes[key] = row.id
        else:
            more = {"created_at": row.created_at, "description": "", "defaults": "{}"}
            self._homes[key] = self._insert(_WORKSPACES, {**values, **more})
        if kind == "shared":
            member = {"workspace_id": self._homes[key], "kind": "user", "name": owner, "role": "admin"}
            self._db.execute(sa.insert(_MEMBERS).values(**member, added_by=owner, created_at=row.created_at))

    def _folder(self, row: sa.Row[Any], workspace: sa.Row[Any], owner: str, unused: set[int]) -> None:
        home = self._homes.get((owner, _key(_named(workspace.path, "workspace"))))
        if home is None:  # nobody's experiments lie in it, and its workspace is not its maker's
            return
        name = _named(row.key, "project")
        key = (home, _key(name))
        if key not in self._folders:
            values = {"workspace_id": home, "key": key[1], "name": name, "owner": owner}
            if row.id in unused:
                unused.discard(row.id)
                self._set(_PROJECTS, row.id, **values)
                self._folders[key] = row.id
            else:
                more = {"created_at": row.created_at, "description": "", "notes": ""}
                self._folders[key] = self._insert(_PROJECTS, {**values, **more})
        columns = _EXPERIMENTS.c
        theirs = sa.update(_EXPERIMENTS).where(columns.project_id == row.id, columns.owner == owner)
        self._db.execute(theirs.values(workspace_id=home, project_id=self._folders[key]))

    def _set(self, table: sa.TableClause, number: int, **values: object) -> None:
        self._db.execute(sa.update(table).where(table.c.id == number).values(**values))

    def _insert(self, table: sa.TableClause, values: dict[str, object]) -> int:
        return int(self._db.execute(sa.insert(table).values(**values).returning(table.c.id)).scalar_one())
