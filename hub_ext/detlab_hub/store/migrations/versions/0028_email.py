"""Alerts by e-mail: addresses of users, codes that were asked for, rules that tell so."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("alert_rules", sa.Column("email", sa.Boolean(), nullable=False, server_default=sa.false()))
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


def downgrade() -> None:
    op.drop_table("alert_email_codes")
    op.drop_table("alert_emails")
    op.drop_column("alert_rules", "email")
