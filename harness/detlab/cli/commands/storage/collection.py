"""`det experiment gc`, `det experiment set gc-policy`, and what keeps or restores a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from detlab.cli.commands.log_retention import set_group
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, confirmed, json_option, pass_invocation, yes_option
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.printing import clean, counted, moment, say, say_json, size, table
from detlab.schemas.wire import CheckpointView
from detlab.schemas.wire.storage import GcItem, GcPreview, TrashView

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would go and what stays, and change nothing.")
_purge = click.option(
    "--purge",
    is_flag=True,
    help="Files go at once, and for good, without time in the trash. What is in it stays there.",
)
_uuids = click.argument("uuids", metavar="UUID...", nargs=-1, required=True)


@click.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--now", is_flag=True, help="Also if it has not ended: what its search or a trial may need stays.")
@_purge
@click.option("--empty-trash", is_flag=True, help="Only remove for good what is in its trash already, at once.")
@click.option("--retry", is_flag=True, help="Only try again, now, to remove what could not be removed.")
@_dry_run
@yes_option
@json_option
@pass_invocation
def gc(
    invocation: Invocation,
    experiment_id: int,
    now: bool,
    purge: bool,
    empty_trash: bool,
    retry: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put the checkpoints that an experiment's policy does not keep into the trash.

    This happens by itself when an experiment has ended. What is pinned stays, whatever the policy says.

    \b
    Examples:
      det experiment gc 7 --dry-run
      det experiment gc 7 --now
      det experiment gc 7 --empty-trash
      det experiment gc 7 --retry
    """
    item = invocation.client.get_experiment(experiment_id)
    if retry:
        if now or purge or empty_trash or dry_run:
            raise click.UsageError("--retry stands alone: it removes nothing that was not to be removed already")
        count = item.retry_removals()
        if not invocation.answered({"checkpoints": count}):
            say(
                f"{counted(count, 'checkpoint')} to remove: a task begins now"
                if count
                else "Nothing is left to remove."
            )
        return
    if empty_trash:
        if now or purge:
            raise click.UsageError("--empty-trash collects nothing: leave out --now and --purge")
        empty(invocation, item.get_trash(), item.empty_trash, dry_run=dry_run, yes=yes)
        return
    preview = item.preview_gc()
    if not dry_run:
        _ask(invocation, preview, purge=purge, yes=yes)
        preview = item.collect_checkpoints(now=now, purge=purge)
    _tell(invocation, preview)


