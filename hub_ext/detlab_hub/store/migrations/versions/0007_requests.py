"""CPUs and memory: what agents have of them, and what is asked of them; words of output with capital letters."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("agents", sa.Column("millicpus", sa.BigInteger(), nullable=True))
    op.add_column("agents", sa.Column("host_memory", sa.BigInteger(), nullable=True))
    op.add_column("allocations", sa.Column("millicpus", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("allocations", sa.Column("memory", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("log_chunks", sa.Column("capitals", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("log_chunks", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_column("capitals")
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_column("memory")
        batch_op.drop_column("millicpus")
    with op.batch_alter_table("agents") as batch_op:
        batch_op.drop_column("host_memory")
        batch_op.drop_column("millicpus")
