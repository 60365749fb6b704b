"""The tables of 0.1."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("serves_user", sa.Text(), nullable=True),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_table(
        "bundles",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bundles")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=True),
        sa.Column("trial_id", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_experiment_id_id"), "events", ["experiment_id", "id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
    )
    op.create_table(
        "logs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("stdtype", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=True),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_logs_trial_id_id"), "logs", ["trial_id", "id"], unique=False)
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "metric_names",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_names")),
        sa.UniqueConstraint("name", name=op.f("uq_metric_names_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "points",
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("flag", sa.SmallInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "step", name=op.f("pk_points")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollups",
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "first_step", name=op.f("pk_rollups")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tokens",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_expires_at"), "tokens", ["expires_at"], unique=False)
    op.create_index(op.f("ix_tokens_kind_subject"), "tokens", ["kind", "subject"], unique=False)
    op.create_table(
        "workspaces",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("workspace_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_projects_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_projects_workspace_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "experiments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("searcher_name", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("smaller_is_better", sa.Boolean(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("bundle", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("best_trial_id", sa.BigInteger(), nullable=True),
        sa.Column("best_step", sa.BigInteger(), nullable=True),
        sa.Column("best_value", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_experiments_project_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_experiments_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_experiments_owner_id"), "experiments", ["owner", "id"], unique=False)
    op.create_index(op.f("ix_experiments_state_id"), "experiments", ["state", "id"], unique=False)
    op.create_table(
        "experiment_metrics",
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("name_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_metrics_experiment_id")
        ),
        sa.ForeignKeyConstraint(["name_id"], ["metric_names.id"], name=op.f("fk_experiment_metrics_name_id")),
        sa.PrimaryKeyConstraint("experiment_id", "group_name", "name_id", name=op.f("pk_experiment_metrics")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_idempotency_experiment_id")),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_experiment_id"), "idempotency", ["experiment_id"], unique=False)
    op.create_table(
        "searcher_journal",
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("decisions", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_searcher_journal_experiment_id")),
        sa.PrimaryKeyConstraint("experiment_id", "seq", name=op.f("pk_searcher_journal")),
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("hparams", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("steps_completed", sa.BigInteger(), nullable=False),
        sa.Column("best_validation", sa.Double(), nullable=True),
        sa.Column("latest_validation", sa.Text(), nullable=True),
        sa.Column("latest_checkpoint", sa.Text(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("searcher_stopped", sa.Boolean(), nullable=False),
        sa.Column("early_exit", sa.Text(), nullable=True),
        sa.Column("searcher_metric_seen", sa.Boolean(), nullable=False),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("metrics_run", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_trials_experiment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("experiment_id", "idx", name=op.f("uq_trials_experiment_id_idx")),
        sa.UniqueConstraint("experiment_id", "request_id", name=op.f("uq_trials_experiment_id_request_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_trials_experiment_id_state"), "trials", ["experiment_id", "state"], unique=False)
    op.create_index(op.f("ix_trials_state_id"), "trials", ["state", "id"], unique=False)
    op.create_table(
        "allocations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("slots_needed", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.Column("assigned_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("preempt_reason", sa.Text(), nullable=True),
        sa.Column("preempt_at", sa.Double(), nullable=True),
        sa.Column("preempt_acked_at", sa.Double(), nullable=True),
        sa.Column("term_at", sa.Double(), nullable=True),
        sa.Column("kill_sent_at", sa.Double(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_reason", sa.Text(), nullable=True),
        sa.Column("metrics_seq", sa.BigInteger(), nullable=False),
        sa.Column("logs_seq", sa.BigInteger(), nullable=False),
        sa.Column("resume_step", sa.BigInteger(), nullable=True),
        sa.Column("superseded_applied", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_allocations_experiment_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_allocations_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
        sa.UniqueConstraint("trial_id", "run", name=op.f("uq_allocations_trial_id_run")),
    )
    op.create_index(op.f("ix_allocations_experiment_id"), "allocations", ["experiment_id"], unique=False)
    op.create_index(op.f("ix_allocations_state_id"), "allocations", ["state", "id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("experiment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("steps_completed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("storage", sa.Text(), nullable=False),
        sa.Column("manifest_digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_checkpoints_experiment_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_checkpoints_trial_id")),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_checkpoints")),
    )
    op.create_index(
        op.f("ix_checkpoints_experiment_id_created_at"), "checkpoints", ["experiment_id", "created_at"], unique=False
    )
    op.create_index(
        op.f("ix_checkpoints_trial_id_steps_completed"), "checkpoints", ["trial_id", "steps_completed"], unique=False
    )
    op.create_table(
        "series",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("name_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("nan_count", sa.BigInteger(), nullable=False),
        sa.Column("posinf_count", sa.BigInteger(), nullable=False),
        sa.Column("neginf_count", sa.BigInteger(), nullable=False),
        sa.Column("finite_sum", sa.Double(), nullable=False),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("last", sa.Double(), nullable=True),
        sa.Column("last_flag", sa.SmallInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("rolled_step", sa.BigInteger(), nullable=True),
        sa.Column("unrolled", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["name_id"], ["metric_names.id"], name=op.f("fk_series_name_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_series_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("trial_id", "group_name", "name_id", name=op.f("uq_series_trial_id_group_name_name_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "structured_values",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("name_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("value", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["name_id"], ["metric_names.id"], name=op.f("fk_structured_values_name_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_structured_values_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_structured_values")),
        sa.UniqueConstraint(
            "trial_id",
            "group_name",
            "name_id",
            "step",
            name=op.f("uq_structured_values_trial_id_group_name_name_id_step"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_structured_values_trial_id_step"), "structured_values", ["trial_id", "step"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_structured_values_trial_id_step"), table_name="structured_values")
    op.drop_table("structured_values")
    op.drop_table("series")
    op.drop_index(op.f("ix_checkpoints_trial_id_steps_completed"), table_name="checkpoints")
    op.drop_index(op.f("ix_checkpoints_experiment_id_created_at"), table_name="checkpoints")
    op.drop_table("checkpoints")
    op.drop_index(op.f("ix_allocations_state_id"), table_name="allocations")
    op.drop_index(op.f("ix_allocations_experiment_id"), table_name="allocations")
    op.drop_table("allocations")
    op.drop_index(op.f("ix_trials_state_id"), table_name="trials")
    op.drop_index(op.f("ix_trials_experiment_id_state"), table_name="trials")
    op.drop_table("trials")
    op.drop_table("searcher_journal")
    op.drop_index(op.f("ix_idempotency_experiment_id"), table_name="idempotency")
    op.drop_table("idempotency")
    op.drop_table("experiment_metrics")
    op.drop_index(op.f("ix_experiments_state_id"), table_name="experiments")
    op.drop_index(op.f("ix_experiments_owner_id"), table_name="experiments")
    op.drop_table("experiments")
    op.drop_table("projects")
    op.drop_table("workspaces")
    op.drop_index(op.f("ix_tokens_kind_subject"), table_name="tokens")
    op.drop_index(op.f("ix_tokens_expires_at"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_table("rollups")
    op.drop_table("points")
    op.drop_table("metric_names")
    op.drop_table("meta")
    op.drop_index(op.f("ix_logs_trial_id_id"), table_name="logs")
    op.drop_table("logs")
    op.drop_table("lease")
    op.drop_index(op.f("ix_events_experiment_id_id"), table_name="events")
    op.drop_table("events")
    op.drop_table("bundles")
    op.drop_table("agents")
