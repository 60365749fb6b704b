"""Task output: append-only lines, stored by chunk; read by page, from the end, or by a filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    collate,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from detlab.schemas.wire import LogLine, LogRecord
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.appending import append_rows
from detlab_hub.store.queries.logs import chunks as logchunks
from detlab_hub.store.queries.logs import nodes as lognodes
from detlab_hub.store.queries.logs.chunks import LEVELS, Packed, StoredLine
from detlab_hub.store.queries.logs.nodes import Nodes
from detlab_hub.store.tables import LogChunk, LogCut, clean_text
from detlab_hub.store.tables.base import decode_json, encode_bulk

LINE_BYTES = 16_000
SCAN = 24_000
"""Most chunks that one query with a filter reads, some 1.5 million lines of usual length: a word that is rare in a
longer log must not block a reader."""
SECONDS = 1.0
"""Seconds after which a query with a filter ends its page: a database has few readers, and others wait for one."""
SEARCH_CHARS = 200
"""Most characters of a search text: the database's work grows with its length times that of the log."""
LIKE_CHARS = 20
"""SQLite's LIKE is the fastest for a word, but compares a longer text at each letter where it could begin, in a log of
dashes at each one: that can take a minute. `instr` never takes much longer than it does for a word."""
MOST_WORDS = 8
"""Most words of a search text that are looked up among a chunk's words with capitals."""
CUT_MARK = " … [line cut at 16 kB]"
_LEAST_STRETCH, _MOST_STRETCH = 8, 1024
"""Fewest and most chunks that one query reads: more as long as more lines are wanted."""
_COLUMNS = (
    "trial_id", "task_id", "run", "first", "last", "lines", "first_time", "last_time",
    "levels", "streams", "ranks", "size", "facts", "body", "capitals",
)  # fmt: skip
_CHANGED = ("last", "lines", "first_time", "last_time", "levels", "streams", "ranks", "size", "facts", "body")
_CHANGING = (*_CHANGED, "capitals")
"""Columns of a chunk that lines are added to."""


def _newest(of: Any) -> PreparedStatement:
    """Make the statement for a holder's last chunk; it reads the contents only if the chunk is small."""
    small = LogChunk.size < logchunks.SMALL_CHARS
    chosen = (
        LogChunk.id, LogChunk.run, LogChunk.first, LogChunk.last, LogChunk.lines, LogChunk.size,
        case((small, cast(LogChunk.facts, Text)), else_="").label("facts"),
        case((small, LogChunk.body), else_="").label("body"),
    )  # fmt: skip
    return PreparedStatement(
        select(*chosen).where(of == bindparam("holder")).order_by(LogChunk.last.desc()).limit(literal(1))
    )


_NEWEST_OF_TRIAL = _newest(LogChunk.trial_id)
_NEWEST_OF_TASK = _newest(LogChunk.task_id)
_REWRITE = PreparedStatement(update(LogChunk).where(LogChunk.id == bindparam("chunk_id")), _CHANGING)
Places: TypeAlias = Mapping[int, frozenset[int | None]]
"""By attempt, the places of its agents that are wanted."""
Holder: TypeAlias = int | str
"""A trial's number, or a user task's id."""
_Chunk: TypeAlias = Row[tuple[int, int, int, int, Any, str]]


def cut_line(text: str) -> str:
    """Return `text` without its line end and, beyond 16 kB of UTF-8, cut and marked."""
    line = clean_text(text.rstrip("\r\n"))
    data = line.encode()
    if len(data) <= LINE_BYTES:
        return line
    return data[: LINE_BYTES - len(CUT_MARK.encode())].decode(errors="ignore") + CUT_MARK


# --- writing


