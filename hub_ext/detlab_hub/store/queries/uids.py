"""Which uid each Hub user has, and which one is the next to be assigned."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
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
    return s.get(Meta, _NEXT) is not None


def lock_next(s: Session) -> Meta | None:
    """Return the row that holds the next uid, locked until the end of the transaction; None if it was made just now.

    A uid is never assigned twice, also when its user's row has another one by now: the number only grows.
    """
    there = s.scalar(select(Meta).where(Meta.key == _NEXT).with_for_update())
    if there is not None:
        return there
    insert = insert_or_ignore(s, Meta.__table__).values(key=_NEXT, value="0")
    made = s.execute(insert).rowcount  # type: ignore[attr-defined]  # a CursorResult, which execute() is not typed as
    return None if made else s.scalar(select(Meta).where(Meta.key == _NEXT).with_for_update())


def set_next(s: Session, uid: int) -> None:
    """Note which uid is the next."""
    s.get_one(Meta, _NEXT).value = str(uid)
