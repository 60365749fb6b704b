"""Commands of administrators for agents and slots: enable, disable, drain. The groups are in `cluster`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.printing import clean, duration, say, say_json
from detlab.cli.spans import span
from detlab.client.operations import agents as agent_operations
from detlab.schemas.wire import AgentView, SlotView

_log = logging.getLogger(__name__)
COMPLETION_SECONDS = 2.0


def words_of(view: AgentView) -> str:
    """Describe an agent's state and what an administrator decided for it: `connected, draining, 29m 10s left`."""
    mode = view.mode if view.mode != "enabled" or view.enabled else "disabled"  # an older master says no mode
    if mode == "enabled":
        shut = view.state == "connected" and view.note and view.slots and not any(slot.enabled for slot in view.slots)
        return f"{view.state}, closed" if shut else view.state
    if mode == "draining" and view.drain_until is not None:
        return f"{view.state}, draining, {duration(view.drain_until - time.time())} left"
    return f"{view.state}, {mode}"


def asked_of(view: AgentView) -> tuple[str, str]:
    """Describe how much of an agent's CPUs and memory tasks have requested: `2 of 8`, `24.0 of 32.0 GiB`."""
    cpus = f"{view.cpus_asked:g} of {view.cpus:g}" if view.cpus is not None else f"{view.cpus_asked:g}"
    memory = f"{view.memory_asked / 2**30:.1f}"
    return cpus, f"{memory} GiB" if view.memory is None else f"{memory} of {view.memory / 2**30:.1f} GiB"


def part_of(slot: SlotView) -> str:
    """Describe a slot's share of its device, such as `1/4 of cuda0`; return "" for a whole device."""
    return f"1/{slot.shares} of {slot.device}" if slot.shares > 1 else ""


def holder_of(slot: SlotView, told: str = "") -> str:
    """Describe what holds a slot, or why nothing does; `told` is said elsewhere, and so not repeated."""
    if slot.enabled:
        return slot.allocation_id or "free"
    why = "closed" if slot.note and slot.note == told else slot.note or "disabled"
    return f"{slot.allocation_id}, then {why}" if slot.allocation_id else why


# --- names at the Tab key


class AgentName(click.types.StringParamType):
    """An agent's name; Tab completes the existing ones."""

    name = "agent"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like that; none if no cluster answers at once."""
        return _items(((view.id, words_of(view)) for view in _quick_list(ctx)), incomplete)


class SlotName(click.types.StringParamType):
    """A slot's name; Tab offers those of the agent before it."""

    name = "slot"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like that; none if no cluster answers at once."""
        agent_id = ctx.params.get("agent_id")
        slots = (slot for view in _quick_list(ctx) if view.id == agent_id for slot in view.slots)
        return _items(((slot.id, holder_of(slot)) for slot in slots), incomplete)


def _items(found: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=clean(text)) for name, text in found if name.startswith(incomplete)]


def _quick_list(ctx: click.Context) -> list[AgentView]:
    from detlab.client.client import Client
    from detlab.client.transport.calls import Retries

    invocation = ctx.find_object(Invocation) or Invocation()
    try:
        with Client(invocation.master, timeout=COMPLETION_SECONDS, backoff=Retries(attempts=0, refused=0)) as client:
            return client.list_agents()
    except Exception:  # whatever is wrong, a Tab key is no place to say it: a traceback would end up in the prompt
        _log.debug("no agents to complete", exc_info=True)
        return []


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Take a span of time: seconds, or a text such as `30m`."""
    return None if value is None else span(value, param.opts[0])


# --- commands

_agents = click.argument("agent_ids", metavar="AGENT...", type=AgentName(), nargs=-1, required=True)


def _told(view: AgentView) -> str:
    tasks = "1 task runs" if view.running == 1 else f"{view.running} tasks run"
    return f"Agent {view.id}: {words_of(view).partition(', ')[2] or 'enabled'}, {tasks}"


