"""The uid of each Hub user, assigned by the master for all nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "user_uids",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.Column("account", sa.Boolean(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_user_uids")),
        sa.UniqueConstraint("uid", name=op.f("uq_user_uids_uid")),
    )


def downgrade() -> None:
    op.drop_table("user_uids")
