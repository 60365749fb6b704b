"""The session of the store: rows asked for by their key come by a prepared statement, and once per transaction.

`Session.get` of SQLAlchemy makes a new SELECT at each call and lets go of rows that nobody holds, so a transaction that
asks for its experiment five times reads it five times. Here a row that was asked for stays until the transaction ends.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, inspect, select
from sqlalchemy.orm import Session
from sqlalchemy.orm.util import identity_key


class StoreSession(Session):
    """A session for one transaction. What was got by key is kept, so it must not be used for another one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, expire_on_commit=False, **options)
        self._kept: list[object] = []

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The row with a key, None if there is none; see `Session.get`."""
        if ident is None:
            return None
        statement = None if options or isinstance(ident, (tuple, dict)) else _by_key(entity)
        if statement is None or identity_key(entity, ident) in self.identity_map:
            row = super().get(entity, ident, **options)
        else:
            row = self.scalars(statement, {"key": ident}).first()
        if row is not None:
            self._kept.append(row)
        return row


@cache
def _by_key(entity: type[Any]) -> Select[Any] | None:
    """SELECT by a key of one column; built once, so that SQLAlchemy need not compare it with what it has compiled."""
    columns = inspect(entity).primary_key
    return select(entity).where(columns[0] == bindparam("key")) if len(columns) == 1 else None
