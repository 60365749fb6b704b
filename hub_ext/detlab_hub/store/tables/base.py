"""Column types that keep the same value on SQLite and on PostgreSQL, and the declarative base.

The two databases disagree about a few values that training code produces every day: SQLite turns a NaN into NULL,
PostgreSQL refuses NUL characters in text and NaN in JSON. The types here make both keep (or clean) them alike.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pydantic_core import from_json, to_json
from sqlalchemy import BigInteger, Integer, MetaData, Table, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

BigId = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit key; SQLite only numbers a column by itself that is declared exactly INTEGER."""


def clean_text(value: str) -> str:
    """Return `value` as both databases can hold it: no NUL, no lone surrogate (each becomes U+FFFD)."""
    plain = str(value).replace("\x00", "\N{REPLACEMENT CHARACTER}")
    try:
        plain.encode()
    except UnicodeEncodeError:
        return "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= char <= "\udfff" else char for char in plain)
    return plain


class CleanText(TypeDecorator[str]):
    """Text from outside. Enum members are stored as their value."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Clean a value on its way to the database."""
        return None if value is None else clean_text(value)


encode_json = json.JSONEncoder(separators=(",", ":")).encode
"""The encoder of `Json`, made once: `json.dumps` with separators makes an encoder each time."""


def encode_bulk(value: Any) -> str:
    """Encode for a `Json` column in a tenth of the time of `encode_json`, for values that come by the thousand.

    The same value, but not the same text: characters beyond ASCII stay as they are. So it is not for columns
    that a query looks into by a path.
    """
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except ValueError:  # a lone surrogate, which only an escape can write, or nesting beyond 255
        return encode_json(value)


def decode_json(text: str) -> Any:
    """Return what `encode_json` or `encode_bulk` wrote."""
    try:
        return from_json(text)
    except ValueError:  # a lone surrogate, or nesting beyond what it takes
        return json.loads(text)


class Json(TypeDecorator[Any]):
    """Any JSON value, as text: NaN, infinities, NUL and surrogates survive on both databases.

    A changed value is noticed only when the attribute is assigned, never when a dict is edited in place.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode; None is SQL NULL."""
        return None if value is None else encode_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Decode."""
        return None if value is None else decode_json(value)


class ExactFloat(TypeDecorator[float]):
    """A float that may be NaN, kept as its shortest exact text. Do not sort by it in SQL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> str | None:
        """Encode."""
        return None if value is None else repr(float(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> float | None:
        """Decode."""
        return None if value is None else float(value)


class Base(DeclarativeBase):
    """Base of all tables; names of constraints are fixed so that migrations can address them."""

    __table__: ClassVar[Table]
    metadata = MetaData(naming_convention=NAMING)
