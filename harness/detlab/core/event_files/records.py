"""An event file as records: a length, its checksum, the bytes, and theirs. No I/O of its own.

The format is that of TFRecord: the length is a little-endian integer of 64 bits, each checksum a CRC-32C, rotated and
added to a constant. Where a length is damaged nothing behind it can be found; where a record is, the next one can.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

MOST_RECORD = 64 * 1024 * 1024
"""Bytes of one record; larger ones are passed over unread."""
MOST_LENGTH = 1 << 40
"""A length beyond is no length."""
MOST_CHECKED = 1024 * 1024
"""Bytes of a record whose checksum is computed, at ten million a second. What larger ones hold, images and sound, is
checked by its own format."""
_HEAD = struct.Struct("<QI")
_SUM = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78


def _table() -> tuple[int, ...]:
    found = list(range(256))
    for _ in range(8):
        found = [rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0) for rest in found]
    return tuple(found)


_TABLE = _table()


def checksum(data: bytes) -> int:
    """Return the CRC-32C of bytes, masked as these files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordReader:
    """Reads the records of one file, as far as they are complete; what is still being written is read later.

    Args:
        read: Returns so many bytes from an offset, or fewer at the end.

    Attributes:
        offset: Of the next record.
        damaged: Records that were passed over because their checksum is another.
        too_large: Records that were passed over for their size.
        broken: Why nothing more can be read; empty: it can.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self.offset = 0
        self.damaged = 0
        self.too_large = 0
        self.broken = ""

    def records(self, size: int) -> Iterator[bytes]:
        """Yield the records that are complete in a file of `size` bytes."""
        while not self.broken:
            head = self._read(_HEAD.size, self.offset) if size - self.offset >= _HEAD.size else b""
            if len(head) < _HEAD.size:
                return
            length, length_sum = _HEAD.unpack(head)
            if checksum(head[:8]) != length_sum or length > MOST_LENGTH:
                self.broken = f"the record at byte {self.offset:,} has no readable length"
                return
            begin, end = self.offset + _HEAD.size, self.offset + _HEAD.size + length + _SUM.size
            if end > size:
                return
            if length > MOST_RECORD:
                self.too_large += 1
                self.offset = end
                continue
            body = self._read(length + _SUM.size, begin)
            if len(body) < length + _SUM.size:
                return
            self.offset = end
            data = body[:length]
            if length <= MOST_CHECKED and checksum(data) != _SUM.unpack_from(body, length)[0]:
                self.damaged += 1
                continue
            yield data
