"""Shares of users, prices and costs: use that fades, what slots cost, and caps."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allocations", sa.Column("pool", sa.Text(), nullable=False, server_default=""))
    op.add_column("allocations", sa.Column("price", sa.Double(), nullable=False, server_default="0"))
    op.add_column("usage", sa.Column("cost", sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "faded_usage",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "owner", name=op.f("pk_faded_usage")),
    )
    op.create_table(
        "project_costs",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "month", name=op.f("pk_project_costs")),
    )
    op.create_table(
        "cost_caps",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_cost_caps")),
    )


def downgrade() -> None:
    for table in ("cost_caps", "project_costs", "faded_usage"):
        op.drop_table(table)
    op.drop_column("usage", "cost")
    for column in ("price", "pool"):
        op.drop_column("allocations", column)
