"""`det agent …` and `det slot …`."""

from __future__ import annotations

import time

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import Lazy, LazyGroup
from detlab.cli.printing import duration, say, say_json, table

NO_AGENTS = "No agents. Start one: det agent run --master URL"


@click.group(
    cls=LazyGroup,
    short={"ls": "list"},
    lazy={"run": Lazy("Run an agent on this machine.", entry="agent-run", extra="agent")},
)
def agent() -> None:
    """Agents: the machines that run trials.

    \b
    Example:
      det agent list
    """


@agent.command(name="list")
@json_option
@pass_invocation
def list_agents(invocation: Invocation) -> None:
    """List the agents and what they are doing.

    \b
    Example:
      det agent list
    """
    found = invocation.client.list_agents()
    if invocation.as_json:
        say_json(found)
        return
    if not found:
        say(NO_AGENTS)
        return
    rows = [
        (
            item.id,
            item.state,
            sum(slot.allocation_id is not None for slot in item.slots),
            len(item.slots),
            item.running,
            item.serves_user or "any user",
            item.version,
            f"{duration(time.time() - item.last_seen)} ago" if item.last_seen else "",
        )
        for item in found
    ]
    columns = ("Agent", "State", "Used", "Slots", "Tasks", "Serves", "Version", "Seen")
    table(columns, rows, right=("Used", "Slots", "Tasks"))


@click.group(cls=LazyGroup, short={"ls": "list"})
def slot() -> None:
    """Slots: the GPUs and CPU shares that trials get.

    \b
    Example:
      det slot list
    """


@slot.command(name="list")
@json_option
@pass_invocation
def list_slots(invocation: Invocation) -> None:
    """List all slots and what holds them.

    \b
    Example:
      det slot list
    """
    agents = invocation.client.list_agents()
    if invocation.as_json:
        say_json([{"agent_id": item.id, **each.model_dump(mode="json")} for item in agents for each in item.slots])
        return
    rows = [
        (item.id, each.id, each.kind, each.name, each.allocation_id or "free") for item in agents for each in item.slots
    ]
    if not rows:
        say(NO_AGENTS if not agents else "The agents have no slots.")
        return
    table(("Agent", "Slot", "Kind", "Name", "Held by"), rows)
