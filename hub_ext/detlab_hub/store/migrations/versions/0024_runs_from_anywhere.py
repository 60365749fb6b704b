"""Runs are sent by processes that say that they live, and number what they send."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tracked_runs", sa.Column("end_reason", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "tracked_writers",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("acked", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("begun_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_tracked_writers_run_id")),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_tracked_writers")),
    )
    op.create_index(op.f("ix_tracked_writers_state_heard_at"), "tracked_writers", ["state", "heard_at"])


def downgrade() -> None:
    op.drop_table("tracked_writers")
    op.execute("DELETE FROM tracked_values WHERE kind = 'summary'")
    op.drop_column("tracked_runs", "end_reason")
