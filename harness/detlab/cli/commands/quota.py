"""`det quota` and `det limits`: the slots that a user or a group may hold at a time, and the limits of a user."""

from __future__ import annotations

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import moment, say, say_json, table
from detlab.client.operations import jobs
from detlab.schemas.jobwire import MOST_SLOTS, QuotaView
from detlab.schemas.wire.grants import GrantKind


@click.group(cls=LazyGroup, short={"ls": "list"})
def quota() -> None:
    """Quotas: the number of slots that a user, or all users of a group together, may hold at a time.

    \b
    Examples:
      det quota list
      det quota set --user ada --slots 8
      det quota set --group vision --slots 32
    """


@quota.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_quotas(invocation: Invocation) -> None:
    """List quotas and their use: all for administrators, else your own and your groups'.

    \b
    Example:
      det quota list
    """
    _show(invocation, invocation.client.session.run(jobs.quotas()))


@quota.command(name="set")
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub; its users share the quota.")
@click.option("--slots", type=click.IntRange(0, MOST_SLOTS), metavar="N", required=True, help="Maximum at a time.")
@json_option
@pass_invocation
def set_quota(invocation: Invocation, user: str | None, group: str | None, slots: int) -> None:
    """Limit the slots that a user or a group may hold at a time (administrators), effective immediately.

    Running tasks are not stopped. A user above the limit cannot start new tasks until enough slots are free.

    \b
    Examples:
      det quota set --user ada --slots 8
      det quota set --group vision --slots 0
    """
    kind, name = _whose(user, group)
    _show(invocation, invocation.client.session.run(jobs.set_quota(kind, name, slots)))


@quota.command()
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub.")
@json_option
@pass_invocation
def remove(invocation: Invocation, user: str | None, group: str | None) -> None:
    """Remove a quota (administrators).

    \b
    Example:
      det quota remove --user ada
    """
    kind, name = _whose(user, group)
    _show(invocation, invocation.client.session.run(jobs.remove_quota(kind, name)))


def _whose(user: str | None, group: str | None) -> tuple[GrantKind, str]:
    if (user is None) == (group is None):
        raise click.UsageError("name exactly one: --user U or --group G")
    return ("user", user) if user is not None else ("group", group or "")


def _show(invocation: Invocation, found: list[QuotaView]) -> None:
    if invocation.as_json:
        say_json(found)
    elif not found and not invocation.as_csv:
        say("No quotas.")
    else:
        rows = [
            (item.kind, item.name, item.held, item.slots, item.waiting, item.set_by, moment(item.set_at))
            for item in found
        ]
        columns = ("Of", "Name", "Held", "Quota", "Waiting", "Set by", "Since")
        table(columns, rows, right=("Held", "Quota", "Waiting"))


def limit_text(value: float | None, unit: str) -> str:
    """Return a limit with its unit; a priority has none."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if unit == "priority" else f"{value:,.0f} {unit}"


@click.command()
@json_option
@pass_invocation
def limits(invocation: Invocation) -> None:
    """Show the limits of users, and who is at or near one: all users for administrators, else only yourself.

    \b
    Examples:
      det limits
      det limits --json
    """
    found = invocation.client.session.run(jobs.limits())
    if invocation.as_json:
        say_json(found)
        return
    rows = [(item.name, limit_text(item.value, item.unit), item.about, item.setting) for item in found.items]
    table(("Limit", "Value", "Of", "Setting of c.UserLimits"), rows)
    users = [(item, one) for item in found.items for one in item.users]
    if not users:
        say("No user is at or near a limit.")
        return
    say("")
    table(
        ("Limit", "User", "Used", "Reached", "Last"),
        [
            (
                item.name,
                one.user,
                "" if one.used is None else f"{one.used:,.0f} of {item.most or 0:,.0f}",
                f"{one.hits:,} times" if one.hits else "",
                "" if one.last_hit is None else moment(one.last_hit),
            )
            for item, one in users
        ],
    )
