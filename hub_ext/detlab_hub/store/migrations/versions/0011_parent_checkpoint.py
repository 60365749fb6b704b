"""A trial may start from another trial's checkpoint."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("parent_checkpoint", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "parent_checkpoint")
