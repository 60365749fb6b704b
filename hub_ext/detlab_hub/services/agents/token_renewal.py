"""Renewal of the token of a task whose launcher cannot reach the master, while its agent is connected.

A launcher renews its token from half of its lifetime on. One that has not done so in three quarters of it does not
reach the master, or its clock differs; without this it would return with an expired token, and be refused for ever
while its task keeps running. However short that lifetime is, no token expires between two checks.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import and_, func, or_, select, update

from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import parts, tokens
from detlab_hub.store.tables import AllocationRow, TokenRow

LATE = 0.25
"""The part of a token's life that is left when its launcher is late with the renewal."""

MISSED = 1.5
"""Periods that may pass until the next check."""


def extend_tokens(unit: UnitOfWork, agents: Collection[str], period: float) -> None:
    """Extend the tokens of late launchers whose tasks these agents hold.

    A launcher that has renewed its token has no need of the old one. Each agent of an attempt on several has a launcher
    of its own, and a token does not say whose it is: these tokens are treated one by one, so that one launcher's
    renewal is not mistaken for that of another.

    Args:
        unit: The transaction.
        agents: Connected agents.
        period: Seconds between two calls.
    """
    late = unit.now + max(LATE * unit.settings.task_token_ttl, MISSED * period)
    held = select(AllocationRow.id).where(AllocationRow.state.in_(PLACED), parts.on_agents(agents))
    newest = (
        select(TokenRow.subject)
        .where(TokenRow.kind == "task", TokenRow.subject.in_(held.where(AllocationRow.nodes < 2)))
        .group_by(TokenRow.subject)
        .having(func.max(TokenRow.expires_at) < late)
    )
    each = and_(TokenRow.subject.in_(held.where(AllocationRow.nodes > 1)), TokenRow.expires_at < late)
    runs = select(TokenRow.subject).where(
        TokenRow.kind == "run", TokenRow.expires_at > unit.now, TokenRow.expires_at < late, TokenRow.subject.in_(held)
    )
    tokens.extend_runs(unit.session, unit.session.scalars(runs).all(), unit.now + unit.settings.task_token_ttl)
    unit.session.execute(
        update(TokenRow)
        .where(TokenRow.kind == "task", TokenRow.expires_at > unit.now, or_(TokenRow.subject.in_(newest), each))
        .values(expires_at=unit.now + unit.settings.task_token_ttl)
        .execution_options(synchronize_session=False)
    )
