"""`det track` and `det sync`: a command as a run, and what is on disk of runs sent to the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.failures import show
from detlab.cli.output.printing import clean, counted, say, say_json
from detlab.errors import DetlabError

COMMANDS = {
    "sync": "Send what runs have on disk to the cluster.",
    "track": "Run a command here, as a run that is kept.",
}


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="[--] COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--project", metavar="P", help="NAME of your own workspace, WORKSPACE/NAME or OWNER/WORKSPACE/NAME.")
@click.option("--name", metavar="NAME", help="Of the run, for people.")
@click.option("--group", metavar="G", help="What it belongs to: an experiment of several runs.")
@click.option("--job-type", metavar="T", help="Its part in the group, such as train.")
@click.option("--tag", "tags", metavar="NAME[=VALUE]", multiple=True, help="A tag; may be given several times.")
@click.option("--notes", metavar="TEXT", help="For people.")
@click.option("--id", "run_id", metavar="ID", help="Of a run that goes on, or that has several processes.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="Where detlab-runs is.")
@click.option("--offline", is_flag=True, help="Only to the disk: det sync sends it later.")
@click.option("--no-code", is_flag=True, help="Keep neither commit, diff and script nor the list of packages.")
@pass_invocation
def track(
    invocation: Invocation,
    words: tuple[str, ...],
    project: str | None,
    name: str | None,
    group: str | None,
    job_type: str | None,
    tags: tuple[str, ...],
    notes: str | None,
    run_id: str | None,
    folder: Path | None,
    *,
    offline: bool,
    no_code: bool,
) -> int:
    """Run a command on this machine and keep its run: output, code, packages, how it ended, and what it logs.

    The command is not changed; its exit code is this command's. What in it calls detlab.init() logs into the same run.
    Without a cluster or a network the run stays on disk.

    \b
    Examples:
      det track -- python train.py --epochs 3
      det track --project vision/digits --group ablation --tag lr=0.1 -- python train.py
      det track --offline -- ./train.sh
    """
    if not words:
        raise click.UsageError("name a command: det track -- python train.py")
    from detlab.track.wrapped import run_command

    if invocation.master is not None:
        os.environ["DET_URL"] = invocation.master  # for the process that sends
    found = dict(one.partition("=")[::2] for one in tags)
    try:
        return run_command(
            words,
            project=project,
            name=name,
            group=group,
            job_type=job_type,
            tags=found or None,
            notes=notes,
            id=run_id,
            dir=folder,
            mode="offline" if offline else None,
            code=not no_code,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise DetlabError(f"{words[0]} cannot be started: {error.strerror or error}") from error


@click.command()
@click.argument("folders", metavar="[FOLDER]...", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--project", metavar="P", help="Instead of the one that the script has named.")
@json_option
@pass_invocation
def sync(invocation: Invocation, folders: tuple[Path, ...], project: str | None) -> int:
    """Send runs that lie in folders: detlab-runs here, unless others are named; each is of a run, or has some in it.

    What the cluster has already is not sent again, so that it may be called at any time, also while a run goes on, and
    from another machine to which the folder was copied.

    \b
    Examples:
      det sync
      det sync detlab-runs/6f0c… --project vision/digits
      det sync /mnt/laptop/project --json
    """
    from detlab.track.folder import RUNS_FOLDER, folders_in
    from detlab.track.master import HttpRunMaster
    from detlab.track.sending import sync_folder

    done: list[dict[str, object]] = []
    status = 0
    client = invocation.client
    for folder in folders_in(list(folders) or [Path(RUNS_FOLDER)]):
        try:
            sent = sync_folder(folder, HttpRunMaster(lambda: client.address), project=project)
        except DetlabError as error:
            if not invocation.as_json:
                say(f"{clean(folder.run.key)}:")
            status = show(error, as_json=False) or 1
            done.append({"folder": str(folder.path), "key": folder.run.key, "error": str(error)})
            continue
        assert sent.run is not None
        refused = [{"seq": one.seq, "code": one.code, "message": one.message} for one in sent.refused]
        facts: dict[str, object] = {
            "folder": str(folder.path),
            "key": folder.run.key,
            "run": sent.run.id,
            "sent": sent.sent,
        }
        done.append({**facts, "refused": refused, "status": sent.run.status})
        if not invocation.as_json:
            more = f", {counted(len(refused), 'record')} refused: {clean(refused[0]['message'])}" if refused else ""
            what = counted(sent.sent, "record") if sent.sent else "nothing new"
            key = folder.run.key if folder.sent_as == folder.run.key else f"{folder.run.key}, sent as {folder.sent_as}"
            say(f"{clean(key)}: {what}{more} (run {sent.run.id})")
    if invocation.as_json:
        say_json(done)
    return status
