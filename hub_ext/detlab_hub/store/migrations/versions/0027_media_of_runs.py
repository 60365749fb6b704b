"""Media of runs that no cluster started."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("media", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.alter_column("experiment_id", existing_type=ID, nullable=True)
        batch_op.alter_column("trial_id", existing_type=ID, nullable=True)
        batch_op.add_column(sa.Column("run_id", sa.Text(), nullable=True))
        batch_op.create_foreign_key(batch_op.f("fk_media_run_id"), "tracked_runs", ["run_id"], ["id"])
        batch_op.create_unique_constraint(
            batch_op.f("uq_media_run_id_key_step_place"), ["run_id", "key", "step", "place"]
        )
        batch_op.create_index(batch_op.f("ix_media_run_id_step_id"), ["run_id", "step", "id"])
        batch_op.create_index(batch_op.f("ix_media_run_id_digest"), ["run_id", "digest"])


def downgrade() -> None:
    op.execute("DELETE FROM media WHERE run_id IS NOT NULL")
    with op.batch_alter_table("media", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_index(batch_op.f("ix_media_run_id_digest"))
        batch_op.drop_index(batch_op.f("ix_media_run_id_step_id"))
        batch_op.drop_constraint(batch_op.f("uq_media_run_id_key_step_place"), type_="unique")
        batch_op.drop_constraint(batch_op.f("fk_media_run_id"), type_="foreignkey")
        batch_op.drop_column("run_id")
        batch_op.alter_column("trial_id", existing_type=ID, nullable=False)
        batch_op.alter_column("experiment_id", existing_type=ID, nullable=False)
