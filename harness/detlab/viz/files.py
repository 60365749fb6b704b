"""Figures as files: HTML and JSON by plotly, SVG drawn here, PNG by plotly's kaleido."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.viz import static

ENDINGS = (".html", ".svg", ".png", ".json")


def write(figure: Any, path: Path) -> None:
    """Write a figure in the format that the file's ending says.

    Raises:
        ValueError: There is no such format.
        DetlabError: A PNG was wanted and kaleido is not installed.
        OSError: The file cannot be written.
    """
    match path.suffix.lower():
        case ".html":
            path.write_text(figure.to_html(include_plotlyjs=True), encoding="utf-8")
        case ".svg":
            path.write_text(static.svg(figure), encoding="utf-8")
        case ".json":
            path.write_text(figure.to_json(), encoding="utf-8")
        case ".png":
            path.write_bytes(_png(figure))
        case other:
            raise ValueError(f"no format {other or 'without an ending'!r}: the file ends in {', '.join(ENDINGS)}")


def _png(figure: Any) -> bytes:
    try:
        drawn: bytes = figure.to_image(format="png", scale=2)
    except (ValueError, RuntimeError) as error:
        hint = "Install it: pip install kaleido (it needs Chrome); or write an .svg or .html file"
        raise DetlabError("a PNG needs plotly's kaleido, which does not work here", hint=hint) from error
    return drawn
