"""Bytes that users upload in a day."""

from __future__ import annotations

from collections.abc import Collection

from detlab_hub.services.base.context import ServiceContext
from detlab_hub.store.queries import limits


async def count(context: ServiceContext, user: str, groups: Collection[str], size: int) -> None:
    """Count an upload of code or of an output, or refuse it.

    A master that has started anew counts what the database has of the day.

    Raises:
        TooFast: The user has uploaded too much today.
    """
    limiter = context.limiter
    if limiter.uploaded(user) is None:
        since = limiter.day_began
        limiter.know_uploaded(user, await context.read(lambda s: limits.uploaded_since(s, user, since)))
    limiter.upload(user, groups, size)
