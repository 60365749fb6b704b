"""Files before rows: event files of experiments that are to be removed, and code that nothing runs any more."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NAMES_CODE = (("experiments", "bundle"), ("experiments", "search_bundle"), ("tasks", "bundle"))


def upgrade() -> None:
    op.add_column("experiments", sa.Column("event_files_due", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("event_files_failure", sa.Text(), nullable=False, server_default=""))
    op.create_index(op.f("ix_experiments_event_files_due"), "experiments", ["event_files_due"])
    op.add_column("bundles", sa.Column("unused_since", sa.Double(), nullable=True))
    for table, column in _NAMES_CODE:
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def downgrade() -> None:
    for table, column in _NAMES_CODE:
        op.drop_index(op.f(f"ix_{table}_{column}"), table)
    op.drop_column("bundles", "unused_since")
    op.drop_index(op.f("ix_experiments_event_files_due"), "experiments")
    op.drop_column("experiments", "event_files_failure")
    op.drop_column("experiments", "event_files_due")
