"""User tasks lie in workspaces, and workspaces have quotas of slots. Those that are there stay their owners' alone."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in ("workspace_id", "project_id"):
        op.add_column("tasks", sa.Column(column, sa.BigInteger(), nullable=True))
        op.create_index(op.f(f"ix_tasks_{column}_created_at"), "tasks", [column, "created_at"])
    op.add_column("workspaces", sa.Column("quota", sa.Integer(), nullable=True))
    op.create_index(op.f("ix_workspaces_quota"), "workspaces", ["quota"])


def downgrade() -> None:
    op.drop_index(op.f("ix_workspaces_quota"), "workspaces")
    op.drop_column("workspaces", "quota")
    for column in ("project_id", "workspace_id"):
        op.drop_index(op.f(f"ix_tasks_{column}_created_at"), "tasks")
        op.drop_column("tasks", column)
