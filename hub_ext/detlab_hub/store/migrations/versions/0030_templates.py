"""Templates and config policies."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0027"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "templates",
        sa.Column("id", ID, nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("base_id", sa.BigInteger(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_templates")),
        sa.UniqueConstraint("workspace_id", "key", name="uq_templates_workspace_id_key"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_templates_base_id"), "templates", ["base_id"])
    op.create_table(
        "config_policies",
        sa.Column("workspace_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("invariant_config", sa.Text(), nullable=False),
        sa.Column("constraints", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "workload", name=op.f("pk_config_policies")),
    )


def downgrade() -> None:
    op.drop_table("config_policies")
    op.drop_table("templates")
