"""Alembic's entry: migrates the connection that `detlab_hub.store.migrate` hands over."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.types import TypeDecorator

from detlab_hub.store.tables import Base


def plain_type(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Write a column type of ours as the type it stores: a migration must not change when our code does."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{type(item.impl_instance).__name__}()"
    return False


def run(connection: Connection) -> None:
    """Run what was asked for on `connection`; the caller owns the transaction if it opened one."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_item=plain_type,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
