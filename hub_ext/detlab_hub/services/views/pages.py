"""Pages of lists, bounded in bytes: texts are shortened, and what does not fit comes with the next page.

Every list of what users have written is made here. A view of a list is at most some tens of kilobytes (`brief`); the
object's own route has it whole. A page ends after `PAGE_BYTES` and says where to continue (`of_rows`, `within`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import first_that_fit
from detlab_hub.store.tables.base import Base

PAGE_BYTES = 1024 * 1024
"""Of a page as JSON; its first item is there in any case, and no larger than `brief` lets it be."""
VIEW_BYTES = 64 * 1024
"""A view with no more is shown as it is."""
FIELD_BYTES = 8 * 1024
"""Of a field of a larger one."""
TEXT_CHARS = 500
ENDS = "…"
V = TypeVar("V", bound=BaseModel)
R = TypeVar("R", bound=Base)


def of_rows(
    s: Session,
    table: type[R],
    keys: Sequence[Any],
    limit: int,
    make: Callable[[list[R]], Sequence[V]],
    most: int = PAGE_BYTES,
) -> tuple[list[V], R | None]:
    """Return the views of the first rows that fit, and the last row among them if there are more.

    Args:
        s: A session.
        table: Of the rows.
        keys: Their primary keys in order, with one more than `limit` if there are more.
        limit: Most views.
        make: Makes the views of rows, one for each.
        most: Bytes of all views as JSON.
    """
    page = first_that_fit(s, table, keys, limit)
    views = within(make(page.rows), most)
    more = page.more or len(views) < len(page.rows)
    return views, page.rows[len(views) - 1] if more and views else None


def within(views: Iterable[V], most: int = PAGE_BYTES) -> list[V]:
    """Return the first views that fit in so many bytes as JSON, one at least if there is one."""
    fitting: list[V] = []
    left = most
    for view in views:
        left -= size_of(view) + 1
        if left < 0 and fitting:
            break
        fitting.append(view)
    return fitting


def in_part(reply: V, skip: int) -> V:
    """Return the part of a reply that begins after so many of its `items`, and says by `next` where the next begins."""
    items: Sequence[Any] = reply.items  # type: ignore[attr-defined]  # each of these replies has them
    part = within(map(brief, items[skip:]))
    end = skip + len(part)
    return reply.model_copy(update={"items": part, "next": end if end < len(items) else None})


def brief(view: V) -> V:
    """Return a view as lists have it: a large one without most of its long fields, which `shortened` names."""
    if size_of(view) <= VIEW_BYTES:
        return view
    short = {name: _shortened(value) for name, value in _fields(view)}
    changed = {name: value for name, value in short.items() if value is not getattr(view, name)}
    told = {"shortened": sorted(changed)} if "shortened" in type(view).model_fields else {}
    return view.model_copy(update={**changed, **told})


def size_of(value: Any) -> int:
    """Return the bytes of a value as JSON."""
    if isinstance(value, BaseModel):
        return len(value.model_dump_json().encode(errors="replace"))
    if isinstance(value, dict):
        return 2 + sum(len(str(key)) + 4 + size_of(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(1 + size_of(one) for one in value)
    try:
        return len(to_json(value, inf_nan_mode="constants", fallback=str))
    except ValueError:  # a lone surrogate
        return len(json.dumps(value, default=str))


def _fields(view: BaseModel) -> Iterable[tuple[str, Any]]:
    return [(name, getattr(view, name)) for name in type(view).model_fields]


def _shortened(value: Any) -> Any:
    """Return what fits of a value: the beginning of a text or a list, those entries of a mapping that fit."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS else value[:TEXT_CHARS] + ENDS
    if not isinstance(value, dict | list | tuple | BaseModel) or size_of(value) <= FIELD_BYTES:
        return value
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _shortened(one) for name, one in _fields(value)})
    left = FIELD_BYTES
    if isinstance(value, dict):
        entries: dict[Any, Any] = {}
        for key, one in value.items():
            taken = len(str(key)) + 4 + size_of(one)
            if taken <= left:
                entries[key] = one
                left -= taken
        return entries
    items: list[Any] = []
    for one in value:
        short = _shortened(one)
        left -= size_of(short)
        if left < 0:
            break
        items.append(short)
    return items
