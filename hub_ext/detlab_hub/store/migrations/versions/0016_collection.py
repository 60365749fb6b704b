"""Collection: experiments have a policy that was changed, since when it is to be applied, and the task that removes;
removals have a time in the trash; users bookmark checkpoints; freed bytes are booked."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("gc_policy", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("gc_at", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("gc_task", sa.Text(), nullable=True))
    op.create_index(op.f("ix_experiments_gc_at"), "experiments", ["gc_at"])
    op.add_column("checkpoint_removals", sa.Column("due_at", sa.Double(), nullable=False, server_default="0"))
    op.add_column("checkpoint_removals", sa.Column("begun_at", sa.Double(), nullable=True))
    op.add_column("checkpoint_removals", sa.Column("was", sa.Text(), nullable=False, server_default=""))
    op.add_column("checkpoint_removals", sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("checkpoint_removals", sa.Column("by_task", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("checkpoint_removals", sa.Column("failure", sa.Text(), nullable=False, server_default=""))
    op.create_index(op.f("ix_checkpoint_removals_due_at"), "checkpoint_removals", ["due_at"])
    # What is there was begun by an earlier version: it cannot be undone.
    op.execute("UPDATE checkpoint_removals SET begun_at = requested_at")
    op.create_table(
        "checkpoint_bookmarks",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["uuid"], ["checkpoints.uuid"], name=op.f("fk_checkpoint_bookmarks_uuid")),
        sa.PrimaryKeyConstraint("uuid", "name", name=op.f("pk_checkpoint_bookmarks")),
    )
    op.create_table(
        "storage_freed",
        sa.Column("experiment_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "owner", name=op.f("pk_storage_freed")),
    )
    op.create_index(op.f("ix_storage_freed_owner"), "storage_freed", ["owner"])


def downgrade() -> None:
    op.drop_table("storage_freed")
    op.drop_table("checkpoint_bookmarks")
    op.drop_index(op.f("ix_checkpoint_removals_due_at"), "checkpoint_removals")
    for column in ("failure", "by_task", "bytes", "was", "begun_at", "due_at"):
        op.drop_column("checkpoint_removals", column)
    op.drop_index(op.f("ix_experiments_gc_at"), "experiments")
    for column in ("gc_task", "gc_at", "gc_policy"):
        op.drop_column("experiments", column)
