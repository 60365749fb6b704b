"""Searches have budgets, and custom ones the task that runs their class, with code of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("budget", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("search_task", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("search_bundle", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("experiments", "search_bundle")
    op.drop_column("experiments", "search_task")
    op.drop_column("experiments", "budget")
