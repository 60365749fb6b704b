"""Task output: append-only lines, read by page, from the end, by rank, or by a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, Table, func, insert, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import LogLine, LogRecord
from detlab_hub.store.tables import LogRow, clean_text

LINE_BYTES = 16_000
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""From the least severe to the most."""
SCAN = 200_000
"""Most lines that one question with a filter looks at: a word that is rare in a long log must not hold a reader up."""
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


@dataclass(frozen=True)
class Wanted:
    """Which lines, and from where; the fields are the arguments of `page`."""

    after: int | None = None
    before: int | None = None
    limit: int = 1000
    tail: int | None = None
    rank: int | None = None
    level: str | None = None
    """At least as severe as this (one of `LEVELS`); lines without a level are left out."""
    search: str | None = None

    @property
    def backwards(self) -> bool:
        """Whether the newest lines are wanted first."""
        return self.tail is not None or (self.before is not None and not self.after)

    @property
    def picky(self) -> bool:
        """Whether lines are left out."""
        return self.rank is not None or self.level is not None or bool(self.search)


@dataclass(frozen=True)
class Edges:
    """Where to go on, or None where there is nothing more."""

    next: int | None = None
    """`after` of the lines that follow."""
    older: int | None = None
    """`before` of the lines that come before."""


def pick(s: Session, holder: int | str, wanted: Wanted) -> tuple[list[LogLine], Edges]:
    """Return lines of a trial or a user task in order, and where to go on.

    With a filter at most `SCAN` lines are looked at, so that few lines, or none, may come with an edge to go on from.
    """
    limit = wanted.limit if wanted.tail is None else min(wanted.tail, wanted.limit)
    bound = _bound(s, holder, wanted) if wanted.picky else None
    after, before = wanted.after or None, wanted.before
    if bound is not None:
        after, before = (max(bound - 1, after or 0), before) if wanted.backwards else (after, bound + 1)
    query = _matching(holder, wanted.rank, wanted.search, wanted.level)
    if after is not None:
        query = query.where(LogRow.id > after)
    if before is not None:
        query = query.where(LogRow.id < before)
    order = LogRow.id.desc() if wanted.backwards else LogRow.id
    rows = list(s.scalars(query.order_by(order).limit(limit)))
    edge = rows[-1].id if rows and len(rows) == limit else bound
    lines = [_line(row) for row in (reversed(rows) if wanted.backwards else rows)]
    return lines, Edges(older=edge) if wanted.backwards else Edges(next=edge)


def _bound(s: Session, holder: int | str, wanted: Wanted) -> int | None:
    """Return the last line that a filtered question looks at; None if there are no more than `SCAN`."""
    query = select(LogRow.id).where(_of(holder))
    if wanted.after:
        query = query.where(LogRow.id > wanted.after)
    if wanted.before is not None:
        query = query.where(LogRow.id < wanted.before)
    order = LogRow.id.desc() if wanted.backwards else LogRow.id
    return s.scalar(query.order_by(order).offset(SCAN - 1).limit(1))


def count(s: Session, holder: int | str) -> int:
    """Count the lines of a trial or a user task."""
    return int(s.scalar(select(func.count()).where(_of(holder))) or 0)


def _of(holder: int | str) -> ColumnElement[bool]:
    return LogRow.task_id == holder if isinstance(holder, str) else LogRow.trial_id == holder


def _matching(holder: int | str, rank: int | None, search: str | None, level: str | None = None) -> Select[Any]:
    query = select(LogRow).where(_of(holder))
    if rank is not None:
        query = query.where(LogRow.rank == rank)
    if level is not None:
        query = query.where(LogRow.level.in_(LEVELS[LEVELS.index(level) :]))
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
