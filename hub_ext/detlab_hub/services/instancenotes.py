"""What the database keeps of elastic pools: which agents are their instances, and what an instance turned out to have.

A note of an instance is the name of its pool, or an object with more. Notes outlive the master: a provider's list may
lag behind a launch, and whoever comes after that launch must wait for it, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab_hub.core.provisioning import Shape
from detlab_hub.services.turn import Turn
from detlab_hub.store.tables import Meta

_INSTANCE, _SHAPE = "instance/", "instance-shape/"


@dataclass(frozen=True)
class Note:
    """What is known of an instance by the name of its agent."""

    pool: str
    like: str = ""
    """Under which settings it was launched (`ElasticPool.like`); "": not known."""
    asked_at: float | None = None
    """When it was asked for; None as soon as the provider has listed it."""


def of_pool(s: Session, pool: str) -> dict[str, Note]:
    """The instances of a pool that were launched and not struck off since, by agent."""
    rows = s.execute(select(Meta.key, Meta.value).where(Meta.key.startswith(_INSTANCE, autoescape=True)))
    notes = {key.removeprefix(_INSTANCE): _read(value) for key, value in rows}
    return {agent_id: note for agent_id, note in notes.items() if note.pool == pool}


def keep(turn: Turn, agent_id: str, note: Note) -> None:
    """Note an instance, or change its note."""
    fields: dict[str, Any] = {"pool": note.pool, "like": note.like, "asked_at": note.asked_at}
    turn.session.merge(Meta(key=_INSTANCE + agent_id, value=json.dumps(fields)))


def forget(turn: Turn, agent_id: str) -> None:
    """Nobody comes by this name any more."""
    turn.session.execute(delete(Meta).where(Meta.key == _INSTANCE + agent_id))


def _read(value: str) -> Note:
    return Note(**json.loads(value)) if value.startswith("{") else Note(value)  # earlier ones are the pool's name


def shape_of(s: Session, pool: str, like: str) -> Shape | None:
    """What instances of a pool were seen to have; None: none was seen with these settings."""
    row = s.get(Meta, _SHAPE + pool)
    found = None if row is None else json.loads(row.value)
    return Shape(found["millicpus"], found["memory"]) if found and found["like"] == like else None


def keep_shape(turn: Turn, pool: str, like: str, shape: Shape) -> None:
    """Remember what instances of a pool have."""
    value = json.dumps({"like": like, "millicpus": shape.millicpus, "memory": shape.memory})
    turn.session.merge(Meta(key=_SHAPE + pool, value=value))