def append(s: Session, holder: Holder, run: int, records: Sequence[LogRecord], node: int | None = None) -> int:
    """Append lines of a trial (its number) or a user task (its id) in order; return how many.

    Args:
        s: The transaction.
        holder: The trial or user task.
        run: The attempt.
        records: The lines.
        node: Place among the attempt's agents, in their order; None if it has only one.
    """
    if not records:
        return 0
    opened, before, last = _open_chunk(s, holder, run)
    capitals = _no_capitals if _is_sqlite(s) else logchunks.capitals
    lines = before + [
        StoredLine(last + at, record.rank, record.stdtype, record.level, record.time, cut_line(record.text), node)
        for at, record in enumerate(records, 1)
    ]
    chunks = list(logchunks.packed(lines))
    if opened is not None:
        first = chunks.pop(0)
        changed = {name: getattr(first, name) for name in _CHANGED}
        _REWRITE.run(s, {"chunk_id": opened, **changed, "capitals": capitals(first.body)})
    trial_id, task_id = (None, holder) if isinstance(holder, str) else (holder, None)
    append_rows(s, "log_chunks", _COLUMNS, [_row(trial_id, task_id, run, one, capitals(one.body)) for one in chunks])
    return len(records)


def _open_chunk(s: Session, holder: Holder, run: int) -> tuple[int | None, list[StoredLine], int]:
    """Return the last chunk if it is a small one of this run, its lines, and the id of the very last line."""
    found = (_NEWEST_OF_TASK if isinstance(holder, str) else _NEWEST_OF_TRIAL).first(s, {"holder": holder})
    if found is None:
        return None, [], s.scalar(select(LogCut.through).where(LogCut.holder == holder_key(holder))) or 0
    if found.run != run or found.size >= logchunks.SMALL_CHARS:
        return None, [], found.last
    lines = logchunks.unpacked(found.first, found.lines, decode_json(found.facts), found.body)
    return found.id, list(lines), found.last


def _row(trial_id: int | None, task_id: str | None, run: int, one: Packed, words: str | None) -> tuple[Any, ...]:
    return (
        trial_id, task_id, run, one.first, one.last, one.lines, one.first_time, one.last_time,
        one.levels, one.streams, one.ranks, one.size, encode_bulk(one.facts), one.body, words,
    )  # fmt: skip


def _is_sqlite(s: Session) -> bool:
    return s.get_bind().dialect.name == "sqlite"


def _no_capitals(_: str) -> None:
    """Return nothing: SQLite's LIKE does not need words with capitals."""


def remove(s: Session, holder: Holder, limit: int) -> int:
    """Remove the oldest lines, by chunk, until `limit` are removed; return how many: fewer means that was all."""
    gone, ids = 0, []
    query = select(LogChunk.id, LogChunk.lines).where(_of(holder)).order_by(LogChunk.last).limit(max(1, limit))
    for chunk_id, lines in s.execute(query):
        if gone >= limit:
            break
        gone += lines
        ids.append(chunk_id)
    if ids:
        s.execute(delete(LogChunk).where(LogChunk.id.in_(ids)))
    if gone < limit:
        s.execute(delete(LogCut).where(LogCut.holder == holder_key(holder)))
    return gone


# --- reading


@dataclass(frozen=True)
class Wanted:
    """Which lines, and from where."""

    after: int | None = None
    """Only lines with a greater id; the last line's id is the next page's `after`."""
    before: int | None = None
    """Only lines with a smaller id; without `after` and `tail` the page ends there, to read backwards."""
    limit: int = 1000
    tail: int | None = None
    """Instead, this many of the last lines (at most `limit`)."""
    rank: int | None = None
    level: str | None = None
    """At least as severe as this (one of `LEVELS`); lines without a level are left out."""
    search: str | None = None
    """Only lines that contain this text, whatever the case of ASCII letters."""
    stream: str | None = None
    """Only lines of this stream (one of `logchunks.STREAMS`)."""
    since: float | None = None
    """Seconds since the epoch, included."""
    until: float | None = None
    """Seconds since the epoch, excluded."""
    node: str | None = None
    """Only lines that were written on this agent."""
    chars: int | None = None
    """The page also ends when its lines have this many characters."""

    @property
    def backwards(self) -> bool:
        """Whether the newest lines are wanted first."""
        return self.tail is not None or (self.before is not None and not self.after)

    @property
    def count(self) -> int:
        """Most lines."""
        return self.limit if self.tail is None else min(self.tail, self.limit)

    @property
    def picky(self) -> bool:
        """Whether lines are left out."""
        chosen = (self.rank, self.level, self.stream, self.since, self.until, self.node)
        return bool(self.search) or any(one is not None for one in chosen)

    def takes(self, line: StoredLine) -> bool:
        """Whether a line is wanted, except for the search text."""
        return (
            (self.after is None or line.id > self.after)
            and (self.before is None or line.id < self.before)
            and (self.rank is None or line.rank == self.rank)
            and (self.level is None or line.level in LEVELS[LEVELS.index(self.level) :])
            and (self.stream is None or line.stdtype == self.stream)
            and (self.since is None or line.time >= self.since)
            and (self.until is None or line.time < self.until)
        )


