"""Alerts, their rules, and webhooks of users."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_index(op.f("ix_webhook_calls_url_id"), "webhook_calls")
    for column in ("failed_at", "experiment_id", "owner"):
        op.drop_column("webhook_calls", column)
    for table in ("webhooks", "alert_marks", "alert_rules", "alerts"):
        op.drop_table(table)
