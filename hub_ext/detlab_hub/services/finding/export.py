"""Tables of trials and experiments as files, CSV or Parquet: a part is read, written and sent, then the next one.

Which rows there are is decided once, by one statement; each part asks again whether its rows are still the caller's to
see, so that a role that is taken away meanwhile ends it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.wire import Archived
from detlab.visible import no_formula, visible
from detlab_hub.core.filters.fields import FieldKind, FilterTable
from detlab_hub.core.filters.meaning import Asker, is_about_archived
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.finding.reading import SECONDS, TOO_SLOW, ReadRequest, read_request
from detlab_hub.store.bounded import bounded
from detlab_hub.store.queries import experiments
from detlab_hub.store.queries.finding import search
from detlab_hub.store.queries.statements import fitting
from detlab_hub.store.tables import Base, ExperimentRow, TrialRow

FileFormat: TypeAlias = Literal["csv", "parquet"]
MOST_ROWS = 100_000
PART = 500
"""Rows that are read at a time, at most."""
USUAL: Mapping[FilterTable, tuple[str, ...]] = {
    FilterTable.TRIALS: (
        *("id", "experiment", "name", "owner", "label", "state", "steps", "best"),
        *("created", "started", "ended"),
    ),
    FilterTable.EXPERIMENTS: (
        *("id", "name", "owner", "label", "state", "searcher", "best", "progress"),
        *("created", "started", "ended"),
    ),
}
"""Columns of a file for which none were asked."""
MEDIA: Mapping[FileFormat, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
_ROWS: Mapping[FilterTable, type[Base]] = {FilterTable.TRIALS: TrialRow, FilterTable.EXPERIMENTS: ExperimentRow}


class ExportRefused(DetlabError):
    """A table that cannot be written as a file of this kind."""

    default_code = "invalid.export"


class TableFile(NamedTuple):
    """A table as a file: its name, its media type and its bytes, which are made while they are sent.

    The receiver closes `parts`.
    """

    name: str
    media: str
    parts: AsyncGenerator[bytes]


class TableExport(Service):
    """Use cases of files of tables. They hold what the caller may read."""

    async def open(
        self,
        caller: Caller,
        *,
        table: FilterTable,
        format: FileFormat,  # noqa: A002  (its name in requests)
        filter: str = "",  # noqa: A002  (its name in requests)
        sort: Sequence[str] = (),
        column: Sequence[str] = (),
        archived: Archived = "no",
    ) -> TableFile:
        """Find the rows of a file, and return it; a page of the table with the same arguments has the same rows.

        Raises:
            ConfigError: Filter, sort or columns cannot be read; it says where.
            QueryTooSlow: The filter took too long.
            ExportRefused: There are too many rows, or nothing here writes the format.
        """
        asker = Asker(person(caller).name, self._context.clock())
        asked = read_request(table, filter, sort, list(dict.fromkeys(column)) or USUAL[table], asker)
        file: _TableWriter = _Csv(asked) if format == "csv" else _Parquet(asked)
        more = experiments.narrowed(archived="any" if is_about_archived(asked.meaning) else archived)
        wanted = search.WantedRows(table, asked.meaning, asked.sort, more)
        ids = await self._context.look(caller.name, lambda s: self._ids(s, caller, wanted, MOST_ROWS + 1))
        if len(ids) > MOST_ROWS:
            raise ExportRefused(
                f"more than {MOST_ROWS:,} {table.value} fulfil the filter, and a file has no more rows than that",
                hint="Narrow it down, such as by owner = me, or created > -30d.",
            )
        return TableFile(f"{table.value}.{format}", MEDIA[format], self._parts(caller, asked, wanted, ids, file))

    async def _parts(
        self, caller: Caller, asked: ReadRequest, wanted: search.WantedRows, ids: Sequence[int], file: _TableWriter
    ) -> AsyncGenerator[bytes]:
        at = 0

        def look(s: Session) -> tuple[int, bytes]:
            # As many as fit: a row of hyperparameters or descriptions may have a megabyte.
            part = fitting(s, _ROWS[asked.table], ids[at : at + PART])
            here: ColumnElement[bool] = (TrialRow if asked.table is FilterTable.TRIALS else ExperimentRow).id.in_(part)
            narrowed = search.WantedRows(wanted.table, wanted.meaning, wanted.sort, [*wanted.more, here])
            kept = self._ids(s, caller, narrowed, len(part)) if part else []
            values = search.columns_of(s, asked.table, kept, asked.fields, self._context.clock())
            return len(part), file.rows([values[key] for key in kept if key in values])

        yield file.head()
        while at < len(ids):
            read, written = await self._context.look(caller.name, look)
            at += read
            yield written
        yield file.end()

    def _ids(self, s: Session, caller: Caller, wanted: search.WantedRows, most: int) -> list[int]:
        with bounded(s, SECONDS, "the filter", TOO_SLOW):
            return search.page(s, person(caller), wanted, most, None, self._context.clock())


# --- formats


class _TableWriter(Protocol):
    """Writes a table; what it returns are the file's bytes, one part after the other."""

    def head(self) -> bytes: ...

    def rows(self, rows: Sequence[Sequence[Any]]) -> bytes: ...

    def end(self) -> bytes: ...