@dataclass(frozen=True)
class Edges:
    """Where to continue; None if there is nothing more."""

    next: int | None = None
    """`after` of the lines that follow."""
    older: int | None = None
    """`before` of the lines that come before."""
    removed: int = 0
    """Lines that retention has removed, given with every page that does not continue another …"""
    removed_at: float | None = None
    """… and when."""
    context: tuple[int, ...] = ()
    """Ids of the lines that only stand beside one that was asked for."""


def page(
    s: Session,
    holder: Holder,
    after: int | None = None,
    limit: int = 1000,
    tail: int | None = None,
    rank: int | None = None,
    search: str | None = None,
    *,
    before: int | None = None,
) -> list[LogLine]:
    """Return lines of a trial or a user task in order; the arguments are the fields of `Wanted`."""
    return pick(s, holder, Wanted(after, before, limit, tail, rank, search=search))[0]


def pick(
    s: Session, holder: Holder, wanted: Wanted, clock: Callable[[], float] = time.monotonic
) -> tuple[list[LogLine], Edges]:
    """Return lines of a trial or a user task in order, and where to continue.

    With a filter it reads about `SCAN` chunks at most, and not for much longer than `SECONDS`, so that there may be few
    lines, or none, with an edge from which to continue.
    """
    if wanted.count <= 0:
        return [], Edges()
    lines, edge = _gathered(s, holder, wanted, clock)
    if wanted.backwards:
        return lines[::-1], Edges(older=edge)
    return lines, Edges(next=edge)


def _gathered(
    s: Session, holder: Holder, wanted: Wanted, clock: Callable[[], float]
) -> tuple[list[LogLine], int | None]:
    """Return the wanted lines, in the order of the query, and the edge behind them."""
    lines: list[LogLine] = []
    nodes = lognodes.of(s, holder)
    places = None if wanted.node is None else lognodes.runs_on(nodes, wanted.node)
    chars, looked, end = 0, 0, clock() + SECONDS
    needle = _folded(clean_text(wanted.search)) if wanted.search else b""
    for stretch in _walk(s, holder, wanted, places):
        for chunk in stretch.chunks:
            for line in _taken(chunk, holder, wanted, needle, nodes, places):
                lines.append(line)
                chars += len(line.text)
                if len(lines) == wanted.count or (wanted.chars is not None and chars >= wanted.chars):
                    return lines, line.id
            if wanted.picky and clock() >= end:
                return lines, chunk.first if wanted.backwards else chunk.last
        looked += stretch.length
        if wanted.picky and stretch.edge is not None and (looked >= SCAN or clock() >= end):
            return lines, stretch.edge
    return lines, None


def around(s: Session, holder: Holder, ids: Sequence[int], count: int, wanted: Wanted, chars: int) -> list[LogLine]:
    """Return the lines that stand up to `count` lines before or after lines with these ids, without these.

    Args:
        s: A session.
        holder: The trial or user task.
        ids: Ids of lines, in order.
        count: How many before and after each.
        wanted: Of its conditions, only those on rank and agent hold for what stands around.
        chars: They end after so many characters: what stands around later lines is left out.
    """
    known, left = set(ids), chars
    found: list[LogLine] = []
    for first, last in _ranges(ids, count):
        place = Wanted(after=first - 1, before=last + 1, limit=last - first + 1, rank=wanted.rank, node=wanted.node)
        for line in pick(s, holder, place)[0]:
            if line.id in known:
                continue
            left -= len(line.text)
            if left < 0:
                return found
            found.append(line)
    return found


