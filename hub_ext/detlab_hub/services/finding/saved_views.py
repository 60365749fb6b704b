"""Saved views: kept, listed and removed by the user whose they are; the members of a project have those in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.wire.finding import FilteredTable
from detlab.schemas.wire.saved_views import SavedView, SavedViewList, SaveView
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.core.filters.meaning import Asker
from detlab_hub.services.admission.destinations import destination
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.finding.reading import read_request
from detlab_hub.services.views import pages
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.finding import saved_views
from detlab_hub.store.tables import SavedViewRow, clean_text

MOST_VIEWS = 500
"""Of one user."""
LAYOUT_BYTES = 16 * 1024
_TABLES: tuple[FilteredTable, ...] = get_args(FilteredTable)


class SavedViews(Service):
    """Use cases of saved views. Callers have their own, and those of projects where they have a role."""

    async def list(
        self, caller: Caller, *, table: FilteredTable | None = None, limit: int = 100, after: int | None = None
    ) -> SavedViewList:
        """Return one page of the views that the caller has, the oldest first."""

        def look(s: Session) -> SavedViewList:
            ids = saved_views.page(s, person(caller).name, person(caller), table, limit + 1, after)
            items, last = pages.of_rows(s, SavedViewRow, ids, limit, lambda rows: _views(s, caller, rows))
            return SavedViewList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def save(self, caller: Caller, wanted: SaveView) -> SavedView:
        """Keep a view under a name, instead of one that has it; the same again changes nothing.

        Raises:
            ConfigError: Its filter, order or columns cannot be read, its layout is too large, or there is no such
                project for the caller.
            Conflict: The caller has too many.
            Forbidden: The caller may put nothing into that project.
        """
        asker = Asker(person(caller).name, self._context.clock())
        read_request(FilterTable(wanted.table), wanted.filter, wanted.sort, wanted.columns, asker)
        if pages.size_of(wanted.layout) > LAYOUT_BYTES:
            problem = f"the layout has more than {LAYOUT_BYTES:,} bytes as JSON"
            raise ConfigError([Problem("layout", problem)], problem)

        def save(unit: UnitOfWork) -> SavedView:
            row = saved_views.named(unit.session, person(caller).name, wanted.table, wanted.name)
            if row is None:
                if saved_views.count(unit.session, person(caller).name) >= MOST_VIEWS:
                    raise Conflict(f"you have {MOST_VIEWS} saved views", hint="Remove some: det view remove NAME")
                row = SavedViewRow(owner=caller.name, table_name=wanted.table, name=wanted.name, created_at=unit.now)
                unit.session.add(row)
            row.content = wanted.model_dump(mode="json", include={"filter", "sort", "columns", "layout"})
            row.project_id = None
            if wanted.workspace or wanted.project:
                place = destination(unit.session, caller, wanted.workspace, wanted.project, person(caller).name)
                _, row.project_id = place.made(unit)
            row.updated_at = unit.now
            unit.session.flush()
            where = "" if row.project_id is None else f" in project {row.project_id}"
            audit.note(unit, caller, "view.save", f"view {row.id}", f"{wanted.table}: {wanted.name}{where}")
            return _views(unit.session, caller, [row])[0]

        return await self._context.write(save)

    async def remove(self, caller: Caller, table: FilteredTable, name: str) -> SavedView:
        """Remove one of the caller's views; return it as it was.

        Raises:
            NotFound: The caller has none of this name.
        """

        def remove(unit: UnitOfWork) -> SavedView:
            row = saved_views.named(unit.session, person(caller).name, table, name)
            if row is None:
                raise NotFound(f"you have no saved view {name[:200]!r} of {table}", hint="det view list")
            view = _views(unit.session, caller, [row])[0]
            saved_views.remove(unit.session, row)
            audit.note(unit, caller, "view.remove", f"view {row.id}", f"{table}: {name}")
            return view

        return await self._context.write(remove)


def _views(s: Session, caller: Caller, rows: Sequence[SavedViewRow]) -> Sequence[SavedView]:
    """Make views of rows; a project that the caller may not read any more is not named, even in a view of theirs."""
    ids = {row.project_id for row in rows if row.project_id is not None}
    readable = saved_views.readable_projects(s, person(caller), ids)
    labels = workspaces.labels(s, readable) if readable else {}
    return [_view(row, labels.get(row.project_id or 0)) for row in rows]


def _view(row: SavedViewRow, label: tuple[str, str, str] | None) -> SavedView:
    table = next(one for one in _TABLES if one == row.table_name)
    return SavedView(
        id=row.id,
        name=clean_text(row.name),
        table=table,
        owner=row.owner,
        project_id=None if label is None else row.project_id,
        project="" if label is None else label[2],
        workspace="" if label is None else f"{label[0]}/{label[1]}",
        created_at=row.created_at,
        updated_at=row.updated_at,
        **row.content,
    )
