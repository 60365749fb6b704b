"""The format of chunks of lines: packing and unpacking. Pure.

A chunk holds some consecutive lines of one attempt, about `CHUNK_CHARS` characters of text, unpacked: a database can
search the text directly. Beside it are the facts of the lines, by column, a value that is the same for all lines only
once; and what a filter needs to skip a whole chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""From the least to the most severe."""
STREAMS = ("stdout", "stderr", "launcher")
CHUNK_CHARS = 6000
"""Approximate characters of a chunk: with the other columns less than a PostgreSQL page, so that it is kept inline."""
SMALL_CHARS = 3000
"""A chunk with fewer characters takes the next lines, too."""
CAPITALS_CHARS = 400
"""Most characters of words with capitals; if there are more, a search does without them."""
MOST_RANKS = 32
ANY_RANK = "*"
_WORDS = bytes(code if chr(code).isascii() and chr(code).isalpha() else ord(" ") for code in range(256))
_NO_LEVEL = 1 << len(LEVELS)


class StoredLine(NamedTuple):
    """One line of a chunk."""

    id: int
    rank: int | None
    stdtype: str
    level: str | None
    time: float
    text: str
    node: int | None = None
    """For an attempt over several agents: the agent's place in their order."""


@dataclass(frozen=True)
class Packed:
    """A chunk without its holder."""

    first: int
    last: int
    lines: int
    first_time: float
    last_time: float
    levels: int
    streams: int
    ranks: str
    size: int
    facts: dict[str, Any]
    body: str


def levels_from(level: str) -> int:
    """Return the bits of a level and all more severe ones."""
    at = LEVELS.index(level)
    return _NO_LEVEL - (1 << at)


def stream_bit(stdtype: str) -> int:
    """Return the bit of a stream."""
    return 1 << (STREAMS.index(stdtype) if stdtype in STREAMS else len(STREAMS))


def rank_mark(rank: int) -> str:
    """Return what `ranks` contains where a line has this rank."""
    return f",{rank},"


def capitals(body: str) -> str | None:
    """Return the words (letters of ASCII in a row) of a text that have capitals, in lower case; None: too many.

    A case-sensitive database finds a text only as it is written. If the case differs, one of the text's words is part
    of one of these: nothing else needs to be converted to lower case, which takes PostgreSQL three times as long as the
    search.
    """
    if body.islower():
        return ""
    words = {word.lower() for word in set(body.encode().translate(_WORDS).split()) if not word.islower()}
    found = b" ".join(sorted(words)).decode("ascii")
    return found if len(found) <= CAPITALS_CHARS else None


def words_of(text: str) -> list[str]:
    """Return the words (letters of ASCII in a row) of a text, in lower case, each once."""
    return sorted({word.decode("ascii") for word in text.encode().lower().translate(_WORDS).split()})


def packed(lines: Sequence[StoredLine]) -> Iterator[Packed]:
    """Pack lines, which are in order, into as many chunks as they need."""
    start, size = 0, 0
    for at, line in enumerate(lines):
        if at > start and size + len(line.text) >= CHUNK_CHARS:
            yield _pack(lines[start:at])
            start, size = at, 0
        size += len(line.text) + 1
    if start < len(lines):
        yield _pack(lines[start:])


def _pack(lines: Sequence[StoredLine]) -> Packed:
    texts = [line.text for line in lines]
    times = [line.time for line in lines]
    ranks = {line.rank for line in lines}
    facts: dict[str, Any] = {
        "t": _column(times),
        "r": _column([line.rank for line in lines]),
        "s": _column([line.stdtype for line in lines]),
        "l": _column([line.level for line in lines]),
    }
    first, last = lines[0].id, lines[-1].id
    nodes = [line.node for line in lines]
    if any(node is not None for node in nodes):
        facts["a"] = _column(nodes)
    if last - first != len(lines) - 1:
        facts["i"] = [line.id for line in lines]
    body = "\n".join(texts)
    if body.count("\n") != len(lines) - 1:
        facts["n"] = [len(text) for text in texts]
    levels = 0
    for level in {line.level for line in lines}:
        levels |= 1 << LEVELS.index(level) if level in LEVELS else _NO_LEVEL
    streams = 0
    for stdtype in {line.stdtype for line in lines}:
        streams |= stream_bit(stdtype)
    marks = ANY_RANK if len(ranks) > MOST_RANKS else "".join(rank_mark(rank) for rank in ranks if rank is not None)
    return Packed(
        first, last, len(lines), min(times), max(times), levels, streams, marks, len(body), facts, body
    )  # fmt: skip


def _column(values: list[Any]) -> Any:
    """Return the value that all lines share, or else the list of their values."""
    first = values[0]
    return first if values.count(first) == len(values) else values


def unpacked(first: int, lines: int, facts: dict[str, Any], body: str) -> Iterator[StoredLine]:
    """Return the lines of a chunk."""
    ids: Iterable[int] = facts.get("i") or range(first, first + lines)
    columns = (_spread(facts[name], lines) for name in "rslt")
    return map(StoredLine, ids, *columns, _texts(body, facts.get("n")), _spread(facts.get("a"), lines))


def _spread(column: Any, lines: int) -> list[Any]:
    return column if isinstance(column, list) else [column] * lines


def _texts(body: str, sizes: list[int] | None) -> list[str]:
    if sizes is None:
        return body.split("\n")
    texts, at = [], 0
    for size in sizes:
        texts.append(body[at : at + size])
        at += size + 1
    return texts
