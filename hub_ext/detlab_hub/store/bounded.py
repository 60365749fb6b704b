"""Statements that are given up after a time: what users may ask for could take minutes on a large database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab_hub.store.prepared import driver_of

STEPS = 20_000
"""Instructions of SQLite's machine between two looks at the clock: well below a millisecond."""
_LIMIT = text("SELECT set_config('statement_timeout', :limit, true), set_config('jit', 'off', true)")
"""For the transaction. What it compiles, PostgreSQL would run once: that takes longer than most of these statements."""


class QueryTooSlow(DetlabError):
    """A statement that took longer than it may."""

    default_code = "query.too_slow"


@contextmanager
def bounded(s: Session, seconds: float, what: str, hint: str) -> Iterator[None]:
    """Give up statements of a read transaction when they have taken so long.

    Args:
        s: The session.
        seconds: For all statements together on SQLite, for each on PostgreSQL.
        what: What takes so long, for people.
        hint: What to do.

    Raises:
        QueryTooSlow: One was given up; the transaction is of no use any more.
    """
    postgres = s.get_bind().dialect.name == "postgresql"
    driver = driver_of(s)[0].connection.driver_connection
    assert driver is not None
    end = time.monotonic() + seconds
    if postgres:
        s.execute(_LIMIT, {"limit": f"{int(seconds * 1000)}"})
    else:
        driver.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    except (OperationalError, DBAPIError) as error:
        if time.monotonic() < end:
            raise
        raise QueryTooSlow(f"{what} took more than {seconds:g} seconds and was given up", hint=hint) from error
    finally:
        if not postgres:
            driver.set_progress_handler(None, 0)
