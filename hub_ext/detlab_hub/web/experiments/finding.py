"""Routes of finding: the trials of all experiments, tables as files, and completion of filters."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Archived, Wire
from detlab.schemas.wire.finding import CandidateKind, Completions, FilteredTable, FoundTrials
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.services.finding.export import FileFormat, TableExport
from detlab_hub.services.finding.finding import RunFinder
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.experiments.experiments import Filter, Filtered
from detlab_hub.web.files import StreamedDownload
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class FoundTrialsQuery(Filtered):
    """Which trials."""

    archived: Archived = "no"
    """`no` leaves out the trials of archived experiments, `only` those of all others; a filter that speaks of
    `archived` decides by itself."""
    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """Only what comes after the trial of this id: the `next` of the page before."""


class CompletionQuery(Wire):
    """Where in a filter the cursor stands."""

    table: FilteredTable = "trials"
    filter: Filter = ""
    cursor: int | None = Field(None, ge=0, lt=2**31)
    """From 0; at its end by default."""
    kind: CandidateKind | None = None
    """Only candidates of this kind, such as `metric` for a choice of columns."""


class ExportQuery(Filtered):
    """Which rows, with which columns; without any those of the field names that most tables have."""

    table: FilteredTable = "trials"
    format: FileFormat = "csv"
    archived: Archived = "no"
    """As lists take it."""


@route("trials", relayed=True)
class TrialsOfAll(Guarded):
    """The trials of all experiments."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: FoundTrialsQuery) -> FoundTrials:
        """Find trials, in all experiments that the caller may read, newest first or in an order."""
        return await self.services[RunFinder].trials(self.person, **query.model_dump())


@route("tables/export", relayed=True)
class ExportedTable(StreamedDownload):
    """A table as a file."""

    @needs("read", cross_site="link", media="text/csv")
    async def get(self, query: ExportQuery) -> None:
        """Download the rows that lists with the same filter and order have, 100,000 at most: CSV, or Parquet."""
        asked = {**query.model_dump(), "table": FilterTable(query.table)}
        await self.send_parts(self.services[TableExport].open(self.person, **asked))


@route("filters/complete", relayed=True)
class CompleteFilter(Guarded):
    """A filter that is being written."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: CompletionQuery) -> Completions:
        """Return what may come next at the cursor, and what is wrong with the filter as it is."""
        table = FilterTable(query.table)
        return await self.services[RunFinder].complete(self.person, table, query.filter, query.cursor, query.kind)
