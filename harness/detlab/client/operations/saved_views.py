"""Operations on saved views."""

from __future__ import annotations

from collections.abc import Sequence

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.finding import FilteredTable
from detlab.schemas.wire.saved_views import SavedView, SaveView


def saved_views(table: FilteredTable | None = None) -> Flow[list[SavedView]]:
    """List the saved views that the caller has."""
    return pages("saved-views", SavedView, "after", None, {"table": table})


def save_view(
    name: str,
    table: FilteredTable,
    filter: str = "",  # noqa: A002  (its name in requests)
    *,
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    workspace: str | int | None = None,
    project: str | int | None = None,
) -> Flow[SavedView]:
    """Keep a filter, an order and columns under a name; a view that has it is replaced."""
    with valid_request():
        where = {"workspace": _text(workspace), "project": _text(project)}
        body = SaveView(name=name, table=table, filter=filter, sort=list(sort), columns=list(columns), **where)
    return one(Call("PUT", "saved-views", json=body, parse=model(SavedView)))


def _text(reference: str | int | None) -> str:
    return "" if reference is None else str(reference)


def remove_view(name: str, table: FilteredTable) -> Flow[SavedView]:
    """Remove a saved view; return it as it was."""
    params = {"name": name, "table": table}
    return one(Call("DELETE", "saved-views", params=params, parse=model(SavedView), again=False))
