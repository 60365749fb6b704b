"""Downloading checkpoints: shared by `det checkpoint`, `det trial` and `det experiment`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from detlab.cli.invocation import Invocation
from detlab.cli.output.printing import clean, say, say_json
from detlab.cli.output.progress import bar
from detlab.client.resources import Checkpoint
from detlab.client.transport.downloads import AnyMode


def fetch(
    invocation: Invocation,
    found: Checkpoint,
    output_dir: Path | None,
    mode: AnyMode,
    *,
    quiet: bool = False,
    globs: Sequence[str] = (),
) -> None:
    """Download a checkpoint with a progress bar and print where it is; `quiet` prints the folder alone."""
    path = fetch_files(found, output_dir, mode, quiet=quiet or invocation.as_json, globs=globs)
    if invocation.as_json:
        say_json({"uuid": found.uuid, "path": str(path)})
    elif quiet:
        say(clean(path))
    else:
        say(where_it_is(found, path))


def fetch_files(
    found: Checkpoint,
    output_dir: Path | None,
    mode: AnyMode = "auto",
    *,
    quiet: bool = False,
    globs: Sequence[str] = (),
) -> Path:
    """Download a checkpoint with a progress bar and return its folder."""
    with bar(f"Checkpoint {found.uuid[:8]}", quiet=quiet) as progress:
        return found.download(output_dir, mode, progress=progress, globs=globs)


def where_it_is(found: Checkpoint, path: Path) -> str:
    """Return the line that says what has been downloaded, and where to."""
    return f"Checkpoint {found.uuid} of trial {found.trial_id}, step {found.steps_completed}: {clean(path)}"


def metric_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--sort-by` and `--smaller-is-better`: what is best by another metric than the searcher's."""
    by = click.option("--sort-by", metavar="METRIC", help="The best by this validation metric, not the searcher's.")
    way = click.option("--smaller-is-better", type=bool, metavar="BOOL", help="With --sort-by: true or false.")
    return by(way(function))


def check_metric(sort_by: str | None, smaller_is_better: bool | None) -> None:
    """Refuse one of the two options without the other.

    Raises:
        click.UsageError: One was given alone.
    """
    if (sort_by is None) != (smaller_is_better is None):
        raise click.UsageError("--sort-by and --smaller-is-better go together")
