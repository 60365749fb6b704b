"""What trials and runs log beyond numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "media",
        sa.Column("id", ID, nullable=False),
        sa.Column("experiment_id", ID, nullable=True),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("caption", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_media_experiment_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_media_trial_id")),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_media_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_media")),
        sa.UniqueConstraint("run_id", "key", "step", "place", name=op.f("uq_media_run_id_key_step_place")),
        sa.UniqueConstraint("trial_id", "key", "step", "place", name=op.f("uq_media_trial_id_key_step_place")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_media_trial_id_step_id"), "media", ["trial_id", "step", "id"])
    op.create_index(op.f("ix_media_experiment_id_digest"), "media", ["experiment_id", "digest"])
    op.create_index(op.f("ix_media_run_id_step_id"), "media", ["run_id", "step", "id"])
    op.create_index(op.f("ix_media_run_id_digest"), "media", ["run_id", "digest"])


def downgrade() -> None:
    op.drop_table("media")
