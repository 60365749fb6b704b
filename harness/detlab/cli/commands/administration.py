"""`det audit`, `det usage` and `det token …`: commands for administrators."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, duration, moment, say, say_json, table
from detlab.client.operations import tasks as task_operations
from detlab.schemas.taskwire import IdleGpuView, UserShareView
from detlab.visible import no_formula

COMMANDS = {
    "audit": "The audit log: actions of users (administrators).",
    "token": "Tokens of agents and tasks: list, revoke (administrators).",
    "usage": "Slot hours by user and day.",
}


@click.command()
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list.")
@click.option("--actor", metavar="USER", help="Only actions of this user.")
@click.option("--action", metavar="ACTION", help="Only this action, such as task.kill.")
@click.option("--refused", is_flag=True, help="Only refused access.")
@csv_option
@json_option
@pass_invocation
def audit(invocation: Invocation, limit: int, actor: str | None, action: str | None, refused: bool) -> None:
    """Show the audit log, newest first: actions and refused access (administrators).

    \b
    Examples:
      det audit
      det audit --actor ada --action experiment.kill --json
      det audit --refused
    """
    if refused and action:
        raise click.UsageError("--refused and --action exclude each other")
    action = "access.refused" if refused else action
    found = invocation.client.session.run(task_operations.audit(limit=limit, actor=actor, action=action))
    if not invocation.answered(found, "No actions match." if actor or action else "No actions yet."):
        rows = [(moment(item.time), item.actor, item.action, item.subject, item.detail) for item in found]
        table(("Time", "Who", "What", "To", "Detail"), rows)


_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option("--first", type=_DAY, metavar="DAY", help="First day, such as 2030-01-31 (UTC).")
@click.option("--last", type=_DAY, metavar="DAY", help="Last day.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@pass_invocation
def usage(invocation: Invocation, first: object, last: object, as_csv: bool) -> None:
    """Show slot hours and costs by user, day and kind: all users' for administrators, else your own.

    Below: who has which share now of the pools where users have shares.

    \b
    Examples:
      det usage --first 2030-01-01 --last 2030-01-31
      det usage --csv > usage.csv
    """
    days = [f"{day:%Y-%m-%d}" if day else None for day in (first, last)]
    found = invocation.client.session.run(task_operations.usage(*days))
    priced = any(row.cost for row in found.items)
    rows = [
        (row.day, row.user, row.kind, f"{row.slot_hours:.2f}", *([f"{row.cost:.2f}"] if priced else []))
        for row in found.items
    ]
    if invocation.as_json:
        say_json(found)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("day", "user", "kind", "slot_hours", *(["cost"] if priced else [])))
        writer.writerows([no_formula(clean(cell)) for cell in row] for row in rows)
    else:
        if not rows:
            say(f"No slots were used from {found.first} to {found.last}.")
        elif priced:
            cost = f"Cost ({clean(found.currency)})" if found.currency else "Cost"
            table(("Day", "User", "Kind", "Slot hours", cost), rows, right=("Slot hours", cost))
        else:
            table(("Day", "User", "Kind", "Slot hours"), rows, right=("Slot hours",))
        _show_shares(found.shares)
        _show_idle(found.idle)


def _show_shares(shares: Sequence[UserShareView]) -> None:
    """Print who has which share of the pools that have shares of users."""
    if not shares:
        return
    say("")
    rows = [
        (
            one.pool,
            one.user,
            one.held,
            one.waiting,
            f"{one.share:.1f} of {one.of}",
            f"{one.used:.1f}",
            duration(one.half_life),
        )
        for one in shares
    ]
    columns = ("Pool", "User", "Held", "Waiting", "Share now", "Slot hours of late", "Half-life")
    table(columns, rows, right=columns[2:])


def _show_idle(idle: Sequence[IdleGpuView]) -> None:
    """Print who holds GPUs that do nothing."""
    if idle:
        say("\nGPUs at 0 %:")
        rows = [(one.user, one.experiment_id, one.trial_id, one.slots, moment(one.since)) for one in idle]
        table(("User", "Experiment", "Trial", "Slots", "Since"), rows, right=("Experiment", "Trial", "Slots"))


@click.group(cls=LazyGroup, short={"ls": "list"})
def token() -> None:
    """Manage detlab's tokens: of agents, tasks and enrolment (administrators). The Hub manages users' tokens.

    \b
    Example:
      det token list
    """


@token.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_tokens(invocation: Invocation) -> None:
    """List the tokens, without their secrets.

    \b
    Example:
      det token list
    """
    found = invocation.client.session.run(task_operations.tokens())
    if not invocation.answered(found, "No tokens."):
        rows = [(item.id, item.kind, item.subject, moment(item.created_at), moment(item.expires_at)) for item in found]
        table(("ID", "Kind", "Of", "Made", "Expires"), rows)


@token.command()
@click.argument("token_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@pass_invocation
def revoke(invocation: Invocation, token_ids: tuple[str, ...]) -> None:
    """Revoke tokens immediately. An agent whose key is revoked must be enrolled again (det agent enrol).

    \b
    Example:
      det token revoke 1a2b3c4d5e6f
    """
    for token_id in token_ids:
        invocation.client.session.run(task_operations.revoke_token(token_id))
        if not invocation.as_json:
            say(f"Revoked {clean(token_id)}")
    if invocation.as_json:
        say_json({"revoked": list(token_ids)})
