"""The session of the store: reads rows by key with a prepared statement, and once per transaction.

`Session.get` of SQLAlchemy makes a new SELECT at each call and drops rows without references, so a transaction that
gets its experiment five times reads it five times. Here a row that was read stays until the transaction ends, and is
made from what Core reads: half the cost of loading it through a query of the ORM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import CTE, Column, ColumnElement, Table, and_, bindparam, func, insert, inspect, select, true, update
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.attributes import instance_dict, instance_state
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.util import safe_reraise

from detlab_hub.store.prepared import PreparedStatement, driver_of


class StoreSession(Session):
    """A session for one transaction. Rows read by key are kept, so it must not be used for another one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, expire_on_commit=False, **options)
        self._kept: list[object] = []

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """Return the row with a key, None if there is none; see `Session.get`."""
        if ident is None:
            return None
        plan = None if options or isinstance(ident, dict) else _by_key(entity)
        row = super().get(entity, ident, **options) if plan is None else self._find(plan, entity, ident)
        if row is not None:
            self._kept.append(row)
        return row

    def get_one(self, entity: Any, ident: Any, **options: Any) -> Any:
        """Return the row with a key; see `Session.get_one`."""
        row = self.get(entity, ident, **options)
        return super().get_one(entity, ident, **options) if row is None else row  # which raises

    def get_ahead(self, entity: Any, ident: Any, other: Any, other_ident: Any) -> None:
        """Read two rows by their keys with one statement, for later calls of `get`, which reads a missing row again.

        Both tables must be plain ones with a key of one column. Does nothing if one of the rows is known already.
        """
        plans = _by_key(entity), _by_key(other)
        if plans[0] is None or plans[1] is None or self._new or self._deleted:
            return
        assert len(plans[0].mapper.primary_key) == len(plans[1].mapper.primary_key) == 1
        idents = ident, other_ident
        keys = (
            plan.mapper.identity_key_from_primary_key((one,)) for plan, one in zip(plans, idents, strict=True) if plan
        )
        if None in idents or any(key in self.identity_map for key in keys):
            return
        values = _both_by_key(entity, other).first(self, {"key": ident, "other": other_ident})
        if values is None:
            return
        middle = len(plans[0].attributes)
        self._kept += [self._made(plans[0], values[:middle]), self._made(plans[1], values[middle:])]

    def those(self, entity: Any, statement: PreparedStatement, values: Mapping[str, Any]) -> list[Any]:
        """Return rows of a plain table; the statement selects all its columns, in their order."""
        plan = _by_key(entity)
        assert plan is not None, f"{entity.__name__} is not plain"
        self.flush()
        rows = [self._made(plan, found) for found in statement.all(self, values)]
        self._kept += rows
        return rows

    def flush(self, objects: Any = None) -> None:
        """Write changed and added rows; deleted rows and those that are not plain are left to `Session.flush`."""
        if objects is not None or self._deleted:
            super().flush(objects)
            return
        if not self._new and not self.identity_map.check_modified():
            return
        changed = self.identity_map._dirty_states()
        added: list[Any] = list(self._new)
        if all(_is_plain(state.class_) for state in [*changed, *added]):
            with self._whole():
                self._write(changed, added)
        else:
            super().flush()

    def insert(self, row: object) -> None:
        """Write a new row now, which numbers it, and nothing else: changes are written once, at the end."""
        if self._new:
            self.flush()  # it may refer to them
        self.add(row)
        state: Any = instance_state(row)
        if not _is_plain(state.class_):
            super().flush()
            return
        with self._whole():
            _insert(self, state)
            self._register_persistent({state})
        self._kept.append(row)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Do what SQLAlchemy does when a flush fails: the transaction is over, even if the error is swallowed."""
        try:
            yield
        except BaseException:  # any error is raised again
            with safe_reraise():
                self._autobegin_t()._begin().rollback(_capture_exception=True)

    def _write(self, changed: Iterable[Any], added: Iterable[Any]) -> None:
        """Write rows without relationships in SQLAlchemy's order: tables by references, changes first."""
        works = [(_place(state.class_), 0, state.key[1], state) for state in changed]
        works += [(_place(state.class_), 1, (state.insert_order,), state) for state in added]
        works.sort(key=lambda work: work[:3])
        steps = [(state, None if is_new else _changed(state)) for _, is_new, _, state in works]
        changes = [change for _, change in steps if change is not None]
        several = 1 < len(changes) == len({change.entity for change in changes})
        if not added and several and _is_postgres(self):
            _update_together(self, changes)
        else:
            for (state, change), (_, is_new, *_) in zip(steps, works, strict=True):
                if is_new:
                    _insert(self, state)
                elif change is not None:
                    _update(self, change)
        self._register_persistent({work[3] for work in works})

    def _find(self, plan: _ByKey, entity: Any, ident: Any) -> Any:
        """Return the row of this session, or read it after a flush, as any query does."""
        key = plan.mapper.identity_key_from_primary_key(_values(ident))
        if self.autoflush and self._new and key not in self.identity_map:
            self.flush()  # a new row is known by its key from here on; what was changed has its key
        known = self.identity_map.get(key)
        if known is None:
            return self._load(plan, ident)
        # What SQLAlchemy looks at where a row is expired, as after an error, or goes, is left to it.
        return super().get(entity, ident) if self._deleted or instance_state(known).expired else known

    def _load(self, plan: _ByKey, ident: Any) -> Any:
        values = plan.statement.first(self, _named(_values(ident)))
        return None if values is None else self._made(plan, values)

    def _made(self, plan: _ByKey, values: Sequence[Any]) -> Any:
        """Make a row from the values that were read."""
        row = plan.mapper.class_manager.new_instance()
        state, loaded = instance_state(row), instance_dict(row)
        loaded.update(zip(plan.attributes, values, strict=True))
        key = plan.mapper._identity_key_from_state(state)
        if (known := self.identity_map.get(key)) is not None:
            return known  # it was asked for by another spelling of its key
        # What a query of the ORM does with a row that it loads. `add` would look for rows that hang on it: none do.
        state.key, state.session_id = key, self.hash_key
        state._commit_all(loaded, self.identity_map)
        self.identity_map.add(state)
        return row


