"""The database's records of elastic pools: which agents are their instances, and the observed shape of an instance.

A record of an instance is the name of its pool, or an object with more. Records outlive the master: a provider's list
may lag behind a launch, and a master started after that launch must wait for it, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab.errors import Forbidden
from detlab_hub.core.provisioning import InstanceShape, largest
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import tokens
from detlab_hub.store.tables import Meta, TokenRow

_SUBJECT = "instance "
_INSTANCE, _SHAPE = "instance/", "instance-shape/"
BELIEVED_SECONDS = 86400.0
"""Seconds for which the observed shape of instances is used after the last one that had it: that one may have been
broken, and as long as it is believed none may be launched that would show it."""
_AGAIN_SECONDS = 3600.0
"""Seconds after which another sighting of a known shape is recorded."""


@dataclass(frozen=True)
class InstanceNote:
    """The record of an instance, by the name of its agent."""

    pool: str
    like: str = ""
    """The settings with which it was launched (`ElasticPool.like`); "" if they are not known."""
    asked_at: float | None = None
    """When it was last requested; None once it was listed at a time when no list could be older than the request."""


def of_pool(s: Session, pool: str) -> dict[str, InstanceNote]:
    """Return the instances of a pool that were launched and not removed from the records since, by agent."""
    rows = s.execute(select(Meta.key, Meta.value).where(Meta.key.startswith(_INSTANCE, autoescape=True)))
    notes = {key.removeprefix(_INSTANCE): _read(value) for key, value in rows}
    return {agent_id: note for agent_id, note in notes.items() if note.pool == pool}


def keep(unit: UnitOfWork, agent_id: str, note: InstanceNote) -> None:
    """Record an instance, or change its record."""
    fields: dict[str, Any] = {"pool": note.pool, "like": note.like, "asked_at": note.asked_at}
    unit.session.merge(Meta(key=_INSTANCE + agent_id, value=json.dumps(fields)))


def issue_token(unit: UnitOfWork, agent_id: str, until: float) -> str:
    """Make the token with which an instance's agent may enrol, under its own name only."""
    return tokens.issue(unit.session, "enrol", _subject(agent_id), until, unit.now)


def void_token(unit: UnitOfWork, agent_id: str) -> None:
    """Make void the token of an instance's agent: it has its own key now, or will never come."""
    tokens.revoke(unit.session, "enrol", _subject(agent_id))


def check_token(inviter: TokenRow, agent_id: str) -> None:
    """Check that a token may enrol an agent of this name.

    Raises:
        Forbidden: It is that of an elastic pool's instance, for another agent.
    """
    if inviter.subject.startswith(_SUBJECT) and inviter.subject != _subject(agent_id):
        raise Forbidden(
            f"this enrolment token is that of an elastic pool's instance, and enrols no agent {agent_id!r}",
            hint="make an enrolment token for it: det agent enrol",
        )


def _subject(agent_id: str) -> str:
    return f"{_SUBJECT}{agent_id}"


def forget(unit: UnitOfWork, agent_id: str) -> None:
    """Remove an instance's record: no agent will connect by this name any more."""
    unit.session.execute(delete(Meta).where(Meta.key == _INSTANCE + agent_id))


def _read(value: str) -> InstanceNote:
    return (
        InstanceNote(**json.loads(value)) if value.startswith("{") else InstanceNote(value)
    )  # earlier ones are the pool's name


@dataclass(frozen=True)
class Learned:
    """The observed shape of a pool's instances, and when an instance of that shape was last connected."""

    shape: InstanceShape
    seen_at: float

    def with_seen(self, seen: InstanceShape, now: float) -> Learned:
        """Return the shape updated by connected instances; having less than earlier ones had changes nothing."""
        shape = largest((self.shape, seen)) or seen
        again = seen == shape and now - self.seen_at >= _AGAIN_SECONDS
        return self if shape == self.shape and not again else Learned(shape, now)


def learned(s: Session, pool: str, like: str, now: float) -> Learned | None:
    """Return the observed shape of a pool's instances; None: none was seen with these settings, or only long ago."""
    row = s.get(Meta, _SHAPE + pool)
    found = {} if row is None else json.loads(row.value)
    seen_at = found.get("seen_at", -BELIEVED_SECONDS)  # earlier notes have no time: they are made anew
    if found.get("like") != like or abs(now - seen_at) >= BELIEVED_SECONDS:
        return None
    return Learned(InstanceShape(found["millicpus"], found["memory"]), seen_at)


def keep_learned(unit: UnitOfWork, pool: str, like: str, known: Learned) -> None:
    """Remember what instances of a pool have."""
    fields = {"millicpus": known.shape.millicpus, "memory": known.shape.memory, "seen_at": known.seen_at}
    unit.session.merge(Meta(key=_SHAPE + pool, value=json.dumps({"like": like, **fields})))
