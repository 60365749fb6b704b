"""`det trial media …`: what a trial has logged beyond numbers. Those of a run are `det run media …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, say_json, table
from detlab.cli.output.unknown_names import no_such_name
from detlab.client.operations.runs.media import media_keys
from detlab.client.tabular import csv_text
from detlab.media.kinds import FORMATS
from detlab.schemas.wire.media import MediaView
from detlab.schemas.wire.storage import size_text

COLUMNS = ("id", "step", "key", "place", "kind", "media_type", "size", "width", "height", "caption")


@click.group(cls=LazyGroup, short={"ls": "list"})
def media() -> None:
    """Images, tables and other things that a trial has logged beside its metrics.

    \b
    Examples:
      det trial media list 31
      det trial media download 31 --key samples -o samples/
    """


def wanted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose objects."""
    for option in (
        click.option("--step", type=click.IntRange(0), metavar="N", help="Only those of this step."),
        click.option("--kind", type=click.Choice(sorted(FORMATS)), help="Only those of this kind."),
        click.option("--key", metavar="KEY", help="Only those of this key."),
    ):
        function = option(function)
    return function


@media.command(name="list")
@click.argument("trial_id", metavar="TRIAL", type=int)
@wanted
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@csv_option
@json_option
@pass_invocation
def list_media(
    invocation: Invocation, trial_id: int, key: str | None, kind: str | None, step: int | None, limit: int | None
) -> None:
    """List what a trial has logged, in the order of its steps.

    \b
    Examples:
      det trial media list 31 --kind image
      det trial media list 31 --key samples --json
    """
    found = _found(invocation, trial_id, key, kind=kind, step=step, limit=limit)
    none = f"Trial {trial_id} has logged nothing of that kind: core_context.train.report_media(step, {{…}}) does."
    print_media(invocation, found, none)


def print_media(invocation: Invocation, found: Sequence[MediaView], none: str) -> None:
    """Print a list of objects, or that there are none."""
    if invocation.as_csv:
        say(csv_text([one.model_dump(include=set(COLUMNS)) for one in found], COLUMNS).removesuffix("\n"))
        return
    if invocation.answered(found):
        return
    if not found:
        say(none)
        return
    columns = ("ID", "Step", "Key", "Kind", "Size", "Pixels", "Logged", "Caption")
    table(columns, [_row(one) for one in found], right=("ID", "Step", "Size"))


def _found(invocation: Invocation, trial_id: int, key: str | None, **wanted: Any) -> list[MediaView]:
    """Return the objects that are asked for.

    Raises:
        NotFound: A key was named that the trial has not logged.
    """
    found = invocation.client.get_trial(trial_id).list_media(key=key, **wanted)
    if key is not None and not found:
        known = {one.key for one in invocation.client.session.run(media_keys(trial_id))}
        if key not in known:
            hint = f"det trial media list {trial_id}"
            raise no_such_name(f"trial {trial_id} has logged no media of key {key!r}", key, known, hint=hint)
    return found


def _row(one: MediaView) -> tuple[object, ...]:
    pixels = f"{one.width} x {one.height}" if one.width else ""
    key = f"{one.key} [{one.place}]" if one.place else one.key
    return (one.id, one.step, key, one.kind, size_text(one.size), pixels, moment(one.time), one.caption)


def output_dir_option(default: str) -> Callable[..., Any]:
    """Return the option that says where files go."""
    return click.option(
        "-o",
        "--output-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Folder, made if it is missing. Default: {default}.",
    )


@media.command()
@click.argument("trial_id", metavar="TRIAL", type=int)
@wanted
@output_dir_option("media/TRIAL")
@json_option
@pass_invocation
def download(
    invocation: Invocation, trial_id: int, key: str | None, kind: str | None, step: int | None, output_dir: Path | None
) -> None:
    """Download what a trial has logged, a file each; those that are there already are left.

    \b
    Examples:
      det trial media download 31
      det trial media download 31 --kind image --step 1000 -o images/
    """
    item = invocation.client.get_trial(trial_id)
    found = _found(invocation, trial_id, key, kind=kind, step=step)
    folder = output_dir or Path("media") / str(trial_id)
    print_downloaded(invocation, folder, item.download_media(folder, found))


def print_downloaded(invocation: Invocation, folder: Path, paths: Sequence[Path]) -> None:
    """Print which files were downloaded."""
    if invocation.as_json:
        say_json([str(path) for path in paths])
    else:
        say(f"{len(paths)} {'file' if len(paths) == 1 else 'files'} in {clean(folder)}")
