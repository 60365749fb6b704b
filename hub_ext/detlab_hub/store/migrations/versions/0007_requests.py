"""CPUs and memory: what agents have of them, and what is asked of them; words of output with capital letters.

How long output is kept, which experiments said before anything went by it.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_PAGE = 500
_EXPERIMENTS = sa.table(
    "experiments",
    sa.column("id", sa.BigInteger),
    sa.column("config", sa.Text),
    sa.column("log_retention_days", sa.Integer),
)
_TASKS = sa.table("tasks", sa.column("id", sa.Text), sa.column("config", sa.Text))
_REQUESTS = sa.table(
    "allocations",
    sa.column("state", sa.Text),
    sa.column("experiment_id", sa.BigInteger),
    sa.column("task_id", sa.Text),
    sa.column("millicpus", sa.BigInteger),
    sa.column("memory", sa.BigInteger),
)
_MOST = 2**62


def upgrade() -> None:
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("agents", sa.Column("millicpus", sa.BigInteger(), nullable=True))
    op.add_column("agents", sa.Column("host_memory", sa.BigInteger(), nullable=True))
    op.add_column("allocations", sa.Column("millicpus", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("allocations", sa.Column("memory", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("log_chunks", sa.Column("capitals", sa.Text(), nullable=True))
    _count_what_lives()
    _keep_output_as_asked()


def downgrade() -> None:
    with op.batch_alter_table("log_chunks", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.drop_column("capitals")
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_column("memory")
        batch_op.drop_column("millicpus")
    with op.batch_alter_table("agents") as batch_op:
        batch_op.drop_column("host_memory")
        batch_op.drop_column("millicpus")


def _keep_output_as_asked() -> None:
    """Keep the retention of output that a config states: the operator's default would remove that output for good."""
    connection, columns, after = op.get_bind(), _EXPERIMENTS.c, 0
    unset = columns.log_retention_days.is_(None), columns.config.contains("log_retention_days")
    page = sa.select(columns.id, columns.config).where(*unset).order_by(columns.id).limit(_PAGE)
    while rows := connection.execute(page.where(columns.id > after)).all():
        after = rows[-1].id
        for experiment_id, text in rows:
            days = _days_of(json.loads(text))
            if days is not None:
                chosen = sa.update(_EXPERIMENTS).where(columns.id == experiment_id)
                connection.execute(chosen.values(log_retention_days=days))


def _days_of(config: Mapping[str, Any]) -> int | None:
    """Return the days, of which -1 is for ever; None where the config says none: nothing is made of what is no days."""
    days = (config.get("retention_policy") or {}).get("log_retention_days")
    return days if type(days) is int and -1 <= days <= 32767 else None


def _count_what_lives() -> None:
    """Record the CPUs and memory that running and pending tasks request: else they would be given away again."""
    connection, living = op.get_bind(), _REQUESTS.c.state != "TERMINATED"
    for holders, key in ((_EXPERIMENTS, _REQUESTS.c.experiment_id), (_TASKS, _REQUESTS.c.task_id)):
        ids = sa.select(key).where(living, key.is_not(None)).distinct()
        for holder, text in connection.execute(
            sa.select(holders.c.id, holders.c.config).where(holders.c.id.in_(ids))
        ).all():
            asked = _asked_of(json.loads(text))
            if any(asked.values()):
                connection.execute(sa.update(_REQUESTS).where(living, key == holder).values(**asked))


def _asked_of(config: Mapping[str, Any]) -> dict[str, int]:
    resources = config.get("resources") or {}
    cpus, memory = (resources.get(name) for name in ("cpus", "memory"))
    numbers = [0 if isinstance(one, bool) or not isinstance(one, (int, float)) else one for one in (cpus, memory)]
    return {"millicpus": round(min(numbers[0] * 1000, _MOST)), "memory": min(int(numbers[1]), _MOST)}
