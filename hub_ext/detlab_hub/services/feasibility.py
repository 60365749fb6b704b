"""Whether what is submitted could ever run here: refused, or warned about, at submit and not by waiting for ever.

Counted are the agents that are there, those whose connection is lost, and those that were there within a day: one that
is restarted must not cost anybody a refusal. An engine comes and goes with its agent staying, so that a runtime
which none has now is a warning only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem, ResourcesError
from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import AgentView, Reason, ReasonCode, Snapshot, could_run, impossible
from detlab_hub.services.launching import kind_of_slots
from detlab_hub.services.shell import Shell
from detlab_hub.store.tables import AgentRow

AWAY_SECONDS = 86400.0
"""An agent that was there within so long is expected back."""


@dataclass(frozen=True)
class Wish:
    """What somebody asks for.

    Attributes:
        user: Whose it will be.
        slots: Slots on one agent.
        runtime: `process` or `docker`.
        image: Of containers: a name, or a name for each kind of slot.
        max_slots: Of an experiment.
        what: In words: `a trial of this experiment`, `this notebook`.
        where: The key that says the slots.
    """

    user: str
    slots: int
    runtime: str
    image: Any = None
    max_slots: int | None = None
    what: str = "this task"
    where: str = "resources.slots"


async def judge(shell: Shell, wish: Wish) -> list[Problem]:
    """Return warnings about a wish that has to wait for more than its turn.

    Raises:
        ResourcesError: No agent could ever run it, with the reason and the largest that could.
        ConfigError: It is a container, and no agent that could run it has a kind of slots that it names an image for.
    """
    now = shell.clock()
    nodes = shell.backend.nodes(now)
    present, known, kinds = await shell.read(lambda s: _agents(s, nodes, now))
    anyhow = tuple(replace(agent, runtimes=frozenset({wish.runtime})) for agent in known)
    never = _impossible(anyhow, wish)
    if never is not None:
        raise ResourcesError(
            f"no agent could ever run {wish.what}: {never.text}",
            hint=f"lower {wish.where}, or see `det agent list`",
        )
    unready = _impossible(known, wish)
    if unready is not None:
        return [_waits(wish, "runtime" if unready.code is ReasonCode.NO_RUNTIME else wish.where, unready.text)]
    _check_image(wish, known, kinds)
    missing = _impossible(present, wish) if present else None
    if missing is None:
        return []
    away = sorted(agent.id for agent in known if agent not in present and could_run(agent, wish.slots, wish.user))
    return [_waits(wish, wish.where, f"{missing.text}; {', '.join(away)} could run it and is away")]


def _impossible(agents: tuple[AgentView, ...], wish: Wish) -> Reason | None:
    return impossible(Snapshot(agents), wish.slots, wish.user, wish.max_slots, runtime=wish.runtime)


def _waits(wish: Wish, path: str, why: str) -> Problem:
    return Problem(path, f"{wish.what} waits until an agent can run it: {why}", "see `det agent list`", "warning")


def _agents(
    s: Session, nodes: Sequence[Node], now: float
) -> tuple[tuple[AgentView, ...], tuple[AgentView, ...], dict[str, str]]:
    """The agents that are there, all that count, and the kind of slots of each."""
    present = tuple(
        AgentView(node.id, node.slots, frozenset(), node.serves_user, runtimes=frozenset(node.runtimes))
        for node in nodes
    )
    rows = s.scalars(select(AgentRow)).all()
    there = {agent.id for agent in present}
    away = tuple(
        AgentView(
            row.id,
            tuple(slot["id"] for slot in row.slots if slot.get("enabled", True)),
            serves_user=row.serves_user,
            runtimes=frozenset(row.runtimes),
        )
        for row in rows
        if row.id not in there and row.slots and now - row.last_seen < AWAY_SECONDS
    )
    return present, present + away, {row.id: kind_of_slots(row) for row in rows}


def _check_image(wish: Wish, known: Sequence[AgentView], kinds: dict[str, str]) -> None:
    if wish.runtime != "docker" or not isinstance(wish.image, dict):
        return
    able = [agent for agent in known if could_run(agent, wish.slots, wish.user) and "docker" in agent.runtimes]
    there = sorted({kinds.get(agent.id, "cpu") for agent in able})
    if able and not any(wish.image.get(kind) for kind in there):
        named = ", ".join(sorted(kind for kind, image in wish.image.items() if image)) or "none"
        raise ConfigError(
            [
                Problem(
                    "environment.image",
                    f"names an image for slots of kind {named}; every agent that could run it has {', '.join(there)}",
                    f"name one: environment.image.{there[0]}",
                )
            ]
        )
