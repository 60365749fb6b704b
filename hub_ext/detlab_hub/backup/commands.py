"""`det backup` and `det restore` on the command line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from detlab.pasted import word

_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".detlab"),
    show_default=True,
    help="The state folder itself.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_EVERY = 0.5
_WIDTH = 40


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[int], None]]]:
    """Report progress on standard error; on a terminal with the bytes read so far."""
    total, shown, terminal = 0, 0.0, sys.stderr.isatty()

    def say(text: str) -> None:
        click.echo(f"\r{text:<{_WIDTH}}" if terminal else text, err=True)

    def count(size: int) -> None:
        nonlocal total, shown
        total += size
        if terminal and time.monotonic() - shown > _EVERY:
            shown = time.monotonic()
            click.echo(f"\r  {total / 1e6:,.0f} MB", nl=False, err=True)

    yield say, count
    if terminal:
        click.echo(f"\r{'':<{_WIDTH}}\r", nl=False, err=True)


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state folder itself.  [default: of the cluster that other commands run here talk to]",
)
@click.option("--without-secrets", is_flag=True, help="Leave out tokens, passwords and keys of certificates.")
@click.option("--without-bundles", is_flag=True, help="Leave out the code of experiments and the outputs of tasks.")
@click.option("--with-checkpoints", is_flag=True, help="Copy the checkpoints in the state folder, too.")
@click.option("--config", type=_file, help="traitlets file to read after DIR/detlab_config.py, as det up has it.")
@_json_option
def backup(
    *,
    file: Path | None,
    folder: Path | None,
    without_secrets: bool,
    without_bundles: bool,
    with_checkpoints: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Copy the state of the cluster, running or not, into one archive.

    FILE is made with mode 0600 and verified; by default it is named after the cluster and the time. Unless told
    otherwise it holds secrets: who can read it is the operator.

    \b
    Examples:
      det backup
      det backup --with-checkpoints /backups/detlab.tar
    """
    from detlab_hub.backup.writing import BackupOptions, report_of
    from detlab_hub.backup.writing import backup as make
    from detlab_hub.embedded import inspection
    from detlab_hub.embedded.state import StateFolder

    folder, guessed = inspection.meant(folder, click.get_current_context().obj)
    if guessed is not None:
        click.echo(inspection.guess_line(folder, guessed), err=True)
    options = BackupOptions(
        file=file,
        secrets=not without_secrets,
        code=not without_bundles,
        checkpoints=with_checkpoints,
        config=config.absolute() if config else None,
    )
    with _progress() as (say, count):
        made = make(StateFolder(folder), options, say, count)
    if as_json:
        click.echo(json.dumps(report_of(made), indent=1))
        return
    files = len(made.manifest.members)
    click.echo(f"{made.file}: {made.size / 1e6:,.1f} MB, {files} files, verified.")
    if not without_secrets:
        click.echo("It holds the cluster's secrets: keep it where only its operator can read it.")
    click.echo(f"To restore it: det restore --dir FOLDER {word(made.file)}")


@click.command()
@click.argument("file", type=_file)
@_dir_option
@click.option("--replace", is_flag=True, help="Put aside the state (and copy the database) that is there.")
@click.option(
    "--config", type=_file, help="A detlab_config.py in place of the archive's, such as for another database."
)
@_json_option
def restore(*, file: Path, folder: Path, replace: bool, config: Path | None, as_json: bool) -> None:
    """Make a state folder what an archive of `det backup` holds; then `det up` continues from there.

    All of FILE is verified before anything is changed. Nothing that is there is deleted.

    \b
    Examples:
      det restore detlab-backup.tar --dir .detlab
      det restore detlab-backup.tar --replace
    """
    from detlab_hub.backup.contents import GIVEN_CONFIG
    from detlab_hub.backup.restoring import restore as make
    from detlab_hub.embedded.state import StateFolder

    state = StateFolder(folder)
    with _progress() as (say, count):
        done = make(file, state, replace=replace, config=config.absolute() if config else None, say=say, progress=count)
    manifest = done.manifest
    given = state.root / GIVEN_CONFIG
    up = f"det up --dir {word(state)}"
    if given.exists() and config is None:
        up += f" --config {word(given)}"
    if as_json:
        told = {
            "folder": str(state),
            "aside": done.aside and str(done.aside),
            "database_copy": done.database_copy and str(done.database_copy),
            "next": up,
            "is_copy": done.is_copy,
            **manifest.model_dump(mode="json", exclude={"members", "format", "folder"}),
        }
        click.echo(json.dumps(told, indent=1))
        return
    taken = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.created_at))
    click.echo(f"{state} is the cluster {manifest.cluster_id} as it was at {taken}.")
    if done.aside is not None:
        click.echo(f"What was there before is in {done.aside}.")
    if "checkpoints" not in manifest.parts:
        click.echo(f"Checkpoints are not in the archive: trials look for them where they were ({manifest.folder}).")
    if "secrets" not in manifest.parts and not (state.root / "secrets").exists():
        click.echo("Secrets are not in the archive: det up makes new ones, and passwords are other ones.")
    if done.is_copy:
        click.echo("It is a copy: it starts nothing and leaves the checkpoints alone, which are the original's.")
        click.echo(f"To look into it: {up}")
        click.echo(f"Once the original is stopped for good: {up} --take-over")
        return
    click.echo(f"Next: {up}")
