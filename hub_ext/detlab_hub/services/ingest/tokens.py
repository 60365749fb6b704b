"""The holders of detlab's own tokens."""

from __future__ import annotations

import hmac

from sqlalchemy import bindparam, case, or_, select
from sqlalchemy.orm import Session

from detlab.errors import StaleAttempt
from detlab.schemas.wire import AllocationState
from detlab_hub.services.base.callers import READ, WRITE, AgentCaller, Caller, EnrolCaller, HubCaller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import caller_of, current_holder
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries import tokens
from detlab_hub.store.tables import AllocationRow, TaskRow, TokenRow, TrialRow

HUB_PREFIX = "dthub_"
"""Prefix of the token of the Hub's spawners, which is made with the cluster and kept in a file."""


class Tokens(Service):
    """Resolve bearer tokens."""

    async def resolve(self, bearer: str) -> Caller | TaskCaller | AgentCaller | EnrolCaller | HubCaller | None:
        """Return the holder of a token; None if it is unknown, expired, or not one of detlab's.

        Raises:
            StaleAttempt: It belongs to an attempt that is over.
        """
        if bearer.startswith(HUB_PREFIX):
            return HubCaller() if same_secret(self._context.settings.hub_secret_hash, bearer) else None
        if not bearer.startswith(tuple(tokens.PREFIXES.values())):
            return None
        if same_secret(self._context.settings.enrolment_secret_hash, bearer):
            return EnrolCaller(tokens.digest(bearer))
        now = self._context.clock()
        if not bearer.startswith(tokens.PREFIXES["task"]):
            return await self._context.read(lambda s: _resolve(s, bearer, now))
        return await self._task(bearer, now)

    async def _task(self, bearer: str, now: float) -> Caller | TaskCaller | AgentCaller | EnrolCaller | None:
        known, digest = self._context.known_tasks, tokens.digest(bearer)
        caller = known.get(digest, now)
        if caller is not None:
            return caller
        ends = known.ends
        current = await self._context.read(lambda s: _CURRENT.first(s, {"hash": digest, "now": now}))
        if current is None:
            return await self._context.read(lambda s: _resolve(s, bearer, now))
        *holder, expires_at = current
        caller = TaskCaller(*holder)
        known.keep(digest, caller, expires_at, now, ends)
        return caller


_CURRENT = PreparedStatement(
    select(
        AllocationRow.id,
        AllocationRow.trial_id,
        AllocationRow.experiment_id,
        AllocationRow.run,
        AllocationRow.task_id,
        AllocationRow.owner,
        TokenRow.expires_at,
    )
    .join(TokenRow, TokenRow.subject == AllocationRow.id)
    .outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)
    .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
    .where(
        TokenRow.hash == bindparam("hash"),
        TokenRow.kind == "task",
        or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > bindparam("now")),
        AllocationRow.run == case((AllocationRow.task_id.is_(None), TrialRow.run), else_=TaskRow.run),
        AllocationRow.state != AllocationState.TERMINATED,
    )
)
"""The attempt that may speak, by its token, in one statement: every request of every task asks for it."""


def _resolve(s: Session, bearer: str, now: float) -> Caller | TaskCaller | AgentCaller | EnrolCaller | None:
    row = tokens.lookup(s, bearer, now)
    if row is None or not bearer.startswith(tokens.PREFIXES[row.kind]):
        return None
    match row.kind:
        case "enrol":
            return EnrolCaller(row.hash)
        case "agent":
            return AgentCaller(row.subject, row.hash)
        case "run":
            return _of_run(s, row.subject)
        case _:
            allocation = s.get(AllocationRow, row.subject)
            if allocation is None:
                return None
            task = caller_of(allocation)
            current_holder(s, task)
            return task


def _of_run(s: Session, allocation_id: str) -> Caller | None:
    """Return the owner of a notebook run, for whom it speaks until its attempt ends; None once it has ended."""
    allocation = s.get(AllocationRow, allocation_id)
    if allocation is None:
        return None
    try:
        current_holder(s, caller_of(allocation))
    except StaleAttempt:
        return None
    return Caller(allocation.owner, frozenset({READ, WRITE}), run=allocation.id)


def same_secret(secret_hash: str | None, token: str) -> bool:
    """Whether a token is the one whose SHA-256 (hex) is known, compared in constant time."""
    return secret_hash is not None and hmac.compare_digest(secret_hash.lower(), tokens.digest(token))
