"""Experiments have notes, may be archived, and know how long they were paused; files of checkpoints to be removed."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("experiments", sa.Column("notes", sa.Text(), nullable=False, server_default=""))
    op.add_column("experiments", sa.Column("edited_at", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("archived_at", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("paused_at", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("paused_seconds", sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "checkpoint_removals",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("paths", sa.Text(), nullable=True),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["uuid"], ["checkpoints.uuid"], name=op.f("fk_checkpoint_removals_uuid")),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_checkpoint_removals")),
    )


def downgrade() -> None:
    op.drop_table("checkpoint_removals")
    for column in ("paused_seconds", "paused_at", "archived_at", "edited_at", "notes"):
        op.drop_column("experiments", column)
