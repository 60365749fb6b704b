"""Runs that no cluster started, and versions of models that they logged."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_GONE_VERSIONS = """
DELETE FROM model_versions WHERE checkpoint_uuid IN (SELECT uuid FROM checkpoints WHERE run_id IS NOT NULL)
"""


def upgrade() -> None:
    op.add_column("projects", sa.Column("tags", sa.Text(), nullable=False, server_default="{}"))
    op.create_table(
        "tracked_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("project_id", ID, nullable=True),
        sa.Column("workspace_id", ID, nullable=True),
        sa.Column("experiment_id", ID, nullable=True),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("is_trial", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_groups", sa.Text(), nullable=False),
        sa.Column("said_user", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("datasets", sa.Text(), nullable=False),
        sa.Column("models_in", sa.Text(), nullable=False),
        sa.Column("models_out", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tracked_runs_project_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_tracked_runs_workspace_id")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_tracked_runs_experiment_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_tracked_runs_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tracked_runs")),
    )
    for columns in (["project_id", "started_ms"], ["experiment_id", "started_ms"], ["trial_id"], ["owner"]):
        op.create_index(op.f(f"ix_tracked_runs_{'_'.join(columns)}"), "tracked_runs", columns)
    op.create_table(
        "tracked_values",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_tracked_values_run_id")),
        sa.PrimaryKeyConstraint("run_id", "kind", "key", name=op.f("pk_tracked_values")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_tracked_values_kind_key"), "tracked_values", ["kind", "key"])
    op.create_table(
        "tracked_series",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name_id", ID, nullable=False),
        sa.Column("last", sa.Double(), nullable=True),
        sa.Column("last_flag", sa.SmallInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["name_id"], ["metric_names.id"], name=op.f("fk_tracked_series_name_id")),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_tracked_series_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tracked_series")),
        sa.UniqueConstraint("run_id", "name_id", name=op.f("uq_tracked_series_run_id_name_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tracked_points",
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("flag", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("series_id", "step", "time_ms", "flag", "value", name=op.f("pk_tracked_points")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tracked_models",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model_type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_tracked_models_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tracked_models")),
    )
    op.create_index(op.f("ix_tracked_models_run_id"), "tracked_models", ["run_id"])
    op.create_table(
        "tracked_files",
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_tracked_files_run_id")),
        sa.PrimaryKeyConstraint("root", "path", name=op.f("pk_tracked_files")),
    )
    op.create_index(op.f("ix_tracked_files_run_id"), "tracked_files", ["run_id"])
    with op.batch_alter_table("checkpoints") as batch_op:
        batch_op.alter_column("trial_id", existing_type=sa.BigInteger(), nullable=True)
        batch_op.alter_column("experiment_id", existing_type=sa.BigInteger(), nullable=True)
        batch_op.add_column(sa.Column("run_id", sa.Text(), nullable=True))
        batch_op.create_foreign_key(op.f("fk_checkpoints_run_id"), "tracked_runs", ["run_id"], ["id"])
    op.create_index(op.f("ix_checkpoints_run_id"), "checkpoints", ["run_id"])


def downgrade() -> None:
    op.execute(_GONE_VERSIONS)
    op.execute("DELETE FROM checkpoints WHERE run_id IS NOT NULL")
    op.drop_index(op.f("ix_checkpoints_run_id"), "checkpoints")
    with op.batch_alter_table("checkpoints") as batch_op:
        batch_op.drop_constraint(op.f("fk_checkpoints_run_id"), type_="foreignkey")
        batch_op.drop_column("run_id")
        batch_op.alter_column("experiment_id", existing_type=sa.BigInteger(), nullable=False)
        batch_op.alter_column("trial_id", existing_type=sa.BigInteger(), nullable=False)
    for table in ("files", "models", "points", "series", "values", "runs"):
        op.drop_table(f"tracked_{table}")
    op.drop_column("projects", "tags")
