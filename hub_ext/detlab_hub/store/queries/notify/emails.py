"""Addresses of users to which alerts are sent, and how many codes were asked for."""

from __future__ import annotations

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from detlab_hub.store.tables import AlertRuleRow, EmailCodeRow, EmailRow, WebhookRow

ALERTS, CODES = "mail:", "code:"
PREFIXES = (ALERTS, CODES)
"""By which the targets of calls begin that are e-mail."""


def target_of(owner: str) -> str:
    """Return what stands in the `url` of alerts that are sent to a user."""
    return f"{ALERTS}{owner}"


def code_target_of(owner: str) -> str:
    """Return the same of the code that confirms a user's address: it waits for no alert to the one before."""
    return f"{CODES}{owner}"


def is_code(target: str) -> bool:
    """Whether a target is that of a code."""
    return target.startswith(CODES)


def calls_of(s: Session, owner: str) -> tuple[int, int]:
    """Return how many alerts to a user (wait, were given up)."""
    row = WebhookRow
    query = select(func.count(), func.count(row.failed_at)).where(row.url == target_of(owner))
    total, failed = s.execute(query).one()
    return total - failed, failed


def forget_code(s: Session, owner: str) -> None:
    """Remove what waits to be sent of a code."""
    s.execute(delete(WebhookRow).where(WebhookRow.url == code_target_of(owner)))


def remove(s: Session, row: EmailRow) -> None:
    """Remove an address with what waits to be sent. Rules that told by it alone tell the bell again."""
    mine = update(AlertRuleRow).where(AlertRuleRow.owner == row.owner, AlertRuleRow.email)
    s.execute(mine.where(AlertRuleRow.hook_id.is_(None)).values(bell=True))
    s.execute(mine.values(email=False))
    s.execute(delete(WebhookRow).where(WebhookRow.url.in_([target_of(row.owner), code_target_of(row.owner)])))
    s.delete(row)


def codes_since(s: Session, since: float, *, owner: str | None = None, mailbox: str | None = None) -> int:
    """Count the codes that were asked for since some time, by a user or for a mailbox."""
    row = EmailCodeRow
    query = select(func.count()).select_from(row).where(row.asked_at > since)
    if owner is not None:
        query = query.where(row.owner == owner)
    if mailbox is not None:
        query = query.where(row.mailbox == mailbox)
    return s.scalar(query) or 0


def purge_codes(s: Session, before: float) -> None:
    """Forget codes that were asked for before some time."""
    s.execute(delete(EmailCodeRow).where(EmailCodeRow.asked_at < before))


def purge_calls(s: Session, before: float) -> None:
    """Remove e-mail from before some time that still waits: nothing sends it any more."""
    of_mail = or_(*(WebhookRow.url.startswith(prefix, autoescape=True) for prefix in PREFIXES))
    s.execute(delete(WebhookRow).where(of_mail, WebhookRow.created_at < before))
