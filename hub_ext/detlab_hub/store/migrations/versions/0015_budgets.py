"""Searches have budgets."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("budget", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("experiments", "budget")
