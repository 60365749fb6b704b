"""The uid of each Hub user, and the next uid to be assigned."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import insert_or_ignore
from detlab_hub.store.tables import Meta, UidRow

_NEXT = "uids/next"


def everyone(s: Session) -> Sequence[UidRow]:
    """Return the rows of all users."""
    return s.scalars(select(UidRow).order_by(UidRow.uid)).all()


def owner_of(s: Session, uid: int) -> str | None:
    """Return the user who has a uid."""
    return s.scalar(select(UidRow.owner).where(UidRow.uid == uid))


def has_begun(s: Session) -> bool:
    """Whether any uid was assigned or taken over."""
    return s.scalar(select(Meta.key).where(Meta.key == _NEXT)) is not None


def lock_next(s: Session) -> int:
    """Return the next uid, locked until the end of the transaction; 0 if there was none before.

    A uid is never assigned twice, even if its user's row has another one by now: the number only grows.
    """
    s.execute(insert_or_ignore(s, Meta.__table__).values(key=_NEXT, value="0"))
    return int(s.execute(select(Meta.value).where(Meta.key == _NEXT).with_for_update()).scalar_one())


def set_next(s: Session, uid: int) -> None:
    """Note which uid is the next."""
    s.execute(update(Meta).where(Meta.key == _NEXT).values(value=str(uid)))
