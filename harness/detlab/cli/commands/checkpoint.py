"""`det checkpoint …`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from detlab.cli.commands.download import fetch
from detlab.cli.commands.experiment import print_checkpoints
from detlab.cli.commands.storage.collection import bookmark, each_of, state_of, unbookmark, undelete
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.printing import clean, counted, facts, moment, say, say_json, size, table
from detlab.cli.output.progress import bar
from detlab.client.resources import Checkpoint, Experiment, Trial
from detlab.client.transport.downloads import AnyMode
from detlab.client.transport.verifying import BadFile

COMMANDS = {"checkpoint": "Checkpoints: list, download, delete, keep, …"}


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
@click.argument("experiment_id", metavar="[EXPERIMENT]", type=int, required=False, shell_complete=experiment_ids)
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
    if not invocation.answered([item.view for item in found]):
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
    if invocation.answered(view):
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


_uuids = click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
_mode = click.option(
    "--mode",
    type=click.Choice(["auto", "direct", "master", "task"]),
    default="auto",
    show_default=True,
    help="direct: from the storage, mounted here or with this machine's credentials; master: through the master; "
    "task: by a task of yours, from a store that the master does not open; auto: direct if possible, else master.",
)


@checkpoint.command()
@click.argument("uuid")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: checkpoints/UUID."
)
@_mode
@click.option("--glob", "globs", multiple=True, metavar="PATTERN", help="Only files that match; repeat it.")
@json_option
@pass_invocation
def download(invocation: Invocation, uuid: str, output_dir: Path | None, mode: AnyMode, globs: tuple[str, ...]) -> None:
    """Download a checkpoint; every file is verified, and no partial folder is left behind.

    After an interruption the same command goes on with what was verified.

    \b
    Examples:
      det checkpoint download 3f2b0c1e-… -o best/
      det c download 3f2b0c1e-… --glob '*.safetensors'
    """
    fetch(invocation, invocation.client.get_checkpoint(uuid), output_dir, mode, globs=globs)


@checkpoint.command()
@_uuids
@_mode
@json_option
@pass_invocation
def verify(invocation: Invocation, uuids: tuple[str, ...], mode: AnyMode) -> None:
    """Read every byte of checkpoints, and say which files have changed.

    The exit status is 1 if a file is missing or is not what was committed.

    \b
    Examples:
      det checkpoint verify 3f2b0c1e-…
      det c verify 3f2b0c1e-… 9a1d77f0-… --mode direct --json
    """
    found = [(uuid, _verified(invocation, uuid, mode)) for uuid in each_of(uuids)]
    if invocation.as_json:
        say_json([{"uuid": uuid, "bad": [asdict(file) for file in bad]} for uuid, bad in found])
    if any(bad for _, bad in found):
        sys.exit(1)


def _verified(invocation: Invocation, uuid: str, mode: AnyMode) -> list[BadFile]:
    item = invocation.client.get_checkpoint(uuid)
    with bar(f"Checkpoint {item.uuid[:8]}", quiet=invocation.as_json) as progress:
        bad = item.verify(mode, progress=progress)
    if not invocation.as_json:
        what = f"Checkpoint {item.uuid}"
        good = f"{what}: {counted(len(item.files), 'file')}, {size(item.view.size)}, all as committed"
        say(good if not bad else f"{what}: {len(bad)} of {counted(len(item.files), 'file')} not as committed")
        if bad:
            table(("File", "Problem", "Found"), [(file.path, file.problem, file.detail) for file in bad])
    return bad


@checkpoint.command()
@_uuids
@click.option(
    "--to", required=True, metavar="WHERE", help="A folder, s3://bucket/prefix, gs://…, az://container, or a block."
)
@_mode
@json_option
@pass_invocation
def copy(invocation: Invocation, uuids: tuple[str, ...], to: str, mode: AnyMode) -> None:
    """Copy checkpoints, verified, into another storage under the same uuid. The master does not learn of the copy.

    Credentials are those of the block, or this machine's. Copied again, what is there already and right stays.

    \b
    Examples:
      det checkpoint copy 3f2b0c1e-… --to s3://archive/vision
      det c copy 3f2b0c1e-… --to /mnt/backup
      det c copy 3f2b0c1e-… --to '{type: s3, bucket: archive, endpoint_url: "https://minio.example"}'
    """
    done = []
    for uuid in each_of(uuids):
        item = invocation.client.get_checkpoint(uuid)
        with bar(f"Checkpoint {item.uuid[:8]}", quiet=invocation.as_json) as progress:
            digest = item.copy(to, mode, progress=progress)
        done.append({"uuid": item.uuid, "manifest_digest": digest})
        if not invocation.as_json:
            say(f"Copied checkpoint {item.uuid} ({size(item.view.size)})")
    if invocation.as_json:
        say_json(done)


@checkpoint.group(cls=LazyGroup)
def metadata() -> None:
    """Metadata of checkpoints: set and remove keys.

    \b
    Examples:
      det checkpoint metadata set 3f2b0c1e-… quality=good checked=true
      det checkpoint metadata remove 3f2b0c1e-… quality
    """


@metadata.command(name="set")
@click.argument("uuid")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@json_option
@pass_invocation
def set_metadata(invocation: Invocation, uuid: str, pairs: tuple[str, ...]) -> None:
    """Set keys of a checkpoint's metadata; other keys stay. A VALUE that is JSON is taken as such, else as text.

    \b
    Example:
      det checkpoint metadata set 3f2b0c1e-… quality=good folds='[1, 2]'
    """
    wanted = dict(_pair(pair) for pair in pairs)
    item = invocation.client.get_checkpoint(uuid)
    item.add_metadata(wanted)
    _show_metadata(invocation, item)


@metadata.command(name="remove")
@click.argument("uuid")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@json_option
@pass_invocation
def remove_metadata(invocation: Invocation, uuid: str, keys: tuple[str, ...]) -> None:
    """Remove keys of a checkpoint's metadata; those that it does not have are no mistake.

    \b
    Example:
      det checkpoint metadata remove 3f2b0c1e-… quality
    """
    item = invocation.client.get_checkpoint(uuid)
    item.remove_metadata(keys)
    _show_metadata(invocation, item)


def _pair(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"not KEY=VALUE: {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _show_metadata(invocation: Invocation, item: Checkpoint) -> None:
    if invocation.answered(item.view):
        return
    for name, value in sorted(item.metadata.items()):
        say(f"{clean(name)} = {clean(value)}")


@checkpoint.command()
@_uuids
@click.option("--now", is_flag=True, help="Without time in the trash, also of those that are in it: files go at once.")
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, uuids: tuple[str, ...], now: bool, yes: bool) -> int:
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
    confirmed(f"Delete {counted(len(named), 'checkpoint')}? {warning}", yes=yes)
    done, each = [], OneByOne("Checkpoint", named)
    for uuid in named:
        with each.of(uuid):
            item = invocation.client.get_checkpoint(uuid)
            item.delete(now=now)
            done.append(item.view)
            if not invocation.as_json:
                until = None if now else item.view.trash_until
                restorable = "" if until is None else f"; can be restored until {moment(until)}"
                say(f"Deleted checkpoint {item.uuid}{restorable}")
    if invocation.as_json:
        say_json(done)
    return each.status


@checkpoint.command(name="rm")
@_uuids
@click.option("--glob", "globs", multiple=True, required=True, metavar="PATTERN", help="Files to delete; repeat it.")
@yes_option
@json_option
@pass_invocation
def remove(invocation: Invocation, uuids: tuple[str, ...], globs: tuple[str, ...], yes: bool) -> int:
    """Delete the files of checkpoints that match a pattern, at once: they have no trash. This cannot be undone.

    `*` and `?` match within a folder, `**` matches folders, too. No trial can start from the checkpoint then.

    \b
    Examples:
      det checkpoint rm 3f2b0c1e-… --glob 'optimizer/**'
      det c rm 3f2b0c1e-… --glob '*.log' --glob '**/*.tmp' --yes
    """
    named = each_of(uuids)
    question = f"Delete the matching files of {counted(len(named), 'checkpoint')}?"
    confirmed(f"{question} They go at once, without a trash: this cannot be undone.", yes=yes)
    done, each = [], OneByOne("Checkpoint", named)
    for uuid in named:
        with each.of(uuid):
            item = invocation.client.get_checkpoint(uuid)
            before = len(item.files)
            item.remove_files(globs)
            done.append(item.view)
            if not invocation.as_json:
                gone = before if item.deleted else before - len(item.files)
                say(f"Checkpoint {item.uuid}: {counted(gone, 'file')} deleted, {counted(before - gone, 'file')} left")
    if invocation.as_json:
        say_json(done)
    return each.status
