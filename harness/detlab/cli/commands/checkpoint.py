"""`det checkpoint …`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detlab.cli.commands.download import fetch
from detlab.cli.commands.experiment import print_checkpoints
from detlab.cli.commands.storage.collection import bookmark, each_of, state_of, unbookmark, undelete
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, counted, facts, moment, say, say_json, size, table
from detlab.client.resources import Experiment, Trial
from detlab.client.transport.downloads import AnyMode


@click.group(cls=LazyGroup, short={"ls": "list"})
def checkpoint() -> None:
    """Checkpoints that trials saved; each file has a digest.

    \b
    Examples:
      det checkpoint list 7
      det c download UUID -o best/
    """


for _command in (undelete, bookmark, unbookmark):
    checkpoint.add_command(_command)


@checkpoint.command(name="list")
@click.argument("experiment_id", metavar="[EXPERIMENT]", type=int, required=False)
@click.option("--trial", "trial_id", type=int, metavar="ID", help="List the checkpoints of this trial instead.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, experiment_id: int | None, trial_id: int | None) -> None:
    """List the checkpoints of an experiment or a trial, best first.

    \b
    Examples:
      det checkpoint list 7
      det c list --trial 31 --json | jq -r '.[0].uuid'
    """
    if (experiment_id is None) == (trial_id is None):
        raise click.UsageError("name an experiment, or a trial by --trial")
    of: Experiment | Trial
    if trial_id is not None:
        of = invocation.client.get_trial(trial_id)
    else:
        assert experiment_id is not None
        of = invocation.client.get_experiment(experiment_id)
    found = of.list_checkpoints()
    if invocation.as_json:
        say_json([item.view for item in found])
    else:
        print_checkpoints(found, of)


@checkpoint.command()
@click.argument("uuid")
@json_option
@pass_invocation
def describe(invocation: Invocation, uuid: str) -> None:
    """Show a checkpoint with its files.

    \b
    Example:
      det checkpoint describe 3f2b0c1e-…
    """
    item = invocation.client.get_checkpoint(uuid)
    view = item.view
    if invocation.as_json:
        say_json(view)
        return
    facts(
        [
            ("checkpoint", view.uuid),
            ("trial", f"{view.trial_id} (experiment {view.experiment_id})"),
            ("steps", str(view.steps_completed)),
            ("validation", view.validation),
            ("state", state_of(view)),
            ("written", moment(view.created_at)),
            ("size", size(view.size)),
            ("storage", view.storage.get("type")),
        ]
    )
    for name, value in sorted(view.metadata.items()):
        say(f"  {clean(name)} = {clean(value)}")
    for pin in item.get_pins():
        say(f"  kept: {clean(pin.reason)}")
    rows = [(path, size(file.size), file.digest) for path, file in sorted(view.files.items())]
    table(("File", "Size", "Digest"), rows, right=("Size",))


@checkpoint.command()
@click.argument("uuid")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: checkpoints/UUID."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "direct", "master"]),
    default="auto",
    show_default=True,
    help="direct: copy from the storage, mounted here; master: through the master; auto: direct if possible.",
)
@json_option
@pass_invocation
def download(invocation: Invocation, uuid: str, output_dir: Path | None, mode: AnyMode) -> None:
    """Download a checkpoint; every file is verified, and no partial folder is left behind.

    \b
    Example:
      det checkpoint download 3f2b0c1e-… -o best/
    """
    fetch(invocation, invocation.client.get_checkpoint(uuid), output_dir, mode)


_uuids = click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def _confirmed(question: str, warning: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("deleting needs a confirmation, and standard input is not a terminal: add --yes")
    click.confirm(f"{question} {warning}", abort=True, err=True)


@checkpoint.command()
@_uuids
@click.option("--now", is_flag=True, help="Without time in the trash, also of those that are in it: files go at once.")
@_yes
@json_option
@pass_invocation
def delete(invocation: Invocation, uuids: tuple[str, ...], now: bool, yes: bool) -> None:
    """Put checkpoints into the trash: their files go some days later, their records stay.

    `det checkpoint undelete` restores them until then. One that is pinned is not deleted, and all that pins it is
    listed: trials that may still resume or start from it, searches, model versions, tasks that read it, bookmarks.

    \b
    Examples:
      det checkpoint delete 3f2b0c1e-… --yes
      det checkpoint delete 3f2b0c1e-… --now
    """
    named = each_of(uuids)
    warning = "This cannot be undone." if now else "`det checkpoint undelete` restores them for some days."
    _confirmed(f"Delete {counted(len(named), 'checkpoint')}?", warning, yes=yes)
    done = []
    for uuid in named:
        item = invocation.client.get_checkpoint(uuid)
        item.delete(now=now)
        done.append(item.view)
        if not invocation.as_json:
            until = item.view.trash_until
            say(f"Deleted checkpoint {item.uuid}{'' if until is None else f'; can be restored until {moment(until)}'}")
    if invocation.as_json:
        say_json(done)


@checkpoint.command(name="rm")
@_uuids
@click.option("--glob", "globs", multiple=True, required=True, metavar="PATTERN", help="Files to delete; repeat it.")
@_yes
@json_option
@pass_invocation
def remove(invocation: Invocation, uuids: tuple[str, ...], globs: tuple[str, ...], yes: bool) -> None:
    """Delete the files of checkpoints that match a pattern, at once: they have no trash. This cannot be undone.

    `*` and `?` match within a folder, `**` matches folders, too. No trial can start from the checkpoint then.

    \b
    Examples:
      det checkpoint rm 3f2b0c1e-… --glob 'optimizer/**'
      det c rm 3f2b0c1e-… --glob '*.log' --glob '**/*.tmp' --yes
    """
    named = each_of(uuids)
    question = f"Delete the matching files of {counted(len(named), 'checkpoint')}?"
    _confirmed(question, "They go at once, without a trash: this cannot be undone.", yes=yes)
    done = []
    for uuid in named:
        item = invocation.client.get_checkpoint(uuid)
        before = len(item.files)
        item.remove_files(globs)
        done.append(item.view)
        if not invocation.as_json:
            gone = before if item.deleted else before - len(item.files)
            say(f"Checkpoint {item.uuid}: {counted(gone, 'file')} deleted, {counted(before - gone, 'file')} left")
    if invocation.as_json:
        say_json(done)
