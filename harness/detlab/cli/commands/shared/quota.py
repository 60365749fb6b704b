"""`det quota` and `det limits`: the slots that a user or a group may hold, the bytes they may keep, a user's limits."""

from __future__ import annotations

from typing import Literal

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import moment, say, size, table
from detlab.client.operations import jobs, quotas
from detlab.schemas.expconf.blocks.environment import parse_size
from detlab.schemas.jobwire import MOST_BYTES, MOST_SLOTS, QuotaKind, QuotaList, QuotaView, StorageQuotaView

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
@click.option("--slots", type=click.IntRange(0, MOST_SLOTS), metavar="N", help="Maximum held at a time.")
@click.option(
    "--storage", type=_Size(), metavar="SIZE", help="Maximum of checkpoints, code and outputs kept, such as 500GB."
)
@json_option
@pass_invocation
def set_quota(
    invocation: Invocation,
    user: str | None,
    group: str | None,
    workspace: str | None,
    slots: int | None,
    storage: int | None,
) -> None:
    """Limit the slots that a user, a group or a workspace may hold, or the bytes that users keep.

    Only administrators can. Effective immediately. Running tasks are not stopped, and nothing is deleted. Above a
    quota of slots, no new task of the user, the group or the workspace starts until enough are free. A user above that
    of storage cannot submit new experiments; running trials go on storing checkpoints.

    \b
    Examples:
      det quota set --user ada --slots 8
      det quota set --user ada --storage 500GB
      det quota set --group vision --slots 0
      det quota set --workspace ada/vision --slots 16
    """
    kind, name = _whose(user, group, workspace)
    if slots is None and storage is None:
        raise click.UsageError("name at least one: --slots N or --storage SIZE")
    if workspace is not None and storage is not None:
        raise click.UsageError("a workspace has a quota of slots alone; --storage is for users and groups")
    _show(invocation, invocation.client.session.run(quotas.set_quota(kind, name, slots, storage=storage)))


@quota.command()
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub.")
@click.option("-w", "--workspace", metavar="W", help="A workspace.")
@click.option("--slots", "what", flag_value="slots", help="Only that of slots.")
@click.option("--storage", "what", flag_value="storage", help="Only that of storage.")
@json_option
@pass_invocation
def remove(
    invocation: Invocation,
    user: str | None,
    group: str | None,
    workspace: str | None,
    what: Literal["slots", "storage"] | None,
) -> None:
    """Remove a quota (administrators), that of slots and that of storage.

    \b
    Examples:
      det quota remove --user ada
      det quota remove --user ada --storage
      det quota remove --workspace ada/vision
    """
    kind, name = _whose(user, group, workspace)
    _show(invocation, invocation.client.session.run(quotas.remove_quota(kind, name, what)))


def _whose(user: str | None, group: str | None, workspace: str | None) -> tuple[QuotaKind, str]:
    given: list[tuple[QuotaKind, str | None]] = [("user", user), ("group", group), ("workspace", workspace)]
    named: list[tuple[QuotaKind, str]] = [(kind, name) for kind, name in given if name is not None]
    if len(named) != 1:
        raise click.UsageError("name exactly one: --user U, --group G or --workspace W")
    return named[0]


def _show(invocation: Invocation, found: QuotaList) -> None:
    if invocation.answered([*found.items, *found.storage, *found.workspaces], "No quotas."):
        return
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
