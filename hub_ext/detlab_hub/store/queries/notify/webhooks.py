"""Webhooks of users, and the calls of all webhooks and e-mails: which are due, fairly by owner."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import and_, delete, func, not_, or_, select
from sqlalchemy.orm import Session

from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.queries.notify import emails
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.tables import AlertRuleRow, HookRow, WebhookRow, clean_text

PREFIX = "hook:"


def target_of(hook_id: int) -> str:
    """Return what stands in the `url` of the calls of a user's webhook."""
    return f"{PREFIX}{hook_id}"


def hook_of(target: str) -> int | None:
    """Return the id of the user's webhook that a call is of; None: it is the operator's."""
    return int(target.removeprefix(PREFIX)) if target.startswith(PREFIX) else None


# --- webhooks


def page(s: Session, viewer: Person, limit: int, after: int | None) -> list[int]:
    """Return the ids of the webhooks that a user has, the oldest first."""
    query = select(HookRow.id).where(visible(ObjectKind.WEBHOOK, viewer, owner=HookRow.owner))
    query = query.order_by(HookRow.id).limit(limit)
    return list(s.scalars(query if after is None else query.where(HookRow.id > after)))


def named(s: Session, owner: str, name: str) -> HookRow | None:
    """Return a user's webhook of a name."""
    return s.scalar(select(HookRow).where(HookRow.owner == owner, HookRow.name == clean_text(name)))


def count(s: Session, owner: str) -> int:
    """Count the webhooks of a user."""
    return s.scalar(select(func.count()).select_from(HookRow).where(HookRow.owner == owner)) or 0


def rules_of(s: Session, hook_ids: Collection[int]) -> dict[int, list[AlertRuleRow]]:
    """Return the rules whose alerts some webhooks get."""
    found: dict[int, list[AlertRuleRow]] = {}
    query = select(AlertRuleRow).where(AlertRuleRow.hook_id.in_(sorted(hook_ids))).order_by(AlertRuleRow.id)
    for row in s.scalars(query) if hook_ids else ():
        found.setdefault(row.hook_id or 0, []).append(row)
    return found


def remove(s: Session, row: HookRow) -> None:
    """Remove a webhook with its calls."""
    s.execute(delete(WebhookRow).where(WebhookRow.url == target_of(row.id)))
    s.execute(delete(HookRow).where(HookRow.id == row.id))


# --- calls


def calls_of(s: Session, hook_ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return (waiting, given up) calls by webhook."""
    if not hook_ids:
        return {}
    row = WebhookRow
    query = select(row.url, func.count(), func.count(row.failed_at)).group_by(row.url)
    found = s.execute(query.where(row.url.in_([target_of(one) for one in sorted(hook_ids)])))
    return {hook_of(target) or 0: (total - failed, failed) for target, total, failed in found}


def waiting(s: Session, target: str, most: int) -> int:
    """Count the calls of a webhook that are to be sent, up to `most`."""
    query = select(WebhookRow.id).where(WebhookRow.url == target, WebhookRow.failed_at.is_(None)).limit(most)
    return s.scalar(select(func.count()).select_from(query.subquery())) or 0


def calls_page(s: Session, target: str, limit: int, before: int | None) -> list[int]:
    """Return the ids of the calls of a webhook, the newest first."""
    query = select(WebhookRow.id).where(WebhookRow.url == target).order_by(WebhookRow.id.desc()).limit(limit)
    return list(s.scalars(query if before is None else query.where(WebhookRow.id < before)))


@dataclass(frozen=True)
class DueCall:
    """A call that is due: its id, its target, and whose webhook or address it is."""

    id: int
    target: str
    owner: str


def due(s: Session, now: float, limit: int, busy: Collection[str] = (), *, mails: bool = False) -> list[DueCall]:
    """Return calls that are due, of each owner in turn: many of one do not delay those of others.

    What comes after a call that waits for its next attempt waits, too: else a receiver would hear of the last of two
    things before the first, and the calls to one that is away would fill each batch.

    Args:
        s: A session.
        now: The time.
        limit: Most calls.
        busy: Targets that are being called.
        mails: Those of e-mail; else all others.
    """
    row = WebhookRow
    of_mail = or_(*(row.url.startswith(prefix, autoescape=True) for prefix in emails.PREFIXES))
    first = select(row.url, func.min(row.id).label("first")).where(row.due_at > now, row.failed_at.is_(None))
    held = first.group_by(row.url).subquery()
    turn = func.row_number().over(partition_by=row.owner, order_by=row.id).label("turn")
    ready = select(row.id, row.url, row.owner, turn).outerjoin(held, held.c.url == row.url)
    ready = ready.where(
        and_(row.due_at <= now, row.failed_at.is_(None)), or_(held.c.first.is_(None), row.id < held.c.first)
    )
    ready = ready.where(of_mail if mails else not_(of_mail))
    if busy:
        ready = ready.where(row.url.not_in(sorted(busy)))
    found = ready.subquery()
    query = select(found.c.id, found.c.url, found.c.owner).order_by(found.c.turn, found.c.id).limit(limit)
    return [DueCall(*one) for one in s.execute(query)]


def purge(s: Session, before: float, limit: int) -> int:
    """Remove calls that were given up before some time, at most so many; return how many."""
    ids = list(s.scalars(select(WebhookRow.id).where(WebhookRow.failed_at < before).limit(limit)))
    if ids:
        s.execute(delete(WebhookRow).where(WebhookRow.id.in_(ids)).execution_options(synchronize_session=False))
    return len(ids)
