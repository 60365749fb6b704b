"""The log of a run: blocks of 32 KiB, in them pieces of records, each with a checksum. What is damaged is skipped.

file   := header block*          header: `:W&B`, 0xBEE1 in two bytes, a version in one; it is part of the first block
block  := piece* zeros           zeros where no header of a piece fits any more
piece  := checksum (4) length (2) kind (1) data       little-endian; the checksum is of kind and data
kind   := 1 a whole record, 2 its first piece, 3 one in the middle, 4 the last
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from detlab.importers.folders import Unreadable

BLOCK = 32 * 1024
MOST_RECORD = 64 * 1024**2
"""Bytes of a record that is put together."""
_HEADER, _PIECE = struct.Struct("<4sHB"), struct.Struct("<IHB")
_IDENT, _MAGIC, _VERSIONS = b":W&B", 0xBEE1, frozenset({0, 1})
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}


@dataclass
class LogDamage:
    """What of a log could not be read.

    Attributes:
        blocks: Blocks with a wrong checksum or an impossible piece: the rest of each is skipped.
        records: Records without their end, too long, or no messages.
        cut: Whether the file ends within a record, as after a crash.
    """

    blocks: int = 0
    records: int = 0
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.blocks or self.records or self.cut)


def records(file: BinaryIO, damage: LogDamage) -> Iterator[bytes]:
    """Yield the records of a log.

    Args:
        file: It, at its beginning.
        damage: Takes what could not be read.

    Raises:
        Unreadable: It is no such log.
    """
    block = file.read(BLOCK)
    if len(block) < _HEADER.size:
        raise Unreadable("the log of the run is empty")
    ident, magic, version = _HEADER.unpack_from(block)
    if ident != _IDENT or magic != _MAGIC:
        raise Unreadable("it is no log of a run of W&B: its first bytes are others")
    if version not in _VERSIONS:
        raise Unreadable(f"the log of the run has the version {version}, which is not known here")
    start, open_record = _HEADER.size, _OpenRecord(damage)
    while block:
        for kind, data in _pieces(block, start, len(block) < BLOCK, damage):
            if (found := open_record.add(kind, data)) is not None:
                yield found
        start, block = 0, file.read(BLOCK)
    if open_record.begun:
        damage.cut = True


def _pieces(block: bytes, start: int, last: bool, damage: LogDamage) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a block up to the first that is damaged, which is told by the kind 0."""
    at = start
    while len(block) - at >= _PIECE.size:
        checksum, length, kind = _PIECE.unpack_from(block, at)
        at += _PIECE.size
        data = block[at : at + length]
        if kind == 0 and length == 0 and checksum == 0:
            return  # zeros, as a file system leaves them after a crash
        if len(data) < length and last:
            damage.cut = True
            return
        if len(data) < length or kind not in _SEEDS or zlib.crc32(data, _SEEDS[kind]) != checksum:
            damage.blocks += 1
            yield 0, b""
            return
        at += length
        yield kind, data
    if last and at < len(block):
        damage.cut = True


class _OpenRecord:
    """A record whose pieces come one after the other."""

    def __init__(self, damage: LogDamage) -> None:
        self._damage = damage
        self._parts: list[bytes] = []
        self._size = 0
        self.begun = False

    def add(self, kind: int, data: bytes) -> bytes | None:
        """Take a piece; return the record that it ends."""
        if kind in {0, _WHOLE, _FIRST} and self.begun:
            self._damage.records += 1
            self._forget()
        if kind == _WHOLE:
            return data
        if kind == _FIRST:
            self.begun, self._parts, self._size = True, [data], len(data)
            return None
        if not self.begun:
            return None  # the rest of one that was given up
        self._parts.append(data)
        self._size += len(data)
        if self._size > MOST_RECORD:
            self._damage.records += 1
            self._forget()
            return None
        if kind != _LAST:
            return None
        found = b"".join(self._parts)
        self._forget()
        return found

    def _forget(self) -> None:
        self.begun, self._parts, self._size = False, [], 0
