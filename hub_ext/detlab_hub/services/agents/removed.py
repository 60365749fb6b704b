"""Agents that an administrator removed: they must not enrol again with the token of their enrolment."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Forbidden
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.tables import AgentRow, Meta, TokenRow

_ID_DIGITS = 12
_PREFIX = "agent_sent_away/"


def note(unit: UnitOfWork, caller: Caller, agent: AgentRow) -> None:
    """Make void the enrolment token that an agent enrolled with, and remember the agent's name.

    The cluster's own token is a file of the operator's and stays valid for others, but not for this name.
    """
    token = unit.session.get(TokenRow, agent.enrolled_by) if agent.enrolled_by else None
    if token is not None:
        detail = f"{token.kind} {token.subject}: agent {agent.id} came by it"
        audit.note(unit, caller, "token.revoke", f"token {token.hash[:_ID_DIGITS]}", detail)
        unit.session.delete(token)
    if unit.session.get(Meta, _PREFIX + agent.id) is None:
        unit.session.add(Meta(key=_PREFIX + agent.id, value=str(unit.now)))


def check_return(unit: UnitOfWork, agent_id: str, token_hash: str) -> None:
    """Check that an agent may enrol: a removed one only with a token that an administrator made.

    Raises:
        Forbidden: It uses the cluster's own token.
    """
    left = unit.session.get(Meta, _PREFIX + agent_id)
    if left is None:
        return
    if not _invited(unit.session, token_hash):
        raise Forbidden(
            f"an administrator removed agent {agent_id}: the cluster's own token cannot enrol it again",
            hint="make an enrolment token for it: det agent enrol",
        )
    unit.session.delete(left)


def _invited(s: Session, token_hash: str) -> bool:
    return bool(token_hash) and s.get(TokenRow, token_hash) is not None