def _ranges(ids: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ids around some, from the first to the last of each, joined where they meet."""
    first = last = 0
    for one in ids:
        if last and one - count <= last + 1:
            last = one + count
            continue
        if last:
            yield first, last
        first, last = max(1, one - count), one + count
    if last:
        yield first, last


def last_lines(s: Session, holder: Holder, run: int, count: int) -> list[StoredLine]:
    """Return the last lines of an attempt, in order."""
    found: list[StoredLine] = []
    query = _chunks().where(LogChunk.run <= run)
    for stretch in _stretches(s, query, [_of(holder)], backwards=True):
        for chunk in stretch.chunks:
            if chunk.run == run:
                found += reversed(list(_lines(chunk)))
            if chunk.run < run or len(found) >= count:  # attempts come one after the other
                return found[:count][::-1]
    return found[:count][::-1]


def count(s: Session, holder: Holder) -> int:
    """Count the lines of a trial or a user task."""
    return int(s.scalar(select(func.coalesce(func.sum(LogChunk.lines), 0)).where(_of(holder))) or 0)


def holder_key(holder: Holder) -> str:
    """Return the key of a trial or a user task in `LogCut`."""
    return f"task:{holder}" if isinstance(holder, str) else f"trial:{holder}"


def _of(holder: Holder) -> ColumnElement[bool]:
    return LogChunk.task_id == holder if isinstance(holder, str) else LogChunk.trial_id == holder


def _chunks() -> Select[tuple[int, int, int, int, Any, str]]:
    return select(LogChunk.run, LogChunk.first, LogChunk.last, LogChunk.lines, LogChunk.facts, LogChunk.body)


def _lines(chunk: _Chunk) -> Iterator[StoredLine]:
    return logchunks.unpacked(chunk.first, chunk.lines, chunk.facts, chunk.body)


def _taken(
    chunk: _Chunk, holder: Holder, wanted: Wanted, needle: bytes, nodes: Nodes, places: Places | None
) -> Iterator[LogLine]:
    """Yield the wanted lines of a chunk, in the order of the query."""
    trial_id, task_id = (0, holder) if isinstance(holder, str) else (holder, None)
    names = nodes.get(chunk.run, {})
    where = None if places is None else places.get(chunk.run, frozenset())
    lines: Iterable[StoredLine] = _lines(chunk)
    for line in reversed(list(lines)) if wanted.backwards else lines:
        if where is not None and line.node not in where:
            continue
        if wanted.takes(line) and (not needle or needle in _folded(line.text)):
            yield _wire_line(line, chunk.run, trial_id, task_id, names.get(line.node))


@dataclass(frozen=True)
class _Stretch:
    """Chunks in a row, of which those that a query asks for are read."""

    chunks: Sequence[_Chunk]
    length: int
    """Including those that it does not read; more than there are in the last one."""
    edge: int | None
    """Where the next one continues, as a position of a page; None for the last one."""


def _walk(s: Session, holder: Holder, wanted: Wanted, places: Places | None) -> Iterator[_Stretch]:
    """Yield the chunks with wanted lines, in the order of the query and no further than it goes."""
    inside = [_of(holder)]
    if wanted.before is not None:
        # The chunk that has the last line before there, or would have it.
        last = s.scalar(select(func.min(LogChunk.last)).where(_of(holder), LogChunk.last >= wanted.before - 1))
        if last is not None:
            inside.append(LogChunk.last <= last)
    if wanted.after:
        inside.append(LogChunk.last > wanted.after)
    query = _chunks().where(*_conditions(s, wanted))
    if places is not None:
        query = query.where(LogChunk.run.in_(sorted(places)))
    yield from _stretches(s, query, inside, backwards=wanted.backwards)


def _stretches(
    s: Session,
    query: Select[tuple[int, int, int, int, Any, str]],
    inside: Sequence[ColumnElement[bool]],
    *,
    backwards: bool,
) -> Iterator[_Stretch]:
    """Yield chunks in order, or from the last to the first, of those `inside`.

    They are read in stretches, each twice as long as the one before: the first lines come soon, and no database's
    planner can decide to scan and sort all chunks for a few that it estimates to be rare.
    """
    column = LogChunk.last
    order = column.desc() if backwards else column
    query = query.where(*inside).order_by(order)
    ends = select(LogChunk.first, column).where(*inside).order_by(order)
    start, length = None, min(_LEAST_STRETCH, SCAN)
    while True:
        beyond: list[ColumnElement[bool]] = [] if start is None else [column < start if backwards else column > start]
        end = s.execute(ends.where(*beyond).offset(length - 1).limit(1)).first()
        if end is None:
            yield _Stretch(s.execute(query.where(*beyond)).all(), length, None)
            return
        upto = column >= end.last if backwards else column <= end.last
        yield _Stretch(s.execute(query.where(*beyond, upto)).all(), length, end.first if backwards else end.last)
        start, length = end.last, min(length * 2, _MOST_STRETCH)


def _conditions(s: Session, wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for a chunk to have a wanted line."""
    if wanted.rank is not None:
        mark = LogChunk.ranks.contains(logchunks.rank_mark(wanted.rank))
        yield mark | (LogChunk.ranks == logchunks.ANY_RANK)
    if wanted.level is not None:
        yield LogChunk.levels.bitwise_and(logchunks.levels_from(wanted.level)) != 0
    if wanted.stream is not None:
        yield LogChunk.streams.bitwise_and(logchunks.stream_bit(wanted.stream)) != 0
    if wanted.since is not None:
        yield LogChunk.last_time >= wanted.since
    if wanted.until is not None:
        yield LogChunk.first_time < wanted.until
    if wanted.search:
        text = clean_text(wanted.search)
        sqlite = _is_sqlite(s)  # its LIKE does not mind the case of ASCII letters
        if sqlite and len(text) <= LIKE_CHARS:
            yield LogChunk.body.contains(text, autoescape=True)
        elif sqlite:
            yield func.instr(func.lower(LogChunk.body), _folded(text).decode()) > 0
        else:
            yield _has_text(_folded(text).decode())


def _has_text(text: str) -> ColumnElement[bool]:
    """Return the condition that a chunk on PostgreSQL has a text, which is in lower case.

    It searches the lines as they are with a search that skips what cannot match (LIKE tries each character). Conversion
    to lower case takes three times as long: only lines in which the text may have capitals are converted.
    """
    plain = func.strpos(collate(LogChunk.body, "C"), text) > 0
    words = logchunks.words_of(text)
    if not words:
        return plain
    if len(words) > MOST_WORDS:
        other = [LogChunk.capitals != ""]
    else:
        other = [func.strpos(collate(func.coalesce(LogChunk.capitals, ""), "C"), word) > 0 for word in words]
    folded = func.strpos(func.lower(collate(LogChunk.body, "C")), text) > 0
    return or_(plain, and_(or_(LogChunk.capitals.is_(None), *other), folded))


def _folded(text: str) -> bytes:
    """Return the text with only its ASCII letters in lower case, as both databases compare here."""
    return text.encode().lower()


def _wire_line(line: StoredLine, run: int, trial_id: int, task_id: str | None, node: str | None) -> LogLine:
    return LogLine.model_construct(
        id=line.id,
        trial_id=trial_id,
        task_id=task_id,
        run=run,
        rank=line.rank,
        stdtype=line.stdtype,  # type: ignore[arg-type]  # one of the three: it came as such
        node=node,
        level=line.level,
        time=line.time,
        text=line.text,
    )
