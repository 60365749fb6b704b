"""Lines of output in chunks, what was cut of them; what log policies found; attempts over several agents."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_chunks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("first_time", sa.Double(), nullable=False),
        sa.Column("last_time", sa.Double(), nullable=False),
        sa.Column("levels", sa.Integer(), nullable=False),
        sa.Column("streams", sa.Integer(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_chunks")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_log_chunks_trial_id_last"), "log_chunks", ["trial_id", "last"])
    op.create_index(op.f("ix_log_chunks_task_id_last"), "log_chunks", ["task_id", "last"])
    op.create_index(op.f("ix_log_chunks_last_time"), "log_chunks", ["last_time"])
    op.create_table(
        "log_cuts",
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("cut_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("holder", name=op.f("pk_log_cuts")),
    )
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("trials", sa.Column("policy_matches", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("experiments", sa.Column("log_retention_days", sa.Integer(), nullable=True))
    op.add_column("allocations", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("agents", sa.Column("drain", sa.Text(), nullable=False, server_default=""))
    op.add_column("agents", sa.Column("drain_until", sa.Double(), nullable=True))
    op.add_column("agents", sa.Column("slots_off", sa.Text(), nullable=False, server_default="[]"))
    op.create_table(
        "allocation_parts",
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("heard", sa.Text(), nullable=True),
        sa.Column("meeting", sa.Text(), nullable=True),
        sa.Column("metrics_seq", sa.BigInteger(), nullable=False),
        sa.Column("logs_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", "rank", name=op.f("pk_allocation_parts")),
    )
    op.create_index(op.f("ix_allocation_parts_agent_id"), "allocation_parts", ["agent_id"])


def downgrade() -> None:
    op.drop_table("allocation_parts")
    with op.batch_alter_table("agents") as batch_op:
        batch_op.drop_column("slots_off")
        batch_op.drop_column("drain_until")
        batch_op.drop_column("drain")
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_column("nodes")
    with op.batch_alter_table("experiments", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_column("log_retention_days")
    with op.batch_alter_table("trials", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_column("policy_matches")
    op.drop_table("log_cuts")
    op.drop_table("log_chunks")
