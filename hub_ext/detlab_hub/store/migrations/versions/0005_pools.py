"""Resource pools, places in the queue, quotas; no lease of spawns, which was never used."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ENDED = ("COMPLETED", "CANCELED", "ERROR")


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_quotas")),
    )
    with op.batch_alter_table("agents") as batch_op:
        batch_op.add_column(sa.Column("pool", sa.Text(), nullable=False, server_default="default"))
        batch_op.add_column(sa.Column("labels", sa.Text(), nullable=False, server_default="{}"))
        batch_op.add_column(sa.Column("max_zero_slot_tasks", sa.Integer(), nullable=False, server_default="100"))
    for name in ("experiments", "tasks"):
        with op.batch_alter_table(name) as batch_op:
            batch_op.add_column(sa.Column("resource_pool", sa.Text(), nullable=False, server_default="default"))
            batch_op.add_column(sa.Column("weight", sa.Double(), nullable=False, server_default="1.0"))
            batch_op.add_column(sa.Column("max_slots", sa.Integer(), nullable=True))
            batch_op.add_column(sa.Column("position", sa.Double(), nullable=True))
            batch_op.add_column(sa.Column("owner_groups", sa.Text(), nullable=False, server_default="[]"))
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.add_column(sa.Column("constraints", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("max_time", sa.Double(), nullable=True))
    with op.batch_alter_table("tasks") as batch_op:
        batch_op.drop_column("lease_until")
    _take_from_configs()


def _take_from_configs() -> None:
    """Copy `max_slots` out of the configs into a column, which the queue changes from now on."""
    connection = op.get_bind()
    table = sa.table(
        "experiments",
        sa.column("id", sa.BigInteger),
        sa.column("state", sa.Text),
        sa.column("config", sa.Text),
        sa.column("max_slots", sa.Integer),
    )
    living = sa.select(table.c.id, table.c.config).where(table.c.state.not_in(_ENDED))
    for experiment_id, text in connection.execute(living).all():
        most = (json.loads(text).get("resources") or {}).get("max_slots")
        if most is not None:
            connection.execute(
                sa.update(table).where(table.c.id == experiment_id).values(max_slots=min(int(most), 2**31 - 1))
            )


def downgrade() -> None:
    with op.batch_alter_table("tasks") as batch_op:
        batch_op.add_column(sa.Column("lease_until", sa.Double(), nullable=True))
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_column("max_time")
        batch_op.drop_column("constraints")
    for name in ("tasks", "experiments"):
        # Only what changes is copied from SQLite's old table: the numbers of experiments must still never come again.
        more = {"sqlite_autoincrement": True} if name == "experiments" else {}
        with op.batch_alter_table(name, table_kwargs=more) as batch_op:
            for column in ("owner_groups", "position", "max_slots", "weight", "resource_pool"):
                batch_op.drop_column(column)
    with op.batch_alter_table("agents") as batch_op:
        for column in ("max_zero_slot_tasks", "labels", "pool"):
            batch_op.drop_column(column)
    op.drop_table("quotas")
