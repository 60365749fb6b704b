"""A trial may start from another trial's checkpoint; durable consumers of the event log."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("parent_checkpoint", sa.Text(), nullable=True))
    op.create_table(
        "event_consumers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("moved_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_consumers")),
    )


def downgrade() -> None:
    op.drop_table("event_consumers")
    op.drop_column("trials", "parent_checkpoint")
