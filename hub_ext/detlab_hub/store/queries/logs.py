"""Task output: append-only lines, read by page, from the end, by rank, or by a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, Table, func, insert, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import LogLine, LogRecord
from detlab_hub.store.tables import LogRow, clean_text

LINE_BYTES = 16_000
CUT_MARK = " … [line cut at 16 kB]"
_LOGS: Table = LogRow.__table__


def cut_line(text: str) -> str:
    """Return `text` without its line end and, beyond 16 kB of UTF-8, cut and marked."""
    line = clean_text(text.rstrip("\r\n"))
    data = line.encode()
    if len(data) <= LINE_BYTES:
        return line
    return data[: LINE_BYTES - len(CUT_MARK.encode())].decode(errors="ignore") + CUT_MARK


def append(s: Session, holder: int | str, run: int, records: Sequence[LogRecord]) -> int:
    """Append lines of a trial (its number) or a user task (its id) in order; return how many."""
    rows = [
        {
            "trial_id": None if isinstance(holder, str) else holder,
            "task_id": holder if isinstance(holder, str) else None,
            "run": run,
            "rank": record.rank,
            "stdtype": record.stdtype,
            "level": record.level,
            "time": record.time,
            "text": cut_line(record.text),
        }
        for record in records
    ]
    if rows:
        s.connection().execute(insert(_LOGS), rows)
    return len(rows)


def page(
    s: Session,
    holder: int | str,
    after: int | None = None,
    limit: int = 1000,
    tail: int | None = None,
    rank: int | None = None,
    search: str | None = None,
    *,
    before: int | None = None,
) -> list[LogLine]:
    """Return lines of a trial or a user task in order.

    Args:
        s: A session.
        holder: The trial's number or the user task's id.
        after: Only lines with a greater id; the last line's id is the next page's `after`.
        limit: Most lines.
        tail: The last so many lines instead (at most `limit`).
        rank: Only lines of this rank.
        search: Only lines that contain this text, whatever the case of ASCII letters.
        before: Only lines with a smaller id; without `after` and `tail` the page ends there, to read backwards.
    """
    query = _matching(holder, rank, search)
    if after is not None:
        query = query.where(LogRow.id > after)
    if before is not None:
        query = query.where(LogRow.id < before)
    backwards = tail is not None or (before is not None and after is None)
    count = limit if tail is None else min(tail, limit)
    order = LogRow.id.desc() if backwards else LogRow.id
    rows = list(s.scalars(query.order_by(order).limit(count)))
    return [_line(row) for row in (reversed(rows) if backwards else rows)]


def count(s: Session, holder: int | str) -> int:
    """Count the lines of a trial or a user task."""
    return int(s.scalar(select(func.count()).where(_of(holder))) or 0)


def _of(holder: int | str) -> ColumnElement[bool]:
    return LogRow.task_id == holder if isinstance(holder, str) else LogRow.trial_id == holder


def _matching(holder: int | str, rank: int | None, search: str | None) -> Select[Any]:
    query = select(LogRow).where(_of(holder))
    if rank is not None:
        query = query.where(LogRow.rank == rank)
    if search:
        query = query.where(LogRow.text.icontains(clean_text(search), autoescape=True))
    return query


def _line(row: LogRow) -> LogLine:
    return LogLine.model_construct(
        id=row.id,
        trial_id=row.trial_id or 0,
        task_id=row.task_id,
        run=row.run,
        rank=row.rank,
        stdtype=cast(Any, row.stdtype),
        level=row.level,
        time=row.time,
        text=row.text,
    )
