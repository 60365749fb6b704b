"""Kinds of media, the formats of each, and their limits: the harness encodes by this, and the master admits by it."""

from __future__ import annotations

from collections.abc import Mapping

IMAGE, AUDIO, VIDEO, TEXT, HTML, TABLE = "image", "audio", "video", "text", "html", "table"
HISTOGRAM, CONFUSION, CURVES, PLOTLY, POINTS = "histogram", "confusion", "curves", "plotly", "points"

PNG, JPEG, GIF, WEBP, SVG = "image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"
WAV, MP3, OGG, FLAC = "audio/wav", "audio/mpeg", "audio/ogg", "audio/flac"
MP4, WEBM = "video/mp4", "video/webm"
PLAIN, MARKUP, JSON = "text/plain", "text/html", "application/json"

FORMATS: Mapping[str, tuple[str, ...]] = {
    IMAGE: (PNG, JPEG, GIF, WEBP, SVG),
    AUDIO: (WAV, MP3, OGG, FLAC),
    VIDEO: (MP4, WEBM, GIF),
    TEXT: (PLAIN,),
    HTML: (MARKUP,),
    TABLE: (JSON,),
    HISTOGRAM: (JSON,),
    CONFUSION: (JSON,),
    CURVES: (JSON,),
    PLOTLY: (JSON,),
    POINTS: (JSON,),
}
"""Kind -> its media types. Nothing else is stored, and nothing is shown as anything else."""

MB = 1024 * 1024
MOST_BYTES: Mapping[str, int] = {
    IMAGE: 20 * MB,
    AUDIO: 50 * MB,
    VIDEO: 50 * MB,
    TEXT: MB,
    HTML: 5 * MB,
    TABLE: 5 * MB,
    HISTOGRAM: MB,
    CONFUSION: 2 * MB,
    CURVES: 2 * MB,
    PLOTLY: 5 * MB,
    POINTS: 5 * MB,
}
"""Of one object: what a page can show."""
MOST_SVG_BYTES = 2 * MB
MOST_SIDE = 16_384
MOST_PIXELS = 32_000_000
"""Of an image: a browser takes four bytes for each when it shows it, however small the file is."""
MOST_KEY, MOST_CAPTION = 200, 500
"""Characters of a key and of a caption."""
MOST_AT_ONCE = 100
"""Objects under one key at one step."""
MOST_STEPS = 2**53
