"""Files before rows: event files of experiments that are to be removed."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("event_files_due", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("event_files_failure", sa.Text(), nullable=False, server_default=""))
    op.create_index(op.f("ix_experiments_event_files_due"), "experiments", ["event_files_due"])


def downgrade() -> None:
    op.drop_index(op.f("ix_experiments_event_files_due"), "experiments")
    op.drop_column("experiments", "event_files_failure")
    op.drop_column("experiments", "event_files_due")