def _carry_out(invocation: Invocation, agent_ids: Sequence[str], call: Callable[[str], Any]) -> int:
    """Do something with each agent, and print its state then; return the exit status."""
    views, each = [], OneByOne("Agent", agent_ids)
    for agent_id in agent_ids:
        with each.of(agent_id):
            view = invocation.client.session.run(call(agent_id))
            views.append(view)
            if not invocation.as_json:
                say(clean(_told(view)))
    if invocation.as_json:
        say_json(views)
    return each.status


@click.command()
@_agents
@json_option
@pass_invocation
def enable(invocation: Invocation, agent_ids: tuple[str, ...]) -> int:
    """Let agents take new work again (administrators). It ends a drain; tasks that were already asked to stop still do.

    \b
    Example:
      det agent enable node-1
    """
    return _carry_out(invocation, agent_ids, partial(agent_operations.set_agent, enabled=True))


@click.command()
@_agents
@click.option("--drain", "finish", is_flag=True, help="The same as det agent drain --finish.")
@json_option
@pass_invocation
def disable(invocation: Invocation, agent_ids: tuple[str, ...], finish: bool) -> int:
    """Stop agents from taking new work; running tasks continue (administrators). To empty one: det agent drain.

    \b
    Example:
      det agent disable node-1
    """
    if finish:
        return _carry_out(invocation, agent_ids, partial(agent_operations.drain_agent, finish=True))
    return _carry_out(invocation, agent_ids, partial(agent_operations.set_agent, enabled=False))


@click.command()
@_agents
@click.option("--finish", is_flag=True, help="Let trials finish; by default they stop at a checkpoint.")
@click.option(
    "--deadline", callback=_seconds, metavar="TIME", help='Kill remaining tasks after this time: "30m", "2h".'
)
@json_option
@pass_invocation
def drain(invocation: Invocation, agent_ids: tuple[str, ...], finish: bool, deadline: float | None) -> int:
    """Empty agents, so that their machines can be switched off (administrators).

    No new work starts. Trials write a checkpoint, stop, and resume on other agents, which does not count as a restart:
    that takes minutes, where letting them finish (--finish) may take days. Notebooks, shells and commands get a notice
    in their output and continue until the deadline, if there is one. An agent is drained when nothing runs on it; it
    stays drained across restarts until det agent enable.

    \b
    Examples:
      det agent drain node-1
      det agent drain node-1 --deadline 30m
      det agent drain node-1 node-2 --finish
      det agent list
    """
    wanted = partial(agent_operations.drain_agent, finish=finish, deadline=deadline)
    return _carry_out(invocation, agent_ids, wanted)


_slot_agent = click.argument("agent_id", metavar="AGENT", type=AgentName())
_slots = click.argument("slot_ids", metavar="SLOT...", type=SlotName(), nargs=-1, required=True)


def _set_slots(invocation: Invocation, agent_id: str, slot_ids: tuple[str, ...], *, enabled: bool) -> int:
    each, view = OneByOne("Slot", slot_ids), None
    for slot_id in slot_ids:
        with each.of(slot_id):
            view = invocation.client.session.run(agent_operations.set_slot(agent_id, slot_id, enabled=enabled))
            slot = next((slot for slot in view.slots if slot.id == slot_id), None)
            if not invocation.as_json:
                state = "not offered now" if slot is None else "enabled" if slot.enabled else holder_of(slot)
                say(clean(f"Slot {slot_id} of agent {agent_id}: {state}"))
    if invocation.as_json:
        say_json(view)
    return each.status


@click.command(name="enable")
@_slot_agent
@_slots
@json_option
@pass_invocation
def enable_slots(invocation: Invocation, agent_id: str, slot_ids: tuple[str, ...]) -> int:
    """Enable single slots for new work again (administrators).

    \b
    Example:
      det slot enable node-1 cuda3
    """
    return _set_slots(invocation, agent_id, slot_ids, enabled=True)


@click.command(name="disable")
@_slot_agent
@_slots
@json_option
@pass_invocation
def disable_slots(invocation: Invocation, agent_id: str, slot_ids: tuple[str, ...]) -> int:
    """Disable single slots, such as a GPU with errors, for new work; a task that holds one keeps it (administrators).

    \b
    Example:
      det slot disable node-1 cuda3
    """
    return _set_slots(invocation, agent_id, slot_ids, enabled=False)
