"""`det pool`: resource pools, how they are scheduled and how full they are."""

from __future__ import annotations

import click

from detlab.cli.commands.agents import asked_of, words_of
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.instances import say_instances
from detlab.cli.output.printing import clean, counted, duration, facts, say, say_json, table
from detlab.client.operations import jobs as job_operations
from detlab.client.operations import pools as pool_operations
from detlab.errors import Forbidden, NotFound
from detlab.pasted import word
from detlab.schemas.elasticwire import ElasticPoolView
from detlab.schemas.poolwire import PoolView

COMMANDS = {"pool": "Resource pools: list, describe."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def pool() -> None:
    """Resource pools: sets of agents with a scheduler of their own.

    \b
    Examples:
      det pool list
      det pool describe default
    """


@pool.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_pools(invocation: Invocation) -> None:
    """List the pools: scheduler, agents, slots and pending tasks.

    \b
    Examples:
      det pool list
      det pool list --json | jq '.[] | {name, free: (.slots_total - .slots_used)}'
    """
    found = invocation.client.list_pools()
    if invocation.answered(found):
        return
    columns = ("Pool", "Scheduler", "Preempts", "Fitting", "Agents", "Used", "Slots", "Running", "Waiting",
               "Slots wanted", "Description")  # fmt: skip
    right = ("Agents", "Used", "Slots", "Running", "Waiting", "Slots wanted")
    table(columns, [_row(item) for item in found], right=right, spare=("Fitting", "Preempts", "Scheduler"))


def _row(item: PoolView) -> tuple[object, ...]:
    batch = f"placed by {item.batch.name}" if item.batch is not None else ""
    about = ", ".join(text for text in (item.description, "elastic" if item.elastic else "", batch) if text)
    return (
        item.name, item.scheduler, "yes" if item.preemption else "no", item.fitting, item.agents, item.slots_used,
        item.slots_total, item.tasks_running, item.tasks_waiting, item.slots_waiting, about,
    )  # fmt: skip


@pool.command()
@click.argument("name", metavar="NAME")
@json_option
@pass_invocation
def describe(invocation: Invocation, name: str) -> None:
    """Show a pool, its agents and its jobs; for an elastic pool, administrators also see its instances.

    \b
    Example:
      det pool describe default
    """
    client = invocation.client
    there = client.list_pools()
    found = next((item for item in there if item.name == name), None)
    if found is None:
        names = ", ".join(clean(item.name) for item in there)
        raise NotFound(f"there is no pool {clean(name)}", hint=f"there are: {names}")
    agents = [agent for agent in client.list_agents() if agent.pool == name]
    jobs = client.session.run(job_operations.jobs(pool=name))
    instances = _instances_of(invocation, found)
    if invocation.as_json:
        elastic = {} if instances is None else {"instances": instances}
        say_json({**found.model_dump(mode="json"), "its_agents": agents, "jobs": jobs, **elastic})
        return
    _explain(found)
    if found.batch is not None and found.batch.partitions:
        say()
        table(
            ("Partition", "State", "Idle nodes", "In use", "Other", "Time limit"),
            [
                (
                    f"{one.name} (default)" if one.default else one.name,
                    "up" if one.up else "takes no jobs",
                    one.idle,
                    one.allocated,
                    one.other,
                    one.time_limit or "none",
                )
                for one in found.batch.partitions
            ],
            right=("Idle nodes", "In use", "Other"),
        )
    if agents:
        say()
        table(
            ("Agent", "State", "Used", "Slots", "Tasks", "CPUs asked", "Memory asked"),
            [
                (
                    agent.id,
                    words_of(agent),
                    sum(slot.allocation_id is not None for slot in agent.slots),
                    len(agent.slots),
                    agent.running,
                    *asked_of(agent),
                )
                for agent in agents
            ],
            right=("Used", "Slots", "Tasks", "CPUs asked", "Memory asked"),
        )
    if instances is not None:
        say()
        say_instances(instances)
    verbs = "holds slots or waits" if len(jobs) == 1 else "hold slots or wait"
    say(f"\n{counted(len(jobs), 'job')} {verbs} for some: det job list --pool {word(clean(name))}")


def _instances_of(invocation: Invocation, found: PoolView) -> ElasticPoolView | None:
    """Fetch the instances of an elastic pool; return None if it is not elastic or the caller is no administrator."""
    if not found.elastic:
        return None
    try:
        pools = invocation.client.session.run(pool_operations.elastic_pools())
    except Forbidden:
        return None
    return next((pool for pool in pools if pool.name == found.name), None)


def _explain(found: PoolView) -> None:
    words = {"slots": "what has slots", "no_slots": "what has no slots"}
    away = f", {found.agents_away} not connected" if found.agents_away else ""
    closed = f", {found.agents_closed} disabled for new work" if found.agents_closed else ""
    facts(
        [
            ("pool", found.name),
            ("description", found.description),
            ("scheduler", found.scheduler),
            ("preemption", "yes" if found.preemption else "no"),
            ("fitting", found.fitting + (", heterogeneous" if found.heterogeneous else "")),
            ("priority", f"{found.priority} of what names none"),
            ("patience", duration(found.patience)),
            ("shares of", "users: det usage" if found.share_by == "user" else ""),
            ("half-life", duration(found.usage_half_life)),
            ("minimum run", duration(found.min_run)),
            ("evicts after", duration(found.evict_after)),
            ("price", f"{found.price:g} for a slot-hour" if found.price else ""),
            ("agents", f"{found.agents}{away}{closed}"),
            ("enforces", ", ".join(found.enforces)),
            ("shares", f"each device is {found.slots_per_device} slots" if found.slots_per_device > 1 else ""),
            ("elastic", "yes" if found.elastic else ""),
            ("placed by", "" if found.batch is None else f"{found.batch.name}, in its own queue"),
            ("slots", f"{found.slots_used} of {found.slots_total} used, {found.tasks_running} tasks run"),
            ("waiting", f"{found.tasks_waiting} tasks, for {found.slots_waiting} slots"),
            ("default for", " and ".join(words.get(word, word) for word in found.takes)),
        ]
    )
