"""The step of each trial's best validation, and saved views."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_BEST_STEPS = """
UPDATE trials SET best_step = (
  SELECT MIN(p.step) FROM points p
  JOIN series s ON s.id = p.series_id
  JOIN metric_names n ON n.id = s.name_id
  JOIN experiments e ON e.metric = n.name
  WHERE s.trial_id = trials.id AND e.id = trials.experiment_id AND s.group_name = 'validation'
    AND p.flag = 0 AND p.value = trials.best_validation
) WHERE best_validation IS NOT NULL
"""


def upgrade() -> None:
    op.add_column("trials", sa.Column("best_step", sa.BigInteger(), nullable=True))
    op.execute(_BEST_STEPS)
    op.create_table(
        "saved_views",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=True),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_views")),
        sa.UniqueConstraint("owner", "table_name", "name", name=op.f("uq_saved_views_owner_table_name_name")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("saved_views")
    op.drop_column("trials", "best_step")
