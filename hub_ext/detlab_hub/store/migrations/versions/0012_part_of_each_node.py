"""Every placed allocation has parts: one on one node is a gang of one."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

PLACED = ("ASSIGNED", "PULLING", "STARTING", "RUNNING", "TERMINATING")
BEGUN = ("RUNNING", "TERMINATING")

allocations = sa.table(
    "allocations",
    sa.column("id", sa.Text()),
    sa.column("agent_id", sa.Text()),
    sa.column("slots", sa.Text()),
    sa.column("nodes", sa.Integer()),
    sa.column("state", sa.Text()),
)
parts = sa.table(
    "allocation_parts",
    sa.column("allocation_id", sa.Text()),
    sa.column("rank", sa.Integer()),
    sa.column("agent_id", sa.Text()),
    sa.column("slots", sa.Text()),
    sa.column("started", sa.Boolean()),
    sa.column("metrics_seq", sa.BigInteger()),
    sa.column("logs_seq", sa.BigInteger()),
)


def upgrade() -> None:
    of_one_node = sa.select(
        allocations.c.id,
        sa.literal(0),
        allocations.c.agent_id,
        allocations.c.slots,
        allocations.c.state.in_(BEGUN),
        sa.literal(0),
        sa.literal(0),
    ).where(allocations.c.state.in_(PLACED), allocations.c.nodes < 2, allocations.c.agent_id.is_not(None))
    op.execute(sa.insert(parts).from_select([column.name for column in parts.c], of_one_node))


def downgrade() -> None:
    of_one_node = sa.select(allocations.c.id).where(allocations.c.nodes < 2)
    op.execute(sa.delete(parts).where(parts.c.allocation_id.in_(of_one_node)))
