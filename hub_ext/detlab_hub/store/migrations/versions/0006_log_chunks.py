"""Lines of output in chunks, what was cut of them; what log policies found; attempts over several agents."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


_PAGE = 5000
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STREAMS = ("stdout", "stderr", "launcher")
_LINES = sa.table(
    "logs",
    sa.column("id", sa.BigInteger),
    sa.column("trial_id", sa.BigInteger),
    sa.column("task_id", sa.Text),
    sa.column("run", sa.Integer),
    sa.column("rank", sa.Integer),
    sa.column("stdtype", sa.Text),
    sa.column("level", sa.Text),
    sa.column("time", sa.Double),
    sa.column("text", sa.Text),
)
_REQUESTS = sa.table(
    "allocations",
    sa.column("id", sa.Text),
    sa.column("state", sa.Text),
    sa.column("trial_id", sa.BigInteger),
    sa.column("constraints", sa.Text),
)
_CHUNKS = sa.table(
    "log_chunks",
    sa.column("id", sa.BigInteger),
    sa.column("trial_id", sa.BigInteger),
    sa.column("task_id", sa.Text),
    sa.column("run", sa.Integer),
    sa.column("first", sa.BigInteger),
    sa.column("last", sa.BigInteger),
    sa.column("first_time", sa.Double),
    sa.column("last_time", sa.Double),
    sa.column("levels", sa.Integer),
    sa.column("streams", sa.Integer),
    sa.column("ranks", sa.Text),
    sa.column("lines", sa.Integer),
    sa.column("size", sa.Integer),
    sa.column("facts", sa.Text),
    sa.column("body", sa.Text),
)


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
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_chunks")),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        # A chunk stays in its row, and as it is: unpacking would take longer than searching.
        op.execute("ALTER TABLE log_chunks ALTER COLUMN body SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE log_chunks SET (toast_tuple_target = 8160)")
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
    _pack_lines()
    op.drop_table("logs")
    # Plain columns: SQLite adds them without writing the table anew.
    op.add_column("trials", sa.Column("policy_matches", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("experiments", sa.Column("log_retention_days", sa.Integer(), nullable=True))
    op.add_column("allocations", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    _keep_requests_whole()
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
    op.create_table(
        "logs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("stdtype", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=True),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_logs_trial_id_id"), "logs", ["trial_id", "id"])
    op.create_index(op.f("ix_logs_task_id_id"), "logs", ["task_id", "id"])
    _unpack_lines()
    if op.get_bind().dialect.name == "postgresql":
        # The lines came with their ids: the next one must have another.
        op.execute("SELECT setval(pg_get_serial_sequence('logs', 'id'), max(id)) FROM logs HAVING max(id) IS NOT NULL")
    op.drop_table("log_cuts")
    op.drop_table("log_chunks")


def _keep_requests_whole() -> None:
    """Keep pending trials' requests on a single node, as `is_single_node` does.

    They were made when all slots of a request were of one agent.
    """
    connection = op.get_bind()
    waiting = sa.select(_REQUESTS.c.id, _REQUESTS.c.constraints).where(
        _REQUESTS.c.state == "PENDING", _REQUESTS.c.trial_id.is_not(None)
    )
    for allocation_id, text in connection.execute(waiting).all():
        wanted = {**(json.loads(text or "null") or {}), "single_node": True}
        connection.execute(
            sa.update(_REQUESTS).where(_REQUESTS.c.id == allocation_id).values(constraints=json.dumps(wanted))
        )


# --- what chunks are like at this revision: whatever later code makes of them, this is what the next revision finds


def _pack_lines() -> None:
    """Put the lines, which had a row each, into chunks; they keep their ids."""
    connection = op.get_bind()
    for column in (_LINES.c.trial_id, _LINES.c.task_id):
        holders = sa.select(column).where(column.is_not(None)).distinct()
        for holder in connection.execute(holders).scalars().all():
            after = 0
            left: list[Any] = []
            while True:
                page = sa.select(_LINES).where(column == holder, _LINES.c.id > after).order_by(_LINES.c.id).limit(_PAGE)
                found = connection.execute(page).all()
                parts = list(_parts([*left, *found]))
                left = parts.pop() if len(found) == _PAGE else []
                for part in parts:
                    connection.execute(sa.insert(_CHUNKS), _chunk_of(part))
                if len(found) < _PAGE:
                    break
                after = found[-1].id


def _parts(lines: Sequence[Any]) -> Iterator[list[Any]]:
    """Lines of one run each, some 6,000 characters together."""
    part: list[Any] = []
    size = 0
    for line in lines:
        if part and (part[0].run != line.run or size + len(line.text) >= 6000):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line.text) + 1
    if part:
        yield part


def _chunk_of(part: Sequence[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, name in (("t", "time"), ("r", "rank"), ("s", "stdtype"), ("l", "level")):
        values = [getattr(line, name) for line in part]
        facts[key] = values[0] if values.count(values[0]) == len(values) else values
    if part[-1].id - part[0].id != len(part) - 1:
        facts["i"] = [line.id for line in part]
    body = "\n".join(line.text for line in part)
    if body.count("\n") != len(part) - 1:
        facts["n"] = [len(line.text) for line in part]
    ranks = {line.rank for line in part} - {None}
    return {
        "trial_id": part[0].trial_id,
        "task_id": part[0].task_id,
        "run": part[0].run,
        "first": part[0].id,
        "last": part[-1].id,
        "first_time": min(line.time for line in part),
        "last_time": max(line.time for line in part),
        "levels": _bits(_LEVELS, {line.level for line in part}),
        "streams": _bits(_STREAMS, {line.stdtype for line in part}),
        "ranks": "*" if len(ranks) > 32 else "".join(f",{rank}," for rank in ranks),
        "lines": len(part),
        "size": len(body),
        "facts": json.dumps(facts),
        "body": body,
    }


def _bits(names: Sequence[str], values: Iterable[Any]) -> int:
    return sum(1 << (names.index(value) if value in names else len(names)) for value in values)


def _unpack_lines() -> None:
    connection = op.get_bind()
    number = 0
    ids = connection.execute(sa.select(_CHUNKS.c.id).order_by(_CHUNKS.c.first, _CHUNKS.c.id)).scalars().all()
    for chunk_id in ids:
        chunk = connection.execute(sa.select(_CHUNKS).where(_CHUNKS.c.id == chunk_id)).one()
        facts: dict[str, Any] = json.loads(chunk.facts)
        rows: list[dict[str, Any]] = []
        columns = [
            facts[key] if isinstance(facts[key], list) else [facts[key]] * chunk.lines for key in ("t", "r", "s", "l")
        ]
        for text, moment, rank, stdtype, level in zip(_texts(chunk, facts), *columns, strict=True):
            # Ids were of all lines together, and are of each holder's now: they are made anew.
            number += 1
            rows.append(
                {
                    "id": number, "trial_id": chunk.trial_id, "task_id": chunk.task_id, "run": chunk.run, "rank": rank,
                    "stdtype": stdtype, "level": level, "time": moment, "text": text,
                }
            )  # fmt: skip
        connection.execute(sa.insert(_LINES), rows)


def _texts(chunk: Any, facts: dict[str, Any]) -> list[str]:
    if "n" not in facts:
        return chunk.body.split("\n")
    texts, at = [], 0
    for size in facts["n"]:
        texts.append(chunk.body[at : at + size])
        at += size + 1
    return texts
