"""Users and groups have quotas of bytes; what an experiment stores is summed up by an index alone."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_SIZES = "ix_checkpoints_experiment_id_state_size"


def upgrade() -> None:
    op.create_table(
        "storage_quotas",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_storage_quotas")),
    )
    op.create_index(op.f(_SIZES), "checkpoints", ["experiment_id", "state", "size"])


def downgrade() -> None:
    op.drop_index(op.f(_SIZES), table_name="checkpoints")
    op.drop_table("storage_quotas")