def insert_row(s: Session, row: object) -> None:
    """Write a new row now, and nothing else if the session supports that."""
    if isinstance(s, StoreSession):
        s.insert(row)
    else:
        s.add(row)
        s.flush()


@dataclass(frozen=True)
class _ByKey:
    """Reads rows of a table by their key."""

    mapper: Mapper[Any]
    statement: PreparedStatement
    attributes: tuple[str, ...]
    """In the order of the statement's columns."""


def _values(ident: Any) -> tuple[Any, ...]:
    """Return the values of a key, of one column or of several."""
    return ident if isinstance(ident, tuple) else (ident,)


def _named(key: Sequence[Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a key as parameters of a statement that contains `_has_key`."""
    return {f"{prefix}key_{place}": value for place, value in enumerate(key)}


def _has_key(mapper: Mapper[Any], prefix: str = "") -> ColumnElement[bool]:
    columns = enumerate(mapper.primary_key)
    return and_(*(one == bindparam(f"{prefix}key_{place}", type_=one.type) for place, one in columns))


@cache
def _by_key(entity: type[Any]) -> _ByKey | None:
    """Return how rows of `entity` are read; None if other rows depend on them."""
    mapper: Mapper[Any] = inspect(entity)
    if mapper.relationships:
        return None
    table = mapper.local_table
    names = tuple(mapper.get_property_by_column(column).key for column in table.c)
    return _ByKey(mapper, PreparedStatement(select(*table.c).where(_has_key(mapper))), names)


@cache
def _both_by_key(entity: type[Any], other: type[Any]) -> PreparedStatement:
    """Return how a row of each of two tables is read by one statement."""
    one, two = inspect(entity).local_table, inspect(other).local_table
    (key,), (other_key,) = inspect(entity).primary_key, inspect(other).primary_key
    wanted = select(*one.c, *two.c).select_from(one.join(two, true()))
    return PreparedStatement(wanted.where(key == bindparam("key"), other_key == bindparam("other")))


@cache
def _is_plain(entity: Any) -> bool:
    """Whether a flush of a row of this table only writes its values."""
    mapper: Mapper[Any] = inspect(entity)
    return (
        len(mapper.tables) == 1
        and not mapper.relationships
        and mapper.version_id_col is None
        and all(
            column.server_default is None
            and column.server_onupdate is None
            and column.onupdate is None
            and (column.default is None or column.default.is_scalar or column.default.is_callable)
            for column in _table(mapper).c
        )
    )


@dataclass(frozen=True)
class _Changed:
    """Return the changes of a row to be written: its values by attribute."""

    entity: Any
    key: tuple[Any, ...]
    values: dict[str, Any]

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(sorted(self.values))

    def gone(self) -> StaleDataError:
        return StaleDataError(f"{self.entity.__name__} {' '.join(map(str, self.key))} is not there any more")


def _changed(state: Any) -> _Changed | None:
    """Return the changes of a row since it was read; None if there are none."""
    values = {
        name: state.dict[name]
        for name, before in state.committed_state.items()
        if state.dict[name] is not before and state.dict[name] != before
    }
    return _Changed(state.class_, state.key[1], values) if values else None


def _update(s: Session, change: _Changed) -> None:
    """Write the changes of a row."""
    given = {f"new_{name}": value for name, value in change.values.items()}
    if _change(change.entity, change.attributes).run(s, {**given, **_named(change.key)}) != 1:
        raise change.gone()


def _is_postgres(s: Session) -> bool:
    """Whether the round trip is most of the cost of a change, so that one statement for several is cheaper."""
    return bool(driver_of(s)[0].dialect.name == "postgresql")


def _update_together(s: Session, changes: Sequence[_Changed]) -> None:
    """Write the changes of rows of different tables with one statement."""
    given: dict[str, Any] = {}
    for place, change in enumerate(changes):
        given.update(_named(change.key, f"row{place}_"))
        given.update((f"row{place}_{name}", value) for name, value in change.values.items())
    counts = _changes(tuple((change.entity, change.attributes) for change in changes)).first(s, given)
    for change, count in zip(changes, counts, strict=True):
        if count != 1:
            raise change.gone()


@lru_cache(maxsize=256)
def _changes(changed: tuple[tuple[type[Any], tuple[str, ...]], ...]) -> PreparedStatement:
    """Make one UPDATE of some attributes of several rows by their keys; it returns how many rows of each there were."""
    updates = [_part(f"row{place}", entity, attributes) for place, (entity, attributes) in enumerate(changed)]
    return PreparedStatement(
        select(*(select(func.count()).select_from(change).scalar_subquery() for change in updates))
    )


def _part(prefix: str, entity: type[Any], attributes: tuple[str, ...]) -> CTE:
    mapper: Mapper[Any] = inspect(entity)
    columns = {name: mapper.columns[name] for name in attributes}
    values = {column.key: bindparam(f"{prefix}_{name}", type_=column.type) for name, column in columns.items()}
    change = update(_table(mapper)).where(_has_key(mapper, f"{prefix}_")).values(values)
    return change.returning(mapper.primary_key[0]).cte(f"changed_{prefix}")


@cache
def _change(entity: type[Any], attributes: tuple[str, ...]) -> PreparedStatement:
    """Make the UPDATE of some attributes of a row by its key."""
    mapper: Mapper[Any] = inspect(entity)
    of = {name: mapper.columns[name] for name in attributes}
    values = {column.key: bindparam(f"new_{name}", type_=column.type) for name, column in of.items()}
    return PreparedStatement(update(_table(mapper)).where(_has_key(mapper)).values(values))


def _insert(s: Session, state: Any) -> None:
    """Write a new row; missing values get their defaults, and a numeric key its number."""
    plan = _making(state.class_)
    for name, default in plan.defaults:
        if state.dict.get(name) is None:  # given as None, too, as in SQLAlchemy
            state.dict[name] = default()
    if len(plan.key) == 1 and state.dict.get(plan.key[0]) is None:
        state.dict[plan.key[0]] = plan.numbered.scalar(s, {f"new_{name}": state.dict[name] for name in plan.others})
    else:
        plan.whole.run(s, {f"new_{name}": state.dict[name] for name in (*plan.key, *plan.others)})


@dataclass(frozen=True)
class _Making:
    """Inserts rows of a table.

    Attributes:
        key: The attributes of their key.
        others: All other attributes.
        defaults: Attributes and what makes their values if none are given.
        whole: The INSERT of a row with its key.
        numbered: The INSERT of a row whose key the database assigns, if that is a single column.
    """

    key: tuple[str, ...]
    others: tuple[str, ...]
    defaults: tuple[tuple[str, Callable[[], Any]], ...]
    whole: PreparedStatement
    numbered: PreparedStatement


@cache
def _making(entity: type[Any]) -> _Making:
    mapper: Mapper[Any] = inspect(entity)
    keys = mapper.primary_key
    names = {mapper.get_property_by_column(column).key: column for column in _table(mapper).c}
    values = {column.key: bindparam(f"new_{name}", type_=column.type) for name, column in names.items()}
    rest = {column: value for column, value in values.items() if column not in {key.key for key in keys}}
    statement = insert(_table(mapper))
    return _Making(
        key=tuple(mapper.get_property_by_column(key).key for key in keys),
        others=tuple(name for name, column in names.items() if column not in set(keys)),
        defaults=tuple(
            (name, _default(column))
            for name, column in names.items()
            if column not in set(keys) or column.default is not None
        ),
        whole=PreparedStatement(statement.values(values)),
        numbered=PreparedStatement(statement.values(rest).returning(keys[0])),
    )


def _default(column: Column[Any]) -> Callable[[], Any]:
    default = column.default
    if default is None:
        return lambda: None
    if default.is_callable:
        return lambda: default.arg(None)  # type: ignore[attr-defined]  # SQLAlchemy gives it its context
    return lambda: default.arg  # type: ignore[attr-defined]  # a plain value


@cache
def _place(entity: type[Any]) -> int:
    """Return a table's position among all: behind those that it refers to."""
    table = _table(inspect(entity))
    return list(table.metadata.sorted_tables).index(table)


def _table(mapper: Mapper[Any]) -> Table:
    table = mapper.local_table
    assert isinstance(table, Table)
    return table
