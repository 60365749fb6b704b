"""detlab's own tokens for administrators: list their holders, revoke one. Their text is never shown."""

from __future__ import annotations

import re

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.schemas.taskwire import TokenList, TokenView
from detlab.schemas.wire import AllocationState
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.agents import removed
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.tables import AgentRow, AllocationRow, TokenRow

LIMIT = 1000
"""Most tokens of a list: the newest."""
ID_DIGITS = 12
_HOLDER_LIVES = or_(
    TokenRow.kind.not_in(["task", "run"]),
    TokenRow.subject.in_(select(AllocationRow.id).where(AllocationRow.state != AllocationState.TERMINATED)),
)
"""A task's token is worth nothing once its attempt has ended, before it expires."""
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")


class Credentials(Service):
    """Tokens of agents, of enrolment and of tasks. For administrators; others get Forbidden."""

    async def list(self, caller: Caller) -> TokenList:
        """Return the tokens that are valid now, newest first.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        _check(caller)
        now = self._context.clock()

        def read(s: Session) -> TokenList:
            query = select(TokenRow).where(or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now), _HOLDER_LIVES)
            rows = s.scalars(query.order_by(TokenRow.created_at.desc(), TokenRow.hash).limit(LIMIT))
            return TokenList(items=[_view(row) for row in rows])

        return await self._context.read(read)

    async def revoke(self, caller: Caller, token_id: str) -> TokenView:
        """Make a token void. The connection of an agent whose key it is ends; what runs there gets lost in time.

        The enrolment token that such an agent used is void, too: it would otherwise return with a new key immediately.

        Raises:
            Forbidden: The caller is not an administrator.
            NotFound: There is no such token.
            Conflict: The id fits more than one.
        """
        _check(caller)

        def revoke(unit: UnitOfWork) -> TokenView:
            row = _find(unit.session, token_id)
            view = _view(row)
            unit.session.delete(row)
            audit.note(unit, caller, "token.revoke", f"token {view.id}", f"{view.kind} {view.subject}")
            if view.kind == "task":
                unit.outbox.ended_allocations.append(view.subject)  # who holds it must not be remembered any longer
            agent = unit.session.get(AgentRow, view.subject) if view.kind == "agent" else None
            if agent is not None:
                removed.note(unit, caller, agent)
            return view

        view = await self._context.write(revoke)
        if view.kind == "agent":
            self._context.backend.hang_up(view.subject)
        return view


def _find(s: Session, token_id: str) -> TokenRow:
    known = _ID.fullmatch(token_id) is not None
    rows = s.scalars(select(TokenRow).where(TokenRow.hash.startswith(token_id)).limit(2)).all() if known else []
    if not rows:
        raise NotFound(f"there is no token {token_id[:80]!r}", hint=f"an id has {ID_DIGITS} hex digits; list them")
    if len(rows) > 1:
        raise Conflict(f"more than one token begins with {token_id}")
    return rows[0]


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        id=row.hash[:ID_DIGITS],
        kind=row.kind,
        subject=row.subject,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def _check(caller: Caller) -> None:
    check_administers(caller, ObjectKind.SITE, "see and revoke tokens")
