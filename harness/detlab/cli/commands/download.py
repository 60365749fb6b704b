"""Downloading checkpoints: shared by `det checkpoint`, `det trial` and `det experiment`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
