"""`det run …`."""

from __future__ import annotations

import click

from detlab.cli.commands.finding.comparison import compare_runs
from detlab.cli.commands.runs.media import media
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import LazyGroup
from detlab.cli.output.logs import line_text
from detlab.cli.output.printing import clean, duration, facts, moment, say, table
from detlab.cli.output.unknown_names import no_such_name
from detlab.client.operations.runs import runs
from detlab.schemas.wire.runs import RunView

COMMANDS = {"run": "Runs that no cluster started: list, describe, compare, metrics, media, logs, delete, undelete."}
_STATUSES = ("RUNNING", "FINISHED", "FAILED", "KILLED")
_SHOWN = 3
"""Metrics of a run in a list."""


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "delete"})
def run() -> None:
    """Look at runs that no cluster started: of detlab.init() in a script, det track, or a client of MLflow.

    A run is named by its id, or by what its script calls it and prints (detlab.init(id=…)); four characters or more of
    the beginning are enough for one of your own.

    \b
    Examples:
      det run list --project vision/digits
      det run describe 6f0c…
      det run logs 6f0c… --tail 20
    """


run.add_command(media)
run.add_command(compare_runs)


@run.command(name="list")
@click.option("--project", metavar="P", default="", help="NAME, WORKSPACE/NAME or OWNER/WORKSPACE/NAME.")
@click.option("--group", metavar="G", default="", help="Only those of this group.")
@click.option("--job-type", metavar="T", default="", help="Only those of this type.")
@click.option("--status", type=click.Choice(_STATUSES), default=None, help="Only those with this status.")
@click.option("--deleted", is_flag=True, help="Those that are marked as deleted, instead of all others.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list.")
@csv_option
@json_option
@pass_invocation
def list_command(
    invocation: Invocation, project: str, group: str, job_type: str, status: str | None, limit: int, *, deleted: bool
) -> None:
    """List the runs of a project, the newest first; without --project your own, wherever they are.

    \b
    Examples:
      det run list
      det run list --project vision/digits --group ablation --status FAILED
    """
    call = runs.runs(project, group=group, job_type=job_type, status=status or "", deleted=deleted, limit=limit)
    found = invocation.client.session.run(call)
    none = "No runs. A script begins one: detlab.init(project=…); or: det track -- COMMAND"
    if invocation.answered(found, "No deleted runs." if deleted else none):
        return
    rows = [
        (
            *(one.id, one.name, one.status, _place(one), one.group, one.job_type, one.owner),
            *(one.key if one.key != one.name else "", moment(one.started_at), duration(_seconds(one)), _metrics(one)),
        )
        for one in found
    ]
    columns = ("ID", "Name", "Status", "Project", "Group", "Type", "Owner", "Called", "Started", "Took", "Metrics")
    table(columns, rows, spare=("Type", "Owner", "Group", "Called", "Project", "Took", "Started"))


@run.command()
@click.argument("run_id", metavar="RUN")
@json_option
@pass_invocation
def describe(invocation: Invocation, run_id: str) -> None:
    """Show a run: how it stands, its configuration, the newest values of its metrics, its results and tags.

    \b
    Example:
      det run describe 6f0c…
    """
    one = invocation.client.session.run(runs.run(run_id))
    if invocation.answered(one):
        return
    facts(
        [
            ("id", one.id),
            ("called", one.key),
            ("name", one.name),
            ("status", one.status + (f": {one.end_reason}" if one.end_reason else "")),
            ("deleted", "yes: det run undelete has it back" if one.deleted else ""),
            ("project", f"{one.workspace}/{one.project}" if one.project else ""),
            ("experiment", one.experiment_id),
            ("group", one.group),
            ("type", one.job_type),
            ("owner", one.owner),
            ("started", moment(one.started_at)),
            ("ended", moment(one.ended_at)),
            ("heard from", moment(one.heard_at)),
            ("notes", one.notes),
        ]
    )
    parts = (
        ("Configuration", [(key, text) for key, text in one.config.items()]),
        ("Metrics", [(key, f"{last.value:.6g} at step {last.step}") for key, last in one.metrics.items()]),
        ("Results", [(key, value) for key, value in one.summary.items()]),
        ("Tags", [(key, text or "(set)") for key, text in one.tags.items()]),
    )
    for title, rows in parts:
        if rows:
            say(f"\n{title}")
            facts((f"  {clean(key)}", value) for key, value in rows)


