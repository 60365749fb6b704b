"""The session of the store: rows asked for by their key come by a prepared statement, and once per transaction.

`Session.get` of SQLAlchemy makes a new SELECT at each call and lets go of rows that nobody holds, so a transaction that
asks for its experiment five times reads it five times. Here a row that was asked for stays until the transaction ends,
and is made from what Core reads: half the cost of loading it through a query of the ORM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, inspect, select
from sqlalchemy.orm import Mapper, Session, make_transient_to_detached
from sqlalchemy.orm.attributes import instance_dict, instance_state


class StoreSession(Session):
    """A session for one transaction. What was got by key is kept, so it must not be used for another one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, expire_on_commit=False, **options)
        self._kept: list[object] = []

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The row with a key, None if there is none; see `Session.get`."""
        if ident is None:
            return None
        plan = None if options or isinstance(ident, (tuple, dict)) else _by_key(entity)
        row = super().get(entity, ident, **options) if plan is None else self._find(plan, entity, ident)
        if row is not None:
            self._kept.append(row)
        return row

    def get_one(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The row with a key; see `Session.get_one`."""
        row = self.get(entity, ident, **options)
        return super().get_one(entity, ident, **options) if row is None else row  # which raises

    def _find(self, plan: _ByKey, entity: Any, ident: Any) -> Any:
        """The row that this session has, or reads after writing what waits to be written, as any query does."""
        key = plan.mapper.identity_key_from_primary_key((ident,))
        if self.autoflush and self._new and key not in self.identity_map:
            self.flush()  # a new row is known by its key from here on; what was changed has its key
        return super().get(entity, ident) if key in self.identity_map else self._load(plan, ident)

    def _load(self, plan: _ByKey, ident: Any) -> Any:
        values = self.connection().execute(plan.statement, {"key": ident}).one_or_none()
        if values is None:
            return None
        row = plan.mapper.class_manager.new_instance()
        instance_dict(row).update(zip(plan.attributes, values, strict=True))
        make_transient_to_detached(row)
        found = instance_state(row).key
        if found is not None and (known := self.identity_map.get(found)) is not None:
            return known  # it was asked for by another spelling of its key
        self.add(row)
        return row


@dataclass(frozen=True)
class _ByKey:
    """How rows of a table are read by a key of one column."""

    mapper: Mapper[Any]
    statement: Select[Any]
    """Built once, so that SQLAlchemy need not compare it with what it has compiled."""
    attributes: tuple[str, ...]
    """In the order of the statement's columns."""


@cache
def _by_key(entity: type[Any]) -> _ByKey | None:
    """How rows of `entity` are read; None if its key has several columns."""
    mapper: Mapper[Any] = inspect(entity)
    key = mapper.primary_key
    if len(key) != 1:
        return None
    table = mapper.local_table
    names = tuple(mapper.get_property_by_column(column).key for column in table.c)
    return _ByKey(mapper, select(*table.c).where(key[0] == bindparam("key")), names)
