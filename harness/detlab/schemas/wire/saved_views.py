"""Saved views: a filter, an order and columns of a table under a name."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import normal
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.finding import FilteredTable
from detlab.schemas.wire.workspaces import Reference

VIEW_NAME_CHARS = 200
MOST_SORT_KEYS = 10
MOST_COLUMNS = 50
FILTER_CHARS, FIELD_CHARS = 4000, 700
"""A metric's name has 512 characters at most, that of its group 128."""
_Field = Annotated[str, Field(max_length=FIELD_CHARS)]


def view_name(text: str) -> str:
    """Return the name of a view as it is kept: in one form of Unicode, without spaces around it.

    Raises:
        ValueError: Nothing is left.
    """
    name = normal(text).strip()
    if not name:
        raise ValueError("a view has a name that is not empty")
    return name


ViewName = Annotated[str, Field(min_length=1, max_length=VIEW_NAME_CHARS), AfterValidator(view_name)]


class SaveView(PersonRequest):
    """PUT saved-views: makes a view, or replaces the caller's view of this name."""

    name: ViewName
    table: FilteredTable
    filter: str = Field("", max_length=FILTER_CHARS)
    sort: list[_Field] = Field(default_factory=list, max_length=MOST_SORT_KEYS)
    """Fields, with `-` before them for descending."""
    columns: list[_Field] = Field(default_factory=list, max_length=MOST_COLUMNS)
    layout: dict[str, Any] = {}
    """What a front end keeps of how it shows them: pinned columns, widths; 16 kB as JSON at most."""
    workspace: Reference = ""
    project: Reference = ""
    """Where its members have the view, too; both empty: it is the caller's alone."""


class SavedView(Wire):
    """A saved view. A column that is gone since stays in it, and has no values."""

    id: int
    name: str
    table: FilteredTable
    filter: str = ""
    sort: list[str] = []
    columns: list[str] = []
    layout: dict[str, Any] = {}
    owner: str = ""
    project_id: int | None = None
    """The project whose members have it, too; null: it is its owner's alone."""
    project: str = ""
    """Its name."""
    workspace: str = ""
    """`OWNER/NAME`."""
    created_at: float = 0.0
    updated_at: float = 0.0


class SavedViewList(Wire):
    """The views of the caller, and those of projects that they may read."""

    items: list[SavedView]
    next: int | None = None
    """`after` of the next page, or null on the last one."""