@run.command()
@click.argument("run_id", metavar="RUN")
@click.argument("name", metavar="METRIC")
@csv_option
@json_option
@pass_invocation
def metrics(invocation: Invocation, run_id: str, name: str) -> None:
    """Print all values of a metric, by step and time.

    \b
    Example:
      det run metrics 6f0c… loss --csv
    """
    session = invocation.client.session
    found = session.run(runs.run_points(run_id, name))
    if not found.steps:
        known = session.run(runs.run(run_id)).metrics
        raise no_such_name(f"run {run_id} has no metric {name!r}", name, known, hint=f"det run describe {run_id}")
    if invocation.answered(found):
        return
    rows = [
        (step, value, moment(time)) for step, value, time in zip(found.steps, found.values, found.times, strict=True)
    ]
    table(("Step", "Value", "Time"), rows, right=("Step", "Value"))


@run.command()
@click.argument("run_id", metavar="RUN")
@click.option("--tail", type=click.IntRange(1, 10_000), metavar="N", help="Only the last lines.")
@click.option("--search", metavar="TEXT", help="Only lines with this text.")
@json_option
@pass_invocation
def logs(invocation: Invocation, run_id: str, tail: int | None, search: str | None) -> None:
    """Print what a run has printed.

    \b
    Example:
      det run logs 6f0c… --tail 50
    """
    found = invocation.client.session.run(runs.run_output(run_id, tail=tail, search=search))
    if invocation.answered(found):
        return
    for line in found:
        say(line_text(line, trial=False))


@run.command()
@click.argument("run_id", metavar="RUN")
@click.option("--forever", is_flag=True, help="Remove it for good, with its metrics, output, media and files.")
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, run_id: str, *, forever: bool, yes: bool) -> None:
    """Mark a run as deleted: lists leave it out, and det run undelete has it back.

    With --forever it is removed, as it has to be before its project can be deleted.

    \b
    Examples:
      det run delete 6f0c… --yes
      det run list --deleted
      det run delete 6f0c… --forever
    """
    how = " for good, with its metrics, output, media and files" if forever else ""
    confirmed(f"Delete run {clean(run_id)}{how}?", yes=yes)
    gone = invocation.client.session.run(runs.delete_run(run_id, forever=forever))
    back = "" if forever else f" Have it back: det run undelete {clean(gone.id)}"
    invocation.tell(gone, f"Deleted run {clean(gone.id)}{' for good' if forever else ''}.{back}")


@run.command()
@click.argument("run_id", metavar="RUN")
@json_option
@pass_invocation
def undelete(invocation: Invocation, run_id: str) -> None:
    """Take the mark of a deleted run off again: it is in lists as before.

    \b
    Example:
      det run undelete 6f0c…
    """
    back = invocation.client.session.run(runs.restore_run(run_id))
    invocation.tell(back, f"Restored run {clean(back.id)}.")


def _place(one: RunView) -> str:
    return f"{one.workspace}/{one.project}" if one.project else f"experiment {one.experiment_id}"


def _seconds(one: RunView) -> float | None:
    end = one.ended_at if one.ended_at is not None else one.heard_at
    return None if end is None else max(0.0, end - one.started_at)


def _metrics(one: RunView) -> str:
    values = {key: f"{last.value:.4g}" for key, last in one.metrics.items() if not key.startswith("system/")}
    shown = [f"{key}={text}" for key, text in list(values.items())[:_SHOWN]]
    return " ".join(shown) + (" …" if len(values) > _SHOWN else "")
