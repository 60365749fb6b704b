"""`det quota` and `det limits`: the slots that a user or a group may hold, the bytes they may keep, a user's limits."""

from __future__ import annotations

from typing import Literal

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, size, table
from detlab.client.operations import jobs, quotas
from detlab.schemas.expconf.blocks.environment import parse_size
from detlab.schemas.jobwire import (
    COST_ONLY,
    MOST_BYTES,
    MOST_COST,
    MOST_SLOTS,
    QuotaKind,
    QuotaList,
    QuotaView,
    StorageQuotaView,
)

COMMANDS = {
    "limits": "Limits of users, and who is at or near one.",
    "quota": "Quotas of users, groups and workspaces: list, set, remove.",
}


@click.group(cls=LazyGroup, short={"ls": "list"})
def quota() -> None:
    """Quotas of a user, of all users of a group, or of a workspace: slots held at a time, and bytes kept.

    \b
    Examples:
      det quota list
      det quota set --user ada --slots 8
      det quota set --group vision --slots 32 --storage 2TB
      det quota set --workspace ada/vision --slots 16
    """


@quota.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_quotas(invocation: Invocation) -> None:
    """List quotas and their use.

    Administrators see all, others their own and those of their groups and workspaces.

    \b
    Example:
      det quota list
    """
    _show(invocation, invocation.client.session.run(quotas.quotas()))


class _Size(click.ParamType[int]):
    """A number of bytes, such as `500GB`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it.

        Raises:
            click.BadParameter: It is no size, or too large.
        """
        try:
            count = parse_size(str(value).strip())
        except ValueError:
            self.fail(f"{str(value)[:80]!r} is not a size; write one such as 500GB or 1.5T (in powers of 1024)", param)
        if count > MOST_BYTES:
            self.fail(f"at most {size(MOST_BYTES)}", param)
        return count


@quota.command(name="set")
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub; its users share the quota.")
@click.option("-w", "--workspace", metavar="W", help="A workspace: all that lies in it shares the quota of slots.")
@click.option("--project", metavar="ID", help="A project, for --cost.")
@click.option("--experiment", metavar="ID", help="An experiment, for --cost.")
@click.option("--slots", type=click.IntRange(0, MOST_SLOTS), metavar="N", help="Maximum held at a time.")
@click.option(
    "--storage", type=_Size(), metavar="SIZE", help="Maximum of checkpoints, code and outputs kept, such as 500GB."
)
@click.option(
    "--cost",
    type=click.FloatRange(0, MOST_COST),
    metavar="AMOUNT",
    help="Maximum cost: of a user or a project in a month (UTC), of an experiment in all.",
)
@json_option
@pass_invocation
def set_quota(
    invocation: Invocation,
    user: str | None,
    group: str | None,
    workspace: str | None,
    project: str | None,
    experiment: str | None,
    slots: int | None,
    storage: int | None,
    cost: float | None,
) -> None:
    """Limit the slots that a user, a group or a workspace may hold, or the bytes that users keep.

    Only administrators can. Effective immediately. Running tasks are not stopped, and nothing is deleted. Above a
    quota of slots, no new task of the user, the group or the workspace starts until enough are free. A user above that
    of storage cannot submit new experiments; running trials go on storing checkpoints. At a cap of cost, experiments
    are paused with what they saved, and nothing new starts; notebooks go on.

    \b
    Examples:
      det quota set --user ada --slots 8
      det quota set --user ada --storage 500GB
      det quota set --group vision --slots 0
      det quota set --workspace ada/vision --slots 16
      det quota set --user ada --cost 500
      det quota set --experiment 12 --cost 40
    """
    kind, name = _whose(user, group, workspace, project, experiment)
    if slots is None and storage is None and cost is None:
        raise click.UsageError("name at least one: --slots N, --storage SIZE or --cost AMOUNT")
    if kind in COST_ONLY and (slots is not None or storage is not None):
        raise click.UsageError(f"--{kind} goes with --cost alone")
    if kind in ("group", "workspace") and cost is not None:
        raise click.UsageError("--cost goes with --user, --project or --experiment")
    if workspace is not None and storage is not None:
        raise click.UsageError("a workspace has a quota of slots alone; --storage is for users and groups")
    _show(invocation, invocation.client.session.run(quotas.set_quota(kind, name, slots, storage=storage, cost=cost)))


