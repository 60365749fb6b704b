"""`det notebook run`: now, by the clock, or after something has completed."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.commands.tasks.command import Follower
from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.schedule import announce_schedule
from detlab.cli.commands.tasks.start import INTERRUPTED, tell_given
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.failures import problem_line
from detlab.cli.output.printing import clean, note, say, say_json, size
from detlab.cli.output.progress import bar
from detlab.client.notebook_runs import ENTRYPOINT, EXECUTED, Word
from detlab.client.tasks import Task
from detlab.errors import DetlabError
from detlab.schemas.taskwire import TaskKind


@click.command()
@click.argument("notebook", metavar="NOTEBOOK.ipynb", type=click.Path(path_type=Path))
@click.option(
    "-p",
    "--parameter",
    "parameters",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a variable of the cell tagged `parameters` (repeatable).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT.ipynb",
    help="Download the executed notebook to this path at the end.",
)
@click.option(
    "--context",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also upload the content of DIR; default: the modules beside the notebook that it imports.",
)
@click.option("-d", "--detach", is_flag=True, help="Submit it without waiting.")
@click.option(
    "--cron",
    metavar="'M H DOM MON DOW'",
    help="Run it at these times instead of now: five fields of cron, or @daily and the like.",
)
@click.option(
    "--timezone",
    "time_zone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="The time zone of --cron, such as Europe/Berlin.",
)
@click.option(
    "--after", metavar="ID", help="Run it once when this experiment (a number) or task has completed, instead of now."
)
@task_options()
@json_option
@pass_invocation
def run(
    invocation: Invocation,
    notebook: Path,
    parameters: tuple[tuple[str, str], ...],
    output: Path | None,
    context: Path | None,
    detach: bool,
    cron: str | None,
    time_zone: str,
    after: str | None,
    options: TaskOptions,
) -> int:
    """Run a whole notebook on the cluster with papermill; the executed notebook is stored after each cell.

    The run continues if you log out. Names and types of parameters are checked before the submission. A cell that
    raises ends the run; its number and line are reported. `det task outputs ID` downloads the executed notebook at any
    time, also of an active or killed run.

    \b
    Examples:
      det notebook run report.ipynb
      det notebook run train.ipynb -p lr 0.1 -p epochs 20 --slots 1 -o trained.ipynb
      det notebook run nightly.ipynb --detach
      det notebook run nightly.ipynb --cron '0 6 * * 1-5' --timezone Europe/Berlin
      det notebook run compare.ipynb --after 12
    """
    if cron is not None or after is not None:
        if cron is not None and after is not None:
            raise click.UsageError(
                "--cron and --after exclude each other: a run starts by the clock or after something"
            )
        if output is not None:
            raise click.UsageError(
                "--output waits for a run that starts now: det task outputs fetches those of later ones"
            )
        return _schedule(
            invocation, notebook, parameters, context, options, cron=cron, time_zone=time_zone, after=after
        )
    if output is not None and detach:
        raise click.UsageError("--output waits for the end: leave out --detach, or fetch it later by det task outputs")
    config = options.config(TaskKind.NOTEBOOK_RUN, entrypoint=ENTRYPOINT)
    with bar("Uploading code", quiet=invocation.as_json) as progress:
        submitted = invocation.client.run_notebook(
            notebook,
            {name: Word(text) for name, text in parameters},
            config=config,
            name=options.name,
            context=context,
            progress=progress,
            template=options.template,
        )
    for warning in submitted.warnings:
        note(problem_line(warning))
    tell_given(submitted.given)
    task = submitted.task
    assert task is not None  # only a dry run has none
    if detach:
        return _announce(invocation, task)
    status = Follower(task, quiet=invocation.as_json).to_the_end()
    if status != INTERRUPTED or task.state.terminal:
        _bring(task, output, quiet=invocation.as_json)
    if invocation.as_json:
        say_json(task.view)
    return status


def _schedule(
    invocation: Invocation,
    notebook: Path,
    parameters: tuple[tuple[str, str], ...],
    context: Path | None,
    options: TaskOptions,
    *,
    cron: str | None,
    time_zone: str,
    after: str | None,
) -> int:
    with bar("Uploading code", quiet=invocation.as_json) as progress:
        made = invocation.client.schedule_notebook(
            notebook,
            {name: Word(text) for name, text in parameters},
            cron=cron or "",
            time_zone=time_zone,
            after=after,
            config=options.config(TaskKind.NOTEBOOK_RUN, entrypoint=ENTRYPOINT),
            name=options.name,
            context=context,
            template=options.template,
            progress=progress,
        )
    for warning in made.warnings:
        note(problem_line(warning))
    tell_given(made.given)
    if not invocation.answered(made.schedule):
        announce_schedule(made.schedule)
    return 0


def _announce(invocation: Invocation, task: Task) -> int:
    if not invocation.answered(task.view):
        say(f"Notebook run {clean(task.id)} was submitted.")
        say(f"  → its state:             det task describe {clean(task.id)}")
        say(f"  → its output:            det task logs {clean(task.id)} -f")
        say(f"  → the executed notebook: det task outputs {clean(task.id)}")
    return 0


def _bring(task: Task, output: Path | None, *, quiet: bool) -> None:
    """Download the executed notebook, or say where it is."""
    found = next((item for item in task.outputs() if item.name == EXECUTED), None)
    if found is None:
        note("Nothing was executed, so there is no executed notebook.")
    elif output is None:
        if not quiet:
            say(f"The executed notebook is kept: det task outputs {clean(task.id)}")
    else:
        data = task.read_output(found)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(data)
        except OSError as error:
            hint = f"It is kept: det task outputs {task.id}"
            raise DetlabError(f"{output} cannot be written: {error.strerror or error}", hint=hint) from error
        if not quiet:
            say(f"Executed notebook: {clean(str(output))} ({size(len(data))})")
