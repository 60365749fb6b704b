"""What a file is by its first bytes, and how large an image would be: nothing is decoded, whatever comes."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pytest

from detlab.media import kinds
from detlab.media.headers import MediaHeader, read_header
from detlab.media.signals import write_png


def header(body: bytes) -> MediaHeader | None:
    return read_header(io.BytesIO(body))


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that says a size, whatever its data are."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    frame = struct.pack(">HBHHB", 8, 8, height, width, 1)
    return b"\xff\xd8" + before + b"\xff\xe0" + struct.pack(">H", 4) + b"JF" + b"\xff\xff\xc0" + frame


GIF = b"GIF89a" + struct.pack("<HH", 7, 9) + b"\0" * 20
VP8X = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + (6).to_bytes(3, "little") + (8).to_bytes(3, "little") + b"\0" * 8
VP8L = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 6 | (8 << 14)) + b"\0" * 8
VP8 = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 7, 9) + b"\0" * 8


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (png(7, 9), MediaHeader(kinds.PNG, 7, 9)),
        (jpeg(7, 9), MediaHeader(kinds.JPEG, 7, 9)),
        (jpeg(7, 9, b"\xff\xe1" + struct.pack(">H", 60_000) + b"x" * 59_998), MediaHeader(kinds.JPEG, 7, 9)),
        (GIF, MediaHeader(kinds.GIF, 7, 9)),
        (VP8X, MediaHeader(kinds.WEBP, 7, 9)),
        (VP8L, MediaHeader(kinds.WEBP, 7, 9)),
        (VP8, MediaHeader(kinds.WEBP, 7, 9)),
        (b"\xef\xbb\xbf <?xml version='1.0'?>\n<svg onload='alert(1)'/>", MediaHeader(kinds.SVG)),
        (b"RIFF\0\0\0\0WAVEfmt ", MediaHeader(kinds.WAV)),
        (b"ID3\x04", MediaHeader(kinds.MP3)),
        (b"OggS\0", MediaHeader(kinds.OGG)),
        (b"fLaC\0", MediaHeader(kinds.FLAC)),
        (b"\0\0\0\x18ftypmp42", MediaHeader(kinds.MP4)),
        (b"\x1aE\xdf\xa3\0", MediaHeader(kinds.WEBM)),
    ],
    ids=str,
)
def test_formats_are_known_by_their_first_bytes(body: bytes, expected: MediaHeader) -> None:
    assert header(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><script>alert(1)</script></html>",
        b"<?xml version='1.0'?><html/>",
        b"MZ\x90",
        b"%PDF-1.7",
        b"\x89PNG\r\n\x1a\n",
        png(0, 9),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIDAT" + b"\0" * 40,
        b"\xff\xd8\xff",
        b"\xff\xd8" + b"\xff" * 100_000,
        b"\xff\xd8" + b"\xff\xe0\0\0" * 5_000,
        b"RIFF\0\0\0\0WEBP",
        b"PK\x03\x04",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_none_of_them_or_broken_is_nothing(body: bytes) -> None:
    assert header(body) is None


def test_noise_behind_a_good_beginning_never_raises() -> None:
    noise = random.Random(5)
    for _ in range(3_000):
        body = bytearray(noise.choice([png(3, 3), jpeg(3, 3), GIF, VP8X, VP8L, VP8]))
        for _ in range(noise.randrange(1, 6)):
            body[noise.randrange(len(body))] = noise.randrange(256)
        header(bytes(body[: noise.randrange(len(body))]))


def test_an_image_of_40000_x_40000_is_refused_by_its_header_alone() -> None:
    small = png(40_000, 40_000)
    assert len(small) < 100
    found = header(small)
    assert found is not None
    assert "40,000 x 40,000 pixels" in found.too_large
    assert header(png(16_384, 100)) == MediaHeader(kinds.PNG, 16_384, 100)
    assert not MediaHeader(kinds.PNG, 16_384, 100).too_large
    assert MediaHeader(kinds.PNG, 16_385, 1).too_large
    assert MediaHeader(kinds.PNG, 8_000, 8_000).too_large


def test_a_decompression_bomb_is_no_more_than_its_header_says() -> None:
    bomb = png(10, 10, b"\0" * 50_000_000)
    assert len(bomb) < 60_000
    assert header(bomb) == MediaHeader(kinds.PNG, 10, 10), "what is in it is never inflated here"


def test_a_png_of_ours_says_its_size() -> None:
    assert header(write_png(2, 1, 3, [b"abcdef"])) == MediaHeader(kinds.PNG, 2, 1)
