"""Text, HTML, tables and figures of plotting libraries."""

from __future__ import annotations

import io
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.media import kinds
from detlab.media.base import Media, MediaError, as_json, read_file
from detlab.media.headers import MediaHeader

MOST_ROWS, MOST_COLUMNS, MOST_CELL = 10_000, 200, 2_000
"""Rows and columns of a table, and characters of a cell."""
_EXACT = 2**53
"""Integers beyond are text: a browser's numbers would round them."""


class Text(Media):
    """A text, such as what a model has generated.

    Args:
        text: The text.
        caption: A line for people, shown below it.
    """

    kind = kinds.TEXT

    def __init__(self, text: str, caption: str = "") -> None:
        super().__init__(caption)
        self._text = text

    def _encode(self) -> tuple[str, bytes]:
        if not isinstance(self._text, str):
            raise MediaError(f"a text is a str, not a {type(self._text).__name__}")
        return kinds.PLAIN, self._text.encode(errors="replace")


class Html(Media):
    """A document of HTML, in one piece: what is not in it is not loaded, and its scripts run only for who asks for it.

    Args:
        html: The HTML itself, or the path of a file, as a `pathlib.Path`.
        caption: A line for people, shown below it.
    """

    kind = kinds.HTML

    def __init__(self, html: str | Path, caption: str = "") -> None:
        super().__init__(caption)
        self._html = html

    def _encode(self) -> tuple[str, bytes]:
        if isinstance(self._html, Path):
            return kinds.MARKUP, read_file(self._html, kinds.MOST_BYTES[self.kind])
        if not isinstance(self._html, str):
            raise MediaError(f"HTML is a str or a pathlib.Path, not a {type(self._html).__name__}")
        return kinds.MARKUP, self._html.encode(errors="replace")


class Table(Media):
    """A table.

    Args:
        data: A data frame of pandas or polars, a list of dicts, or a list of rows.
        columns: Names of the columns, for a list of rows; of dicts and data frames, which columns, in which order.
        caption: A line for people, shown below it.
    """

    kind = kinds.TABLE

    def __init__(self, data: Any, columns: Sequence[str] | None = None, caption: str = "") -> None:
        super().__init__(caption)
        self._data = data
        self._columns = None if columns is None else [str(one) for one in columns]

    def _encode(self) -> tuple[str, bytes]:
        names, rows, count = self._rows()
        if len(names) > MOST_COLUMNS:
            raise MediaError(f"it has {len(names):,} columns; at most {MOST_COLUMNS}", hint="name some by columns=")
        cells = [[_cell(value) for value in row] for row in rows]
        odd = next((place for place, row in enumerate(cells) if len(row) != len(names)), None)
        if odd is not None:
            raise MediaError(f"row {odd} has {len(cells[odd])} values, and there are {len(names)} columns")
        most, left = kinds.MOST_BYTES[self.kind] - 100_000, len(cells)
        body = _table(names, cells, count)
        while len(body) > most and left > 1:
            left = max(1, int(left * min(0.9, most / len(body))))
            body = _table(names, cells[:left], count)
        return kinds.JSON, body

    def _rows(self) -> tuple[list[str], list[Sequence[Any]], int]:
        """Return the names of the columns, the first rows, and how many there are."""
        data = self._data
        if hasattr(data, "iter_rows") and hasattr(data, "columns"):  # polars
            frame = data.select(self._columns) if self._columns else data
            return list(map(str, frame.columns)), list(frame.head(MOST_ROWS).iter_rows()), len(data)
        if hasattr(data, "itertuples") and hasattr(data, "columns"):  # pandas
            frame = data[self._columns] if self._columns else data
            rows = list(frame.head(MOST_ROWS).itertuples(index=False, name=None))
            return list(map(str, frame.columns)), rows, len(data)
        if not isinstance(data, list | tuple):
            raise MediaError(
                f"a table is a data frame of pandas or polars, a list of dicts or a list of rows, not a"
                f" {type(data).__name__}"
            )
        first = data[:MOST_ROWS]
        if all(isinstance(row, Mapping) for row in first):
            names = self._columns or list(dict.fromkeys(str(key) for row in first for key in row))
            by_text = [{str(key): value for key, value in row.items()} for row in first]
            return names, [[row.get(name) for name in names] for row in by_text], len(data)
        if not all(isinstance(row, Sequence) and not isinstance(row, str | bytes) for row in first):
            raise MediaError("rows are all lists of values, or all dicts")
        width = max((len(row) for row in first), default=0)
        return self._columns or [str(place) for place in range(width)], list(first), len(data)


def _table(names: list[str], cells: list[list[Any]], count: int) -> bytes:
    return as_json({"columns": [name[:MOST_CELL] for name in names], "rows": cells, "left_out": count - len(cells)})


def _cell(value: Any) -> Any:
    """Return a value of a table as JSON has it: a number, a truth value, null, or else text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:MOST_CELL]
    item = getattr(value, "item", None)
    if callable(item) and not getattr(value, "shape", ()):  # a scalar of NumPy or torch
        return _cell(item())
    if isinstance(value, numbers.Integral):
        return int(value) if abs(int(value)) <= _EXACT else str(value)[:MOST_CELL]
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return str(value)[:MOST_CELL]


class Plot(Media):
    """A figure of matplotlib, which becomes an image, or of plotly, which stays one that can be zoomed.

    Args:
        figure: The figure.
        caption: A line for people, shown below it.
    """

    kind = kinds.IMAGE

    def __init__(self, figure: Any, caption: str = "") -> None:
        super().__init__(caption)
        self._figure = figure
        if is_plotly(figure):
            self.kind = kinds.PLOTLY

    def _encode(self) -> tuple[str, bytes]:
        figure = self._figure
        if self.kind == kinds.PLOTLY:
            # Parsed and written again: strict JSON, of data and layout alone.
            told = json.loads(figure.to_json(), parse_constant=lambda _: None)
            return kinds.JSON, as_json({"data": told.get("data") or [], "layout": told.get("layout") or {}})
        if hasattr(figure, "get_figure") and not is_matplotlib(figure):  # axes, and what is drawn in them
            figure = figure.get_figure()
        if not is_matplotlib(figure):
            raise MediaError(f"a plot is a figure of matplotlib or plotly, not a {type(figure).__name__}")
        inches, dpi = figure.get_size_inches(), min(float(figure.dpi), 200.0)
        header = MediaHeader(kinds.PNG, int(inches[0] * dpi), int(inches[1] * dpi))
        if why := header.too_large:
            raise MediaError(why, hint="make the figure smaller: fig.set_size_inches(8, 6)")
        target = io.BytesIO()
        figure.savefig(target, format="png", dpi=dpi)
        return kinds.PNG, target.getvalue()


def is_plotly(value: Any) -> bool:
    """Whether it is a figure of plotly, which is imported if it is."""
    return _made_by(value, "plotly") and callable(getattr(value, "to_json", None))


def is_matplotlib(value: Any) -> bool:
    """Whether it is a figure of matplotlib."""
    return callable(getattr(value, "savefig", None)) and hasattr(value, "get_size_inches")


def _made_by(value: Any, package: str) -> bool:
    modules: Iterable[str] = (cls.__module__ for cls in type(value).__mro__)
    return any(name == package or name.startswith(f"{package}.") for name in modules)
