"""Searches have budgets; custom ones the task that runs their class, with code of its own; trials that are evaluated by
hand have who asked for them, when, with which key; steered ones how many trials they make since. Trials that begin
anew have their first attempt since."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


_TEXTS = ("asked_by", "asked_key", "enqueued_by")


def upgrade() -> None:
    op.add_column("experiments", sa.Column("budget", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("search_task", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("search_bundle", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("trials_planned", sa.Integer(), nullable=True))
    op.add_column("trials", sa.Column("asked_at", sa.Double(), nullable=True))
    op.add_column("trials", sa.Column("first_run", sa.Integer(), nullable=False, server_default="0"))
    for name in _TEXTS:
        op.add_column("trials", sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("experiments", "trials_planned")
    op.drop_column("experiments", "search_bundle")
    op.drop_column("experiments", "search_task")
    for name in (*_TEXTS, "first_run", "asked_at"):
        op.drop_column("trials", name)
    op.drop_column("experiments", "budget")