@set_group.command(name="gc-policy")
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--save-experiment-best", type=int, required=True, metavar="N", help="Best of the experiment to keep.")
@click.option("--save-trial-best", type=int, required=True, metavar="N", help="Best of each trial to keep.")
@click.option("--save-trial-latest", type=int, required=True, metavar="N", help="Latest of each trial to keep.")
@_dry_run
@yes_option
@json_option
@pass_invocation
def set_gc_policy(
    invocation: Invocation,
    experiment_id: int,
    save_experiment_best: int,
    save_trial_best: int,
    save_trial_latest: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Change which checkpoints an experiment keeps, after showing what goes and what stays.

    If it has ended, what goes is in the trash at once; otherwise when it ends.

    \b
    Examples:
      det e set gc-policy 7 --save-experiment-best 3 --save-trial-best 0 --save-trial-latest 0 --dry-run
      det e set gc-policy 7 --save-experiment-best 3 --save-trial-best 0 --save-trial-latest 0 --yes
    """
    numbers = (save_experiment_best, save_trial_best, save_trial_latest)
    item = invocation.client.get_experiment(experiment_id)
    preview = item.preview_gc(*numbers)
    if not dry_run:
        _ask(invocation, preview, purge=False, yes=yes)
        preview = item.set_gc_policy(*numbers)
    _tell(invocation, preview)


def empty(
    invocation: Invocation, found: TrashView, remove: Callable[..., TrashView], *, dry_run: bool, yes: bool
) -> None:
    """Show what is in the trash, ask, and remove it.

    Args:
        invocation: The command's.
        found: What is in it.
        remove: Removes what was in it until a time.
        dry_run: Whether to show it only.
        yes: Whether not to ask.
    """
    if not dry_run and found.checkpoints:
        what = counted(found.checkpoints, "checkpoint")
        show = None if invocation.as_json else partial(_print_trash, found)
        confirmed(f"Remove {what} ({size(found.bytes)}) for good?", yes=yes, deed="this", show=show)
        found = remove(until=found.at)
    if invocation.answered(found):
        return
    _print_trash(found)


def _print_trash(found: TrashView) -> None:
    if not found.checkpoints:
        say("The trash is empty")
        return
    rows = [(one.experiment_id, one.name, one.checkpoints, size(one.bytes)) for one in found.items]
    table(("ID", "Experiment", "Checkpoints", "Size"), rows, right=("ID", "Checkpoints", "Size"))
    verb = "are being removed" if found.emptied else "in the trash"
    say(f"{counted(found.checkpoints, 'checkpoint')} ({size(found.bytes)}) {verb}")


def _ask(invocation: Invocation, preview: GcPreview, *, purge: bool, yes: bool) -> None:
    undone = "This cannot be undone." if purge or preview.trash_until is None else "They can be restored for some days."
    show = None if invocation.as_json else partial(_print, preview)
    confirmed(f"Delete {counted(preview.going, 'checkpoint')}? {undone}", yes=yes, deed="this", show=show)


def _tell(invocation: Invocation, found: GcPreview) -> None:
    if invocation.answered(found):
        return
    _print(found)


def _print(found: GcPreview) -> None:
    columns = ("Checkpoint", "Trial", "Steps", "Metric", "Size", "", "Why")
    rows = [
        (one.uuid, one.trial_id, one.steps_completed, one.metric, size(one.size), _fate(one), _why(one))
        for one in found.items
    ]
    if rows:
        table(columns, rows, right=("Trial", "Steps", "Metric", "Size"))
    if found.left_out:
        say(f"… and {counted(found.left_out, 'checkpoint')} more")
    if not found.going:
        say(f"Experiment {found.experiment_id}: nothing to delete; {found.staying} ({size(found.kept)}) stay")
        return
    verb, until = ("are" if found.applied else "would be"), found.trash_until
    where = "deleted" if until is None else f"in the trash, until {moment(until)}"
    going = f"{counted(found.going, 'checkpoint')} ({size(found.freed)}) {verb} {where}"
    say(f"Experiment {found.experiment_id}: {going}; {found.staying} ({size(found.kept)}) stay")


def _fate(one: GcItem) -> str:
    return "stays" if one.keep else "goes"


def _why(one: GcItem) -> str:
    pinned = [clean(pin.reason) for pin in one.pins]
    return "; ".join(pinned if one.keep and one.pins else one.why)


# --- checkpoints


def each_of(uuids: tuple[str, ...]) -> list[str]:
    """Return the ids that were named, also those of Determined's lists with commas."""
    return [uuid for word in uuids for uuid in word.split(",") if uuid]


def state_of(view: CheckpointView) -> str:
    """Return the state of a checkpoint for people, with until when it can be restored."""
    if view.removing:
        why = f" (the last attempt: {clean(view.removal_failure)[:200]})" if view.removal_failure else ""
        return f"{view.state}, being removed{why}"
    return view.state if view.trash_until is None else f"{view.state}, in the trash until {moment(view.trash_until)}"


@click.command()
@_uuids
@json_option
@pass_invocation
def undelete(invocation: Invocation, uuids: tuple[str, ...]) -> int:
    """Take checkpoints out of the trash: all that was deleted less than some days ago.

    \b
    Example:
      det checkpoint undelete 3f2b0c1e-…
    """
    done, named = [], each_of(uuids)
    each = OneByOne("Checkpoint", named)
    for uuid in named:
        with each.of(uuid):
            item = invocation.client.get_checkpoint(uuid)
            deleted = item.view.state == "DELETED"
            item.undelete()
            done.append(item.view)
            if not invocation.as_json:
                say(f"Restored checkpoint {item.uuid}" if deleted else f"Checkpoint {item.uuid} is not deleted")
    if invocation.as_json:
        say_json(done)
    return each.status


@click.command()
@_uuids
@click.option("--note", default="", metavar="TEXT", help="Why it is to stay.")
@json_option
@pass_invocation
def bookmark(invocation: Invocation, uuids: tuple[str, ...], note: str) -> int:
    """Keep checkpoints, whatever the policies of their experiments say.

    \b
    Example:
      det checkpoint bookmark 3f2b0c1e-… --note 'figure 3 of the paper'
    """
    return _marking(invocation, uuids, note)


@click.command()
@_uuids
@json_option
@pass_invocation
def unbookmark(invocation: Invocation, uuids: tuple[str, ...]) -> int:
    """Remove your bookmarks of checkpoints.

    If you have none and the experiment is yours, those of others are removed.

    \b
    Example:
      det checkpoint unbookmark 3f2b0c1e-…
    """
    return _marking(invocation, uuids, None)


def _marking(invocation: Invocation, uuids: tuple[str, ...], note: str | None) -> int:
    found, named = {}, each_of(uuids)
    each = OneByOne("Checkpoint", named)
    for uuid in named:
        with each.of(uuid):
            item = invocation.client.get_checkpoint(uuid)
            done = "bookmarked"
            if note is None:
                mine = any(pin.kind == "bookmark" for pin in item.get_pins())
                done = "bookmark removed" if mine else "had no bookmark"
                item.unbookmark()
            else:
                item.bookmark(note)
            found[uuid] = item.get_pins()
            if not invocation.as_json:
                say(f"Checkpoint {item.uuid}: {done}")
                for pin in found[uuid]:
                    say(f"  kept: {clean(pin.reason)}")
    if invocation.as_json:
        say_json({uuid: [pin.model_dump(mode="json") for pin in pins] for uuid, pins in found.items()})
    return each.status
