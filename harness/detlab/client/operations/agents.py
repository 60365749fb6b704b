"""Operations on agents and their slots."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, plain
from detlab.schemas.wire import AgentView


def _agent(*parts: str) -> str:
    return "/".join(["agents", *(quote(part, safe=":") for part in parts)])


def agents() -> Flow[list[AgentView]]:
    """List all agents."""
    return one(Call("GET", "agents", parse=model(list[AgentView])))


def set_agent(agent_id: str, *, enabled: bool) -> Flow[AgentView]:
    """Allow or forbid an agent to take new work."""
    action = "enable" if enabled else "disable"
    return one(Call("POST", _agent(agent_id, action), parse=model(AgentView)))


def drain_agent(agent_id: str, *, finish: bool = False, deadline: float | None = None) -> Flow[AgentView]:
    """Drain an agent: its trials leave it at a checkpoint, or finish there.

    Args:
        agent_id: The agent.
        finish: Let trials run to their end instead of moving them at a checkpoint.
        deadline: End whatever still runs there after this many seconds; None: no deadline.
    """
    body = {"trials": "finish" if finish else "leave", "deadline": deadline}
    return one(Call("POST", _agent(agent_id, "drain"), json=body, parse=model(AgentView)))


def set_slot(agent_id: str, slot_id: str, *, enabled: bool) -> Flow[AgentView]:
    """Allow or forbid new work on a slot."""
    action = "enable" if enabled else "disable"
    return one(Call("POST", _agent(agent_id, "slots", slot_id, action), parse=model(AgentView)))


def remove_agent(agent_id: str) -> Flow[AgentView]:
    """Revoke an agent's key."""
    return one(Call("DELETE", _agent(agent_id), parse=model(AgentView), again=False))


def enrol_agent(ttl: float | None = None) -> Flow[dict[str, Any]]:
    """Issue a token for an agent's first connection: `{token, expires_at}`.

    Args:
        ttl: Lifetime in seconds; None: the master's default.
    """
    body = {} if ttl is None else {"ttl": ttl}
    return one(Call("POST", "agents/enrolments", json=body, parse=plain))
