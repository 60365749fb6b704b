"""What databases lack whose master ran an earlier commit of the same revision: some were changed after they were made.

A database that says 0007 was opened as one, though its master had never made these. Looked for is each by itself.
"""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INDICES = {
    "ix_trials_experiment_id_state": ("trials", ["experiment_id", "state"]),  # 0001, as 84f17d4 made it
    "ix_audit_subject_id": ("audit", ["subject", "id"]),  # 0002, as 0a86a52 made it
}


def upgrade() -> None:
    look = sa.inspect(op.get_bind())
    for name, (table, columns) in INDICES.items():
        if name not in {index["name"] for index in look.get_indexes(table)}:
            op.create_index(name, table, columns)
    if "capitals" not in {column["name"] for column in look.get_columns("log_chunks")}:
        # 0007, as 1bbb48f made it: without this column, and without what later commits took from the configs.
        op.add_column("log_chunks", sa.Column("capitals", sa.Text(), nullable=True))
        _earlier("0007")._keep_output_as_asked()
    # As often as one likes: who lives and holds nothing is given what its config asks for.
    _earlier("0007")._count_what_lives()


def downgrade() -> None:
    """Nothing: all of it belongs to earlier revisions."""


def _earlier(name: str) -> Any:
    found = context.script.get_revision(name)
    assert found is not None
    return found.module