@quota.command()
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub.")
@click.option("-w", "--workspace", metavar="W", help="A workspace.")
@click.option("--project", metavar="ID", help="A project.")
@click.option("--experiment", metavar="ID", help="An experiment.")
@click.option("--slots", "what", flag_value="slots", help="Only that of slots.")
@click.option("--storage", "what", flag_value="storage", help="Only that of storage.")
@click.option("--cost", "what", flag_value="cost", help="Only the cap of cost.")
@json_option
@pass_invocation
def remove(
    invocation: Invocation,
    user: str | None,
    group: str | None,
    workspace: str | None,
    project: str | None,
    experiment: str | None,
    what: Literal["slots", "storage", "cost"] | None,
) -> None:
    """Remove a quota (administrators): that of slots, that of storage, and the cap of cost.

    \b
    Examples:
      det quota remove --user ada
      det quota remove --user ada --storage
      det quota remove --workspace ada/vision
    """
    kind, name = _whose(user, group, workspace, project, experiment)
    _show(invocation, invocation.client.session.run(quotas.remove_quota(kind, name, what)))


def _whose(
    user: str | None, group: str | None, workspace: str | None, project: str | None, experiment: str | None
) -> tuple[QuotaKind, str]:
    given: list[tuple[QuotaKind, str | None]] = [("user", user), ("group", group), ("workspace", workspace)]
    given += [("project", project), ("experiment", experiment)]
    named: list[tuple[QuotaKind, str]] = [(kind, name) for kind, name in given if name is not None]
    if len(named) != 1:
        raise click.UsageError("name exactly one: --user U, --group G, --workspace W, --project ID or --experiment ID")
    return named[0]


def _show(invocation: Invocation, found: QuotaList) -> None:
    if invocation.answered([*found.items, *found.storage, *found.workspaces, *found.costs], "No quotas."):
        return
    if found.items or found.storage or found.workspaces:
        _show_amounts(found)
    if found.costs:
        _show_caps(found)


def _show_caps(found: QuotaList) -> None:
    """Print the caps of cost."""
    rows = [
        (
            one.kind,
            one.name,
            f"{one.used:.2f}",
            f"{one.cost:g}",
            "in all" if one.kind == "experiment" else "this month",
            "reached" if one.reached else "",
            one.set_by,
            moment(one.set_at),
        )
        for one in found.costs
    ]
    cap = f"Cap ({clean(found.currency)})" if found.currency else "Cap"
    table(("Of", "Name", "Cost", cap, "Counts", "", "Set by", "Since"), rows, right=("Cost", cap))


def _show_amounts(found: QuotaList) -> None:
    slots = {(item.kind, item.name): item for item in found.items}
    stored = {(item.kind, item.name): item for item in found.storage}
    # Users first, as each list has them.
    rows = [
        _row(key, slots.get(key), stored.get(key))
        for kind in ("user", "group")
        for key in sorted({*slots, *stored})
        if key[0] == kind
    ]
    rows += [("workspace", one.workspace, one.held, one.slots, one.waiting, "", "", "", "") for one in found.workspaces]
    columns = ("Of", "Name", "Held", "Slots", "Waiting", "Stored", "Storage", "Set by", "Since")
    table(columns, rows, right=("Held", "Slots", "Waiting", "Stored", "Storage"))


def _row(key: tuple[str, str], slots: QuotaView | None, stored: StorageQuotaView | None) -> tuple[object, ...]:
    newest = max((one for one in (slots, stored) if one is not None), key=lambda one: one.set_at)
    return (
        *key,
        *(("", "", "") if slots is None else (slots.held, slots.slots, slots.waiting)),
        *(("", "") if stored is None else (size(stored.used), size(stored.storage))),
        newest.set_by,
        moment(newest.set_at),
    )


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
    if invocation.answered(found):
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
