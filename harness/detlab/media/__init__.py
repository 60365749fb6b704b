"""What a run may log beyond numbers: images, sound, video, text, HTML, tables, plots.

Each type turns what it is given into bytes in the task (`encode`), and says with `MediaError` what it cannot take. Here
lives no network and nothing of a cluster; numpy, PIL, pandas and plotting libraries are used if their objects come, and
are imported by nothing here until then.
"""

from __future__ import annotations

from detlab.media.base import EncodedMedia, Media, MediaError
from detlab.media.convert import media_of
from detlab.media.documents import Html, Plot, Table, Text
from detlab.media.scores import ConfusionMatrix, Histogram, Points3D, PRCurve, ROCCurve
from detlab.media.signals import Audio, Image, Video

__all__ = [
    "Audio",
    "ConfusionMatrix",
    "EncodedMedia",
    "Histogram",
    "Html",
    "Image",
    "Media",
    "MediaError",
    "PRCurve",
    "Plot",
    "Points3D",
    "ROCCurve",
    "Table",
    "Text",
    "Video",
    "media_of",
]
