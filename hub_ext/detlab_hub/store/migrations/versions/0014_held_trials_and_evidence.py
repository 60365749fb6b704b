"""Searches hold trials off their slots, say why they stop one, and journal when each event came."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("trials", sa.Column("hold", sa.Text(), nullable=False, server_default="none"))
    op.add_column("trials", sa.Column("stop_evidence", sa.Text(), nullable=False, server_default=""))
    op.add_column("trials", sa.Column("would_stop", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("searcher_journal", sa.Column("at", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("searcher_journal", "at")
    for column in ("would_stop", "stop_evidence", "hold"):
        op.drop_column("trials", column)
