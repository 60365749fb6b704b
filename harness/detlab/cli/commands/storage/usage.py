"""`det storage usage`: who stores how much."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import click

from detlab.cli.commands.storage.check import check
from detlab.cli.commands.storage.collection import empty
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, note, say, size, table
from detlab.client.operations import storage as operations
from detlab.schemas.wire.storage import StorageBy, StorageUsage, StorageUse

COMMANDS = {"storage": "Storage: who stores how many bytes."}

BAR = 12
"""Characters of a bar."""
_HEADS = {"user": "User", "group": "Group", "project": "Project", "experiment": "Experiment"}


@click.group(cls=LazyGroup)
def storage() -> None:
    """Storage: how many bytes checkpoints, the trash, code and task outputs take.

    \b
    Example:
      det storage usage --by experiment
    """


@storage.command()
@click.option("--by", type=click.Choice(list(_HEADS)), default="user", show_default=True, help="What the sums are of.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum to list.")
@csv_option
@json_option
@pass_invocation
def usage(invocation: Invocation, by: StorageBy, limit: int) -> None:
    """Show who stores how much, those with most first.

    Administrators see all, others their own and what they may read.

    The bar is the part of the quota where there is one, else of the largest. What is in the trash does not count
    towards a quota: it goes by itself, and can be restored until then (det checkpoint undelete).

    \b
    Examples:
      det storage usage
      det storage usage --by experiment -n 20
      det storage usage --by project --json
    """
    found = invocation.client.session.run(operations.usage(by, limit))
    if invocation.answered(found):
        return
    for said in found.warnings:
        note(f"Warning: {clean(said)}")
    if not found.items and not invocation.as_csv:
        say("Nothing is stored.")
        return
    _show(found, csv=invocation.as_csv)


storage.add_command(check)


@storage.command(name="empty-trash")
@click.option("--dry-run", is_flag=True, help="Show what is in it, and change nothing.")
@yes_option
@json_option
@pass_invocation
def empty_trash(invocation: Invocation, dry_run: bool, yes: bool) -> None:
    """Remove the deleted checkpoints of all your experiments now, for good.

    Of one experiment: det experiment gc ID --empty-trash

    \b
    Examples:
      det storage empty-trash --dry-run
      det storage empty-trash
    """
    client = invocation.client
    empty(invocation, client.get_trash(), client.empty_trash, dry_run=dry_run, yes=yes)


def _show(found: StorageUsage, *, csv: bool) -> None:
    most = max((item.used + item.trash_bytes for item in found.items), default=0)
    head: tuple[str, ...] = (_HEADS[found.by], "Checkpoints", "Size", "Code, outputs", "Trash", "Freed")
    if found.by == "experiment":
        head = ("ID", *head, "Owner")
    if found.by in ("user", "group"):
        head = (*head, "Quota")
    rows = [_row(found.by, item) for item in found.items]
    if csv:
        table(head, rows)
        return
    bars = [bar(*_part(item, most)) for item in found.items]
    if len(found.items) + found.more > 1:
        rows.append(_row(found.by, found.total))
        bars.append("")
    empty = {place for place in _places(head) if not any(getattr(row[place], "value", row[place]) for row in rows)}
    head, rows = _without(head, empty), [_without(row, empty) for row in rows]
    right = ("ID", "Checkpoints", "Size", "Code, outputs", "Trash", "Freed", "Quota")
    table((*head, ""), [(*row, drawn) for row, drawn in zip(rows, bars, strict=True)], right=right)
    if found.more:
        note(f"{found.more:,} more are not listed: -n {min(1000, len(found.items) + found.more)}")


def _places(head: Sequence[str]) -> list[int]:
    """Return where the columns are that are left out on a terminal when all of them are 0 or empty."""
    return [place for place, name in enumerate(head) if name in ("Code, outputs", "Trash", "Freed", "Quota")]


def _without(row: Sequence[Any], places: Collection[int]) -> tuple[Any, ...]:
    return tuple(cell for place, cell in enumerate(row) if place not in places)


def _row(by: StorageBy, item: StorageUse) -> tuple[Any, ...]:
    row: tuple[Any, ...] = (
        item.name,
        item.checkpoints,
        size(item.checkpoint_bytes),
        size(item.other_bytes),
        size(item.trash_bytes),
        size(item.freed_bytes),
    )
    if by == "experiment":
        row = (item.experiment_id, *row, item.owner)
    if by in ("user", "group"):
        row = (*row, "" if item.limit is None else size(item.limit))
    return row


def _part(item: StorageUse, most: int) -> tuple[float, str]:
    """Return how full a bar is, and what is said beside it."""
    if item.limit is None:
        return ((item.used + item.trash_bytes) / most if most else 0.0), ""
    part = item.used / item.limit if item.limit else 1.0
    return part, f" {part:.0%}"


def bar(part: float, said: str = "") -> str:
    """Return a bar of a part, from 0 to 1."""
    full = min(BAR, max(0, round(part * BAR)))
    return f"{'█' * full}{'░' * (BAR - full)}{said}"
