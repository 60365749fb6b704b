"""Schedules of notebook runs."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_groups", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=True),
        sa.Column("project_id", sa.BigInteger(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=True),
        sa.Column("bundle", sa.Text(), nullable=True),
        sa.Column("notebook", sa.Text(), nullable=True),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=False),
        sa.Column("after_experiment", sa.BigInteger(), nullable=True),
        sa.Column("after_task", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("last_task", sa.Text(), nullable=True),
        sa.Column("last_due_at", sa.Double(), nullable=True),
        sa.Column("last_started_at", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("noted_at", sa.Double(), nullable=True),
        sa.Column("told_task", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("owner", "key", name=op.f("uq_schedules_owner_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_schedules_owner_id"), "schedules", ["owner", "id"])
    op.create_index(op.f("ix_schedules_state_next_at"), "schedules", ["state", "next_at"])
    op.create_index(op.f("ix_schedules_bundle"), "schedules", ["bundle"])
    op.create_index(op.f("ix_schedules_last_task"), "schedules", ["last_task"])


def downgrade() -> None:
    op.drop_table("schedules")
