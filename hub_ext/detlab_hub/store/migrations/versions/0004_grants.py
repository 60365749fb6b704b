"""Whom the owners of experiments let look at them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "grants",
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("write", sa.Boolean(), nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_grants_experiment_id")),
        sa.PrimaryKeyConstraint("experiment_id", "kind", "name", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_kind_name"), "grants", ["kind", "name"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_grants_kind_name"), table_name="grants")
    op.drop_table("grants")
