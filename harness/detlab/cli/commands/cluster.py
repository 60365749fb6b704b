"""`det agent …`, `det cluster …` and `det slot …`."""

from __future__ import annotations

import time

import click

from detlab.cli.commands.agents import holder_of, part_of, words_of
from detlab.cli.commands.certificates import agents_way
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import Lazy, LazyGroup
from detlab.cli.output.instances import say_instances
from detlab.cli.output.printing import Shown, clean, duration, moment, note, say, say_json, table
from detlab.client.operations import agents as agent_operations
from detlab.client.operations import pools as pool_operations
from detlab.pasted import word
from detlab.schemas.wire import AgentView
from detlab.trust import join_enrolment

COMMANDS = {
    "agent": "Agents: list, enable, disable, enrol, remove, run.",
    "cluster": "The cluster as a whole: simulate scheduling.",
    "slot": "Slots of the agents: list, enable, disable.",
}

NO_AGENTS = "No agents. Start one: det agent run --master URL"


@click.group(
    cls=LazyGroup,
    short={"ls": "list"},
    lazy={
        "enable": Lazy("Let agents take new work again (administrators).", "detlab.cli.commands.agents:enable"),
        "disable": Lazy(
            "Stop agents from taking new work; running tasks continue (administrators).",
            "detlab.cli.commands.agents:disable",
        ),
        "drain": Lazy(
            "Empty agents, so that their machines can be switched off (administrators).",
            "detlab.cli.commands.agents:drain",
        ),
        "run": Lazy("Run an agent on this machine.", entry="agent-run", extra="agent"),
        "pin": Lazy(
            "Pin the master's new certificate for an agent on this machine.", "detlab.cli.commands.certificates:pin"
        ),
    },
)
def agent() -> None:
    """Agents: the machines that run trials and tasks.

    \b
    Examples:
      det agent list
      det agent drain node-1 --deadline 30m
    """


@click.group(
    cls=LazyGroup,
    lazy={
        "simulate": Lazy("Run one scheduling pass on a described pool.", entry="cluster-simulate", extra="hub"),
    },
)
def cluster() -> None:
    """Inspect the cluster as a whole.

    \b
    Example:
      det cluster simulate pool.yaml
    """


@cluster.command()
@csv_option
@json_option
@pass_invocation
def instances(invocation: Invocation) -> None:
    """List the instances of elastic pools, and the errors of their providers (administrators).

    \b
    Example:
      det cluster instances
    """
    pools = invocation.client.session.run(pool_operations.elastic_pools())
    if invocation.answered(pools, "No elastic pools: no pool in c.DetHub.pools has a provider."):
        return
    rows = [
        (pool.name, item.id, item.agent_id, item.state, item.agent_state, "spot" if item.spot else "",
         moment(item.launched_at))
        for pool in pools for item in pool.instances
    ]  # fmt: skip
    if rows or invocation.as_csv:
        table(("Pool", "Instance", "Agent", "State", "Agent is", "Kind", "Launched"), rows)
    for pool in [] if invocation.as_csv else pools:
        say_instances(pool)


@agent.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_agents(invocation: Invocation) -> None:
    """List the agents with their state and load.

    \b
    Example:
      det agent list
    """
    found = invocation.client.list_agents()
    if invocation.answered(found, NO_AGENTS):
        return
    labelled = any(item.labels for item in found)
    rows = [
        (
            item.id,
            item.pool,
            words_of(item),
            sum(slot.allocation_id is not None for slot in item.slots),
            len(item.slots),
            item.running,
            ", ".join(item.runtimes),
            item.serves_user or "any user",
            *([", ".join(f"{name}={value}" for name, value in sorted(item.labels.items()))] if labelled else []),
            item.version,
            Shown(f"{duration(time.time() - item.last_seen)} ago", item.last_seen) if item.last_seen else "",
        )
        for item in found
    ]
    told = ("Serves", "Labels") if labelled else ("Serves",)
    columns = ("Agent", "Pool", "State", "Used", "Slots", "Tasks", "Runtimes", *told, "Version", "Seen")
    spare = ("Labels", "Version", "Serves", "Runtimes", "Seen", "Pool")
    table(columns, rows, right=("Used", "Slots", "Tasks"), spare=spare)
    for item in found:
        _note_of(item)
        if item.refused:
            note(clean(f"The master refuses agent {item.id}: {item.refused}"))


def _note_of(item: AgentView) -> None:
    """Print what an agent's cluster says of it to standard error."""
    if item.note:
        note(clean(f"{item.id}: {item.note}"))


@agent.command()
@click.option(
    "--ttl",
    type=click.FloatRange(1),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="How long the token is valid.",
)
@json_option
@pass_invocation
def enrol(invocation: Invocation, ttl: float) -> None:
    """Create an enrolment token, with which one more agent can connect for the first time (administrators).

    Only the token is printed to standard output, so that it can be redirected to a file.

    \b
    Example:
      det agent enrol > token && scp token node-2: && ssh node-2 det agent run --master URL --enrolment-token-file token
    """
    client = invocation.client
    found = client.session.run(agent_operations.enrol_agent(ttl))
    url, fingerprint = agents_way(client)
    if invocation.answered({**found, "master": url, "fingerprint": fingerprint}):
        return
    say(clean(join_enrolment(str(found.get("token")), fingerprint)))
    note(f"Valid until {moment(found.get('expires_at'))}. Put it into a file that only the agent's user can read:")
    note(f"  → det agent run --master {word(clean(url))} --enrolment-token-file FILE")


@agent.command()
@click.argument("agent_id", metavar="AGENT")
@yes_option
@json_option
@pass_invocation
def remove(invocation: Invocation, agent_id: str, yes: bool) -> None:
    """Remove an agent and revoke its key (administrators). Its running tasks are lost, and restart elsewhere if they
    may.

    Its enrolment token is revoked, too: to come back, it needs a new one (det agent enrol).

    \b
    Example:
      det agent remove node-1 --yes
    """
    confirmed(f"Remove {clean(agent_id)}? Its running tasks are lost.", yes=yes, deed="removing an agent")
    view = invocation.client.session.run(agent_operations.remove_agent(agent_id))
    invocation.tell(view, clean(f"Removed agent {view.id}"))


@click.group(
    cls=LazyGroup,
    short={"ls": "list"},
    lazy={
        "enable": Lazy("Enable slots for new work again (administrators).", "detlab.cli.commands.agents:enable_slots"),
        "disable": Lazy("Disable slots for new work (administrators).", "detlab.cli.commands.agents:disable_slots"),
    },
)
def slot() -> None:
    """Slots: the GPUs and CPU shares that trials get.

    \b
    Examples:
      det slot list
      det slot disable node-1 cuda3
    """


@slot.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_slots(invocation: Invocation) -> None:
    """List all slots with the tasks that hold them.

    \b
    Example:
      det slot list
    """
    agents = invocation.client.list_agents()
    if invocation.as_json:
        say_json([{"agent_id": item.id, **each.model_dump(mode="json")} for item in agents for each in item.slots])
        return
    rows = [
        (item.id, each.id, each.kind, each.name, part_of(each), holder_of(each, item.note))
        for item in agents
        for each in item.slots
    ]
    if not rows and not invocation.as_csv:
        say(NO_AGENTS if not agents else "The agents have no slots.")
        return
    spare = ("Kind", "Name") if any(row[4] for row in rows) else ("Part", "Kind", "Name")
    table(("Agent", "Slot", "Kind", "Name", "Part", "Held by"), rows, spare=spare)
    for item in agents:
        _note_of(item)
