"""What plain objects become: a data frame is a table, a figure a plot, a text a text."""

from __future__ import annotations

from typing import Any

from detlab.media.base import Media, MediaError
from detlab.media.documents import Plot, Table, Text, is_matplotlib, is_plotly
from detlab.media.signals import Image


def media_of(value: Any) -> Media:
    """Return an object as media.

    Raises:
        MediaError: It cannot be told what it is.
    """
    if isinstance(value, Media):
        return value
    if isinstance(value, str):
        return Text(value)
    if is_plotly(value) or is_matplotlib(value):
        return Plot(value)
    if hasattr(value, "columns") and (hasattr(value, "itertuples") or hasattr(value, "iter_rows")):
        return Table(value)
    if hasattr(value, "mode") and hasattr(value, "size") and callable(getattr(value, "save", None)):  # PIL
        return Image(value)
    raise MediaError(
        f"a value of type {type(value).__name__} does not say how it is to be shown",
        hint="wrap it: det.Image(value), det.Table(value), det.Histogram(value), …; only numbers are metrics",
    )
