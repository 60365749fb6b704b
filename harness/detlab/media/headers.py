"""What the first bytes of a file say that it is, and how large an image would be: nothing is decoded.

An image of a few kilobytes may have billions of pixels. The harness and the master look at its header alone, and refuse
it before anything that decodes it has seen it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from detlab.media import kinds

_HEAD = 64
_MOST_SEGMENTS = 2_000
_SVG_HEAD = 4_096
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
"""Markers of a JPEG's frame header, which has its size."""
_NO_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True)
class MediaHeader:
    """What a file is by its header.

    Attributes:
        media_type: One of `detlab.media.kinds`.
        width: Pixels of an image; 0 if its format says none, as that of a drawing.
        height: Likewise.
    """

    media_type: str
    width: int = 0
    height: int = 0

    @property
    def too_large(self) -> str:
        """Why an image of this size is not shown; empty: it is."""
        if max(self.width, self.height) <= kinds.MOST_SIDE and self.width * self.height <= kinds.MOST_PIXELS:
            return ""
        return (
            f"it has {self.width:,} x {self.height:,} pixels; at most {kinds.MOST_SIDE:,} a side and"
            f" {kinds.MOST_PIXELS:,} in all can be shown"
        )


def read_header(file: BinaryIO) -> MediaHeader | None:
    """Return what a file is by its header; None: nothing that is known, or its header is broken."""
    try:
        return _read(file)
    except (struct.error, IndexError, ValueError, OverflowError):
        return None


def _read(file: BinaryIO) -> MediaHeader | None:
    file.seek(0)
    head = file.read(_HEAD)
    if head.startswith(_PNG):
        if head[12:16] != b"IHDR":
            return None
        return _sized(kinds.PNG, *struct.unpack(">II", head[16:24]))
    if head[:6] in {b"GIF87a", b"GIF89a"}:
        return _sized(kinds.GIF, *struct.unpack("<HH", head[6:10]))
    if head.startswith(b"\xff\xd8\xff"):
        return _jpeg(file)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    return _of_sound(head) or _svg(file)


def _sized(media_type: str, width: int, height: int) -> MediaHeader | None:
    return MediaHeader(media_type, width, height) if width > 0 and height > 0 else None


def _jpeg(file: BinaryIO) -> MediaHeader | None:
    place = 2
    for _ in range(_MOST_SEGMENTS):
        file.seek(place)
        mark, code = file.read(1), file.read(1)
        if mark != b"\xff" or not code:
            return None
        if code == b"\xff":  # filling
            place += 1
        elif code[0] in _NO_LENGTH:
            place += 2
        elif code[0] in _JPEG_FRAMES:
            _, _, height, width = struct.unpack(">HBHH", file.read(7))
            return _sized(kinds.JPEG, width, height)
        else:
            (length,) = struct.unpack(">H", file.read(2))
            place += 2 + max(length, 2)
    return None


def _webp(head: bytes) -> MediaHeader | None:
    match head[12:16]:
        case b"VP8X":
            width = int.from_bytes(head[24:27], "little") + 1
            return _sized(kinds.WEBP, width, int.from_bytes(head[27:30], "little") + 1)
        case b"VP8L":
            bits = struct.unpack("<I", head[21:25])[0]
            return _sized(kinds.WEBP, (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return _sized(kinds.WEBP, width & 0x3FFF, height & 0x3FFF)
    return None


def _of_sound(head: bytes) -> MediaHeader | None:
    """Return what a sound or a video is."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return MediaHeader(kinds.WAV)
    if head[:4] == b"OggS":
        return MediaHeader(kinds.OGG)
    if head[:4] == b"fLaC":
        return MediaHeader(kinds.FLAC)
    if head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2):
        return MediaHeader(kinds.MP3)
    if head[4:8] == b"ftyp":
        return MediaHeader(kinds.MP4)
    if head[:4] == b"\x1aE\xdf\xa3":
        return MediaHeader(kinds.WEBM)
    return None


def _svg(file: BinaryIO) -> MediaHeader | None:
    """Return that it is a drawing: text that begins as one; what is in it is never trusted."""
    file.seek(0)
    text = file.read(_SVG_HEAD)
    if b"\0" in text:
        return None
    begin = text.decode("utf-8", errors="ignore").lstrip("\ufeff \t\r\n").lower()
    is_markup = begin.startswith(("<svg", "<?xml", "<!--", "<!doctype svg"))
    return MediaHeader(kinds.SVG) if is_markup and "<svg" in begin else None
