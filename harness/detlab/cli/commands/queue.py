"""`det queue`: what waits for slots."""

from __future__ import annotations

import time

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import duration, say, say_json, table
from detlab.client.task_facts import kind_word
from detlab.schemas.taskwire import QueueItem, TaskKind


@click.command()
@click.argument("what", metavar="[list]", type=click.Choice(["list", "ls"]), required=False, expose_value=False)
@click.option("--mine", is_flag=True, help="Only what is yours; places still count everybody's.")
@json_option
@pass_invocation
def queue(invocation: Invocation, mine: bool) -> None:
    """Show what waits for slots: its place, its priority, and why it waits.

    \b
    Examples:
      det queue
      det queue --mine --json | jq '.[].reason'
    """
    found = [item for item in invocation.client.get_queue() if item.mine or not mine]
    if invocation.as_json:
        say_json(found)
        return
    if not found:
        say("Nothing of yours waits." if mine else "Nothing waits.")
        return
    columns = ("Place", "What", "Name", "Owner", "Pool", "Slots", "Priority", "Waits for", "Why")
    table(columns, [_row(item) for item in found], right=("Place", "Slots", "Priority"))


def _row(item: QueueItem) -> tuple[object, ...]:
    what = item.kind
    if item.trial_id is not None:
        what = f"trial {item.trial_id}"
    elif item.task_id is not None:
        known = item.kind in set(TaskKind)
        what = f"{kind_word(TaskKind(item.kind)) if known else item.kind} {item.task_id}"
    waits = duration(time.time() - item.requested_at) if item.requested_at else ""
    return item.place, what, item.name, item.owner, item.pool, item.slots, item.priority, waits, item.reason
