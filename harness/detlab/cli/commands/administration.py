"""`det audit`, `det usage` and `det token …`: commands for administrators."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.printing import clean, duration, moment, say, say_json, table
from detlab.cli.spans import span
from detlab.client.operations import tasks as task_operations
from detlab.errors import DetlabError
from detlab.schemas.taskwire import IdleGpuView, UserShareView
from detlab.visible import no_formula

COMMANDS = {
    "audit": "The audit log: actions of users (administrators).",
    "token": "Tokens: create and list your own; those of agents and tasks (administrators).",
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
            f"{one.user} ({one.group})" if one.group else one.user,
            one.held,
            one.waiting,
            f"{one.share:.1f} of {one.of}",
            f"{one.used:.1f}",
            duration(one.half_life),
        )
        for one in shares
    ]
    columns = (
        "Pool",
        "User (group)" if any(one.group for one in shares) else "User",
        "Held",
        "Waiting",
        "Share now",
        "Slot hours of late",
        "Half-life",
    )
    table(columns, rows, right=columns[2:])


def _show_idle(idle: Sequence[IdleGpuView]) -> None:
    """Print who holds GPUs that do nothing."""
    if idle:
        say("\nGPUs at 0 %:")
        jobs = [one.task_id or one.experiment_id for one in idle]
        rows = [
            (one.user, job, one.trial_id, one.slots, moment(one.since)) for job, one in zip(jobs, idle, strict=True)
        ]
        table(("User", "Job", "Trial", "Slots", "Since"), rows, right=("Trial", "Slots"))


@click.group(cls=LazyGroup, short={"ls": "list"})
def token() -> None:
    """Manage your own tokens, which the Hub makes, and those of agents, tasks and enrolment (administrators).

    \b
    Examples:
      det token create --expires 30d --note "nightly runs"
      det token list --mine
      det token list
    """


@token.command()
@click.option(
    "--expires", metavar="SPAN", default="30d", show_default=True, help='After which it is void: "12h", "90d".'
)
@click.option("--note", default="det token create", help="What it is for, as the Hub's page shows it.")
@click.option("--read-only", is_flag=True, help="It can look at detlab, and change nothing.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this new file, 0600."
)
@json_option
@pass_invocation
def create(invocation: Invocation, expires: str, note: str, read_only: bool, output: Path | None) -> None:
    """Have the Hub make a token of your own, and print it: this once, as the Hub keeps its hash alone.

    \b
    Examples:
      det token create --read-only --expires 90d --note dashboard -o dashboard.token
      DET_TOKEN=$(det token create --expires 2h) python train.py
    """
    from detlab.client.transport.hub import HubAccounts

    scopes = ["custom:detlab:read"] if read_only else None
    if output is not None and output.exists():
        raise DetlabError(f"{output} is there already", hint="Name another file: a token is never written over")
    with HubAccounts(invocation.client.address) as hub:
        made = hub.make_token(hub.name(), expires=span(expires, "--expires"), note=note, scopes=scopes)
    if output is not None:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{made['token']}\n")
    if invocation.as_json:
        shown = {"id": made["id"], "expires_at": made.get("expires_at")}
        say_json({**shown, "file": str(output)} if output is not None else {**shown, "token": made["token"]})
    elif output is not None:
        say(f"Token {clean(made['id'])} is in {clean(str(output))}. To revoke it: det token revoke --mine {made['id']}")
    else:
        say(made["token"])


@token.command(name="list")
@click.option("--mine", is_flag=True, help="Your own, which the Hub has made.")
@csv_option
@json_option
@pass_invocation
def list_tokens(invocation: Invocation, mine: bool) -> None:
    """List the tokens of agents, tasks and enrolment (administrators), or your own; without their secrets.

    \b
    Examples:
      det token list
      det token list --mine
    """
    if mine:
        _list_mine(invocation)
        return
    found = invocation.client.session.run(task_operations.tokens())
    if not invocation.answered(found, "No tokens."):
        rows = [(item.id, item.kind, item.subject, moment(item.created_at), moment(item.expires_at)) for item in found]
        table(("ID", "Kind", "Of", "Made", "Expires"), rows)


def _list_mine(invocation: Invocation) -> None:
    from detlab.client.transport.hub import HubAccounts

    with HubAccounts(invocation.client.address) as hub:
        found = hub.tokens(hub.name())
    shown = [{key: one.get(key) for key in ("id", "note", "created", "expires_at", "last_activity")} for one in found]
    if invocation.as_json:
        say_json(shown)
        return
    rows = [tuple(one.values()) for one in shown]
    table(("ID", "Note", "Made", "Expires", "Last used"), rows)


@token.command()
@click.argument("token_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--mine", is_flag=True, help="They are your own, which the Hub has made.")
@json_option
@pass_invocation
def revoke(invocation: Invocation, token_ids: tuple[str, ...], mine: bool) -> int:
    """Revoke tokens immediately. An agent whose key is revoked must be enrolled again (det agent enrol).

    \b
    Examples:
      det token revoke 1a2b3c4d5e6f
      det token revoke --mine a12
    """
    from detlab.client.transport.hub import HubAccounts

    done, each = [], OneByOne("Token", token_ids)
    for token_id in token_ids:
        with each.of(token_id):
            if mine:
                with HubAccounts(invocation.client.address) as hub:
                    hub.revoke_token(hub.name(), token_id)
            else:
                invocation.client.session.run(task_operations.revoke_token(token_id))
            done.append(token_id)
            if not invocation.as_json:
                say(f"Revoked {clean(token_id)}")
    if invocation.as_json:
        say_json({"revoked": done})
    return each.status
