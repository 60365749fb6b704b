"""User tasks, audit, usage."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("audit") as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_actor_id"), ["actor", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_subject_id"), ["subject", "id"], unique=False)

    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("bundle", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("experiment_ids", sa.Text(), nullable=False),
        sa.Column("trial_ids", sa.Text(), nullable=False),
        sa.Column("server_name", sa.Text(), nullable=True),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("claimed", sa.Boolean(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("last_activity", sa.Double(), nullable=True),
        sa.Column("idle_timeout", sa.Double(), nullable=True),
        sa.Column("cull_at", sa.Double(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("owner", "key", name=op.f("uq_tasks_owner_key")),
    )
    with op.batch_alter_table("tasks") as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_owner_created_at"), ["owner", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_state_created_at"), ["state", "created_at"], unique=False)

    op.create_table(
        "usage",
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("day", "owner", "kind", name=op.f("pk_usage")),
    )
    op.create_table(
        "task_outputs",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_task_outputs_task_id")),
        sa.PrimaryKeyConstraint("task_id", "name", name=op.f("pk_task_outputs")),
    )
    with op.batch_alter_table("agents") as batch_op:
        batch_op.add_column(sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.true()))
        batch_op.add_column(sa.Column("runtimes", sa.Text(), nullable=False, server_default='["process"]'))

    with op.batch_alter_table("allocations") as batch_op:
        batch_op.add_column(sa.Column("task_id", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("owner", sa.Text(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("runtime", sa.Text(), nullable=False, server_default="process"))
        batch_op.add_column(sa.Column("stage_message", sa.Text(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("address", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("port", sa.Integer(), nullable=True))
        batch_op.alter_column("trial_id", existing_type=sa.INTEGER(), nullable=True)
        batch_op.alter_column("experiment_id", existing_type=sa.INTEGER(), nullable=True)
        batch_op.create_index(batch_op.f("ix_allocations_ended_at"), ["ended_at"], unique=False)
        batch_op.create_unique_constraint(batch_op.f("uq_allocations_task_id_run"), ["task_id", "run"])
        batch_op.create_foreign_key(batch_op.f("fk_allocations_task_id"), "tasks", ["task_id"], ["id"])

    with op.batch_alter_table("events") as batch_op:
        batch_op.add_column(sa.Column("task_id", sa.Text(), nullable=True))

    with op.batch_alter_table("logs", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.add_column(sa.Column("task_id", sa.Text(), nullable=True))
        batch_op.alter_column("trial_id", existing_type=sa.BIGINT(), nullable=True)
        batch_op.create_index(batch_op.f("ix_logs_task_id_id"), ["task_id", "id"], unique=False)

    op.execute(
        "UPDATE allocations SET owner = "
        "COALESCE((SELECT owner FROM experiments WHERE experiments.id = allocations.experiment_id), '')"
    )


def downgrade() -> None:
    op.execute("DELETE FROM logs WHERE trial_id IS NULL")
    op.execute("DELETE FROM allocations WHERE trial_id IS NULL")
    with op.batch_alter_table("logs", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_index(batch_op.f("ix_logs_task_id_id"))
        batch_op.alter_column("trial_id", existing_type=sa.BIGINT(), nullable=False)
        batch_op.drop_column("task_id")
    with op.batch_alter_table("events", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_column("task_id")
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_allocations_task_id"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("uq_allocations_task_id_run"), type_="unique")
        batch_op.drop_index(batch_op.f("ix_allocations_ended_at"))
        batch_op.alter_column("experiment_id", existing_type=sa.BIGINT(), nullable=False)
        batch_op.alter_column("trial_id", existing_type=sa.BIGINT(), nullable=False)
        for column in ("port", "address", "stage_message", "runtime", "owner", "task_id"):
            batch_op.drop_column(column)
    with op.batch_alter_table("agents") as batch_op:
        batch_op.drop_column("runtimes")
        batch_op.drop_column("enabled")
    for table in ("task_outputs", "usage", "tasks", "audit"):
        op.drop_table(table)
