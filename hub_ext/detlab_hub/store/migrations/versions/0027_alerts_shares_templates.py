"""Alerts, their rules, webhooks and mails; pre-flights; shares, prices, caps; templates, policies; schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _alerts()
    _preflights()
    _shares()
    _templates()
    _deleted_artifacts()
    _emails()
    _schedules()


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=True),
        sa.Column("trial_id", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("held_back", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("read_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_alerts_owner_id"), "alerts", ["owner", "id"])
    op.create_index(op.f("ix_alerts_owner_read_at"), "alerts", ["owner", "read_at"])
    op.create_index(op.f("ix_alerts_source_created_at"), "alerts", ["source", "created_at"])
    op.create_index(op.f("ix_alerts_created_at"), "alerts", ["created_at"])
    op.create_table(
        "alert_rules",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_groups", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("bell", sa.Boolean(), nullable=False),
        sa.Column("hook_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("email", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_rules")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_alert_rules_owner"), "alert_rules", ["owner"])
    op.create_index(op.f("ix_alert_rules_hook_id"), "alert_rules", ["hook_id"])
    op.create_table(
        "alert_marks",
        sa.Column("rule_id", sa.BigInteger(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "experiment_id", name=op.f("pk_alert_marks")),
    )
    op.create_index(op.f("ix_alert_marks_experiment_id"), "alert_marks", ["experiment_id"])
    op.create_table(
        "webhooks",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_webhooks_owner_name")),
        sqlite_autoincrement=True,
    )
    op.add_column("webhook_calls", sa.Column("owner", sa.Text(), nullable=False, server_default=""))
    op.add_column("webhook_calls", sa.Column("experiment_id", sa.BigInteger(), nullable=True))
    op.add_column("webhook_calls", sa.Column("failed_at", sa.Double(), nullable=True))
    op.create_index(op.f("ix_webhook_calls_url_id"), "webhook_calls", ["url", "id"])


def _preflights() -> None:
    op.create_table(
        "governance_preflights",
        sa.Column("trial_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_governance_preflights")),
    )


def _shares() -> None:
    op.add_column("allocations", sa.Column("pool", sa.Text(), nullable=False, server_default=""))
    op.add_column("allocations", sa.Column("price", sa.Double(), nullable=False, server_default="0"))
    op.add_column("usage", sa.Column("cost", sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "faded_usage",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "owner", name=op.f("pk_faded_usage")),
    )
    op.create_table(
        "project_costs",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "month", name=op.f("pk_project_costs")),
    )
    op.create_table(
        "cost_caps",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_cost_caps")),
    )


def _templates() -> None:
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


def _deleted_artifacts() -> None:
    op.create_table(
        "deleted_artifact_links",
        sa.Column("id", ID, nullable=False),
        sa.Column("artifact_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_artifact_links")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_deleted_artifact_links_artifact_id_version"), "deleted_artifact_links", ["artifact_id", "version"]
    )
    op.create_index(op.f("ix_deleted_artifact_links_run_id"), "deleted_artifact_links", ["run_id"])
    op.create_index(op.f("ix_deleted_artifact_links_experiment_id"), "deleted_artifact_links", ["experiment_id"])


def _emails() -> None:
    op.create_table(
        "alert_emails",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("confirmed_at", sa.Double(), nullable=True),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("pending", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=False),
        sa.Column("code_until", sa.Double(), nullable=True),
        sa.Column("code_tries", sa.Integer(), nullable=False),
        sa.Column("hour_began", sa.Double(), nullable=False),
        sa.Column("hour_count", sa.Integer(), nullable=False),
        sa.Column("summary_id", sa.BigInteger(), nullable=True),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_alert_emails")),
    )
    op.create_table(
        "alert_email_codes",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("mailbox", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_email_codes")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_alert_email_codes_owner_asked_at"), "alert_email_codes", ["owner", "asked_at"])
    op.create_index(op.f("ix_alert_email_codes_mailbox_asked_at"), "alert_email_codes", ["mailbox", "asked_at"])
    op.create_index(op.f("ix_alert_email_codes_asked_at"), "alert_email_codes", ["asked_at"])


def _schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_groups", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=True),
        sa.Column("project_id", sa.BigInteger(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=True),
        sa.Column("bundle", sa.Text(), nullable=True),
        sa.Column("notebook", sa.Text(), nullable=True),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=False),
        sa.Column("after_experiment", sa.BigInteger(), nullable=True),
        sa.Column("after_task", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("last_task", sa.Text(), nullable=True),
        sa.Column("last_due_at", sa.Double(), nullable=True),
        sa.Column("last_started_at", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("noted_at", sa.Double(), nullable=True),
        sa.Column("told_task", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("owner", "key", name=op.f("uq_schedules_owner_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_schedules_owner_id"), "schedules", ["owner", "id"])
    op.create_index(op.f("ix_schedules_state_next_at"), "schedules", ["state", "next_at"])
    op.create_index(op.f("ix_schedules_bundle"), "schedules", ["bundle"])
    op.create_index(op.f("ix_schedules_last_task"), "schedules", ["last_task"])


def downgrade() -> None:
    for table in ("schedules", "alert_email_codes", "alert_emails"):
        op.drop_table(table)
    op.drop_table("deleted_artifact_links")
    op.drop_table("config_policies")
    op.drop_table("templates")
    for table in ("cost_caps", "project_costs", "faded_usage"):
        op.drop_table(table)
    op.drop_column("usage", "cost")
    for column in ("price", "pool"):
        op.drop_column("allocations", column)
    op.drop_table("governance_preflights")
    op.drop_index(op.f("ix_webhook_calls_url_id"), "webhook_calls")
    for column in ("failed_at", "experiment_id", "owner"):
        op.drop_column("webhook_calls", column)
    for table in ("webhooks", "alert_marks", "alert_rules", "alerts"):
        op.drop_table(table)
