"""References to checkpoints, from the keys of experiments and tasks that have not ended; trials by their parent."""

import json
import re
import shlex
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETING", "DELETED")
_STORED = ("COMPLETED", "PARTIALLY_DELETED")
_WORD = re.compile(r"(?:[^=]*=)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_MOST = 100
_TABLE = sa.table("checkpoint_references", *map(sa.column, ("uuid", "referrer", "referrer_id", "purpose")))
_READABLE = sa.text(
    "SELECT c.uuid FROM checkpoints c JOIN experiments e ON e.id = c.experiment_id"
    " WHERE c.uuid IN :uuids AND c.state IN :stored AND e.state <> 'DELETING' AND (e.owner = :owner OR EXISTS ("
    "SELECT 1 FROM grants g WHERE g.experiment_id = e.id AND ((g.kind = 'user' AND g.name = :owner)"
    " OR (g.kind = 'group' AND g.name IN :groups))) OR EXISTS ("
    "SELECT 1 FROM model_versions v JOIN models m ON m.id = v.model_id WHERE v.checkpoint_uuid = c.uuid"
    " AND (m.owner = :owner OR EXISTS (SELECT 1 FROM model_grants h WHERE h.model_id = m.id"
    " AND ((h.kind = 'user' AND h.name = :owner) OR (h.kind = 'group' AND h.name IN :groups))))))"
).bindparams(*(sa.bindparam(name, expanding=True) for name in ("uuids", "stored", "groups")))
"""Administrators who read what is not theirs are not known here: bookmark what such a task needs."""
_SOURCES = {
    "source_checkpoint_uuid": sa.text("SELECT uuid FROM checkpoints WHERE uuid = :source AND state IN :stored"),
    "source_trial_id": sa.text("SELECT uuid FROM checkpoints WHERE trial_id = :source AND state IN :stored"),
}
"""A warm start was checked when it was submitted. Early masters did not note which checkpoint of a trial it is."""


def upgrade() -> None:
    op.create_table(
        "checkpoint_references",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("referrer", sa.Text(), nullable=False),
        sa.Column("referrer_id", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["uuid"], ["checkpoints.uuid"], name=op.f("fk_checkpoint_references_uuid")),
        sa.PrimaryKeyConstraint("uuid", "referrer", "referrer_id", "purpose", name=op.f("pk_checkpoint_references")),
    )
    op.create_index(
        op.f("ix_checkpoint_references_referrer_referrer_id"), "checkpoint_references", ["referrer", "referrer_id"]
    )
    op.create_index(op.f("ix_trials_parent_checkpoint"), "trials", ["parent_checkpoint"])
    for name, referrer, kind in (("experiments", "experiment", sa.BigInteger), ("tasks", "task", sa.Text)):
        _fill(name, referrer, kind)


def _fill(name: str, referrer: str, kind: type) -> None:
    """Read one config at a time: each may be a megabyte."""
    connection = op.get_bind()
    texts = (sa.column(one, sa.Text) for one in ("state", "owner", "owner_groups", "config"))
    table = sa.table(name, sa.column("id", kind), *texts)
    living = connection.execute(sa.select(table.c.id).where(table.c.state.not_in(_ENDED)).order_by(table.c.id))
    for (key,) in living.all():
        owner, groups, text = connection.execute(
            sa.select(table.c.owner, table.c.owner_groups, table.c.config).where(table.c.id == key)
        ).one()
        config = json.loads(text)
        found = {(uuid, "warm_start") for uuid in _sources(connection, config)}
        if named := _named(config.get("entrypoint")):
            who = {"owner": owner, "groups": json.loads(groups) or [""], "uuids": named, "stored": _STORED}
            found |= {(uuid, "evaluation") for uuid in connection.execute(_READABLE, who).scalars()}
        rows = [{"uuid": uuid, "referrer": referrer, "referrer_id": str(key), "purpose": why} for uuid, why in found]
        if rows:
            connection.execute(sa.insert(_TABLE), rows)


def _sources(connection: sa.Connection, config: dict[str, Any]) -> list[str]:
    searcher = config.get("searcher") or {}
    for key, query in _SOURCES.items():
        if source := searcher.get(key):
            named = query.bindparams(sa.bindparam("stored", expanding=True))
            return list(connection.execute(named, {"source": source, "stored": _STORED}).scalars())
    return []


def _named(entrypoint: object) -> list[str]:
    try:
        words = [*map(str, entrypoint)] if isinstance(entrypoint, list) else shlex.split(str(entrypoint or ""))
    except ValueError:
        return []
    found = [match[1] for word in words if (match := _WORD.fullmatch(word))]
    return list(dict.fromkeys(found))[:_MOST]


def downgrade() -> None:
    op.drop_index(op.f("ix_trials_parent_checkpoint"), table_name="trials")
    op.drop_table("checkpoint_references")
