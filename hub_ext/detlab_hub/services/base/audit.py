"""The audit log: actions are recorded in the transaction that performs them, and read by administrators."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.schemas.taskwire import AuditItem, AuditPage
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import audit
from detlab_hub.store.tables import AuditRow

DETAIL_CHARS = 300
CLUSTER = "cluster"
"""The actor of the master's own actions, where no user's name is known."""
HUB = "hub"
"""The actor of a stop at the Hub, which does not report the user."""


def note(unit: UnitOfWork, caller: Caller | str, action: str, subject: str, detail: str = "") -> None:
    """Record an action and its actor in the action's own transaction; if that fails, nothing is recorded.

    Args:
        unit: The unit of work of the action.
        caller: The Hub user, or their name.
        action: What, such as `experiment.kill`.
        subject: To what, such as `experiment 12`.
        detail: For people; may hold what users wrote.
    """
    actor = caller if isinstance(caller, str) else caller.name
    audit.append(unit.session, unit.now, actor, action, subject, detail[:DETAIL_CHARS])


class Audit(Service):
    """Reads of the audit log."""

    async def page(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        before: int | None = None,
        actor: str | None = None,
        action: str | None = None,
    ) -> AuditPage:
        """Return one page of actions, newest first; `next` is the `before` of the next page.

        Args:
            caller: Who asks.
            limit: Most items.
            before: Only ids smaller than this.
            actor: Only this user's actions.
            action: Only `experiment.kill` or the like, or all of a resource: `experiment`.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.SITE, "read the audit log")

        def read(s: Session) -> AuditPage:
            rows = audit.page(s, limit + 1, before, actor, action)
            shown = rows[:limit]
            return AuditPage(items=[_item(row) for row in shown], next=shown[-1].id if len(rows) > limit else None)

        return await self._context.read(read)


def trim(unit: UnitOfWork, keep: float) -> int:
    """Delete some of the entries older than `keep` seconds; return how many (0: no more are due)."""
    return audit.trim(unit.session, unit.now - keep)


def _item(row: AuditRow) -> AuditItem:
    return AuditItem(
        id=row.id, time=row.time, actor=row.actor, action=row.action, subject=row.subject, detail=row.detail
    )
