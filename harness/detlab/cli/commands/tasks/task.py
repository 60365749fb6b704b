"""`det task …`: user tasks of all kinds."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.commands.tasks.lookup import find, task_argument
from detlab.cli.commands.tasks.shared import add_shared
from detlab.cli.commands.tasks.start import INTERRUPTED, left
from detlab.cli.commands.tasks.views import exit_status, state_word, tell_end
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.experiment_progress import connection_notes
from detlab.cli.output.failures import TIMED_OUT
from detlab.cli.output.printing import clean, moment, note, say, say_json, size, table
from detlab.cli.output.progress import bar
from detlab.client.task_facts import chosen_outputs, kind_title, output_target, write_output
from detlab.client.tasks import Task
from detlab.schemas.taskwire import OutputView

COMMANDS = {"task": "Tasks of all kinds: list, describe, logs, wait, kill, outputs."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def task() -> None:
    """Tasks of all kinds: notebooks, shells, commands, TensorBoards, cells, notebook runs.

    \b
    Examples:
      det task list
      det task logs ID -f
      det task outputs ID -o results/
    """


add_shared(task, None)


@task.command()
@task_argument()
@click.option("--timeout", type=float, metavar="SECONDS", help="Seconds until it gives up waiting (exit status 5).")
@json_option
@pass_invocation
def wait(invocation: Invocation, task_id: str, timeout: float | None) -> int:
    """Wait for a task to end.

    The exit status is the task's, or 3 if it was killed, 4 if it failed without one, 5 after the timeout. Ctrl-C stops
    waiting, not the task.

    \b
    Example:
      det task wait ID && det task outputs ID -o results/
    """
    item = find(invocation, task_id)
    try:
        item.wait(timeout, notice=connection_notes(what=f"task {clean(item.id)}"))
    except KeyboardInterrupt:
        left(item)
        return INTERRUPTED
    except TimeoutError as error:
        if invocation.as_json:
            say_json(item.view)
        note(f"{clean(error)}; it continues")
        return TIMED_OUT
    if not invocation.answered(item.view):
        tell_end(item.view, tail=True)
        if exit_status(item.view) == 0:
            say(clean(f"{kind_title(item.kind)} {item.id}: {state_word(item.view)}."))
    return exit_status(item.view)


@task.command()
@task_argument()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Download them into DIR; by default they are only listed.",
)
@csv_option
@json_option
@pass_invocation
def outputs(invocation: Invocation, task_id: str, names: tuple[str, ...], output_dir: Path | None) -> None:
    """List or download the output files of a task.

    For example an executed notebook, or the result of a cell. Every file is verified by its digest.

    \b
    Examples:
      det task outputs ID
      det task outputs ID -o results/
      det task outputs ID report.ipynb -o .
    """
    item = find(invocation, task_id)
    chosen = chosen_outputs(item.id, item.outputs(), names)
    if output_dir is not None:
        _download(invocation, item, chosen, output_dir)
    elif invocation.as_json:
        say_json(chosen)
    elif not chosen and not invocation.as_csv:
        say("No outputs yet." if not item.state.terminal else "No outputs.")
    else:
        rows = [(output.name, size(output.size), moment(output.updated_at), output.digest[:19]) for output in chosen]
        table(("Name", "Size", "Written", "Digest"), rows, right=("Size",))


def _download(invocation: Invocation, item: Task, chosen: list[OutputView], folder: Path) -> None:
    targets = [output_target(folder, output) for output in chosen]
    done = 0
    with bar("Outputs", quiet=invocation.as_json) as progress:
        for target, output in zip(targets, chosen, strict=True):
            write_output(target, output, item.read_output(output))
            done += output.size
            if progress is not None:
                progress(done, sum(each.size for each in chosen))
    if invocation.as_json:
        say_json([{"name": output.name, "path": str(target)} for target, output in zip(targets, chosen, strict=True)])
        return
    for target in targets:
        say(clean(target))
    if not targets:
        say("No outputs.")