class _Csv:
    def __init__(self, asked: ReadRequest) -> None:
        self._names = [column.name for column in asked.columns]

    def head(self) -> bytes:
        return self.rows([self._names])

    def rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        out = io.StringIO()
        csv.writer(out, lineterminator="\r\n").writerows([_cell(value) for value in row] for row in rows)
        return out.getvalue().encode()

    def end(self) -> bytes:
        return b""


def _cell(value: Any) -> Any:
    """Return a value for a spreadsheet: no text is a formula there, nothing in it is unseen."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else _joined(value) if isinstance(value, list) else json.dumps(value)
    return no_formula(visible(text))


def _joined(values: list[Any]) -> str:
    return ", ".join(values) if all(isinstance(one, str) for one in values) else json.dumps(values)


class _Parquet:
    """Writes a row group for each part; the columns' types follow from their kinds, not from their values."""

    def __init__(self, asked: ReadRequest) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyarrow":
                raise
            raise ExportRefused(
                "a Parquet file needs pyarrow, which is not installed where the service runs",
                hint="Take CSV, or ask the operators of this service for: pip install 'detlab[parquet]'",
            ) from error
        self._kinds = [field.kind for field in asked.fields]
        self._out = io.BytesIO()
        self._sent = 0
        self._arrow = arrow
        fields = [
            arrow.field(_utf8(column.name), _arrow_type(arrow, kind))
            for column, kind in zip(asked.columns, self._kinds, strict=True)
        ]
        self._schema = arrow.schema(fields)
        self._sink = arrow.PythonFile(_Counting(self._out), mode="w")
        self._writer = parquet.ParquetWriter(self._sink, self._schema)

    def head(self) -> bytes:
        return self._taken()

    def rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._kinds)
        arrays = [
            self._arrow.array([_stored(kind, value) for value in values], type=field.type)
            for kind, values, field in zip(self._kinds, columns, self._schema, strict=True)
        ]
        if rows:
            self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        return self._taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        """Return what was written since, and forget it."""
        self._sink.flush()
        taken = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return taken


class _Counting(io.RawIOBase):
    """A file that is written from its beginning to its end, and whose place is that in the whole."""

    def __init__(self, out: io.BytesIO) -> None:
        self._out, self._at = out, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._at += len(data)
        return self._out.write(data)

    def tell(self) -> int:
        return self._at


def _arrow_type(arrow: Any, kind: FieldKind) -> Any:
    match kind:
        case FieldKind.NUMBER | FieldKind.DURATION:
            return arrow.float64()
        case FieldKind.TIME:
            return arrow.timestamp("us", tz="UTC")
        case FieldKind.FLAG:
            return arrow.bool_()
        case FieldKind.LABELS:
            return arrow.list_(arrow.string())
        case _:
            return arrow.string()


def _stored(kind: FieldKind, value: Any) -> Any:
    match kind:
        case _ if value is None:
            return None
        case FieldKind.NUMBER | FieldKind.DURATION:
            return float(value)
        case FieldKind.TIME:
            return int(value * 1e6)
        case FieldKind.FLAG:
            return bool(value)
        case FieldKind.LABELS:
            return [_utf8(str(one)) for one in value]
        case _:
            return _utf8(value if isinstance(value, str) else json.dumps(value))


def _utf8(text: str) -> str:
    return text.encode(errors="replace").decode()
